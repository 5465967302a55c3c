"""Compiled dynamic programs over the cuts of one topological order.

``prefix`` tables describe the first i ops of an order, i = 0..n: their time, the bytes that leave
them, and the shortest longer prefix that holds all their consumers. A segment from i to j costs
``time[j] - time[i] + (cut[i] + cut[j]) / bandwidth`` and may follow i if ``reach[i] <= j``.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def topological_by_key(keys, succ_starts, edge_dst, indegree, order):  # type: ignore[no-untyped-def]
    """Fill the topological order that always takes the ready op of least key (ties: number)."""
    n = len(keys)
    waiting = indegree.copy()
    heap = np.empty(n, np.int64)
    size = 0
    filled = 0
    for start in range(n):
        if waiting[start] > 0:
            continue
        size = _push(heap, size, start, keys)
    while size > 0:
        u = heap[0]
        size = _pop(heap, size, keys)
        order[filled] = u
        filled += 1
        for e in range(succ_starts[u], succ_starts[u + 1]):
            v = edge_dst[e]
            waiting[v] -= 1
            if waiting[v] == 0:
                size = _push(heap, size, v, keys)


@njit(cache=True, nogil=True)
def _before(u, v, keys):  # type: ignore[no-untyped-def]
    return keys[u] < keys[v] or (keys[u] == keys[v] and u < v)


@njit(cache=True, nogil=True)
def _push(heap, size, u, keys):  # type: ignore[no-untyped-def]
    i = size
    while i > 0 and _before(u, heap[(i - 1) // 2], keys):
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = u
    return size + 1


@njit(cache=True, nogil=True)
def _pop(heap, size, keys):  # type: ignore[no-untyped-def]
    size -= 1
    last = heap[size]
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _before(heap[child + 1], heap[child], keys):
            child += 1
        if not _before(heap[child], last, keys):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = last
    return size


@njit(cache=True, nogil=True)
def prefix_tables(  # type: ignore[no-untyped-def]
    order, time_s, succ_starts, edge_dst, edge_bytes, place, time, cut, reach
):
    """Fill ``place`` (n,) and the prefix tables (n + 1,) of an order."""
    n = len(order)
    for i in range(n):
        place[order[i]] = i
    time[0] = 0.0
    cut[:] = 0.0
    reach[0] = 0
    at = np.empty(n, np.int64)
    size = np.empty(n)
    for i in range(n):
        u = order[i]
        time[i + 1] = time[i] + time_s[u]
        count = succ_starts[u + 1] - succ_starts[u]
        for k in range(count):
            e = succ_starts[u] + k
            p, b = place[edge_dst[e]], edge_bytes[e]
            m = k
            while m > 0 and at[m - 1] < p:
                at[m] = at[m - 1]
                size[m] = size[m - 1]
                m -= 1
            at[m] = p
            size[m] = b
        largest = 0.0
        for k in range(count):
            largest = max(largest, size[k])
            stop = at[k + 1] if k + 1 < count else i
            for p in range(stop + 1, at[k] + 1):
                cut[p] += largest
        reach[i + 1] = max(reach[i], at[0] + 1) if count > 0 else reach[i]


@njit(cache=True, nogil=True)
def fewest_segments(limit, bandwidth, time, cut, reach, count, parent):  # type: ignore[no-untyped-def]
    """Return the fewest segments of cost at most ``limit``, and their largest cost.

    Fills ``count`` and ``parent`` (n + 1,); without a split the number is n + 1.
    """
    n = len(time) - 1
    count[:] = n + 1
    count[0] = 0
    for i in range(n):
        if count[i] > n:
            continue
        base = cut[i] / bandwidth - time[i]
        for j in range(max(i + 1, reach[i]), n + 1):
            if time[j] - time[i] > limit:
                break
            if count[i] + 1 < count[j] and base + time[j] + cut[j] / bandwidth <= limit:
                count[j] = count[i] + 1
                parent[j] = i
    worst = 0.0
    if count[n] <= n:
        j = n
        while j > 0:
            i = parent[j]
            base = cut[i] / bandwidth - time[i]  # the same arithmetic as above, to the last bit
            worst = max(worst, base + time[j] + cut[j] / bandwidth)
            j = i
    return count[n], worst


@njit(cache=True, nogil=True)
def best_split(chips, bandwidth, tolerance, time, cut, reach, count, parent):  # type: ignore[no-untyped-def]
    """Return the least interval of at most ``chips`` segments, to a relative ``tolerance``.

    ``parent`` leads through the segments found.
    """
    n = len(time) - 1
    chips = min(chips, n)  # so that n + 1, no split at all, is too many
    low = time[n] / chips
    limit = low * 1.02
    found, worst = fewest_segments(limit, bandwidth, time, cut, reach, count, parent)
    while found > chips:
        low = limit
        limit *= 1.25
        found, worst = fewest_segments(limit, bandwidth, time, cut, reach, count, parent)
    best = worst
    while best - low > tolerance * best:
        limit = 0.5 * (low + best)
        found, worst = fewest_segments(limit, bandwidth, time, cut, reach, count, parent)
        if found <= chips:
            best = worst
        else:
            low = limit
    fewest_segments(best, bandwidth, time, cut, reach, count, parent)
    return best


@njit(cache=True, nogil=True)
def label_segments(order, parent, count, row):  # type: ignore[no-untyped-def]
    """Fill the chip of each op from the parents of the last boundary."""
    j = len(order)
    chip = count[j] - 1
    while j > 0:
        i = parent[j]
        for p in range(i, j):
            row[order[p]] = chip
        chip -= 1
        j = i


@njit(cache=True, nogil=True)
def split_rows(  # type: ignore[no-untyped-def]
    orders, chips, bandwidth, tolerance, time_s, succ_starts, edge_dst, edge_bytes, rows, intervals
):
    """Fill labels (S, n) and intervals (S,) of the best split of each order."""
    n = orders.shape[1]
    place = np.empty(n, np.int64)
    time = np.empty(n + 1)
    cut = np.empty(n + 1)
    reach = np.empty(n + 1, np.int64)
    count = np.empty(n + 1, np.int64)
    parent = np.zeros(n + 1, np.int64)
    for s in range(len(orders)):
        prefix_tables(orders[s], time_s, succ_starts, edge_dst, edge_bytes, place, time, cut, reach)
        intervals[s] = best_split(chips, bandwidth, tolerance, time, cut, reach, count, parent)
        label_segments(orders[s], parent, count, rows[s])


@njit(cache=True, nogil=True)
def front_of_counts(limit, chips, bandwidth, additive, time, cut, reach, value, parent):  # type: ignore[no-untyped-def]
    """Fill the best value of every number of segments and every prefix (chips + 1, n + 1).

    The value is the largest cost of a segment or, with ``additive``, the bytes that cross; segments
    that cost more than ``limit`` are left out.
    """
    n = len(time) - 1
    value[:] = np.inf
    value[0, 0] = 0.0
    for k in range(chips):
        for i in range(n):
            here = value[k, i]
            if here == np.inf:
                continue
            base = cut[i] / bandwidth - time[i]
            for j in range(max(i + 1, reach[i]), n + 1):
                if time[j] - time[i] > limit:
                    break
                cost = base + time[j] + cut[j] / bandwidth
                if cost > limit:
                    continue
                total = here + cut[j] if additive else max(here, cost)
                if total < value[k + 1, j]:
                    value[k + 1, j] = total
                    parent[k + 1, j] = i
