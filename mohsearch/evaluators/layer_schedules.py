"""Operator schedules of one layer on many accelerators: bounds for all, exact ones where asked.

The structure of a layer is the same on every accelerator; only latencies and numbers of cores
differ. The layer is cut into blocks that follow one another in every schedule once; then every
block of every accelerator gets a lower bound (critical path, and work and path against both kinds
of cores, see :mod:`mohsearch.evaluators.op_schedule.bounds`) and an upper one (one op after the
other). Where they meet the schedule is proven. Source: PHAZE, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.op_schedule.instance import (
    TENSOR,
    VECTOR,
    Schedule,
    ScheduleInstance,
)
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, series_blocks, solve

Integers = NDArray[np.int64]

STEPS = 8
"""Shares of the two kinds of cores and of the path in the bounds are multiples of 1 / STEPS."""


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """Operators of one pass over one layer, without latencies.

    Attributes
    ----------
    kinds
        :data:`TENSOR`, :data:`VECTOR` or :data:`FUSED`, shape (ops,).
    edges
        Pairs (before, after).
    """

    kinds: Integers
    edges: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.kinds)

    def instance(
        self, alone: Integers, spread: Integers, tensor_cores: int, vector_cores: int
    ) -> ScheduleInstance:
        """Return the layer on one accelerator; latencies of shape (ops,)."""
        return ScheduleInstance(
            self.kinds, alone, spread, self.edges, int(tensor_cores), int(vector_cores)
        )

    @cached_property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Sets of operators that follow one another in every schedule, each in an order."""
        ones = np.ones(len(self), dtype=np.int64)
        whole = self.instance(ones, ones, 1, 1)
        rank = {i: k for k, i in enumerate(whole.order)}
        return tuple(
            tuple(sorted(ops, key=lambda i: rank[i])) for ops in series_blocks(whole) if ops
        )

    @cached_property
    def _layout(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Return ops by block, starts of the blocks, and edges inside blocks by target."""
        ops = np.array([i for block in self.blocks for i in block], dtype=np.int64)
        starts = np.cumsum([0, *map(len, self.blocks)]).astype(np.int64)
        place = np.empty(len(self), dtype=np.int64)
        place[ops] = np.arange(len(ops))
        block_of = np.repeat(np.arange(len(self.blocks)), np.diff(starts))
        inner: list[list[int]] = [[] for _ in range(len(self))]
        for a, b in self.edges:
            if block_of[place[a]] == block_of[place[b]]:
                inner[place[b]].append(int(place[a]))
        into = np.cumsum([0, *map(len, inner)]).astype(np.int64)
        before = np.array([p for row in inner for p in row], dtype=np.int64)
        return ops, starts, into, before


@dataclass(frozen=True)
class ScheduleBounds:
    """Bounds on the makespan, one row per accelerator, one column per block.

    Attributes
    ----------
    lower, upper
        Shape (count, blocks). ``upper`` is reached by running one op after the other.
    """

    lower: Integers
    upper: Integers

    @property
    def makespan_lower(self) -> Integers:
        """No schedule is shorter, shape (count,)."""
        return np.asarray(self.lower.sum(axis=1))

    @property
    def serial(self) -> Integers:
        """Makespan of one op after the other, shape (count,)."""
        return np.asarray(self.upper.sum(axis=1))


def bound_schedules(
    graph: LayerGraph,
    alone: Integers,
    spread: Integers,
    tensor_cores: Integers,
    vector_cores: Integers,
) -> ScheduleBounds:
    """Return bounds on the schedules of a layer on many accelerators.

    Parameters
    ----------
    graph
        The layer.
    alone, spread
        Latency on one core and on all, shape (ops, count).
    tensor_cores, vector_cores
        Shape (count,).

    Examples
    --------
    >>> graph = LayerGraph(np.array([TENSOR, TENSOR, VECTOR]), ((0, 2), (1, 2)))
    >>> alone, spread = np.array([[4], [4], [3]]), np.array([[3], [3], [2]])
    >>> bounds = bound_schedules(graph, alone, spread, np.array([2]), np.array([1]))
    >>> bounds.makespan_lower.tolist(), bounds.serial.tolist()
    ([6], [8])
    """
    ops, starts, into, before = graph._layout
    count = alone.shape[1]
    lower = np.empty((count, len(graph.blocks)), dtype=np.int64)
    upper = np.empty_like(lower)
    _bound_blocks(
        np.ascontiguousarray(graph.kinds[ops]),
        starts,
        into,
        before,
        np.ascontiguousarray(alone[ops].T, dtype=np.int64),
        np.ascontiguousarray(spread[ops].T, dtype=np.int64),
        np.ascontiguousarray(tensor_cores, dtype=np.int64),
        np.ascontiguousarray(vector_cores, dtype=np.int64),
        lower,
        upper,
    )
    return ScheduleBounds(lower, upper)


@dataclass(frozen=True)
class LayerSchedule:
    """The schedule of one layer on one accelerator.

    Attributes
    ----------
    schedule
        Start and mode of every op.
    makespan, bound
        Equal where it is proven optimal.
    """

    schedule: Schedule
    makespan: int
    bound: int


def schedule_layer(
    graph: LayerGraph,
    alone: Integers,
    spread: Integers,
    tensor_cores: int,
    vector_cores: int,
    *,
    width: int = 2048,
    phase_nodes: int = -1,
) -> LayerSchedule:
    """Return the best schedule of one layer within a fixed effort, block by block.

    Parameters
    ----------
    graph
        The layer.
    alone, spread
        Shape (ops,).
    tensor_cores, vector_cores
        Cores.
    width
        States the search keeps on a level: the effort. The result depends on it, never on time.
    phase_nodes
        Effort of local search and bound by phases for what the search leaves open; -1: none.
    """
    bounds = bound_schedules(
        graph,
        alone[:, None],
        spread[:, None],
        np.array([tensor_cores]),
        np.array([vector_cores]),
    )
    whole = graph.instance(alone, spread, tensor_cores, vector_cores)
    start = [0] * len(graph)
    intra = [False] * len(graph)
    now = bound = 0
    options = ScheduleOptions(
        time_limit_s=math.inf,
        max_width=width,
        fall_back=False,
        steps=10_000 if phase_nodes >= 0 else 0,
        phase_nodes=phase_nodes,
    )
    for k, block in enumerate(graph.blocks):
        low, high = int(bounds.lower[0, k]), int(bounds.upper[0, k])
        if low == high:
            now = _serial(whole, block, start, intra, now)
            bound += high
            continue
        result = solve(whole.part(block), options)
        for i, moment, mode in zip(
            block, result.schedule.start, result.schedule.intra, strict=True
        ):
            start[i], intra[i] = now + moment, mode
        now += result.makespan
        bound += max(low, result.bound)
    return LayerSchedule(Schedule(tuple(start), tuple(intra)), now, bound)


def _serial(
    whole: ScheduleInstance, block: Sequence[int], start: list[int], intra: list[bool], now: int
) -> int:
    """Write one op after the other from ``now`` on; return the end."""
    for i in block:
        start[i] = now
        intra[i] = bool(whole.spread[i] < whole.alone[i])
        now += int(whole.shortest[i])
    return now


@njit(cache=True, nogil=True, error_model="numpy")
def _bound_blocks(  # type: ignore[no-untyped-def]
    kinds, starts, into, before, alone, spread, tensor, vector, lower, upper
):
    """Fill bounds of every accelerator and block; ops stand block by block in a valid order."""
    count, n = alone.shape
    chain = np.empty(n)
    previous = np.empty(n, dtype=np.int64)
    weight = np.empty(n)
    for c in range(count):
        for b in range(len(starts) - 1):
            low, high = starts[b], starts[b + 1]
            total = 0
            longest = 0.0
            for i in range(low, high):
                shortest = min(alone[c, i], spread[c, i])
                total += shortest
                chain[i] = 0.0
                for e in range(into[i], into[i + 1]):
                    chain[i] = max(chain[i], chain[before[e]])
                chain[i] += shortest
                longest = max(longest, chain[i])
            upper[c, b] = total
            lower[c, b] = np.int64(longest)
            if lower[c, b] < total:
                bound = _two_budgets(
                    kinds, into, before, alone[c], spread[c], low, high, tensor[c], vector[c],
                    weight, chain, previous,
                )  # fmt: skip
                lower[c, b] = min(total, max(lower[c, b], bound))


@njit(cache=True, nogil=True, error_model="numpy")
def _two_budgets(  # type: ignore[no-untyped-def]
    kinds, into, before, alone, spread, low, high, tensor, vector, weight, value, previous
):
    """Return the best bound over shares of tensor cores, vector cores and paths."""
    best = 0.0
    unit = 1.0 / STEPS
    for a in range(STEPS + 1):
        for b in range(STEPS + 1 - a):
            for i in range(low, high):
                weight[i] = 0.0
                if kinds[i] != VECTOR:
                    weight[i] += a * unit / tensor
                if kinds[i] != TENSOR:
                    weight[i] += b * unit / vector
            for _ in range(STEPS - a - b):  # one path of one unit, where it gains most
                last = low
                for i in range(low, high):
                    now = min(float(spread[i]), weight[i] * alone[i])
                    value[i] = 0.0
                    previous[i] = -1
                    for e in range(into[i], into[i + 1]):
                        if value[before[e]] > value[i]:
                            value[i] = value[before[e]]
                            previous[i] = before[e]
                    value[i] += min(float(spread[i]), (weight[i] + unit) * alone[i]) - now
                    if value[i] > value[last]:
                        last = i
                while last >= 0:
                    weight[last] += unit
                    last = previous[last]
            total = 0.0
            for i in range(low, high):
                total += min(float(spread[i]), weight[i] * alone[i])
            best = max(best, total)
    return np.int64(np.ceil(best - 1e-6))
