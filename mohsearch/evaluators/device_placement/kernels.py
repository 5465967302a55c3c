"""Compiled loops of the placement: stage loads, the stage-by-stage program, the final choice."""

from __future__ import annotations

import numpy as np
from numba import njit

INFINITY = np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def chain_loads(forward, backward, sources, targets, transfer):  # type: ignore[no-untyped-def]
    """Return forward time, backward time, and backward time after a free transfer start.

    Entry [i, j] is for the stage of layers i..j-1. ``transfer`` holds seconds by edge. In the third
    array the outgoing transfers begin as early as the repeated forward pass.
    """
    n = len(forward)
    entering = np.zeros((n, n))  # [first layer of the stage, layer]
    leaving = np.zeros((n + 1, n))  # [end of the stage, layer]
    for e in range(len(sources)):
        u, v, seconds = sources[e], targets[e], transfer[e]
        for i in range(u + 1, v + 1):
            entering[i, v] = max(entering[i, v], seconds)
        for j in range(u + 1, v + 1):
            leaving[j, u] = max(leaving[j, u], seconds)
    forth = np.zeros((n, n + 1))
    back = np.zeros((n, n + 1))
    again = np.zeros((n, n + 1))
    for i in range(n):
        done = 0.0
        for j in range(i, n):
            done = max(done, entering[i, j]) + forward[j]
            forth[i, j + 1] = done
    for j in range(1, n + 1):
        done = 0.0
        for i in range(j - 1, -1, -1):
            done = max(done, leaving[j, i]) + backward[i]
            back[i, j] = done
        for i in range(j):
            repeated = 0.0
            for k in range(i, j):
                repeated += forward[k]
            done = repeated
            for k in range(j - 1, i - 1, -1):
                done = max(done, leaving[j, k]) + backward[k]
            again[i, j] = done - repeated
    return forth, back, again


@njit(cache=True, nogil=True, error_model="numpy")
def chain_stash(sources, targets, edge_bytes, n):  # type: ignore[no-untyped-def]
    """Return the bytes that enter each stage [i, j] over edges."""
    stash = np.zeros((n, n + 1))
    for e in range(len(sources)):
        for i in range(sources[e] + 1, targets[e] + 1):
            for j in range(targets[e] + 1, n + 1):
                stash[i, j] += edge_bytes[e]
    return stash


@njit(cache=True, nogil=True, error_model="numpy")
def _sequence(member, release, duration, order):  # type: ignore[no-untyped-def]
    """Return when one device finishes released jobs, earliest first (1 | r, prec | Cmax)."""
    count = 0
    for v in range(len(member)):
        if member[v]:
            k = count
            while k > 0 and release[order[k - 1]] > release[v]:
                order[k] = order[k - 1]
                k -= 1
            order[k] = v
            count += 1
    done = 0.0
    for k in range(count):
        v = order[k]
        done = max(done, release[v]) + duration[v]
    return done


@njit(cache=True, nogil=True, error_model="numpy")
def subgraph_load(member, forward, backward, sources, targets, transfer):  # type: ignore[no-untyped-def]
    """Return the three times of :func:`chain_loads` for any set of layers on one device.

    Layers run one after another; an order by release dates that respect the precedence is optimal.
    """
    n = len(member)
    release = np.zeros(n)
    order = np.empty(n, dtype=np.int64)
    for v in range(n):  # positions are topological
        if member[v]:
            for e in range(len(sources)):
                if targets[e] == v:
                    u = sources[e]
                    ready = release[u] + forward[u] if member[u] else transfer[e]
                    release[v] = max(release[v], ready)
    forth = _sequence(member, release, forward, order)
    repeated = 0.0
    for v in range(n):
        if member[v]:
            repeated += forward[v]
    times = np.empty(2)
    for turn in range(2):
        start = 0.0 if turn == 0 else repeated
        release[:] = start
        for v in range(n - 1, -1, -1):
            if member[v]:
                for e in range(len(sources)):
                    if sources[e] == v:
                        w = targets[e]
                        ready = release[w] + backward[w] if member[w] else transfer[e]
                        release[v] = max(release[v], ready)
        times[turn] = _sequence(member, release, backward, order) - start
    return forth, times[0], times[1]


@njit(cache=True, nogil=True, error_model="numpy")
def subset_pairs(words):  # type: ignore[no-untyped-def]
    """Return all pairs (set, proper subset) of bit sets sorted by size, as two arrays."""
    m, width = words.shape
    bigger = []
    smaller = []
    for a in range(m):
        for b in range(a):
            inside = True
            for k in range(width):
                if words[b, k] & ~words[a, k]:
                    inside = False
                    break
            if inside:
                bigger.append(a)
                smaller.append(b)
    return np.array(bigger), np.array(smaller)


@njit(cache=True, nogil=True, error_model="numpy")
def place_stages(whole, part, last_load, inner_load, deepest, wide, counted, sets, stages):  # type: ignore[no-untyped-def]
    """Return the least maximum load by (layers placed, stages used, wide stages used).

    ``whole[k]``, ``part[k]`` are the layer sets before and after stage k is taken away; pairs are
    sorted by ``whole`` and set 0 is empty. ``deepest[k]`` is the farthest place from the end at
    which the stage fits. Wide stages are counted only when ``counted``.
    """
    most_wide = stages if counted else 0
    best = np.full((sets, stages + 1, most_wide + 1), INFINITY)
    best[0, 0, 0] = 0.0
    for k in range(len(whole)):
        a, b = whole[k], part[k]
        step = 1 if counted and wide[k] else 0
        for s in range(1, min(stages, deepest[k]) + 1):
            load = last_load[k] if s == 1 else inner_load[k]
            for q in range(step, (s if counted else 0) + 1):
                value = max(best[b, s - 1, q - step], load)
                best[a, s, q] = min(best[a, s, q], value)
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def choose_first_stage(  # type: ignore[no-untyped-def]
    best,
    first,
    part,
    last_load,
    inner_load,
    deepest,
    wide,
    weights,
    tensor,
    narrow,
    counted,
    devices,
    degrees,
    batches,
    sync,
    limit,
):
    """Return (time, pair, stages, wide stages, choice of degree) of the fastest complete plan.

    ``first`` lists the pairs that take all layers but a remainder. ``narrow`` devices serve a stage
    that is not wide; ``sync`` has seconds per byte of weights by degree. Only plans faster than
    ``limit`` count; the pair is -1 when there is none.
    """
    fastest = limit
    found = (-1, 0, 0, 0)
    stages = best.shape[1] - 1
    for k in first:
        step = 1 if counted and wide[k] else 0
        for s in range(1, min(stages, deepest[k]) + 1):
            load = last_load[k] if s == 1 else inner_load[k]
            for q in range(step, (s if counted else 0) + 1):
                slowest = max(best[part[k], s - 1, q - step], load)
                if not slowest < INFINITY:
                    continue
                used = q * tensor + (s - q) * narrow
                c = np.searchsorted(degrees, devices // used, side="right") - 1
                while c >= 0:
                    steady = slowest * (batches[c] + s - 1)
                    if steady >= fastest:
                        break  # fewer replicas take longer still
                    time = steady + sync[c] * weights[k]
                    if time < fastest:
                        fastest = time
                        found = (k, s, q, c)
                    c -= 1
    return fastest, found
