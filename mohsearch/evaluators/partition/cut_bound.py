"""Lower bounds on the interval that count transfers, for graphs with too many downsets to list.

The ops on the first i chips of a partition are a downset, and in a chain each chip pays for the
tensors that leave the downset before it and for those that leave its own. If D and D' are two such
downsets in a row and I the interval, ``time(D') + bytes(D') <= I + time(D) - bytes(D)``. The right
side's largest value after i chips therefore follows from that after i - 1, by one look at the pairs
(time, bytes) that downsets can have; their lower convex hulls, one for each place where a downset
may leave a long path of ops, hold all of them (:mod:`.cut_kernels`).

Without the chain, tensors may jump over a chip. By equation (4) such a chip holds only ops beside
the edge that jumps, and not both some after its producer and some before its consumer; the time of
those that fit into an interval with what they exchange is bounded by hulls as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.partition import cut_kernels as kernels
from mohsearch.evaluators.partition.reachability import closures
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph import Floats

States = NDArray[np.int64]

PRECISION = 1e-7
"""Relative distance to the bound at which its search ends, on the safe side."""

MARGIN = 1e-9
"""Of rounding in the cuts, relative to the time of all ops and bytes."""


@dataclass(frozen=True)
class CutBounds:
    """Lower bounds on the interval.

    Attributes
    ----------
    chain_s
        No partition whose chips form a chain is below.
    general_s
        No valid partition is below.
    """

    chain_s: float
    general_s: float


@dataclass(frozen=True)
class _Hulls:
    """Pieces of lower hulls: time and bytes (as time on a link) of their two ends (P,)."""

    time: Floats
    sent: Floats
    end_time: Floats
    end_sent: Floats

    def most(self, value: Floats, end_value: Floats, load: Floats, end_load: Floats, y: float):  # type: ignore[no-untyped-def]
        """Return the largest value on a piece where the load is at most y; 0 if there is none."""
        inside, end_inside = load <= y, end_load <= y
        best = max(
            float(value[inside].max(initial=0.0)), float(end_value[end_inside].max(initial=0.0))
        )
        crossed = inside != end_inside
        share = (y - load[crossed]) / (end_load[crossed] - load[crossed])
        between = value[crossed] + share * (end_value[crossed] - value[crossed])
        return max(best, float(between.max(initial=0.0)))

    def most_time(self, y: float) -> float:
        """Return the most time of a set whose time and bytes are at most y."""
        return float(
            self.most(
                self.time, self.end_time, self.time + self.sent, self.end_time + self.end_sent, y
            )
        )

    def most_left(self, y: float, *, sent: bool = True) -> float:
        """Return the most time less bytes where time and bytes (or time alone) are at most y."""
        load, end_load = self.time, self.end_time
        if sent:
            load, end_load = load + self.sent, end_load + self.end_sent
        return float(
            self.most(self.time - self.sent, self.end_time - self.end_sent, load, end_load, y)
        )


def cut_bounds(task: PartitionTask) -> CutBounds:
    """Return what no partition's interval can be below, transfers counted.

    Returns
    -------
    CutBounds
        Both are 0 where the hulls have too many corners (not met on any graph of the shelf).

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> bounds = cut_bounds(PartitionTask(load_graph("hf_bert_large_op"), chips=36))
    >>> round(bounds.chain_s * 1e6, 1), round(bounds.general_s * 1e6, 1)
    (608.3, 608.3)
    """
    size = task.graph.edge_bytes / task.package.link.bandwidth_bytes_per_s
    scale = float(task.time_s.sum()) + float(size.sum())
    time, size = task.time_s / scale, size / scale
    after, before = closures(task.graph)
    flow = kernels.new_flow(
        time, task.graph.succ_starts, task.graph.edge_dst, size,
        np.lexsort((size, task.graph.edge_src)),
    )  # fmt: skip
    downsets = _collect(flow, _along(longest_path(task), after, before), both=False)
    if downsets is None:
        return CutBounds(0.0, 0.0)
    total = float(time.sum())
    chain = _least_interval(downsets, None, total, task.chips)
    if task.chips < 3:
        return CutBounds(chain * scale, chain * scale)
    jumped = _collect(flow, _beside(task, after, before), both=True)
    general = 0.0 if jumped is None else _least_interval(downsets, jumped, total, task.chips)
    return CutBounds(chain * scale, min(general, chain) * scale)


def longest_path(task: PartitionTask) -> NDArray[np.int64]:
    """Return the ops of a path of the most time, from a source to a sink of the graph."""
    best = np.zeros(task.n)
    previous = np.full(task.n, -1)
    for v in range(task.n):
        before = task.graph.predecessors(v)
        if len(before):
            previous[v] = before[int(np.argmax(best[before]))]
            best[v] = best[previous[v]]
        best[v] += task.time_s[v]
    at = int(best.argmax())
    path = [at]
    while previous[at] >= 0:
        at = int(previous[at])
        path.append(at)
    return np.array(path[::-1], np.int64)


def _collect(flow: kernels.Flow, states: Iterable[States], both: bool) -> _Hulls | None:
    """Return the hulls of several states; None where one has too many corners."""
    time, sent = np.empty(kernels.MAX_CORNERS), np.empty(kernels.MAX_CORNERS)
    todo = np.empty((kernels.MAX_CORNERS, 4))
    columns: list[list[Floats]] = [[np.zeros(1)] for _ in range(4)]  # the empty set
    for state in states:
        flow.state[:] = state
        count = kernels.hull(flow, both, todo, time, sent)
        if count < 0:
            return None
        ends = slice(min(1, count - 1), count)  # a hull of one corner is a piece of its own
        starts = slice(0, max(1, count - 1))
        for column, values in zip(
            columns, (time[starts], sent[starts], time[ends], sent[ends]), strict=True
        ):
            column.append(values.copy())
    return _Hulls(*(np.concatenate(column) for column in columns))


def _along(
    path: NDArray[np.int64], after: NDArray[np.uint64], before: NDArray[np.uint64]
) -> Iterator[States]:
    """Yield what a downset holds and leaves out, by the place where it leaves a path of ops."""
    n = len(after)
    for place in range(len(path) + 1):
        state = np.full(n, kernels.FREE)
        if place > 0:
            state[_bits(before[path[place - 1]], n)] = kernels.INSIDE
        if place < len(path):
            state[_bits(after[path[place]], n)] = kernels.OUTSIDE
        yield state


def _beside(
    task: PartitionTask, after: NDArray[np.uint64], before: NDArray[np.uint64]
) -> Iterator[States]:
    """Yield the largest sets of ops that a chip can hold which a tensor jumps over."""
    found: dict[bytes, NDArray[np.bool_]] = {}
    from_op, to_op = _bits(after, task.n), _bits(before, task.n)
    for u, v in zip(task.graph.edge_src.tolist(), task.graph.edge_dst.tolist(), strict=True):
        beside = ~(from_op[v] | to_op[u] | (from_op[u] & to_op[v]))
        for related in (from_op[u], to_op[v]):
            row = beside & ~related
            found.setdefault(row.tobytes(), row)
    kept: list[NDArray[np.bool_]] = []
    for row in sorted(found.values(), key=lambda row: -int(row.sum())):
        if row.any() and not any((row <= other).all() for other in kept):
            kept.append(row)
            yield np.where(row, kernels.FREE, kernels.OUTSIDE)


def _bits(closure: NDArray[np.uint64], n: int) -> NDArray[np.bool_]:
    return np.unpackbits(closure.view(np.uint8), axis=-1, bitorder="little")[..., :n].astype(bool)


def _least_interval(downsets: _Hulls, jumped: _Hulls | None, total: float, chips: int) -> float:
    low, high = total / chips, total
    while high - low > PRECISION * high:
        middle = 0.5 * (low + high)
        if _enough(downsets, jumped, total, chips, middle + MARGIN):
            high = middle
        else:
            low = middle
    return low


def _enough(
    downsets: _Hulls, jumped: _Hulls | None, total: float, chips: int, interval: float
) -> bool:
    """Whether the bounds let so many chips do all work within an interval.

    ``done`` is the most time that the first chips can have behind them, ``left`` the most time less
    bytes that still cross.
    """
    done, left = 0.0, 0.0
    jump = 0.0 if jumped is None else jumped.most_time(interval)
    for _ in range(chips):
        if total <= interval + left:
            return True
        next_done = downsets.most_time(interval + left)
        next_left = downsets.most_left(interval + left)
        if jumped is not None and done > 0.0:
            next_done = max(next_done, done + jump)
            next_left = max(next_left, downsets.most_left(done + jump, sent=False))
        if next_done <= done and next_left <= left:
            return False
        done, left = max(next_done, done), max(next_left, left)
    return False
