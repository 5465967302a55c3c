"""Whether a partition obeys the static constraints, straight from their definitions.

Equations (2) to (4) of Xie et al. Nothing here is shared with the propagator that builds
partitions, so that each can be checked with the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.chip_package import MAX_CHIPS
from mohsearch.workloads.op_graph import PartitionGraph

OK, RANGE, BACKWARD, SKIPPED, TRIANGLE = range(5)

_NAMES = {RANGE: "range", BACKWARD: "C1", SKIPPED: "C2", TRIANGLE: "C3"}


@dataclass(frozen=True)
class PartitionCheck:
    """Verdict on one partition.

    Attributes
    ----------
    valid
        Whether all static constraints hold.
    broken
        The first that does not: ``range`` (a label is no chip), ``C1`` (data flows backwards,
        equation 2), ``C2`` (a chip is skipped, equation 3) or ``C3`` (a direct dependency beside an
        indirect one, equation 4); None if valid.
    message
        What is wrong, with op and chip numbers; empty if valid.
    """

    valid: bool
    broken: str | None
    message: str


@njit(cache=True, nogil=True)
def _flow(row, chips, edge_src, edge_dst, used, direct, witness):  # type: ignore[no-untyped-def]
    """Judge range and equations (2) and (3); fill the used chips and their direct dependencies."""
    used[:] = False
    direct[:] = False
    for u in range(len(row)):
        if row[u] < 0 or row[u] >= chips:
            witness[0], witness[1] = u, row[u]
            return RANGE
        used[row[u]] = True
    for e in range(len(edge_src)):
        a, b = row[edge_src[e]], row[edge_dst[e]]
        if a > b:
            witness[0], witness[1] = edge_src[e], edge_dst[e]
            return BACKWARD
        if a < b:
            direct[a, b] = True
    first = 0
    while first < chips and used[first]:
        first += 1
    for c in range(first + 1, chips):
        if used[c]:
            witness[0] = first
            return SKIPPED
    return OK


@njit(cache=True, nogil=True)
def _triangle(chips, direct, longest, witness):  # type: ignore[no-untyped-def]
    """Judge equation (4) by its definition: no direct dependency beside a path of two or more.

    ``longest`` becomes the number of edges of the longest path between two chips, -1 without one.
    """
    longest[:] = -1
    for a in range(chips - 1, -1, -1):
        longest[a, a] = 0
        for c in range(a + 1, chips):
            if direct[a, c]:
                for b in range(c, chips):
                    if longest[c, b] >= 0:
                        longest[a, b] = max(longest[a, b], longest[c, b] + 1)
    for a in range(chips):
        for b in range(a + 1, chips):
            if direct[a, b] and longest[a, b] != 1:
                witness[0], witness[1] = a, b
                return TRIANGLE
    return OK


@njit(cache=True, nogil=True)
def _verdicts(labels, chips, edge_src, edge_dst, verdicts, witness):  # type: ignore[no-untyped-def]
    """Fill the verdict (S,) and its two witnesses (S, 2) of each partition.

    Witnesses: op and label, producer and consumer, a skipped chip, or two chips.
    """
    direct = np.empty((chips, chips), np.bool_)
    longest = np.empty((chips, chips), np.int64)
    used = np.empty(chips, np.bool_)
    for s in range(len(labels)):
        verdict = _flow(labels[s], chips, edge_src, edge_dst, used, direct, witness[s])
        if verdict == OK:
            verdict = _triangle(chips, direct, longest, witness[s])
        verdicts[s] = verdict


def _judge(
    graph: PartitionGraph, labels: ArrayLike, chips: int
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    if not 1 <= chips <= MAX_CHIPS:
        raise InputError(f"chips must be 1 to {MAX_CHIPS}, got {chips}", field="chips")
    rows = np.atleast_2d(np.asarray(labels))
    if rows.ndim != 2 or rows.shape[1] != graph.n:
        raise InputError(f"labels must have shape (S, {graph.n}), got {rows.shape}")
    if rows.dtype.kind not in "iu":
        raise InputError("labels must be integers")
    rows = np.ascontiguousarray(np.clip(rows, -1, MAX_CHIPS), dtype=np.int16)
    verdicts = np.zeros(len(rows), np.int8)
    witness = np.zeros((len(rows), 2), np.int64)
    _verdicts(rows, chips, graph.edge_src, graph.edge_dst, verdicts, witness)
    return verdicts, witness


def are_valid(graph: PartitionGraph, labels: ArrayLike, chips: int) -> NDArray[np.bool_]:
    """Return which partitions (S, n) obey equations (2) to (4), in O(E + chips^3) each.

    Examples
    --------
    >>> graph = PartitionGraph.from_columns(
    ...     "v", ["a"] * 3, flops=[1] * 3, out_bytes=[1] * 3, edges=[(0, 1), (1, 2), (0, 2)]
    ... )
    >>> are_valid(graph, [[0, 0, 1], [0, 1, 2], [0, 0, 2], [1, 0, 0]], 3).tolist()
    [True, False, False, False]
    """
    return np.asarray(_judge(graph, labels, chips)[0] == OK)


def broken_constraints(graph: PartitionGraph, labels: ArrayLike, chips: int) -> NDArray[np.int8]:
    """Return the first broken constraint of each partition: OK, RANGE, BACKWARD, SKIPPED, TRIANGLE.

    A partition that breaks several is charged with the first of that list.
    """
    return _judge(graph, labels, chips)[0]


def check_partition(graph: PartitionGraph, labels: ArrayLike, chips: int) -> PartitionCheck:
    """Return the verdict on one partition (n,), naming the ops or chips that break it.

    Examples
    --------
    >>> graph = PartitionGraph.from_columns(
    ...     "v", ["a"] * 3, flops=[1] * 3, out_bytes=[1] * 3, edges=[(0, 1), (1, 2), (0, 2)]
    ... )
    >>> check_partition(graph, [0, 1, 2], 3).message
    'chip 0 sends to chip 2 directly and through chips in between (equation 4)'
    """
    verdicts, witness = _judge(graph, labels, chips)
    if len(verdicts) != 1:
        raise InputError(f"one partition is checked at a time, got {len(verdicts)}")
    verdict = int(verdicts[0])
    first, second = witness[0].tolist()
    row = np.atleast_2d(np.asarray(labels))[0]
    message = {
        OK: "",
        RANGE: f"op {first} is on {int(row[first])}, which is none of the {chips} chips",
        BACKWARD: f"op {first} on chip {int(row[first])} feeds op {second} on chip "
        f"{int(row[min(second, len(row) - 1)])}: data would flow backwards (equation 2)",
        SKIPPED: f"chip {first} has no op, though a later one has (equation 3)",
        TRIANGLE: f"chip {first} sends to chip {second} directly and through chips in between "
        "(equation 4)",
    }[verdict]
    return PartitionCheck(verdict == OK, _NAMES.get(verdict), message)
