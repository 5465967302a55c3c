"""The optimal chain partition for every number of chips, by dynamic programming over downsets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.core.seeds import generator
from mohsearch.evaluators.partition import downset_kernels as kernels
from mohsearch.evaluators.partition.costs import Labels
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph import Floats

MAX_DOWNSETS = 30_000
"""Beyond this the pairs of downsets take minutes."""


@dataclass(frozen=True)
class DownsetSolution:
    """Optimal chain partitions.

    Attributes
    ----------
    chips
        Numbers of chips for which there is a partition (K,), rising.
    labels
        An optimal partition of each (K, n).
    interval_s
        Its interval, which no other chain partition with as many chips is below (K,).
    downsets
        Downsets of the graph.
    """

    chips: NDArray[np.int64]
    labels: Labels
    interval_s: Floats
    downsets: int

    @property
    def best(self) -> int:
        """Row of the least interval; of equal ones the fewest chips."""
        return int(np.argmin(self.interval_s))


def count_downsets(task: PartitionTask, limit: int = MAX_DOWNSETS) -> int:
    """Return the number of downsets of a task's graph, or ``limit`` + 1 if there are more."""
    return len(_list(task, limit))


def list_downsets(task: PartitionTask, limit: int = MAX_DOWNSETS) -> NDArray[np.uint64]:
    """Return all downsets of a task's graph as bits (N, words), from the smallest to the largest.

    Raises
    ------
    InfeasibleError
        If there are more than ``limit``.
    """
    if limit < 1:
        raise InputError(f"limit must be positive, got {limit}")
    sets = _list(task, limit)
    if len(sets) > limit:
        raise InfeasibleError(
            f"{task.graph.name} has more than {limit} downsets: too many for the exact program"
        )
    sizes = np.bitwise_count(sets).sum(axis=1)
    return np.ascontiguousarray(sets[np.argsort(sizes, kind="stable")])


def solve_downsets(task: PartitionTask, limit: int = MAX_DOWNSETS) -> DownsetSolution:
    """Return the optimal chain partition for every number of chips up to the task's.

    Parameters
    ----------
    task
        Graph, package and chips; the analytic interval is minimised.
    limit
        Most downsets to work with.

    Raises
    ------
    InfeasibleError
        If the graph has more than ``limit`` downsets.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> solution = solve_downsets(PartitionTask(load_graph("tv_squeezenet1_1"), chips=8))
    >>> solution.chips.tolist(), round(float(solution.interval_s.min()) * 1e6, 1)
    ([1, 2, 3, 4, 5, 6, 7, 8], 50.2)
    """
    sets = list_downsets(task, limit)
    graph, count = task.graph, len(sets)
    time, cut, closed = np.empty(count), np.empty(count), np.empty_like(sets)
    kernels.describe_downsets(
        sets, task.time_s, graph.succ_starts, graph.edge_dst, graph.edge_bytes, time, cut, closed
    )
    value = np.empty((task.chips + 1, count))
    parent = np.zeros((task.chips + 1, count), np.int64)
    kernels.solve_downsets(
        sets, closed, time, cut, task.package.link.bandwidth_bytes_per_s, task.chips,
        value, parent,
    )  # fmt: skip
    counts = np.flatnonzero(np.isfinite(value[1:, -1])) + 1
    labels = np.stack([_labels(sets, parent, k, task.n) for k in counts.tolist()])
    return DownsetSolution(counts, labels, value[counts, -1].copy(), count)


def _list(task: PartitionTask, limit: int) -> NDArray[np.uint64]:
    graph = task.graph
    words = (graph.n + 63) // 64
    size = 1024
    while True:
        size = min(size, limit)
        sets = np.zeros((size + 1, words), np.uint64)
        table = np.full(1 << (4 * size + 8).bit_length(), -1, np.int64)
        salt = generator(0, "downsets").integers(0, 2**64 - 1, graph.n, dtype=np.uint64)
        count = kernels.list_downsets(
            graph.pred_starts, graph.pred_edges, graph.edge_src, salt, sets,
            np.zeros(size + 1, np.uint64), table,
        )  # fmt: skip
        if count <= size or size == limit:
            return sets[:count]
        size *= 8


def _labels(
    sets: NDArray[np.uint64], parent: NDArray[np.int64], chips: int, n: int
) -> NDArray[np.int16]:
    row = np.empty(n, np.int16)
    ops = np.arange(n)
    at = len(sets) - 1
    for k in range(chips, 0, -1):
        inside = (sets[at, ops >> 6] >> (ops & 63).astype(np.uint64)) & np.uint64(1)
        row[inside.astype(bool)] = k - 1
        at = int(parent[k, at])
    return row
