"""Compiled enumeration of the downsets of a graph, and the dynamic program over them.

A downset holds all producers of its ops. A chain partition is a rising sequence of downsets in
which each holds all consumers of the one before; a segment costs what the tables of its ends say,
as for the prefixes of an order (:mod:`mohsearch.evaluators.partition.contiguous_kernels`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

ONE = np.uint64(1)
ZERO = np.uint64(0)


@njit(cache=True, nogil=True)
def _slot(sets, row, words, hashes, table):  # type: ignore[no-untyped-def]
    """Return the place of a set in the hash table: its own, or the free one where it belongs."""
    mask = len(table) - 1
    place = np.int64(hashes[row] & np.uint64(mask))
    while table[place] >= 0:
        other = table[place]
        if hashes[other] == hashes[row]:
            same = True
            for w in range(words):
                if sets[other, w] != sets[row, w]:
                    same = False
                    break
            if same:
                return place
        place = (place + 1) & mask
    return place


@njit(cache=True, nogil=True)
def list_downsets(  # type: ignore[no-untyped-def]
    pred_starts, pred_edges, edge_src, salt, sets, hashes, table
):
    """Fill ``sets`` (limit + 1, words) with all downsets, the empty one first; return how many.

    Stops one beyond the limit. ``salt`` (n,) are random words, ``table`` a hash table of -1.
    """
    n = len(pred_starts) - 1
    words = sets.shape[1]
    limit = len(sets) - 1
    sets[0] = ZERO
    hashes[0] = ZERO
    table[_slot(sets, 0, words, hashes, table)] = 0
    count = 1
    at = 0
    while at < count:
        for u in range(n):
            word, bit = u >> 6, ONE << np.uint64(u & 63)
            if sets[at, word] & bit != ZERO:
                continue
            ready = True
            for i in range(pred_starts[u], pred_starts[u + 1]):
                p = edge_src[pred_edges[i]]
                if (sets[at, p >> 6] >> np.uint64(p & 63)) & ONE == ZERO:
                    ready = False
                    break
            if not ready:
                continue
            if count > limit:
                return count
            sets[count] = sets[at]
            sets[count, word] |= bit
            hashes[count] = hashes[at] ^ salt[u]
            place = _slot(sets, count, words, hashes, table)
            if table[place] < 0:
                table[place] = count
                count += 1
        at += 1
    return count


@njit(cache=True, nogil=True)
def describe_downsets(  # type: ignore[no-untyped-def]
    sets, time_s, succ_starts, edge_dst, edge_bytes, time, cut, closed
):
    """Fill time, bytes that leave, and the set with all its consumers, of each downset."""
    n = len(time_s)
    for s in range(len(sets)):
        total = 0.0
        crossing = 0.0
        closed[s] = sets[s]
        for u in range(n):
            if (sets[s, u >> 6] >> np.uint64(u & 63)) & ONE == ZERO:
                continue
            total += time_s[u]
            largest = 0.0
            for e in range(succ_starts[u], succ_starts[u + 1]):
                v = edge_dst[e]
                if (sets[s, v >> 6] >> np.uint64(v & 63)) & ONE == ZERO:
                    closed[s, v >> 6] |= ONE << np.uint64(v & 63)
                    largest = max(largest, edge_bytes[e])
            crossing += largest
        time[s] = total
        cut[s] = crossing


@njit(cache=True, nogil=True)
def solve_downsets(  # type: ignore[no-untyped-def]
    sets, closed, time, cut, bandwidth, chips, value, parent
):
    """Fill the least interval of every number of segments and every downset (chips + 1, N).

    Downsets stand in the order of their sizes.
    """
    count, words = sets.shape
    value[:] = np.inf
    value[0, 0] = 0.0
    for i in range(count):
        used = False
        for k in range(chips):
            used = used or value[k, i] < np.inf
        if not used:
            continue
        base = cut[i] / bandwidth - time[i]
        for j in range(i + 1, count):
            inside = True
            for w in range(words - 1, -1, -1):
                if closed[i, w] & ~sets[j, w] != ZERO:
                    inside = False
                    break
            if not inside:
                continue
            cost = base + time[j] + cut[j] / bandwidth
            for k in range(chips):
                total = max(value[k, i], cost)
                if total < value[k + 1, j]:
                    value[k + 1, j] = total
                    parent[k + 1, j] = i
