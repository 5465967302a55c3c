"""The operator schedule as an integer program without a time index (PHAZE, figure 3).

Differences from the published program, none of which changes the optimum: order variables only for
pairs that the graph leaves open (transitivity then follows from the start times); constants of the
disjunctions as small as heads and tails allow; core assignments only for kinds of cores that the
solution without them overloads; and the two-budget cut. Floating-point start times are not used:
only modes and orders are read off and the schedule is computed again in integers.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from mohsearch.evaluators.op_schedule.bounds import tails
from mohsearch.evaluators.op_schedule.check import find_fault
from mohsearch.evaluators.op_schedule.instance import (
    FUSED,
    TENSOR,
    VECTOR,
    Schedule,
    ScheduleInstance,
)
from mohsearch.evaluators.solver import ProgramBackend, minimize, modelling


def solve_program(
    instance: ScheduleInstance,
    limit: int,
    bound: int,
    *,
    time_limit_s: float,
    backend: ProgramBackend = "highs",
) -> tuple[Schedule | None, int]:
    """Return a valid schedule of at most ``limit``, if found in time, and a lower bound.

    Parameters
    ----------
    instance
        The operators.
    limit
        Makespan of a known schedule (an upper bound on the optimum).
    bound
        A known lower bound.
    time_limit_s
        For all rounds together.
    backend
        Solver.
    """
    deadline = time.perf_counter() + time_limit_s
    assigned: set[int] = set()
    while True:
        left = deadline - time.perf_counter()
        if left <= 0:
            return None, bound
        program = _Program(instance, limit, bound, frozenset(assigned))
        result = minimize(program.model, time_limit_s=left, backend=backend)
        if math.isfinite(result.bound):
            # a solver's bound may be off by its tolerance
            bound = max(bound, min(limit, math.ceil(result.bound * (1 - 1e-9) - 1e-3)))
        if result.status not in {"optimal", "feasible"}:
            return None, bound
        schedule = program.schedule()
        fault = find_fault(instance, schedule)
        if fault is None:
            makespan = schedule.makespan(instance)
            return schedule, min(bound, makespan)
        if assigned == {TENSOR, VECTOR}:
            return None, bound
        overloaded = {
            kind for kind, name in ((TENSOR, "tensor"), (VECTOR, "vector")) if name in fault
        }
        assigned |= (overloaded - assigned) or {TENSOR, VECTOR}


class _Program:
    """Variables and constraints of one round."""

    def __init__(
        self, instance: ScheduleInstance, limit: int, bound: int, assigned: frozenset[int]
    ) -> None:
        self.instance = instance
        self.limit = limit
        self.pulp = modelling()
        self.tail = tails(instance)
        self.head = tails(instance.reversed())
        n = range(len(instance))
        self.model: Any = self.pulp.LpProblem("schedule", self.pulp.LpMinimize)
        variable = self.model.add_variable
        self.makespan = variable("T", bound, limit)
        self.start = [
            variable(
                f"t{i}",
                int(self.head[i] - instance.shortest[i]),
                int(limit - self.tail[i]),
            )
            for i in n
        ]
        self.intra = [variable(f"y{i}", cat="Binary") for i in n]
        self.length = [
            int(instance.alone[i]) + int(instance.spread[i] - instance.alone[i]) * self.intra[i]
            for i in n
        ]
        loose = ~(instance.before | instance.before.T)
        self.first = {
            (i, j): variable(f"x{i}_{j}", cat="Binary")
            for i in n
            for j in n
            if i != j and loose[i, j]
        }
        self.model += self.makespan
        self._order()
        self._budgets()
        if assigned:
            self._assign(assigned)

    def _order(self) -> None:
        inst = self.instance
        for i in range(len(inst)):
            self.model += self.start[i] + self.length[i] <= self.makespan
            if inst.alone[i] <= inst.spread[i]:
                self.model += self.intra[i] == 0
        for i, j in inst.edges:
            self.model += self.start[i] + self.length[i] <= self.start[j]
        for (i, j), x in self.first.items():
            slack = self.limit - (self.tail[i] - inst.shortest[i])
            slack -= self.head[j] - inst.shortest[j]
            self.model += (
                self.start[i] + self.length[i] - int(max(slack, 0)) * (1 - x) <= self.start[j]
            )
            self.model += x + self.first[j, i] >= self.intra[i]
            if i < j:
                self.model += x + self.first[j, i] <= 1

    def _budgets(self) -> None:
        """Two-budget cut: moments with all cores on one operator, and the rest."""
        inst = self.instance
        total = self.pulp.lpSum
        rest = self.model.add_variable("tau", 0)
        alone = [int(inst.alone[i]) * (1 - self.intra[i]) for i in range(len(inst))]
        spread = total(int(inst.spread[i]) * self.intra[i] for i in range(len(inst)))
        self.model += self.makespan >= rest + spread
        for cores, other in ((inst.tensor_cores, VECTOR), (inst.vector_cores, TENSOR)):
            mine = [alone[i] for i in range(len(inst)) if inst.kinds[i] != other]
            if mine:
                self.model += cores * rest >= total(mine)
        chain = [self.model.add_variable(f"e{i}", 0) for i in range(len(inst))]
        for i in range(len(inst)):
            self.model += chain[i] >= alone[i]
            self.model += rest >= chain[i]
        for i, j in inst.edges:
            self.model += chain[j] >= chain[i] + alone[j]

    def _assign(self, assigned: frozenset[int]) -> None:
        """Give cores of the overloaded kinds by number (constraints 10 to 16)."""
        inst = self.instance
        pairs = min(inst.pairs, len(inst))
        chosen: dict[tuple[int, int, int], Any] = {}
        for kind, cores, other in (
            (TENSOR, inst.tensor_cores, VECTOR),
            (VECTOR, inst.vector_cores, TENSOR),
        ):
            if kind not in assigned:
                continue
            mine = [i for i in range(len(inst)) if inst.kinds[i] != other]
            usable = range(min(cores, pairs + len(mine)))
            for i in mine:
                for c in usable:
                    chosen[kind, i, c] = self.model.add_variable(f"z{kind}_{i}_{c}", cat="Binary")
                    if inst.kinds[i] == FUSED and c >= pairs:
                        self.model += chosen[kind, i, c] == 0
                self.model += (
                    self.intra[i] + self.pulp.lpSum(chosen[kind, i, c] for c in usable) == 1
                )
            for i, j in self.first:
                if i < j and i in mine and j in mine:
                    ordered = self.first[i, j] + self.first[j, i]
                    for c in usable:
                        self.model += ordered >= chosen[kind, i, c] + chosen[kind, j, c] - 1
        if assigned == {TENSOR, VECTOR}:
            for i in range(len(inst)):
                if inst.kinds[i] == FUSED:
                    for c in range(pairs):
                        self.model += chosen[TENSOR, i, c] == chosen[VECTOR, i, c]

    def schedule(self) -> Schedule:
        """Return the schedule that the modes and orders of the solution imply, in integers."""
        inst = self.instance
        intra = [variable.value() > 0.5 for variable in self.intra]
        length = np.where(intra, inst.spread, inst.alone)
        after = inst.before.copy()
        for (i, j), x in self.first.items():
            if x.value() > 0.5:
                after[i, j] = True
        order = sorted(range(len(inst)), key=lambda i: (self.start[i].value(), inst.order.index(i)))
        start = [0] * len(inst)
        for _ in range(len(inst)):  # relax until nothing moves: orders may tie in floating point
            moved = False
            for j in order:
                earliest = max(
                    (start[i] + int(length[i]) for i in np.flatnonzero(after[:, j]).tolist()),
                    default=0,
                )
                if earliest > start[j]:
                    start[j] = earliest
                    moved = True
            if not moved:
                break
        return Schedule(tuple(start), tuple(intra))
