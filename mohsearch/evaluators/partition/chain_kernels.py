"""Partitions whose chips form a chain: every edge stays on its chip or reaches the next one.

``0 <= f(v) - f(u) <= 1`` on every edge satisfies equations (2) and (4) of Xie et al.; on a
connected graph the used chips are contiguous, so that (3) holds after a shift. The bounds of such a
system of differences propagate completely: no choice inside a domain is ever wrong, and nothing
backtracks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mohsearch.evaluators.partition.streams import take_order, uniform

inner = njit(  # type: ignore[call-overload]
    cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False
)
"""Called from compiled code alone: no wrapper for calls from Python, and no reference counts."""


@inner
def tighten(  # type: ignore[no-untyped-def]
    start, low, high, queue, waiting, succ_starts, edge_dst, pred_starts, pred_edges, edge_src
):
    """Propagate the bounds of op ``start`` to all others."""
    size = len(low)
    head, count = 0, 1
    queue[0] = start
    waiting[start] = True
    while count > 0:
        u = queue[head]
        head = head + 1 if head + 1 < size else 0
        count -= 1
        waiting[u] = False
        for e in range(succ_starts[u], succ_starts[u + 1]):
            v = edge_dst[e]
            if low[v] < low[u] or high[v] > high[u] + 1:
                low[v] = max(low[v], low[u])
                high[v] = min(high[v], high[u] + 1)
                if not waiting[v]:
                    waiting[v] = True
                    queue[(head + count) % size] = v
                    count += 1
        for i in range(pred_starts[u], pred_starts[u + 1]):
            v = edge_src[pred_edges[i]]
            if low[v] < low[u] - 1 or high[v] > high[u]:
                low[v] = max(low[v], low[u] - 1)
                high[v] = min(high[v], high[u])
                if not waiting[v]:
                    waiting[v] = True
                    queue[(head + count) % size] = v
                    count += 1


@inner
def draw(weights, low, high, state):  # type: ignore[no-untyped-def]
    """Return a value of low..high with the given weights; uniform where these are all zero."""
    total = 0.0
    for c in range(low, high + 1):
        total += weights[c]
    if not total > 0.0:
        return low + int(uniform(state) * (high - low + 1))
    point = uniform(state) * total
    for c in range(low, high):
        point -= weights[c]
        if point < 0.0:
            return c
    last = high
    while weights[last] <= 0.0:
        last -= 1
    return last


@njit(cache=True, nogil=True)
def close_gaps(row, component, components, chips):  # type: ignore[no-untyped-def]
    """Shift connected components down so that the used chips are 0..k-1."""
    if components == 1:
        least = chips
        for u in range(len(row)):
            least = min(least, row[u])
        if least > 0:
            for u in range(len(row)):
                row[u] -= least
        return
    first = np.full(components, chips, np.int64)
    last = np.full(components, -1, np.int64)
    for u in range(len(row)):
        g = component[u]
        first[g] = min(first[g], row[u])
        last[g] = max(last[g], row[u])
    shift = np.zeros(components, np.int64)
    used = -1
    for g in np.argsort(first, kind="mergesort"):
        if first[g] > used + 1:
            shift[g] = first[g] - used - 1
        used = max(used, last[g] - shift[g])
    for u in range(len(row)):
        row[u] -= shift[component[u]]


@njit(cache=True, nogil=True)
def chain_rows(  # type: ignore[no-untyped-def]
    rows, chosen, wanted, fix, probabilities, orders, seeds, chips, component, components,
    succ_starts, edge_dst, pred_starts, pred_edges, edge_src,
):  # fmt: skip
    """Fill the rows numbered ``chosen`` with SAMPLE, or with FIX of ``wanted``.

    ``probabilities`` (1 or S, n or 1, C) are recycled; without ``orders`` (0, n) each row has its
    own random order.
    """
    n = rows.shape[1]
    low = np.empty(n, np.int64)
    high = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    waiting = np.zeros(n, np.bool_)
    order = np.empty(n, np.int64)
    state = np.empty(1, np.uint64)
    flat = np.ones(chips)
    for s in chosen:
        state[0] = seeds[s]
        take_order(order, orders, s, state)
        low[:] = 0
        high[:] = chips - 1
        if fix:
            for u in order:
                c = wanted[s, u]
                if low[u] <= c <= high[u] and low[u] < high[u]:
                    low[u] = c
                    high[u] = c
                    tighten(
                        u, low, high, queue, waiting, succ_starts, edge_dst, pred_starts,
                        pred_edges, edge_src,
                    )  # fmt: skip
        for u in order:
            if low[u] == high[u]:
                continue
            if fix:
                c = draw(flat, low[u], high[u], state)
            else:
                table = probabilities[s % len(probabilities)]
                c = draw(table[u % len(table)], low[u], high[u], state)
            low[u] = c
            high[u] = c
            tighten(
                u, low, high, queue, waiting, succ_starts, edge_dst, pred_starts, pred_edges,
                edge_src,
            )  # fmt: skip
        for u in range(n):
            rows[s, u] = low[u]
        close_gaps(rows[s], component, components, chips)


@njit(cache=True, nogil=True)
def project_rows(  # type: ignore[no-untyped-def]
    rows, positions, chips, component, components, edge_src, edge_dst
):
    """Fill each row with the chain partition nearest to real positions (largest distance)."""
    n = rows.shape[1]
    upper = np.empty(n)
    lower = np.empty(n)
    for s in range(len(rows)):
        for u in range(n):
            upper[u] = min(max(positions[s, u], 0.0), chips - 1.0)
            lower[u] = upper[u]
        moved = True
        while moved:
            moved = False
            for e in range(len(edge_src)):
                u, v = edge_src[e], edge_dst[e]
                if upper[v] > upper[u] + 1.0:
                    upper[v] = upper[u] + 1.0
                    moved = True
                if lower[v] < lower[u]:
                    lower[v] = lower[u]
                    moved = True
            for e in range(len(edge_src) - 1, -1, -1):
                u, v = edge_src[e], edge_dst[e]
                if upper[u] > upper[v]:
                    upper[u] = upper[v]
                    moved = True
                if lower[u] < lower[v] - 1.0:
                    lower[u] = lower[v] - 1.0
                    moved = True
        for u in range(n):
            rows[s, u] = int(np.floor(0.5 * (upper[u] + lower[u]) + 0.5))
        close_gaps(rows[s], component, components, chips)
