"""A lower bound that decides modes, and on which side of each operator on all cores others run.

A chain of operators, the backbone, cuts every schedule at the ends of its members into segments. A
segment has time in which one operator has all cores, and the rest, ``parallel``. An operator on one
core spreads its latency over the segments that its order to the backbone leaves it, an operator on
all cores lies in one of them. In every segment the cores of each kind, and every path, fit into
``parallel``; work on a path never overtakes what it waits for; and where a member of the backbone
takes all cores, every other operator lies wholly before or wholly after. Times inside a segment and
the exact packing on cores are left out: so this is a relaxation, and its least makespan a bound.

The integer program has some hundred binaries and no big constants but the operators' own latencies.
Its effort is counted in nodes, never in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from mohsearch.evaluators.op_schedule.instance import (
    TENSOR,
    VECTOR,
    Integers,
    Schedule,
    ScheduleInstance,
)
from mohsearch.evaluators.op_schedule.modes import PARALLEL_ONLY, SPREAD_ONLY, modes
from mohsearch.evaluators.op_schedule.pairing import pair_up
from mohsearch.evaluators.solver import RowProgram, minimize_rows

MAX_SEGMENTS = 48
MAX_PHASE_OPS = 160
USUAL_ROWS = 500
_SCALE = 1000.0
"""The known makespan in the units of the program."""
_DUST = 1e-7


@dataclass(frozen=True)
class PhaseBound:
    """What the program of phases proves.

    Attributes
    ----------
    bound
        No schedule is shorter.
    schedule
        A schedule with the modes and the order of its solution; None without a solution.
    """

    bound: int
    schedule: Schedule | None


def phase_bound(
    instance: ScheduleInstance,
    limit: int,
    bound: int,
    *,
    nodes: int,
    time_limit_s: float = math.inf,
) -> PhaseBound:
    """Return a lower bound and a schedule that follows the relaxed solution.

    Parameters
    ----------
    instance
        At most :data:`MAX_PHASE_OPS` operators; larger ones are not looked at.
    limit
        Makespan of a known schedule; only shorter ones are looked for.
    bound
        A known lower bound.
    nodes
        Nodes of the search tree for a program of :data:`USUAL_ROWS` rows, fewer for a larger one;
        0: no decisions, only the linear program.
    time_limit_s
        Wall time; without it the result depends on ``nodes`` only.

    Examples
    --------
    >>> three = ScheduleInstance.build([TENSOR, TENSOR, VECTOR], [4, 4, 9], [3, 3, 5], [], 1, 1)
    >>> phase_bound(three, 11, 9, nodes=100).bound  # the bound that splits operators is 9
    9
    """
    if len(instance) > MAX_PHASE_OPS or bound >= limit or time_limit_s <= 0:
        return PhaseBound(bound, None)
    step = reduce(math.gcd, [*instance.alone.tolist(), *instance.spread.tolist()]) or 1
    program = _PhaseProgram(instance, limit, max(1, step))
    rows = program.rows()
    if nodes == 0:
        rows = replace(rows, integer=np.zeros_like(rows.integer))
    most = max(1, round(nodes * min(1.0, USUAL_ROWS / len(rows.row_lower)) ** 2))
    result, values = minimize_rows(rows, node_limit=most, time_limit_s=time_limit_s)
    if result.status == "infeasible":
        return PhaseBound(limit, None)
    proven = result.bound / _SCALE * limit
    if math.isfinite(proven):  # a makespan is a sum of latencies: the next multiple, less dust
        safe = math.ceil((proven * (1 - 1e-9) - 1e-3) / step) * step
        bound = min(limit, max(bound, safe))
    if not math.isfinite(result.objective):
        return PhaseBound(bound, None)
    return PhaseBound(bound, pair_up(instance, program.schedule(values)))


def backbone(instance: ScheduleInstance) -> list[int]:
    """Return the longest chain of shortest latencies, in order, thinned to its longest members."""
    longest = instance.shortest.astype(np.int64)
    previous = np.full(len(instance), -1)
    for i in instance.order:
        ahead = np.flatnonzero(instance.before[:, i])
        if len(ahead):
            best = int(ahead[np.argmax(longest[ahead])])
            previous[i] = best
            longest[i] += longest[best]
    chain = []
    i = int(np.argmax(longest))
    while i >= 0:
        chain.append(i)
        i = int(previous[i])
    chain.reverse()
    if len(chain) > MAX_SEGMENTS:
        kept = np.argsort(-instance.shortest[chain], kind="stable")[:MAX_SEGMENTS]
        chain = [chain[k] for k in sorted(kept.tolist())]
    return chain


class _PhaseProgram:
    """Variables and rows. Segment q ends with member q of the backbone; one more stands behind."""

    def __init__(self, instance: ScheduleInstance, limit: int, step: int) -> None:
        self.instance = instance
        unit = _SCALE / limit
        self.alone = instance.alone * unit
        self.spread = instance.spread * unit
        self.allowed = modes(instance)
        self.chain = backbone(instance)
        self.first, self.last = self._windows()
        self.columns: list[tuple[float, float, float, bool]] = []
        self.entries: list[tuple[dict[int, float], float, float]] = []
        n = range(len(instance))
        self.intra = [
            self._variable(self.allowed[i] == SPREAD_ONLY, self.allowed[i] != PARALLEL_ONLY, 0, 1)
            for i in n
        ]
        count = len(self.chain) + 1
        self.parallel = [self._variable(0, _SCALE, 1) for _ in range(count)]
        self.runs: dict[tuple[int, int], int] = {}
        self.whole: dict[tuple[int, int], int] = {}
        for i in n:
            self._spread_over_segments(i)
        self._makespan((limit - 1) // step * step * unit)
        reduced = _reduced(instance)
        for q in range(count):
            self._cores(q)
            self._paths(q, reduced)
        self._progress(reduced)
        self._sides()

    def _windows(self) -> tuple[Integers, Integers]:
        """Return the first and last segment of every operator."""
        before = self.instance.before[np.ix_(self.chain, range(len(self.instance)))]
        after = self.instance.before[:, self.chain].T
        places = np.arange(len(self.chain))[:, None]
        first = np.where(before, places + 1, 0).max(axis=0)
        last = np.where(after, places, len(self.chain)).min(axis=0)
        first[self.chain] = last[self.chain] = np.arange(len(self.chain))
        return first, last

    def _variable(self, low: float, high: float, cost: float = 0, integer: float = 0) -> int:
        self.columns.append((float(low), float(high), float(cost), bool(integer)))
        return len(self.columns) - 1

    def _row(self, entries: dict[int, float], low: float = -math.inf, high: float = 0.0) -> None:
        self.entries.append((entries, low, high))

    def _spread_over_segments(self, i: int) -> None:
        window = range(int(self.first[i]), int(self.last[i]) + 1)
        alone = float(self.alone[i])
        if self.allowed[i] != SPREAD_ONLY:
            for q in window:
                self.runs[i, q] = self._variable(0, alone)
            shares = {self.runs[i, q]: 1.0 for q in window}
            self._row({**shares, self.intra[i]: alone}, alone, alone)
        if self.allowed[i] != PARALLEL_ONLY:
            for q in window:
                cost = float(self.spread[i])
                self.whole[i, q] = self._variable(0, 1, cost, len(window) > 1)
            shares = {self.whole[i, q]: 1.0 for q in window}
            self._row({**shares, self.intra[i]: -1.0}, 0.0, 0.0)

    def _makespan(self, most: float) -> None:
        self._row({k: cost for k, (_, _, cost, _) in enumerate(self.columns) if cost}, high=most)

    def _cores(self, q: int) -> None:
        inst = self.instance
        for cores, other in ((inst.tensor_cores, VECTOR), (inst.vector_cores, TENSOR)):
            mine = {
                run: 1.0 for (i, at), run in self.runs.items() if at == q and inst.kinds[i] != other
            }
            if mine:
                self._row({**mine, self.parallel[q]: -float(cores)})

    def _paths(self, q: int, reduced: list[list[int]]) -> None:
        """Fit every path through a segment into it."""
        end: dict[int, int] = {}
        for i in self.instance.order:
            if not self.first[i] <= q <= self.last[i]:
                continue
            end[i] = self._variable(0, _SCALE)
            self._row({end[i]: 1.0, self.parallel[q]: -1.0})
            own = {self.runs[i, q]: 1.0} if (i, q) in self.runs else {}
            ahead = [end[j] for j in reduced[i] if j in end]
            for before in ahead:
                self._row({**own, before: 1.0, end[i]: -1.0})
            if own and not ahead:
                self._row({**own, end[i]: -1.0})

    def _share(self, i: int, q: int, sign: float) -> dict[int, float]:
        """Return the share of operator i done by the end of segment q."""
        entries: dict[int, float] = {}
        for at in range(int(self.first[i]), min(q, int(self.last[i])) + 1):
            if (i, at) in self.runs and self.alone[i] > 0:
                entries[self.runs[i, at]] = sign / float(self.alone[i])
            if (i, at) in self.whole:
                entries[self.whole[i, at]] = sign
        return entries

    def _progress(self, reduced: list[list[int]]) -> None:
        """Keep what an operator waits for at every boundary at least as far as the operator."""
        members = set(self.chain)
        for j, ahead in enumerate(reduced):
            for i in ahead:
                if i in members or j in members or 0 in (self.alone[i], self.alone[j]):
                    continue
                for q in range(int(self.first[j]), min(int(self.last[i]), int(self.last[j]))):
                    self._row({**self._share(j, q, 1.0), **self._share(i, q, -1.0)})

    def _sides(self) -> None:
        """Let no operator on one core lie across a member of the backbone on all cores."""
        for i in range(len(self.instance)):
            low, high = int(self.first[i]), int(self.last[i])
            alone = float(self.alone[i])
            for q in range(low, high):
                barrier = self.chain[q]
                if PARALLEL_ONLY == self.allowed[barrier] or (i, q) not in self.runs or alone == 0:
                    continue
                later = self._variable(0, 1, 0, True)
                before = {self.runs[i, at]: 1.0 for at in range(low, q + 1)}
                after = {self.runs[i, at]: 1.0 for at in range(q + 1, high + 1)}
                blocked = self.intra[barrier]
                self._row({**after, later: -alone, blocked: alone}, high=alone)
                self._row({**before, later: alone, blocked: alone}, high=2 * alone)

    def rows(self) -> RowProgram:
        """Return the program as arrays."""
        low, high, cost, integer = (np.array(column) for column in zip(*self.columns, strict=True))
        kept = [(entries, lower, upper) for entries, lower, upper in self.entries if entries]
        sizes = [len(entries) for entries, _, _ in kept]
        columns = [k for entries, _, _ in kept for k in entries]
        values = [v for entries, _, _ in kept for v in entries.values()]
        return RowProgram(
            cost=cost,
            lower=low,
            upper=high,
            integer=integer.astype(np.bool_),
            starts=np.cumsum([0, *sizes]).astype(np.int32),
            columns=np.array(columns, dtype=np.int32),
            values=np.array(values, dtype=np.float64),
            row_lower=np.array([lower for _, lower, _ in kept]),
            row_upper=np.array([upper for _, _, upper in kept]),
        )

    def schedule(self, values: np.ndarray) -> Schedule:
        """Return modes, and places in an order, that follow a solution; not yet start times."""
        inst = self.instance
        intra = [bool(values[k] > 0.5) for k in self.intra]
        place = {i: k for k, i in enumerate(inst.order)}
        begin = []
        for i in range(len(inst)):
            used = self.whole if intra[i] else self.runs
            window = range(int(self.first[i]), int(self.last[i]) + 1)
            at = [q for q in window if (i, q) in used and values[used[i, q]] > _DUST]
            begin.append(at[0] if at else int(self.first[i]))
        for i, j in sorted(inst.edges, key=lambda edge: place[edge[0]]):
            begin[j] = max(begin[j], begin[i])
        members = set(self.chain)
        # within a segment: operators on one core, then those on all, then the backbone's member
        keys = [(begin[i], i in members and intra[i], intra[i], place[i]) for i in range(len(inst))]
        order = _sorted_topologically(inst, keys)
        rank = np.empty(len(inst), dtype=np.int64)
        rank[order] = np.arange(len(inst))
        return Schedule(tuple(rank.tolist()), tuple(intra))


def _reduced(instance: ScheduleInstance) -> list[list[int]]:
    """Return the direct predecessors of every operator, implied ones left out."""
    before = instance.before
    implied = (before.astype(np.float32) @ before.astype(np.float32)) > 0
    direct = before & ~implied
    return [np.flatnonzero(direct[:, i]).tolist() for i in range(len(instance))]


def _sorted_topologically(
    instance: ScheduleInstance, keys: list[tuple[int, bool, bool, int]]
) -> list[int]:
    """Return an order of the operators that takes the least key among those ready."""
    ahead = instance.before.sum(axis=0)
    ready = {i for i in range(len(instance)) if ahead[i] == 0}
    result = []
    while ready:
        i = min(ready, key=lambda k: keys[k])
        ready.remove(i)
        result.append(i)
        for j in np.flatnonzero(instance.before[i]).tolist():
            ahead[j] -= 1
            if ahead[j] == 0:
                ready.add(j)
    return result
