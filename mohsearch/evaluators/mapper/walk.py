"""Compiled branch-and-bound walk over all mappings of a spatial choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.front import PARETO, beaten, offer
from mohsearch.evaluators.mapper.hull import build_hull, follow, hope_left, list_hopes
from mohsearch.evaluators.mapper.kernels import (
    CANONICAL,
    charge,
    enter_order,
    enter_spatial,
    least_cycles,
    least_energy,
    list_orders,
    settle_level,
    start_outside,
)
from mohsearch.evaluators.mapper.memo import forget, recall

DONE, LIMIT, FULL, TOO_LARGE, NO_ROOM = range(5)
"""How a walk ends: all covered, evaluation limit, front full, least tiles exceed a capacity,
too many splits to remember."""


class Slots(NamedTuple):
    """The decisions of a walk in order: the split of a dimension at a level, or a loop order."""

    level: NDArray[np.int64]
    dim: NDArray[np.int64]  # -1 for the loop order
    prune: NDArray[np.bool_]  # (1,)


class Tally(NamedTuple):
    """What walks did. Mappings are counted as spatial choices times temporal factorisations."""

    evaluated: NDArray[np.int64]  # (1,) mappings costed, loop orders counted apart
    bounded: NDArray[np.int64]  # (L + 1,) lower bounds worked out
    limit: NDArray[np.int64]  # (1,) most mappings to cost
    covered: NDArray[np.float64]  # (1,) mappings costed in full
    over_capacity: NDArray[np.float64]  # (L + 1,) cut because a tile exceeds the level
    beaten: NDArray[np.float64]  # (L + 1,) cut because the front beats a lower bound
    dominated: NDArray[np.float64]  # (L + 1,) cut because another split is never worse


@njit(cache=True)
def weight_below(t, st, level):  # type: ignore[no-untyped-def]
    """Return in how many ways what is left to a level can be split."""
    weight = 1.0
    for i in range(t.actives):
        d = t.active[i]
        weight *= t.chains[level, d, st.left[level, d]]
    return weight


@njit(cache=True)
def order_weight(t, st, slots, child, stop):  # type: ignore[no-untyped-def]
    """Return the mappings below the current order, shared evenly among a level's orders."""
    weight = weight_below(t, st, child)
    for k in range(slots.level.shape[0]):
        if slots.dim[k] < 0 and slots.level[k] < child:
            weight /= stop[k]
    return weight


@njit(cache=True)
def skip_larger(t, lists, st, slots, slot, position, stop, cut):  # type: ignore[no-untyped-def]
    """Drop the options that can only make the tile just rejected larger."""
    level = slots.level[slot]
    k = slot - 1
    shared = 1.0
    for other in range(slot):
        if slots.dim[other] < 0:
            shared *= stop[other]
    while k >= 0 and slots.level[k] == level:
        d = slots.dim[k]
        first = t.option_start[level, d, st.left[level, d]]
        weight = 1.0 / shared
        for i in range(t.actives):
            other = t.active[i]
            if other != d:
                at = level + 1
                for j in range(k + 1, slot):
                    if slots.dim[j] == other:
                        at = level
                weight *= t.chains[at, other, st.left[at, other]]
        for option in range(position[k] + 1, stop[k]):
            below = t.chains[level + 1, d, lists.option_next[option]]
            cut[level + 1] += weight * below
        stop[k] = position[k] + 1
        if position[k] > first:
            return
        k -= 1


@njit(cache=True)
def finish(t, lists, st, f, choice, level):  # type: ignore[no-untyped-def]
    """Settle the levels without a choice, charge the MACs' traffic and offer the mapping.

    Returns the level whose capacity is exceeded, 0 when offered, -1 where the front is full.
    """
    depth = t.depth
    last = depth - 1
    while level < last:
        if not settle_level(t, lists, st, level):
            return level + 1
        list_orders(t, st, level)
        enter_order(t, st, level, 0)
        level += 1
    length = 0
    for j in range(8):
        d = CANONICAL[j] if t.free_order[last] else t.order[last, j]
        st.factor[last, d] = st.rest[last, d]
        if st.rest[last, d] > 1.0:
            st.order[last, length] = d
            length += 1
    st.loops[last] = length
    for other in range(depth):
        st.reads[depth, other] = st.reads[last, other]
        st.writes[depth, other] = st.writes[last, other]
    energy = st.energy[last] + charge(t, st, depth, depth)
    cycles = least_cycles(t, st, depth)
    area = st.chip_area[last] + st.inner_area[depth]
    if f.scalar[0] == PARETO and beaten(f, cycles, energy, area):
        return 0
    return -1 if offer(f, st, depth, choice, cycles, energy, area) < 0 else 0


@njit(cache=True)
def try_remembered(t, lists, st, f, tally, memo, choice, slots, stop):  # type: ignore[no-untyped-def]
    """Try the splits of the last decision that are worth it; return how that ended."""
    level = memo.level[0]
    key = recall(t, lists, st, memo)
    if key < 0:
        forget(memo)
        key = recall(t, lists, st, memo)
        if key < 0:
            return NO_ROOM
    share = order_weight(t, st, slots, level, stop) / weight_below(t, st, level)
    tally.over_capacity[level + 1] += share * memo.too_large[key]
    tally.dominated[level + 1] += share * memo.dominated[key]
    for i in range(memo.start[key], memo.start[key] + memo.count[key]):
        follow(t, lists, st, memo, i)
        orders = 1.0
        if t.free_order[level]:
            orders = list_orders(t, st, level)
        enter_order(t, st, level, memo.variant[i])
        if finish(t, lists, st, f, choice, level + 1) < 0:
            return FULL
        tally.evaluated[0] += 1
        tally.covered[0] += share / orders
    return LIMIT if tally.evaluated[0] >= tally.limit[0] else DONE


@njit(cache=True)
def hopeless(t, st, f, known):  # type: ignore[no-untyped-def]
    """Tell whether the front beats everything that agrees with what is fixed so far."""
    area = st.chip_area[known] + st.inner_area[known + 1]
    cycles = least_cycles(t, st, known)
    energy = least_energy(t, st, known, t.depth)
    return beaten(f, cycles, energy, area)


@njit(cache=True)
def walk(t, lists, st, slots, f, tally, hull, hopes, memo, choice):  # type: ignore[no-untyped-def]
    """Walk all mappings of the spatial choice ``st.sigma``; return how it ended."""
    tight = enter_spatial(t, lists, st)
    if tight:
        tally.over_capacity[tight] += weight_below(t, st, 0)
        return TOO_LARGE
    prune = slots.prune[0]
    if prune and hopeless(t, st, f, 0):
        tally.beaten[0] += weight_below(t, st, 0)
        return DONE
    count = slots.level.shape[0]
    decided = slots.level[count - 1] + 1
    remember = prune and memo.level[0] >= 0
    if remember:
        decided -= 1
        forget(memo)
    if prune:
        hopes.decided[0] = decided
        build_hull(t, lists, st, hull, memo, decided)
        start_outside(t, st)
        if list_hopes(t, st, hull, hopes, f, 0, decided) == 0:
            tally.beaten[0] += weight_below(t, st, 0)
            return DONE
    position = np.zeros(count, dtype=np.int64)
    stop = np.ones(count, dtype=np.int64)
    k = 0
    entering = True
    while k >= 0:
        level = slots.level[k]
        d = slots.dim[k]
        if d >= 0:
            if entering:
                at = st.left[level, d]
                position[k] = t.option_start[level, d, at]
                stop[k] = position[k] + t.option_count[level, d, at]
            else:
                position[k] += 1
            entering = position[k] < stop[k]
            if entering:
                st.left[level + 1, d] = lists.option_next[position[k]]
            k += 1 if entering else -1
            continue
        child = level + 1
        if entering:
            fits = settle_level(t, lists, st, level)
            if not fits or (prune and not hope_left(t, st, hopes, f, level)):
                cut = tally.beaten if fits else tally.over_capacity
                cut[child] += order_weight(t, st, slots, child, stop)
                skip_larger(t, lists, st, slots, k, position, stop, cut)
                entering = False
                k -= 1
                continue
            position[k] = 0
            stop[k] = list_orders(t, st, level)
        else:
            position[k] += 1
        entering = False
        if position[k] >= stop[k]:
            stop[k] = 1
            k -= 1
            continue
        enter_order(t, st, level, position[k])
        tally.bounded[child] += 1
        if prune:
            lost = hopeless(t, st, f, child)
            if not lost and child < decided:
                lost = list_hopes(t, st, hull, hopes, f, child, decided) == 0
            if lost:
                tally.beaten[child] += order_weight(t, st, slots, child, stop)
                continue
        if remember and child == decided:
            ended = try_remembered(t, lists, st, f, tally, memo, choice, slots, stop)
            if ended != DONE:
                return ended
            continue
        if k + 1 < count:
            entering = True
            k += 1
            continue
        tight = finish(t, lists, st, f, choice, child)
        if tight < 0:
            return FULL
        if tight > 0:
            tally.over_capacity[tight] += order_weight(t, st, slots, child, stop)
            continue
        tally.evaluated[0] += 1
        tally.covered[0] += order_weight(t, st, slots, child, stop)
        if tally.evaluated[0] >= tally.limit[0]:
            return LIMIT
    return DONE


@njit(cache=True)
def replay(t, lists, st, left, order, loops, probe, read_price, write_price):  # type: ignore[no-untyped-def]
    """Cost one stored mapping of the spatial choice entered last; return its energy without MACs.

    With ``probe``, rows cost what the given prices per level say instead.
    """
    depth = t.depth
    st.energy[0] = 0.0
    for level in range(depth + 1):
        if level > 0:
            child = level
            if child < depth:
                for d in range(8):
                    st.left[child, d] = left[child, d]
                settle_level(t, lists, st, level - 1)
            for j in range(loops[level - 1]):
                st.variants[level - 1, 0, j] = order[level - 1, j]
            st.variant_loops[level - 1, 0] = loops[level - 1]
        if probe:
            for other in range(depth):
                st.read_price[other] = read_price[other]
                st.write_price[other] = write_price[other]
        if 0 < level < depth:
            enter_order(t, st, level - 1, 0)
    last = depth - 1
    for other in range(depth):
        st.reads[depth, other] = st.reads[last, other]
        st.writes[depth, other] = st.writes[last, other]
    return st.energy[last] + charge(t, st, depth, depth)
