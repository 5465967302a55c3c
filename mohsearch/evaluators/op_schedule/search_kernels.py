"""Compiled part of the level search (see :mod:`mohsearch.evaluators.op_schedule.search`)."""

from __future__ import annotations

import numpy as np
from numba import njit

WORDS = 4
"""Sets of operators are this many words of 64 bits."""

MAX_OPS = 64 * WORDS
CHECKED = 48
"""How many kept states of the same set a new one is compared with."""

_TENSOR, _VECTOR = 0, 1
_FAR = 2**62


# Columns of the table of operators, in topological order. ``before`` and ``first`` are sets as
# words of bits: what must have ended, and what must have started.
KIND, ALONE, SPREAD, MODES, TAIL, TAIL_AFTER, BEFORE, FIRST = 0, 1, 2, 3, 4, 5, 6, 6 + WORDS
OP_COLUMNS = 6 + 2 * WORDS

# Columns of a state: the set started, the earliest next start, the number of running operators, the
# lower bound; then the running operators, and behind those the end of every operator (not later
# than ``now`` where it does not run).
SET, NOW, COUNT, VALUE, LIVE = 0, WORDS, WORDS + 1, WORDS + 2, WORDS + 3

# Columns of a move from one level to the next, before the state it leads to is stored.
GAIN, PARENT, MOVE, MOMENT, KEY = range(5)


@njit(cache=True, nogil=True, error_model="numpy")
def _has(table, row, column, i):  # type: ignore[no-untyped-def]
    """Whether the set in the columns of a row from ``column`` on has member i."""
    return (table[row, column + (i >> 6)] >> (i & 63)) & 1 != 0


@njit(cache=True, nogil=True, error_model="numpy")
def _is_next(ops, states, s, j):  # type: ignore[no-untyped-def]
    """Whether operator j has not started and everything that must start before it has."""
    if _has(states, s, SET, j):
        return False
    for w in range(WORDS):
        if ops[j, FIRST + w] & ~states[s, SET + w]:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _core_free(ops, states, s, cores, other):  # type: ignore[no-untyped-def]
    """Return when a core of a kind is free, counting running operators not of kind ``other``."""
    count = states[s, COUNT]
    ends = LIVE + len(ops)
    running = 0
    for k in range(count):
        if ops[states[s, LIVE + k], KIND] != other:
            running += 1
    if running < cores:
        return 0
    need = running - cores + 1  # the need-th smallest end
    below = -1
    while True:
        smallest = _FAR
        same = 0
        for k in range(count):
            i = states[s, LIVE + k]
            end = states[s, ends + i]
            if ops[i, KIND] != other and end > below:
                if end < smallest:
                    smallest = end
                    same = 0
                if end == smallest:
                    same += 1
        need -= same
        if need <= 0:
            return smallest
        below = smallest


@njit(cache=True, nogil=True, error_model="numpy")
def _starts(ops, tensor, vector, states, s, starts):  # type: ignore[no-untyped-def]
    """Fill the earliest start of every operator that may be next, -1 for the others.

    ``starts[0]`` is for one core, ``starts[1]`` for all cores. The earliest of all is returned.
    """
    n = len(ops)
    now = states[s, NOW]
    count = states[s, COUNT]
    ends = LIVE + n
    idle = now
    for k in range(count):
        idle = max(idle, states[s, ends + states[s, LIVE + k]])
    tensor_free = max(now, _core_free(ops, states, s, tensor, _VECTOR))
    vector_free = max(now, _core_free(ops, states, s, vector, _TENSOR))
    soonest = _FAR
    for j in range(n):
        starts[0, j] = -1
        starts[1, j] = -1
        if not _is_next(ops, states, s, j):
            continue
        if ops[j, MODES] & 2:
            starts[1, j] = idle
            soonest = min(soonest, idle)
        if ops[j, MODES] & 1:
            moment = now
            if ops[j, KIND] != _VECTOR:
                moment = max(moment, tensor_free)
            if ops[j, KIND] != _TENSOR:
                moment = max(moment, vector_free)
            for k in range(count):
                i = states[s, LIVE + k]
                if _has(ops, j, BEFORE, i):
                    moment = max(moment, states[s, ends + i])
            starts[0, j] = moment
            soonest = min(soonest, moment)
    return soonest


@njit(cache=True, nogil=True, error_model="numpy")
def _make_child(ops, tensor, vector, old, p, move, moment, new, s, starts):  # type: ignore[no-untyped-def]
    """Store in place ``s`` the state after a move that starts at ``moment``."""
    n = len(ops)
    op = move >> 1
    ends = LIVE + n
    for w in range(WORDS):
        new[s, SET + w] = old[p, SET + w]
    new[s, SET + (op >> 6)] |= np.int64(1) << (op & 63)
    for i in range(n):
        new[s, ends + i] = 0
    kept = 0
    if move & 1:
        new[s, NOW] = moment + ops[op, SPREAD]
    else:
        for k in range(old[p, COUNT]):
            i = old[p, LIVE + k]
            if old[p, ends + i] > moment:
                new[s, LIVE + kept] = i
                new[s, ends + i] = old[p, ends + i]
                kept += 1
        new[s, LIVE + kept] = op
        new[s, ends + op] = moment + ops[op, ALONE]
        new[s, NOW] = moment
        kept += 1
    new[s, COUNT] = kept
    soonest = _starts(ops, tensor, vector, new, s, starts)
    if soonest < _FAR:  # nothing starts before: forget what ends by then
        kept = 0
        for k in range(new[s, COUNT]):
            i = new[s, LIVE + k]
            if new[s, ends + i] > soonest:
                new[s, LIVE + kept] = i
                kept += 1
        new[s, COUNT] = kept
        new[s, NOW] = soonest


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(ops, weights, costs, op, remaining, states, s):  # type: ignore[no-untyped-def]
    """Return a lower bound after ``op`` was started; ``remaining`` is that of its parent."""
    n = len(ops)
    now = states[s, NOW]
    count = states[s, COUNT]
    ends = LIVE + n
    best = now
    for k in range(count):
        i = states[s, LIVE + k]
        best = max(best, states[s, ends + i] + ops[i, TAIL_AFTER])
    for j in range(n):
        if now + ops[j, TAIL] > best and not _has(states, s, SET, j):
            best = now + ops[j, TAIL]
    for b in range(costs.shape[1]):
        total = remaining[b] - costs[op, b]
        for k in range(count):
            i = states[s, LIVE + k]
            total += (states[s, ends + i] - now) * weights[i, b]
        best = max(best, now + np.int64(np.ceil(total - 1e-6)))
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _dominates(states, a, b, n):  # type: ignore[no-untyped-def]
    """Whether state a has the same set as state b and is never later."""
    for w in range(WORDS):
        if states[a, SET + w] != states[b, SET + w]:
            return False
    now = states[b, NOW]
    if states[a, NOW] > now:
        return False
    ends = LIVE + n
    for k in range(states[a, COUNT]):
        i = states[a, LIVE + k]
        if states[a, ends + i] > max(states[b, ends + i], now):
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _sorted(first, second, third, count):  # type: ignore[no-untyped-def]
    """Return the places 0..count-1 ordered by three keys, equal ones as they stand (merge sort)."""
    order = np.arange(count)
    other = np.empty(count, dtype=np.int64)
    run = 1
    while run < count:
        for low in range(0, count, 2 * run):
            middle = min(low + run, count)
            high = min(low + 2 * run, count)
            a, b = low, middle
            for k in range(low, high):
                take = a < middle
                if take and b < high:
                    x, y = order[a], order[b]
                    if first[x] != first[y]:
                        take = first[x] < first[y]
                    elif second[x] != second[y]:
                        take = second[x] < second[y]
                    else:
                        take = third[x] <= third[y]
                if take:
                    other[k] = order[a]
                    a += 1
                else:
                    other[k] = order[b]
                    b += 1
        order, other = other, order
        run *= 2
    return order


@njit(cache=True, nogil=True, error_model="numpy")
def _keep_best(rows, column, count, keep):  # type: ignore[no-untyped-def]
    """Move the ``keep`` rows with the least value to the front; return (old places, first lost)."""
    values = rows[:count, column].copy()
    order = _sorted(values, values, values, count)
    marked = np.zeros(count, dtype=np.bool_)
    for k in range(keep):
        marked[order[k]] = True
    places = np.empty(keep, dtype=np.int64)
    target = 0
    for k in range(count):
        if marked[k]:
            for c in range(rows.shape[1]):
                rows[target, c] = rows[k, c]
            places[target] = k
            target += 1
    return places, values[order[keep]]


@njit(cache=True, nogil=True, error_model="numpy")
def expand(ops, weights, costs, tensor, vector, old, remaining, states, best, children):  # type: ignore[no-untyped-def]
    """Fill ``children``; return their number, the smallest bound given up, and states expanded."""
    n = len(ops)
    scratch = np.zeros((1, LIVE + 2 * n), dtype=np.int64)
    starts = np.empty((2, n), dtype=np.int64)
    unused = np.empty((2, n), dtype=np.int64)
    count = 0
    given_up = _FAR
    expanded = 0
    for p in range(states):
        if old[p, VALUE] >= best:
            continue
        expanded += 1
        _starts(ops, tensor, vector, old, p, starts)
        for move in range(2 * n):
            moment = starts[move & 1, move >> 1]
            if moment < 0:
                continue
            _make_child(ops, tensor, vector, old, p, move, moment, scratch, 0, unused)
            value = _bound(ops, weights, costs, move >> 1, remaining[p], scratch, 0)
            value = max(value, old[p, VALUE])
            if value >= best:
                continue
            if count == len(children):
                _, lost = _keep_best(children, GAIN, count, count // 2)
                given_up = min(given_up, lost)
                count //= 2
            key = np.int64(0)
            for w in range(WORDS):
                key = (key ^ (key >> 29) ^ scratch[0, SET + w]) * 0x1E3779B97F4A7C15
            children[count, GAIN] = value
            children[count, PARENT] = p
            children[count, MOVE] = move
            children[count, MOMENT] = scratch[0, NOW]
            children[count, KEY] = key ^ (key >> 32)
            count += 1
    return count, given_up, expanded


@njit(cache=True, nogil=True, error_model="numpy")
def collect(  # type: ignore[no-untyped-def]
    ops, costs, tensor, vector, old, remaining, children, count, new, new_remaining, width, trace
):
    """Store the states no other dominates, at most ``width``; return (number, first bound lost).

    ``trace`` gets parent and move of each.
    """
    n = len(ops)
    starts = np.empty((2, n), dtype=np.int64)
    unused = np.empty((2, n), dtype=np.int64)
    columns = children[:count]
    order = _sorted(columns[:, KEY], columns[:, MOMENT], columns[:, GAIN], count)
    kept = 0
    group = 0
    given_up = _FAR
    for r in range(count):
        k = order[r]
        if r > 0 and children[k, KEY] != children[order[r - 1], KEY]:
            group = kept
        if kept == len(new) - 1:  # the last place is for trying
            given_up = min(given_up, children[k, GAIN])
            continue
        p = children[k, PARENT]
        move = children[k, MOVE]
        _starts(ops, tensor, vector, old, p, starts)
        moment = starts[move & 1, move >> 1]
        _make_child(ops, tensor, vector, old, p, move, moment, new, kept, unused)
        useless = False
        for q in range(kept - 1, max(group, kept - CHECKED) - 1, -1):
            if _dominates(new, q, kept, n):
                useless = True
                break
        if not useless:
            new[kept, VALUE] = children[k, GAIN]
            trace[kept, 0] = p
            trace[kept, 1] = move
            kept += 1
    if kept > width:
        places, lost = _keep_best(new, VALUE, kept, width)
        given_up = min(given_up, lost)
        kept = width
        for k in range(width):
            trace[k, 0] = trace[places[k], 0]
            trace[k, 1] = trace[places[k], 1]
    for k in range(kept):
        for b in range(costs.shape[1]):
            new_remaining[k, b] = remaining[trace[k, 0], b] - costs[trace[k, 1] >> 1, b]
    return kept, given_up


@njit(cache=True, nogil=True, error_model="numpy")
def run_levels(ops, weights, costs, tensor, vector, limit, width):  # type: ignore[no-untyped-def]
    """Return (best makespan below ``limit``, smallest bound given up, states, best moves).

    A move is 2 * operator, + 1 if it takes all cores. ``weights`` and ``costs`` have shape
    (ops, bounds).
    """
    n, bounds = costs.shape
    capacity = 3 * width + 1
    old = np.zeros((capacity, LIVE + 2 * n), dtype=np.int64)
    new = np.zeros((capacity, LIVE + 2 * n), dtype=np.int64)
    old_remaining = np.zeros((capacity, bounds))
    new_remaining = np.zeros((capacity, bounds))
    for i in range(n):
        for b in range(bounds):
            old_remaining[0, b] += costs[i, b]
    children = np.empty((16 * width + 4 * n, 5), dtype=np.int64)
    trace = np.zeros((n, capacity, 2), dtype=np.int32)
    states = 1
    given_up = _FAR
    total = 0
    for level in range(n):
        count, lost, expanded = expand(
            ops, weights, costs, tensor, vector, old, old_remaining, states, limit, children
        )
        total += expanded
        given_up = min(given_up, lost)
        states, lost = collect(
            ops,
            costs,
            tensor,
            vector,
            old,
            old_remaining,
            children,
            count,
            new,
            new_remaining,
            width,
            trace[level],
        )
        given_up = min(given_up, lost)
        old, new = new, old
        old_remaining, new_remaining = new_remaining, old_remaining
        if states == 0:
            break
    best = limit
    winner = -1
    for s in range(states):
        finish = old[s, NOW]
        for k in range(old[s, COUNT]):
            finish = max(finish, old[s, LIVE + n + old[s, LIVE + k]])
        if finish < best:
            best = finish
            winner = s
    moves = np.zeros(n, dtype=np.int64)
    if winner >= 0:
        for level in range(n - 1, -1, -1):
            moves[level] = trace[level, winner, 1]
            winner = trace[level, winner, 0]
    return best, given_up, total, moves
