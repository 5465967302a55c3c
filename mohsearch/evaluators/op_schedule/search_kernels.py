"""Compiled part of the level search (see :mod:`mohsearch.evaluators.op_schedule.search`)."""

from __future__ import annotations

import numpy as np
from numba import njit

MAX_OPS = 128
CHECKED = 48
"""How many kept states of the same set a new one is compared with."""

_TENSOR, _VECTOR = 0, 1
_FAR = 2**62


@njit(cache=True, nogil=True, error_model="numpy")
def _has(words, i):  # type: ignore[no-untyped-def]
    return (words[i >> 6] >> np.uint64(i & 63)) & np.uint64(1) != 0


@njit(cache=True, nogil=True, error_model="numpy")
def _core_free(kinds, live, ends, count, cores, other):  # type: ignore[no-untyped-def]
    """Return when a core of a kind is free, counting running operators not of kind ``other``."""
    running = 0
    for k in range(count):
        if kinds[live[k]] != other:
            running += 1
    if running < cores:
        return 0
    below = -1  # the (running - cores + 1)-th smallest end
    need = running - cores + 1
    while True:
        smallest = _FAR
        for k in range(count):
            if kinds[live[k]] != other and below < ends[live[k]] < smallest:
                smallest = ends[live[k]]
        for k in range(count):
            if kinds[live[k]] != other and ends[live[k]] == smallest:
                need -= 1
        if need <= 0:
            return smallest
        below = smallest


@njit(cache=True, nogil=True, error_model="numpy")
def _starts(  # type: ignore[no-untyped-def]
    started, now, ends, live, count, kinds, modes, before, first, tensor, vector, alone_at, idle_at
):
    """Fill the earliest start of every operator that may be next (-1 for others); return idle time.

    ``alone_at`` is for one core, ``idle_at`` for all cores.
    """
    n = len(kinds)
    idle = now
    for k in range(count):
        idle = max(idle, ends[live[k]])
    tensor_free = max(now, _core_free(kinds, live, ends, count, tensor, _VECTOR))
    vector_free = max(now, _core_free(kinds, live, ends, count, vector, _TENSOR))
    for j in range(n):
        alone_at[j] = -1
        idle_at[j] = -1
        if _has(started, j):
            continue
        if (first[j, 0] & ~started[0]) | (first[j, 1] & ~started[1]):
            continue
        if modes[j] & 2:
            idle_at[j] = idle
        if modes[j] & 1:
            moment = now
            if kinds[j] != _VECTOR:
                moment = max(moment, tensor_free)
            if kinds[j] != _TENSOR:
                moment = max(moment, vector_free)
            for k in range(count):
                if _has(before[j], live[k]):
                    moment = max(moment, ends[live[k]])
            alone_at[j] = moment
    return idle


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(  # type: ignore[no-untyped-def]
    now, ends, live, count, remaining, tail, tail_after, weights, before, started, first
):
    """Return a lower bound on the makespan reachable from a state."""
    best = now
    for k in range(count):
        best = max(best, ends[live[k]] + tail_after[live[k]])
    for j in range(len(tail)):
        if _has(started, j) or (first[j, 0] & ~started[0]) | (first[j, 1] & ~started[1]):
            continue
        ready = now
        for k in range(count):
            if _has(before[j], live[k]):
                ready = max(ready, ends[live[k]])
        best = max(best, ready + tail[j])
    for b in range(len(remaining)):
        total = remaining[b]
        for k in range(count):
            total += (ends[live[k]] - now) * weights[live[k], b]
        best = max(best, now + np.int64(np.ceil(total - 1e-6)))
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _apply(  # type: ignore[no-untyped-def]
    op, spread, moment, started, ends, live, count, alone, length, new_started, new_ends, new_live
):
    """Start an operator; fill the new state's set, ends and running list; return (count, now)."""
    new_started[0] = started[0]
    new_started[1] = started[1]
    new_started[op >> 6] |= np.uint64(1) << np.uint64(op & 63)
    if spread:
        return 0, moment + length[op]
    new_count = 0
    for k in range(count):
        if ends[live[k]] > moment:
            new_live[new_count] = live[k]
            new_ends[live[k]] = ends[live[k]]
            new_count += 1
    new_live[new_count] = op
    new_ends[op] = moment + alone[op]
    return new_count + 1, moment


@njit(cache=True, nogil=True, error_model="numpy")
def _settle(  # type: ignore[no-untyped-def]
    started, now, ends, live, count, kinds, modes, before, first, tensor, vector, alone_at, idle_at
):
    """Return (count, moment): the earliest next start, with operators that end by then dropped."""
    _starts(
        started,
        now,
        ends,
        live,
        count,
        kinds,
        modes,
        before,
        first,
        tensor,
        vector,
        alone_at,
        idle_at,
    )
    soonest = _FAR
    for j in range(len(kinds)):
        if alone_at[j] >= 0:
            soonest = min(soonest, alone_at[j])
        if idle_at[j] >= 0:
            soonest = min(soonest, idle_at[j])
    if soonest == _FAR:  # all are started
        return count, now
    kept = 0
    for k in range(count):
        if ends[live[k]] > soonest:
            live[kept] = live[k]
            kept += 1
    return kept, soonest


@njit(cache=True, nogil=True, error_model="numpy")
def _dominates(now_a, ends_a, live_a, count_a, now_b, ends_b):  # type: ignore[no-untyped-def]
    """Whether state a is never later than state b of the same set; ``ends_b`` is 0 when ended."""
    if now_a > now_b:
        return False
    for k in range(count_a):
        i = live_a[k]
        if ends_a[i] > max(ends_b[i], now_b):
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def run_levels(  # type: ignore[no-untyped-def]  # noqa: PLR0915
    kinds,
    alone,
    spread,
    modes,
    before,
    first,
    tail,
    tail_after,
    weights,
    costs,
    tensor,
    vector,
    limit,
    width,
):
    """Return (best makespan below ``limit``, smallest bound given up, states, best moves).

    ``costs`` and ``weights`` have shape (ops, bounds). A move is 2 * operator + (1 if on all cores).
    """
    n = len(kinds)
    bounds = costs.shape[1]
    capacity = 3 * width
    # states of this level and the next
    started = np.zeros((2, capacity, 2), dtype=np.uint64)
    now = np.zeros((2, capacity), dtype=np.int64)
    ends = np.zeros((2, capacity, n), dtype=np.int64)
    live = np.zeros((2, capacity, n), dtype=np.int64)
    count = np.zeros((2, capacity), dtype=np.int64)
    remaining = np.zeros((2, capacity, bounds))
    value = np.zeros((2, capacity), dtype=np.int64)
    parents = np.zeros((n, capacity), dtype=np.int32)
    moves = np.zeros((n, capacity), dtype=np.int16)
    remaining[0, 0] = costs.sum(axis=0)
    states = 1
    given_up = _FAR
    expanded = 0
    best = limit
    best_moves = np.zeros(n, dtype=np.int64)
    room = 16 * width + 4 * n
    child_value = np.empty(room, dtype=np.int64)
    child_parent = np.empty(room, dtype=np.int64)
    child_move = np.empty(room, dtype=np.int64)
    child_now = np.empty(room, dtype=np.int64)
    child_hash = np.empty(room, dtype=np.uint64)
    alone_at = np.empty(n, dtype=np.int64)
    idle_at = np.empty(n, dtype=np.int64)
    scratch_at = np.empty(n, dtype=np.int64)
    scratch_idle = np.empty(n, dtype=np.int64)
    s_started = np.zeros(2, dtype=np.uint64)
    s_ends = np.zeros(n, dtype=np.int64)
    s_live = np.zeros(n, dtype=np.int64)
    s_remaining = np.empty(bounds)
    for level in range(n):
        old = level & 1
        new = 1 - old
        children = 0
        for p in range(states):
            if value[old, p] >= best:
                continue
            expanded += 1
            _starts(
                started[old, p],
                now[old, p],
                ends[old, p],
                live[old, p],
                count[old, p],
                kinds,
                modes,
                before,
                first,
                tensor,
                vector,
                alone_at,
                idle_at,
            )
            for move in range(2 * n):
                op = move >> 1
                moment = idle_at[op] if move & 1 else alone_at[op]
                if moment < 0:
                    continue
                c, after = _apply(
                    op,
                    move & 1,
                    moment,
                    started[old, p],
                    ends[old, p],
                    live[old, p],
                    count[old, p],
                    alone,
                    spread,
                    s_started,
                    s_ends,
                    s_live,
                )
                c, after = _settle(
                    s_started,
                    after,
                    s_ends,
                    s_live,
                    c,
                    kinds,
                    modes,
                    before,
                    first,
                    tensor,
                    vector,
                    scratch_at,
                    scratch_idle,
                )
                for b in range(bounds):
                    s_remaining[b] = remaining[old, p, b] - costs[op, b]
                v = _bound(
                    after,
                    s_ends,
                    s_live,
                    c,
                    s_remaining,
                    tail,
                    tail_after,
                    weights,
                    before,
                    s_started,
                    first,
                )
                v = max(v, value[old, p])
                if v >= best:
                    continue
                if children == room:  # keep the better half
                    cut = np.argsort(child_value[:children], kind="mergesort")
                    keep = children // 2
                    given_up = min(given_up, child_value[cut[keep]])
                    child_value[:keep] = child_value[cut[:keep]]
                    child_parent[:keep] = child_parent[cut[:keep]]
                    child_move[:keep] = child_move[cut[:keep]]
                    child_now[:keep] = child_now[cut[:keep]]
                    child_hash[:keep] = child_hash[cut[:keep]]
                    children = keep
                child_value[children] = v
                child_parent[children] = p
                child_move[children] = move
                child_now[children] = after
                h = s_started[0] * np.uint64(0x9E3779B97F4A7C15)
                h ^= h >> np.uint64(29)
                h += s_started[1] * np.uint64(0xBF58476D1CE4E5B9)
                child_hash[children] = h ^ (h >> np.uint64(32))
                children += 1
        # group by set, the earlier first, and keep what nothing dominates
        order = np.argsort(child_value[:children], kind="mergesort")
        order = order[np.argsort(child_now[order], kind="mergesort")]
        order = order[np.argsort(child_hash[order], kind="mergesort")]
        kept = 0
        group = 0
        overfull = _FAR
        for r in range(children):
            k = order[r]
            if r > 0 and child_hash[k] != child_hash[order[r - 1]]:
                group = kept
            p = child_parent[k]
            move = child_move[k]
            op = move >> 1
            # compute the state again into the next free place
            if kept == capacity:
                overfull = min(overfull, child_value[k])
                continue
            _starts(
                started[old, p],
                now[old, p],
                ends[old, p],
                live[old, p],
                count[old, p],
                kinds,
                modes,
                before,
                first,
                tensor,
                vector,
                alone_at,
                idle_at,
            )
            moment = idle_at[op] if move & 1 else alone_at[op]
            ends[new, kept, :] = 0
            c, after = _apply(
                op,
                move & 1,
                moment,
                started[old, p],
                ends[old, p],
                live[old, p],
                count[old, p],
                alone,
                spread,
                started[new, kept],
                ends[new, kept],
                live[new, kept],
            )
            c, after = _settle(
                started[new, kept],
                after,
                ends[new, kept],
                live[new, kept],
                c,
                kinds,
                modes,
                before,
                first,
                tensor,
                vector,
                scratch_at,
                scratch_idle,
            )
            useless = False
            tried = 0
            for q in range(kept - 1, group - 1, -1):
                if tried == CHECKED:
                    break
                tried += 1
                if (
                    started[new, q, 0] == started[new, kept, 0]
                    and started[new, q, 1] == started[new, kept, 1]
                    and _dominates(
                        now[new, q],
                        ends[new, q],
                        live[new, q],
                        count[new, q],
                        after,
                        ends[new, kept],
                    )
                ):
                    useless = True
                    break
            if useless:
                continue
            now[new, kept] = after
            count[new, kept] = c
            value[new, kept] = child_value[k]
            for b in range(bounds):
                remaining[new, kept, b] = remaining[old, p, b] - costs[op, b]
            parents[level, kept] = p
            moves[level, kept] = move
            kept += 1
        given_up = min(given_up, overfull)
        if kept > width:
            rank = np.argsort(value[new, :kept], kind="mergesort")
            given_up = min(given_up, value[new, rank[width]])
            marked = np.zeros(kept, dtype=np.bool_)
            for k in range(width):
                marked[rank[k]] = True
            target = 0
            for k in range(kept):
                if marked[k]:
                    if target < k:
                        started[new, target] = started[new, k]
                        now[new, target] = now[new, k]
                        ends[new, target] = ends[new, k]
                        live[new, target] = live[new, k]
                        count[new, target] = count[new, k]
                        remaining[new, target] = remaining[new, k]
                        value[new, target] = value[new, k]
                        parents[level, target] = parents[level, k]
                        moves[level, target] = moves[level, k]
                    target += 1
            kept = width
        states = kept
        if states == 0:
            break
    if states > 0:
        last = n & 1
        winner = -1
        for p in range(states):
            finish = now[last, p]
            for k in range(count[last, p]):
                finish = max(finish, ends[last, p, live[last, p, k]])
            if finish < best:
                best = finish
                winner = p
        if winner >= 0:
            p = winner
            for level in range(n - 1, -1, -1):
                best_moves[level] = moves[level, p]
                p = parents[level, p]
    return best, given_up, expanded, best_moves
