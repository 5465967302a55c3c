"""The operator schedule: bounds first, blocks one by one, search or programs only where needed.

Source: PHAZE, section 4 and figure 3, whose optimum this is. An instance is cut into blocks that
follow one another in every schedule (the connected components of "neither before nor after");
bounds and simple schedules close most blocks, a search by start times the others. What it proves
short of optimality is given to a solver where one is asked for, and every result is checked by
:mod:`mohsearch.evaluators.op_schedule.check` in integers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mohsearch.evaluators.op_schedule.bounds import critical_path, two_budget
from mohsearch.evaluators.op_schedule.check import assign_cores, find_fault
from mohsearch.evaluators.op_schedule.instance import (
    Schedule,
    ScheduleInstance,
    serial_schedule,
)
from mohsearch.evaluators.op_schedule.pairing import list_schedule, pair_up
from mohsearch.evaluators.op_schedule.program import solve_program
from mohsearch.evaluators.op_schedule.search import MAX_WIDTH, components, search
from mohsearch.evaluators.solver import ProgramBackend

Method = Literal["search", "program"]


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
    """

    time_limit_s: float = 10.0
    method: Method = "search"
    backend: ProgramBackend = "highs"
    max_width: int = MAX_WIDTH
    fall_back: bool = True


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
    limit = best.makespan(part)
    bound = max(critical_path(part), two_budget(part))
    if len(part) == 1 or bound == limit:
        return best, limit, 0
    if options.method == "program":
        return *_solve_program(part, best, bound, options, deadline), 0
    found = search(part, limit, bound, deadline, options.max_width)
    bound = found.bound
    if found.schedule is not None:
        if assign_cores(part, found.schedule) is not None:
            return found.schedule, bound, found.states
        paired = pair_up(part, found.schedule)
        if paired.makespan(part) < limit:
            best = paired
    if options.fall_back and best.makespan(part) > bound and found.schedule is not None:
        return *_solve_program(part, best, bound, options, deadline), found.states
    return best, bound, found.states


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
