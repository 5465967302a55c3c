"""The operator schedule: bounds first, blocks one by one, search or programs only where needed.

Source: PHAZE, section 4 and figure 3, whose optimum this is. An instance is cut into blocks that
follow one another in every schedule (the connected components of "neither before nor after");
bounds and simple schedules close most blocks, a narrow search by start times many others. What is
still open gets a local search and the bound by phases, then a wider search. An integer program of
the whole is left for fused cores that do not pair up. Every result is checked by
:mod:`mohsearch.evaluators.op_schedule.check` in integers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mohsearch.evaluators.op_schedule.bounds import critical_path, two_budget
from mohsearch.evaluators.op_schedule.check import assign_cores, find_fault
from mohsearch.evaluators.op_schedule.improve import HOT, improve
from mohsearch.evaluators.op_schedule.instance import (
    Schedule,
    ScheduleInstance,
    serial_schedule,
)
from mohsearch.evaluators.op_schedule.modes import components
from mohsearch.evaluators.op_schedule.pairing import list_schedule, pair_up
from mohsearch.evaluators.op_schedule.phases import phase_bound
from mohsearch.evaluators.op_schedule.program import solve_program
from mohsearch.evaluators.op_schedule.search import FIRST_WIDTH, GROWTH, MAX_WIDTH, search
from mohsearch.evaluators.solver import ProgramBackend

Method = Literal["search", "program"]

NARROW_WIDTH = 2048
"""States on a level before local search and the bound by phases."""


@dataclass(frozen=True)
class ScheduleOptions:
    """How much effort a schedule may take.

    Attributes
    ----------
    time_limit_s
        For one instance; what is not proven by then is reported with its gap.
    method
        ``search`` by start times, with the integer program where fused cores do not pair up and for
        blocks too large to search; or the integer ``program`` for every block.
    backend
        Solver of the program.
    max_width
        Most states the search keeps on a level; with no time limit and no fall-back the result
        depends on this effort only.
    fall_back
        Whether the search may call on the program.
    steps
        Schedules tried by local search where a narrow search leaves a block open.
    phase_nodes
        Nodes for the bound by phases (:mod:`mohsearch.evaluators.op_schedule.phases`); 0: its
        linear program only, -1: none.
    """

    time_limit_s: float = 10.0
    method: Method = "search"
    backend: ProgramBackend = "highs"
    max_width: int = MAX_WIDTH
    fall_back: bool = True
    steps: int = 40_000
    phase_nodes: int = 2_000


@dataclass(frozen=True)
class ScheduleResult:
    """A schedule with its certificate.

    Attributes
    ----------
    schedule
        Checked.
    makespan, bound
        Equal when optimal; otherwise no schedule is shorter than ``bound``.
    cores
        Tensor and vector core of every operator; None for an operator on all cores.
    serial
        Makespan of running one operator after another.
    blocks
        Sizes of the blocks, in order.
    states
        States the search expanded.
    seconds
        Wall time.
    """

    schedule: Schedule
    makespan: int
    bound: int
    cores: tuple[tuple[int | None, int | None], ...]
    serial: int
    blocks: tuple[int, ...]
    states: int
    seconds: float

    @property
    def is_optimal(self) -> bool:
        """Whether the makespan is proven to be the least."""
        return self.makespan == self.bound

    @property
    def gap(self) -> float:
        """Distance to the bound as a share of the makespan."""
        return 1 - self.bound / self.makespan if self.makespan else 0.0


def series_blocks(instance: ScheduleInstance) -> list[list[int]]:
    """Return the sets of operators that follow one another in every schedule.

    Examples
    --------
    >>> fork_join = [(0, 1), (0, 2), (1, 3), (2, 3)]
    >>> series_blocks(ScheduleInstance.build([0] * 4, [1] * 4, [1] * 4, fork_join, 1, 1))
    [[0], [1, 2], [3]]
    """
    loose = ~(instance.before | instance.before.T)
    np.fill_diagonal(loose, False)
    groups = components(loose)
    groups.sort(key=lambda group: int(instance.before[:, group[0]].sum()))
    return [sorted(group) for group in groups]


def solve(instance: ScheduleInstance, options: ScheduleOptions | None = None) -> ScheduleResult:
    """Return the shortest schedule of one layer, with its certificate.

    Parameters
    ----------
    instance
        Operators, orders and cores; every operator's kind of core must exist.
    options
        Effort.

    Examples
    --------
    >>> two = ScheduleInstance.build([0, 1], [4, 3], [3, 3], [], 1, 1)
    >>> result = solve(two)
    >>> result.makespan, result.is_optimal
    (4, True)
    """
    options = options or ScheduleOptions()
    begin = time.perf_counter()
    deadline = begin + options.time_limit_s
    start = [0] * len(instance)
    intra = [False] * len(instance)
    offset = bound = states = 0
    blocks = series_blocks(instance)
    for ops in blocks:
        part = instance.part(ops)
        schedule, part_bound, expanded = _solve_block(part, options, deadline)
        for k, i in enumerate(ops):
            start[i] = offset + schedule.start[k]
            intra[i] = schedule.intra[k]
        offset += schedule.makespan(part)
        bound += part_bound
        states += expanded
    schedule = Schedule(tuple(start), tuple(intra))
    fault = find_fault(instance, schedule)
    if fault is not None:
        raise RuntimeError(f"the schedule found is not valid: {fault}")
    return ScheduleResult(
        schedule=schedule,
        makespan=schedule.makespan(instance),
        bound=bound,
        cores=tuple(assign_cores(instance, schedule) or ()),
        serial=instance.serial,
        blocks=tuple(len(ops) for ops in blocks),
        states=states,
        seconds=time.perf_counter() - begin,
    )


def _solve_block(
    part: ScheduleInstance, options: ScheduleOptions, deadline: float
) -> tuple[Schedule, int, int]:
    """Return schedule, bound and states of one block."""
    best = min(
        serial_schedule(part), list_schedule(part), key=lambda schedule: schedule.makespan(part)
    )
    bound = max(critical_path(part), two_budget(part))
    if len(part) == 1 or bound == best.makespan(part):
        return best, best.makespan(part), 0
    if options.method == "program":
        return *_solve_program(part, best, bound, options, deadline), 0
    narrow = min(NARROW_WIDTH, options.max_width)
    best, bound, states, unpaired = _search(part, best, bound, deadline, (FIRST_WIDTH, narrow))
    if bound < best.makespan(part):
        best, bound = _decide(part, best, bound, options, deadline)
    if bound < best.makespan(part):
        widths = (narrow * GROWTH, options.max_width)
        best, bound, expanded, again = _search(part, best, bound, deadline, widths)
        states += expanded
        unpaired |= again
    if options.fall_back and unpaired and bound < best.makespan(part):
        return *_solve_program(part, best, bound, options, deadline), states
    return best, bound, states


def _search(
    part: ScheduleInstance, best: Schedule, bound: int, deadline: float, widths: tuple[int, int]
) -> tuple[Schedule, int, int, bool]:
    """Return schedule, bound, states, and whether one was found whose fused cores do not pair."""
    limit = best.makespan(part)
    first, last = widths
    found = search(part, limit, bound, deadline, last, first)
    if found.schedule is None:
        return best, found.bound, found.states, False
    if assign_cores(part, found.schedule) is not None:
        return found.schedule, found.bound, found.states, False
    paired = pair_up(part, found.schedule)
    return min((best, paired), key=lambda s: s.makespan(part)), found.bound, found.states, True


def _decide(
    part: ScheduleInstance, best: Schedule, bound: int, options: ScheduleOptions, deadline: float
) -> tuple[Schedule, int]:
    """Return schedule and bound after local search and the program of phases."""
    if options.steps > 0:
        best = improve(part, best, steps=options.steps)
    for nodes in sorted({0, options.phase_nodes} if options.phase_nodes >= 0 else ()):
        limit = best.makespan(part)
        if bound >= limit:
            break
        left = deadline - time.perf_counter()
        found = phase_bound(part, limit, bound, nodes=nodes, time_limit_s=left)
        bound = found.bound
        if nodes > 0 and found.schedule is not None and bound < limit:
            steps = max(1, options.steps)
            other = improve(part, found.schedule, steps=steps, hot=HOT / 4)
            best = min((best, other), key=lambda schedule: schedule.makespan(part))
    return best, min(bound, best.makespan(part))


def _solve_program(
    part: ScheduleInstance,
    best: Schedule,
    bound: int,
    options: ScheduleOptions,
    deadline: float,
) -> tuple[Schedule, int]:
    """Return schedule and bound after the integer program."""
    limit = best.makespan(part)
    found, bound = solve_program(
        part,
        limit,
        bound,
        time_limit_s=deadline - time.perf_counter(),
        backend=options.backend,
    )
    if found is not None and found.makespan(part) < limit:
        best = found
    return best, min(bound, best.makespan(part))
