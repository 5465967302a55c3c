"""Which ops depend on which, as bit sets, and what follows for edges.

For an edge (u, v), an op on a path from u to v is *between* them; an op that is neither before u,
nor after v, nor between is *beside* the edge. Equation (4) of Xie et al. puts every op between onto
the chip of u or of v, and only ops beside the edge can stand on the chips between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.workloads.op_graph import Floats, PartitionGraph


@njit(cache=True, nogil=True)
def _fill_closures(succ_starts, edge_dst, after, before):  # type: ignore[no-untyped-def]
    """Fill the bits of all ops after and before each op, itself included."""
    n, words = after.shape
    one = np.uint64(1)
    for u in range(n - 1, -1, -1):
        after[u, u >> 6] |= one << np.uint64(u & 63)
        for e in range(succ_starts[u], succ_starts[u + 1]):
            for w in range(words):
                after[u, w] |= after[edge_dst[e], w]
    for u in range(n):
        before[u, u >> 6] |= one << np.uint64(u & 63)
        for e in range(succ_starts[u], succ_starts[u + 1]):
            for w in range(words):
                before[edge_dst[e], w] |= before[u, w]


@njit(cache=True, nogil=True)
def _walk_edges(after, before, edge_src, edge_dst, weight, beside, time, counts):  # type: ignore[no-untyped-def]
    """Fill, for each edge, how many ops are beside it and between its ends.

    ``time`` becomes the weight of the ops on its paths, ends included.
    """
    n, words = after.shape
    one = np.uint64(1)
    for e in range(len(edge_src)):
        u, v = edge_src[e], edge_dst[e]
        related = 0
        total = 0.0
        inner = 0
        for w in range(words):
            path = after[u, w] & before[v, w]
            either = path | before[u, w] | after[v, w]
            while either:
                either &= either - one
                related += 1
            base = w << 6
            while path:
                low = path & (~path + one)
                bit = 0
                while low > one:
                    low >>= one
                    bit += 1
                total += weight[base + bit]
                inner += 1
                path &= path - one
        beside[e] = n - related
        time[e] = total
        counts[e] = inner - 2


@njit(cache=True, nogil=True)
def _list_between(after, before, edge_src, edge_dst, starts, members):  # type: ignore[no-untyped-def]
    n = len(after)
    one = np.uint64(1)
    for e in range(len(edge_src)):
        filled = starts[e]
        if filled == starts[e + 1]:
            continue
        u, v = edge_src[e], edge_dst[e]
        for w in range(u + 1, min(v, n)):
            word, bit = w >> 6, np.uint64(w & 63)
            if (after[u, word] & before[v, word]) >> bit & one:
                members[filled] = w
                filled += 1


@dataclass(frozen=True)
class EdgeRelations:
    """Ops beside and between each edge.

    Attributes
    ----------
    beside
        Number of ops beside each edge (E,): ``f(v) - f(u) <= 1 + beside``.
    path_weight
        Weight of the ops on the paths of each edge, its ends included (E,).
    starts, between
        Ops strictly between the ends of edge e: ``between[starts[e]:starts[e + 1]]``.
    """

    beside: NDArray[np.int64]
    path_weight: Floats
    starts: NDArray[np.int64]
    between: NDArray[np.int32]


def closures(graph: PartitionGraph) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the ops after and the ops before each op, itself included, as bits (n, words)."""
    shape = (graph.n, (graph.n + 63) // 64)
    after, before = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    _fill_closures(graph.succ_starts, graph.edge_dst, after, before)
    return after, before


def relate_edges(graph: PartitionGraph, weight: Floats) -> EdgeRelations:
    """Return the relations of all edges, ``weight`` (n,) summed along their paths.

    Examples
    --------
    >>> graph = PartitionGraph.from_columns(
    ...     "skip", ["a"] * 4, flops=[1] * 4, out_bytes=[1] * 4,
    ...     edges=[(0, 1), (1, 2), (0, 2), (0, 3)],
    ... )
    >>> relations = relate_edges(graph, np.ones(4))
    >>> relations.beside.tolist(), relations.path_weight.tolist(), relations.between.tolist()
    ([1, 1, 2, 1], [2.0, 3.0, 2.0, 2.0], [1])
    """
    after, before = closures(graph)
    edges = graph.n_edges
    beside, counts = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    time = np.zeros(edges)
    _walk_edges(after, before, graph.edge_src, graph.edge_dst, weight, beside, time, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    members = np.empty(int(starts[-1]), np.int32)
    _list_between(after, before, graph.edge_src, graph.edge_dst, starts, members)
    return EdgeRelations(beside, time, starts, members)
