"""Optimal cuts of one topological order into consecutive segments, one a chip.

Segments form a chain: no edge may jump a whole one. Every chain partition is such a split of some
order, so a search over orders reaches them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition import contiguous_kernels as kernels
from mohsearch.evaluators.partition.costs import Labels
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph import Floats, PartitionGraph

TOLERANCE = 1e-9
"""Relative distance to the optimum of the order at which the search of the interval ends."""


@dataclass(frozen=True)
class SplitFront:
    """Best splits by number of chips.

    Attributes
    ----------
    chips
        Numbers of chips for which the order has a split (K,), rising.
    labels
        Chip of each op (K, n).
    interval_s
        Largest segment cost (K,).
    cut_bytes
        Bytes that cross between neighbours (K,).
    """

    chips: NDArray[np.int64]
    labels: Labels
    interval_s: Floats
    cut_bytes: Floats


def order_from_keys(graph: PartitionGraph, keys: ArrayLike) -> NDArray[np.int64]:
    """Return the topological orders (S, n) that take the ready op of the least key first.

    Raises
    ------
    InputError
        If the shape is wrong or a key is not a number.

    Examples
    --------
    >>> graph = PartitionGraph.from_columns(
    ...     "fork", ["a"] * 3, flops=[1] * 3, out_bytes=[1] * 3, edges=[(0, 1), (0, 2)]
    ... )
    >>> order_from_keys(graph, [[0.0, 0.9, 0.1]]).tolist()
    [[0, 2, 1]]
    """
    table = np.atleast_2d(np.ascontiguousarray(keys, dtype=np.float64))
    if table.ndim != 2 or table.shape[1] != graph.n:
        raise InputError(f"keys must have shape (S, {graph.n}), got {table.shape}")
    if np.isnan(table).any():
        raise InputError("keys must be numbers")
    orders = np.empty(table.shape, np.int64)
    indegree = np.bincount(graph.edge_dst, minlength=graph.n)
    for row, order in zip(table, orders, strict=True):
        kernels.topological_by_key(row, graph.succ_starts, graph.edge_dst, indegree, order)
    return orders


def _orders(task: PartitionTask, orders: ArrayLike | None) -> NDArray[np.int64]:
    if orders is None:
        return np.arange(task.n)[None]
    rows = np.atleast_2d(np.ascontiguousarray(orders, dtype=np.int64))
    good = rows.ndim == 2 and rows.shape[1] == task.n
    if not good or not (np.sort(rows, axis=1) == np.arange(task.n)).all():
        raise InputError(f"an order must be a permutation of the {task.n} ops")
    place = np.argsort(rows, axis=1)
    if not (place[:, task.graph.edge_src] < place[:, task.graph.edge_dst]).all():
        raise InputError("an order must be topological: producers before consumers")
    return rows


def split_orders(task: PartitionTask, orders: ArrayLike | None = None) -> tuple[Labels, Floats]:
    """Return the best split of each topological order over at most ``task.chips`` chips.

    Parameters
    ----------
    task
        Graph, package and chips.
    orders
        Orders (S, n) or (n,); default: the order of op numbers.

    Returns
    -------
    labels, interval_s
        (S, n) and (S,); intervals are optimal for the order to a relative 1e-9, in the analytic
        model.

    Raises
    ------
    InputError
        If an order is no topological order of the graph.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> labels, interval_s = split_orders(PartitionTask(load_graph("tv_vgg16"), chips=4))
    >>> int(labels.max()), round(float(interval_s[0]) * 1e6)
    (3, 2460)
    """
    rows = _orders(task, orders)
    graph = task.graph
    labels = np.empty(rows.shape, np.int16)
    intervals = np.empty(len(rows))
    kernels.split_rows(
        rows, task.chips, task.package.link.bandwidth_bytes_per_s, TOLERANCE, task.time_s,
        graph.succ_starts, graph.edge_dst, graph.edge_bytes, labels, intervals,
    )  # fmt: skip
    return labels, intervals


def contiguous_front(
    task: PartitionTask, order: ArrayLike | None = None, interval_limit_s: float | None = None
) -> SplitFront:
    """Return the best split of an order for every number of chips.

    Parameters
    ----------
    task
        Graph, package and chips.
    order
        Topological order (n,); default: the order of op numbers.
    interval_limit_s
        With a limit, the fewest bytes crossing among splits whose segments all keep it; without,
        the least interval.

    Raises
    ------
    InputError
        If the order is no topological order of the graph.
    """
    row = _orders(task, order)[0]
    graph, n = task.graph, task.n
    bandwidth = task.package.link.bandwidth_bytes_per_s
    place, reach = np.empty(n, np.int64), np.empty(n + 1, np.int64)
    time, cut = np.empty(n + 1), np.empty(n + 1)
    kernels.prefix_tables(
        row, task.time_s, graph.succ_starts, graph.edge_dst, graph.edge_bytes, place, time, cut,
        reach,
    )  # fmt: skip
    value = np.empty((task.chips + 1, n + 1))
    parent = np.zeros((task.chips + 1, n + 1), np.int64)
    limit = np.inf if interval_limit_s is None else float(interval_limit_s)
    kernels.front_of_counts(
        limit, task.chips, bandwidth, interval_limit_s is not None, time, cut, reach, value, parent
    )
    counts = np.flatnonzero(np.isfinite(value[1:, n])) + 1
    labels = np.empty((len(counts), n), np.int16)
    interval, crossing = np.empty(len(counts)), np.empty(len(counts))
    for i, k in enumerate(counts.tolist()):
        ends = _boundaries(parent, k, n)
        labels[i, row] = np.repeat(np.arange(k), np.diff(ends))
        costs = np.diff(time[ends]) + (cut[ends[:-1]] + cut[ends[1:]]) / bandwidth
        interval[i], crossing[i] = costs.max(), cut[ends].sum()
    return SplitFront(counts, labels, interval, crossing)


def _boundaries(parent: NDArray[np.int64], chips: int, n: int) -> NDArray[np.int64]:
    ends = [n]
    for k in range(chips, 0, -1):
        ends.append(int(parent[k, ends[-1]]))
    return np.array(ends[::-1])
