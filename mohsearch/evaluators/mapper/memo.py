"""Compiled memory of the last decision: which splits are worth trying, by what is left to split.

Where a walk has three or more decisions it comes back to the last one with the same remainder many
times. What the last decision can do is then worked out once per remainder: a split is dropped where
another one asks for no more words on any edge and no larger memory at any level, whatever the loops
outside are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.kernels import (
    CLASS,
    I,
    charge,
    enter_order,
    list_orders,
    price_index,
    settle_level,
)

MOST_KEYS = 2_000_000
POOL = 400_000
COLUMNS = 24
MOST_OPTIONS = 4096


class Memo(NamedTuple):
    """Splits worth trying at one level, by remainder.

    Attributes
    ----------
    level
        Shape (2,): the level of the last decision (-1: not in use), and the first one inside whose
        tile follows from it.
    radix
        Shape (8,): weight of each dimension's divisor index in a key.
    start, count
        Shape (keys,): where the splits stand; start -1 where not worked out yet.
    used
        Shape (1,): entries of the pool in use.
    left, variant
        Shapes (POOL, 8), (POOL,): what is left to the levels inside, and the loop order.
    too_large, dominated, kept
        Shape (keys,): mappings that do not fit, that others dominate, that are kept.
    """

    level: NDArray[np.int64]
    radix: NDArray[np.int64]
    start: NDArray[np.int32]
    count: NDArray[np.int32]
    used: NDArray[np.int64]
    left: NDArray[np.int16]
    variant: NDArray[np.int8]
    too_large: NDArray[np.float32]
    dominated: NDArray[np.float32]
    vector: NDArray[np.float64]  # (MOST_OPTIONS, COLUMNS) of the key being worked out
    closed: NDArray[np.bool_]  # (MOST_OPTIONS,)


def new_memo(level: int, decided: int, whole_bound: NDArray[np.int64]) -> Memo:
    """Allocate an empty memory; level -1 for one that is not used."""
    sizes = whole_bound + 1
    keys = int(np.prod(sizes)) if level >= 0 else 1
    if keys > MOST_KEYS:
        level, keys = -1, 1
    pool = POOL if level >= 0 else 1
    return Memo(
        level=np.array([level, decided]),
        radix=np.concatenate([[1], np.cumprod(sizes)[:-1]]).astype(np.int64),
        start=np.full(keys, -1, dtype=np.int32),
        count=np.zeros(keys, dtype=np.int32),
        used=np.zeros(1, dtype=np.int64),
        left=np.zeros((pool, 8), dtype=np.int16),
        variant=np.zeros(pool, dtype=np.int8),
        too_large=np.zeros(keys, dtype=np.float32),
        dominated=np.zeros(keys, dtype=np.float32),
        vector=np.zeros((MOST_OPTIONS, COLUMNS)),
        closed=np.zeros(MOST_OPTIONS, dtype=np.bool_),
    )


@njit(cache=True)
def forget(memo):  # type: ignore[no-untyped-def]
    """Empty the memory: another spatial choice follows."""
    memo.start[:] = -1
    memo.used[0] = 0


@njit(cache=True)
def key_of(t, st, memo):  # type: ignore[no-untyped-def]
    """Return the key of what is left to the last decision's level."""
    key = 0
    for i in range(t.actives):
        d = t.active[i]
        key += st.left[memo.level[0], d] * memo.radix[d]
    return key


@njit(cache=True)
def recall(t, lists, st, memo):  # type: ignore[no-untyped-def]
    """Return the key of the current remainder, working its splits out where they are not known.

    Returns -1 where the pool is full.
    """
    key = key_of(t, st, memo)
    if memo.start[key] >= 0:
        return key
    level = memo.level[0]
    loops = st.loops.copy()
    reuse = np.empty(3)
    for x in range(3):
        reuse[x] = st.reuse[level, x]
        st.reuse[level, x] = 1.0
    for outer in range(level):
        st.loops[outer] = 0
    done = work_out(t, lists, st, memo, key)
    for x in range(3):
        st.reuse[level, x] = reuse[x]
    for outer in range(level):
        st.loops[outer] = loops[outer]
    return key if done else -1


@njit(cache=True)
def work_out(t, lists, st, memo, key):  # type: ignore[no-untyped-def]
    """List the splits of one remainder that no other dominates; False where there is no room."""
    level, child = memo.level
    dims = np.zeros(8, dtype=np.int64)
    last = -1
    for i in range(t.actives):
        d = t.active[i]
        if t.option_count[level, d, st.left[level, d]] > 1:
            last += 1
            dims[last] = d
    start = memo.used[0]
    memo.start[key] = start
    memo.count[key] = 0
    memo.too_large[key] = 0.0
    memo.dominated[key] = 0.0
    at = np.zeros(8, dtype=np.int64)
    at[:] = -1
    if last < 0:
        return try_split(t, lists, st, memo, key, start) >= 0
    k = 0
    while k >= 0:
        d = dims[k]
        at[k] += 1
        if at[k] >= t.option_count[level, d, st.left[level, d]]:
            at[k] = -1
            k -= 1
            continue
        option = t.option_start[level, d, st.left[level, d]] + at[k]
        st.left[level + 1, d] = lists.option_next[option]
        if k < last:
            k += 1
            continue
        fits = try_split(t, lists, st, memo, key, start)
        if fits < 0:
            return False
        if fits == 0:
            drop_larger(t, lists, st, memo, key, dims, at, k)
            while k >= 0 and at[k] == 0:
                at[k] = -1
                k -= 1
            if k >= 0:
                at[k] = -1
                k -= 1
    return True


@njit(cache=True)
def drop_larger(t, lists, st, memo, key, dims, at, k):  # type: ignore[no-untyped-def]
    """Count the splits that can only be larger than the one that did not fit."""
    level = memo.level[0]
    ways = 1.0
    first = k
    while first >= 0 and at[first] == 0:
        ways *= t.option_count[level, dims[first], st.left[level, dims[first]]]
        first -= 1
    if first >= 0:
        ways *= t.option_count[level, dims[first], st.left[level, dims[first]]] - at[first]
    memo.too_large[key] += ways


@njit(cache=True)
def try_split(t, lists, st, memo, key, start):  # type: ignore[no-untyped-def]
    """Cost one split in every loop order: 1 where it fits, 0 where not, -1 where no room is left."""
    level, child = memo.level
    if not settle_level(t, lists, st, level):
        return 0
    orders = list_orders(t, st, level)
    for variant in range(orders):
        enter_order(t, st, level, variant)
        fits = True
        for inner in range(level + 1, t.depth - 1):
            if not settle_level(t, lists, st, inner):
                fits = False
                break
            list_orders(t, st, inner)
            enter_order(t, st, inner, 0)
        if not fits:
            memo.too_large[key] += 1.0 / orders
            continue
        charge(t, st, t.depth, t.depth)
        if not keep_split(t, st, memo, key, start, variant, 1.0 / orders):
            return -1
        if variant + 1 < orders:
            list_orders(t, st, level)
    return 1


@njit(cache=True)
def keep_split(t, st, memo, key, start, variant, weight):  # type: ignore[no-untyped-def]
    """Keep a split unless another dominates it; drop those it dominates."""
    level = memo.level[0]
    count = memo.count[key]
    if count >= memo.vector.shape[0] or start + count >= memo.left.shape[0]:
        memo.start[key] = -1
        return False
    vector = memo.vector[count]
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
    closed = every_edge_closed(t, st, level)
    kept = 0
    for i in range(count):
        other = memo.vector[i]
        no_worse = closed
        no_better = memo.closed[i]
        for j in range(columns):
            no_worse = no_worse and other[j] <= vector[j]
            no_better = no_better and other[j] >= vector[j]
        if no_worse:
            memo.dominated[key] += weight
            return True
        if no_better:
            memo.dominated[key] += weight
            continue
        if kept < i:
            memo.vector[kept] = other
            memo.closed[kept] = memo.closed[i]
            memo.left[start + kept] = memo.left[start + i]
            memo.variant[start + kept] = memo.variant[start + i]
        kept += 1
    memo.vector[kept] = vector
    memo.closed[kept] = closed
    memo.variant[start + kept] = variant
    for d in range(8):
        memo.left[start + kept, d] = st.left[level + 1, d]
    memo.count[key] = kept + 1
    memo.used[0] = start + kept + 1
    return True


@njit(cache=True)
def every_edge_closed(t, st, level):  # type: ignore[no-untyped-def]
    """Tell whether the reuse of every level inside ends at or inside ``level``."""
    for child in range(level + 1, t.depth):
        for x in range(3):
            if t.parent[child, x] < 0:
                continue
            through = True
            for outer in range(level, child):
                for j in range(st.loops[outer]):
                    through = through and CLASS[st.order[outer, j]] == x
            if through:
                return False
    return True
