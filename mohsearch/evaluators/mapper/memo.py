"""Compiled memory of the last decision: which splits are worth trying, by what is left to split.

Where a walk has three or more decisions it comes back to the last one with the same remainder many
times. What the last decision can do is then worked out once per remainder: a split is dropped where
another one asks for no more words on any edge and no larger memory at any level, whatever the loops
outside are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.kernel_layout import MAX_LEVELS, I
from mohsearch.evaluators.mapper.kernels import (
    charge,
    compiled,
    enter_order,
    list_orders,
    price_index,
    settle_level,
)

MOST_KEYS = 2_000_000
POOL = 400_000
COLUMNS = 24
MOST_OPTIONS = 4096


MEMO = np.dtype(
    [
        ("level", "i8"),  # level of the last decision, -1: not in use
        ("radix", "i8", 8),  # weight of each dimension's divisor index in a key
        ("keys", "i8"),
        ("start", "i4", MOST_KEYS),  # where the splits stand, -1: not worked out yet
        ("count", "i4", MOST_KEYS),
        ("too_large", "f4", MOST_KEYS),  # splits that do not fit
        ("dominated", "f4", MOST_KEYS),  # splits that another one makes useless
        ("used", "i8"),  # entries of the pool in use
        ("left", "i2", (POOL, 8)),  # what is left to the levels inside
        ("head", "i1", POOL),  # the innermost loop
        ("vector", "f8", (MOST_OPTIONS, COLUMNS)),  # of the key being worked out
        ("closed", "i1", MOST_OPTIONS),
    ],
    align=True,
)
"""Splits worth trying at one level, by remainder."""


def new_memo(level: int, whole_bound: NDArray[np.int64]) -> Any:
    """Allocate an empty memory; not in use for level -1 or too many keys."""
    memo = np.zeros(1, dtype=MEMO)[0]
    sizes = whole_bound + 1
    keys = int(np.prod(sizes))
    memo["level"] = level if keys <= MOST_KEYS else -1
    memo["keys"] = keys if memo["level"] >= 0 else 0
    memo["radix"] = np.concatenate([[1], np.cumprod(sizes)[:-1]])
    return memo


@compiled
def forget(memo):  # type: ignore[no-untyped-def]
    """Empty the memory: another spatial choice follows."""
    for key in range(memo.keys):
        memo.start[key] = -1
    memo.used = 0


@compiled
def key_of(t, st, memo):  # type: ignore[no-untyped-def]
    """Return the key of what is left to the last decision's level."""
    key = 0
    for i in range(t.actives):
        d = t.active[i]
        key += st.left[memo.level, d] * memo.radix[d]
    return key


@compiled
def recall(t, st, memo):  # type: ignore[no-untyped-def]
    """Return the key of the current remainder, working its splits out where they are not known.

    Returns -1 where the pool is full.
    """
    key = key_of(t, st, memo)
    if memo.start[key] >= 0:
        return key
    level = memo.level
    heads = np.empty(MAX_LEVELS, dtype=np.int64)
    for outer in range(level):
        heads[outer] = st.head[outer]
    reuse = np.empty(3)
    for x in range(3):
        reuse[x] = st.reuse[level, x]
        st.reuse[level, x] = 1.0
    for outer in range(level):
        st.head[outer] = -1
    done = work_out(t, st, memo, key)
    for x in range(3):
        st.reuse[level, x] = reuse[x]
    for outer in range(level):
        st.head[outer] = heads[outer]
    return key if done else -1


@compiled
def work_out(t, st, memo, key):  # type: ignore[no-untyped-def]
    """List the splits of one remainder that no other dominates; False where there is no room."""
    level = memo.level
    dims = np.zeros(8, dtype=np.int64)
    last = -1
    for i in range(t.actives):
        d = t.active[i]
        if t.option_count[level, d, st.left[level, d]] > 1:
            last += 1
            dims[last] = d
    start = memo.used
    memo.start[key] = start
    memo.count[key] = 0
    memo.too_large[key] = 0.0
    memo.dominated[key] = 0.0
    at = np.zeros(8, dtype=np.int64)
    at[:] = -1
    if last < 0:
        fits = try_split(t, st, memo, key, start)
        if fits == 0:
            memo.too_large[key] += 1.0
        return fits >= 0
    k = np.int64(0)
    while k >= 0:
        d = dims[k]
        at[k] += 1
        if at[k] >= t.option_count[level, d, st.left[level, d]]:
            at[k] = -1
            k -= 1
            continue
        option = t.option_start[level, d, st.left[level, d]] + at[k]
        st.left[level + 1, d] = t.option_next[option]
        if k < last:
            k += 1
            continue
        fits = try_split(t, st, memo, key, start)
        if fits < 0:
            return False
        if fits == 0:
            drop_larger(t, st, memo, key, dims, at, k)
            while k >= 0 and at[k] == 0:
                at[k] = -1
                k -= 1
            if k >= 0:
                at[k] = -1
                k -= 1
    return True


@compiled
def drop_larger(t, st, memo, key, dims, at, k):  # type: ignore[no-untyped-def]
    """Count the splits that can only be larger than the one that did not fit."""
    level = memo.level
    ways = 1.0
    first = k
    while first >= 0 and at[first] == 0:
        ways *= t.option_count[level, dims[first], st.left[level, dims[first]]]
        first -= 1
    if first >= 0:
        ways *= t.option_count[level, dims[first], st.left[level, dims[first]]] - at[first]
    memo.too_large[key] += ways


@compiled
def try_split(t, st, memo, key, start):  # type: ignore[no-untyped-def]
    """Cost one split in every loop order: 1 where it fits, 0 where not, -1 without room."""
    level = memo.level
    if not settle_level(t, st, level):
        return 0
    orders = list_orders(t, st, level)
    for order in range(orders):
        enter_order(t, st, level, st.heads[level, order])
        fits = True
        for inner in range(level + 1, t.depth - 1):
            if not settle_level(t, st, inner):
                fits = False
                break
            list_orders(t, st, inner)
            enter_order(t, st, inner, st.heads[inner, 0])
        if not fits:
            memo.too_large[key] += 1.0 / orders
            continue
        charge(t, st, t.depth, t.depth)
        if not keep_split(t, st, memo, key, start, 1.0 / orders):
            return -1
    return 1


@compiled
def note_demand(t, st, level, vector):  # type: ignore[no-untyped-def]
    """Write down the size of every level inside ``level`` and the words on every edge there.

    Returns how many numbers that is.
    """
    columns = 0
    for child in range(level + 1, t.depth + 1):
        if child < t.depth:
            used = 0.0
            for x in range(3):
                if t.keeps[child, x]:
                    used += st.words[child, x]
            vector[columns] = price_index(t, child, used)
            columns += 1
        for x in range(3):
            if t.parent[child, x] >= 0 and (child < t.depth or (x == I and st.diagonal[child])):
                vector[columns] = st.edge_fills[child, x]
                vector[columns + 1] = st.edge_served[child, x]
                columns += 2
    return columns


@compiled
def keep_split(t, st, memo, key, start, weight):  # type: ignore[no-untyped-def]
    """Keep a split unless another dominates it; drop those it dominates.

    Only a split whose reuse ends inside can be dominated: what the loops outside add to the reuse
    of another one makes that one no worse than noted. Returns False where there is no room.
    """
    count = memo.count[key]
    if count >= MOST_OPTIONS or start + count >= POOL:
        memo.start[key] = -1
        return False
    vector = memo.vector[count]
    columns = note_demand(t, st, memo.level, vector)
    closed = every_edge_closed(t, st, memo.level)
    kept = 0
    for i in range(count):
        no_worse = closed
        no_better = memo.closed[i]
        for j in range(columns):
            no_worse = no_worse and memo.vector[i, j] <= vector[j]
            no_better = no_better and memo.vector[i, j] >= vector[j]
        if no_worse:
            memo.dominated[key] += weight
            return True
        if no_better:
            memo.dominated[key] += weight
            continue
        if kept < i:
            move_split(memo, start, i, kept, columns)
        kept += 1
    for j in range(columns):
        memo.vector[kept, j] = vector[j]
    memo.closed[kept] = closed
    memo.head[start + kept] = st.head[memo.level]
    for d in range(8):
        memo.left[start + kept, d] = st.left[memo.level + 1, d]
    memo.count[key] = kept + 1
    memo.used = start + kept + 1
    return True


@compiled
def move_split(memo, start, source, target, columns):  # type: ignore[no-untyped-def]
    """Copy one split of the key being worked out to another place."""
    for j in range(columns):
        memo.vector[target, j] = memo.vector[source, j]
    memo.closed[target] = memo.closed[source]
    memo.head[start + target] = memo.head[start + source]
    for d in range(8):
        memo.left[start + target, d] = memo.left[start + source, d]


@compiled
def every_edge_closed(t, st, level):  # type: ignore[no-untyped-def]
    """Tell whether the reuse of every level inside ends at or inside ``level``."""
    for child in range(level + 1, t.depth):
        for x in range(3):
            if t.parent[child, x] < 0:
                continue
            through = True
            for outer in range(level, child):
                for y in range(4):
                    through = through and (y == x or st.classes[outer, y] == 1.0)
            if through:
                return False
    return True
