"""Exact search over schedules in the order of their start times, level by level.

A state is the set of operators started, the ends of those still running, and the earliest moment at
which the next can start. Level k has all states with k operators started. Of two states with the
same set, the one that is never later makes the other useless (dominance); a state whose lower bound
reaches the best known makespan is cut off. When a level has more states than its width, the most
promising are kept and the smallest bound among those given up remains as a proven lower bound: with
nothing given up the result is optimal. Widths grow until that is so or time is up, and each is
tried from both ends of the layer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.op_schedule.bounds import budget_costs, budget_weights, tails
from mohsearch.evaluators.op_schedule.instance import (
    TENSOR,
    VECTOR,
    Flags,
    Schedule,
    ScheduleInstance,
)
from mohsearch.evaluators.op_schedule.modes import PARALLEL_ONLY, SPREAD_ONLY, modes
from mohsearch.evaluators.op_schedule.search_kernels import (
    ALONE,
    BEFORE,
    FIRST,
    KIND,
    MAX_OPS,
    MODES,
    OP_COLUMNS,
    SPREAD,
    TAIL,
    TAIL_AFTER,
    WORDS,
    run_levels,
)

FIRST_WIDTH = 32
GROWTH = 8
MAX_WIDTH = 131_072
MAX_STATE_BYTES = 2**29
BOUNDS = 12


@dataclass(frozen=True)
class SearchResult:
    """A schedule with its proof.

    Attributes
    ----------
    schedule
        None when nothing better than the given limit was found.
    bound
        No schedule is shorter.
    states
        States expanded.
    """

    schedule: Schedule | None
    bound: int
    states: int


def start_orders(instance: ScheduleInstance) -> Flags:
    """Return ``[i, j]``: some optimal schedule starts i no later than j, shape (ops, ops).

    True when the two are interchangeable in kind and latencies and everything i waits for, j waits
    for too, and everything that waits for j waits for i too.
    """
    n = len(instance)
    before = instance.before
    result = np.zeros((n, n), dtype=np.bool_)
    for i in range(n):
        for j in range(n):
            same = (
                instance.kinds[i] == instance.kinds[j]
                and instance.alone[i] == instance.alone[j]
                and instance.spread[i] == instance.spread[j]
            )
            if i == j or not same or before[i, j] or before[j, i]:
                continue
            if (before[:, i] & ~before[:, j]).any() or (before[j] & ~before[i]).any():
                continue
            equal = (before[:, i] == before[:, j]).all() and (before[i] == before[j]).all()
            result[i, j] = not equal or i < j
    return result


def search(
    instance: ScheduleInstance,
    limit: int,
    bound: int,
    deadline: float,
    max_width: int = MAX_WIDTH,
    first_width: int = FIRST_WIDTH,
) -> SearchResult:
    """Look for a schedule shorter than ``limit``; raise the lower bound as far as time allows.

    Parameters
    ----------
    instance
        At most :data:`MAX_OPS` operators. Pairing of fused cores is not looked at.
    limit
        Makespan of a known schedule.
    bound
        A known lower bound.
    deadline
        Value of :func:`time.perf_counter` at which no wider pass is begun.
    max_width
        Most states kept on a level.
    first_width
        Width of the first pass.
    """
    n = len(instance)
    if n > MAX_OPS or first_width > max_width:
        return SearchResult(None, bound, 0)
    directions = [_Direction(instance, backwards=False), _Direction(instance, backwards=True)]
    largest = min(max_width, MAX_STATE_BYTES // (72 * n + 1000))
    width = min(first_width, largest)
    best: Schedule | None = None
    states = 0
    while bound < limit:
        begin = time.perf_counter()
        for direction in directions:
            if bound >= limit:
                break
            found, given_up, expanded, moves = run_levels(*direction.inputs, limit, width)
            states += int(expanded)
            if found < limit:
                limit = int(found)
                best = direction.schedule(moves)
            bound = max(bound, min(limit, int(given_up)))
        spent = time.perf_counter() - begin
        if width >= largest or time.perf_counter() + spent * GROWTH * 0.5 > deadline:
            break
        width = min(width * GROWTH, largest)
    return SearchResult(best, min(bound, limit), states)


class _Direction:
    """An instance as the compiled search takes it: from its start on, or backwards from its end.

    A schedule turned round in time is one of the instance with its orders turned round; where one
    direction has many equally good beginnings, the other may not.
    """

    def __init__(self, instance: ScheduleInstance, *, backwards: bool) -> None:
        self.backwards = backwards
        self.instance = instance.reversed() if backwards else instance
        self.order = list(self.instance.order)
        inst = self.instance.part(self.order)
        allowed = modes(inst)
        forced, parallel = allowed == SPREAD_ONLY, allowed == PARALLEL_ONLY
        weights = budget_weights(inst, parallel, forced)
        costs = budget_costs(inst, weights, parallel, forced)
        chosen = np.argsort(-costs.sum(axis=1), kind="stable")[:BOUNDS]
        tail = tails(inst)
        table = np.empty((len(inst), OP_COLUMNS), dtype=np.int64)
        for column, values in (
            (KIND, inst.kinds),
            (ALONE, inst.alone),
            (SPREAD, inst.spread),
            (MODES, allowed),
            (TAIL, tail),
            (TAIL_AFTER, tail - inst.shortest),
        ):
            table[:, column] = values
        table[:, BEFORE : BEFORE + WORDS] = _words(inst.before)
        table[:, FIRST : FIRST + WORDS] = _words(inst.before | start_orders(inst))
        self.inputs = (
            table,
            np.ascontiguousarray(weights[chosen].T),
            np.ascontiguousarray(costs[chosen].T),
            max(1, min(inst.tensor_cores, int((inst.kinds != VECTOR).sum()))),
            max(1, min(inst.vector_cores, int((inst.kinds != TENSOR).sum()))),
        )

    def schedule(self, moves: NDArray[np.int64]) -> Schedule:
        """Return the schedule of the instance as given that the moves describe."""
        named = [(self.order[int(move) >> 1], bool(move & 1)) for move in moves]
        found = _schedule(self.instance, named)
        if not self.backwards:
            return found
        lengths = np.where(found.intra, self.instance.spread, self.instance.alone)
        start = found.makespan(self.instance) - np.array(found.start) - lengths
        return Schedule(tuple(int(moment) for moment in start), found.intra)


def _words(relation: Flags) -> NDArray[np.int64]:
    """Return the column sets (what stands before each operator) as bits, shape (ops, WORDS)."""
    n = len(relation)
    words = np.zeros((n, WORDS), dtype=np.uint64)
    for i, j in zip(*np.nonzero(relation), strict=True):
        words[j, i // 64] |= np.uint64(1 << int(i % 64))
    return words.view(np.int64)


def _schedule(instance: ScheduleInstance, moves: list[tuple[int, bool]]) -> Schedule:
    """Return the schedule that starts operators in this order, each as early as it can."""
    n = len(instance)
    start = [0] * n
    intra = [False] * n
    ends: dict[int, int] = {}
    now = 0
    for i, spread in moves:
        moment = max([now, *(ends[j] for j in np.flatnonzero(instance.before[:, i]).tolist())])
        if spread:
            moment = max([moment, *ends.values()])
        else:
            for cores, other in (
                (instance.tensor_cores, VECTOR),
                (instance.vector_cores, TENSOR),
            ):
                if instance.kinds[i] == other:
                    continue
                busy = sorted(ends[j] for j in ends if instance.kinds[j] != other and not intra[j])
                if len(busy) >= cores:
                    moment = max(moment, busy[-cores])
        start[i] = moment
        intra[i] = spread
        ends[i] = moment + int(instance.spread[i] if spread else instance.alone[i])
        now = ends[i] if spread else moment
    return Schedule(tuple(start), tuple(intra))
