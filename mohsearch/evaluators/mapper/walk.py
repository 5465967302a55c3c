"""Compiled branch-and-bound walk over all mappings of a spatial choice."""

from __future__ import annotations

import numpy as np

from mohsearch.evaluators.mapper.front import PARETO, beaten, column_of, offer
from mohsearch.evaluators.mapper.hull import build_hull, follow, hope_left, list_hopes
from mohsearch.evaluators.mapper.kernel_layout import MAX_LEVELS
from mohsearch.evaluators.mapper.kernels import (
    charge,
    compiled,
    enter_order,
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


SLOTS = np.dtype(
    [
        ("size", "i8"),
        ("level", "i8", 9 * MAX_LEVELS),
        ("dim", "i8", 9 * MAX_LEVELS),  # -1 for the loop order
        ("prune", "i1"),
    ],
    align=True,
)
"""The decisions of a walk in order: the split of a dimension at a level, or a loop order."""

TALLY = np.dtype(
    [
        ("evaluated", "i8"),  # mappings costed, loop orders counted apart
        ("limit", "i8"),  # most mappings to cost
        ("allowed", "i8"),  # lower bounds still allowed
        ("bounded", "i8", MAX_LEVELS + 1),  # lower bounds worked out
        ("covered", "f8"),  # mappings costed in full
        ("over_capacity", "f8", MAX_LEVELS + 1),  # cut because a tile exceeds the level
        ("beaten", "f8", MAX_LEVELS + 1),  # cut because the front beats a lower bound
        ("dominated", "f8", MAX_LEVELS + 1),  # cut because another split is never worse
    ],
    align=True,
)
"""What walks did. Mappings are counted as spatial choices times temporal factorisations."""


@compiled
def weight_below(t, st, level):  # type: ignore[no-untyped-def]
    """Return in how many ways what is left to a level can be split."""
    weight = 1.0
    for i in range(t.actives):
        d = t.active[i]
        weight *= t.chains[level, d, st.left[level, d]]
    return weight


@compiled
def order_weight(t, st, slots, child):  # type: ignore[no-untyped-def]
    """Return the mappings below the current order, shared evenly among a level's orders."""
    weight = weight_below(t, st, child)
    for k in range(slots.size):
        if slots.dim[k] < 0 and slots.level[k] < child:
            weight /= st.stop[k]
    return weight


@compiled
def skip_larger(t, st, slots, slot, cut):  # type: ignore[no-untyped-def]
    """Drop the options that can only make the tile just rejected larger."""
    level = slots.level[slot]
    k = slot - 1
    shared = 1.0
    for other in range(slot):
        if slots.dim[other] < 0:
            shared *= st.stop[other]
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
        for option in range(st.position[k] + 1, st.stop[k]):
            below = t.chains[level + 1, d, t.option_next[option]]
            cut[level + 1] += weight * below
        st.stop[k] = st.position[k] + 1
        if st.position[k] > first:
            return
        k -= 1


@compiled
def finish(t, st, f, choice, level):  # type: ignore[no-untyped-def]
    """Settle the levels without a choice, charge the MACs' traffic and offer the mapping.

    Returns the level whose capacity is exceeded, 0 when offered, -1 where the front is full.
    """
    depth = t.depth
    last = depth - 1
    while level < last:
        if not settle_level(t, st, level):
            return level + 1
        list_orders(t, st, level)
        enter_order(t, st, level, st.heads[level, 0])
        level += 1
    st.head[last] = -1
    for other in range(depth):
        st.reads[depth, other] = st.reads[last, other]
        st.writes[depth, other] = st.writes[last, other]
    energy = st.energy[last] + charge(t, st, depth, depth)
    cycles = least_cycles(t, st, depth)
    area = st.chip_area[last] + st.inner_area[depth]
    if f.kind == PARETO and beaten(f, st, cycles, energy, area):
        return 0
    return -1 if offer(f, st, depth, choice, cycles, energy, area) < 0 else 0


@compiled
def try_remembered(t, st, slots, f, tally, memo, choice):  # type: ignore[no-untyped-def]
    """Try the splits of the last decision that are worth it; return how that ended."""
    level = memo.level
    key = recall(t, st, memo)
    if key < 0:
        forget(memo)
        key = recall(t, st, memo)
        if key < 0:
            return NO_ROOM
    share = order_weight(t, st, slots, level) / weight_below(t, st, level)
    tally.over_capacity[level + 1] += share * memo.too_large[key]
    tally.dominated[level + 1] += share * memo.dominated[key]
    for i in range(memo.start[key], memo.start[key] + memo.count[key]):
        follow(t, st, memo, i)
        orders = 1.0
        if t.free_order[level]:
            orders = list_orders(t, st, level)
        enter_order(t, st, level, np.int64(memo.head[i]))
        if finish(t, st, f, choice, level + 1) < 0:
            return FULL
        tally.evaluated += 1
        tally.covered += share / orders
    return LIMIT if tally.evaluated >= tally.limit or tally.allowed <= 0 else DONE


@compiled
def hopeless(t, st, f, known):  # type: ignore[no-untyped-def]
    """Tell whether the front beats everything that agrees with what is fixed so far."""
    area = st.chip_area[known] + st.inner_area[known + 1]
    cycles = least_cycles(t, st, known)
    energy = least_energy(t, st, known, t.depth)
    return beaten(f, st, cycles, energy, area)


@compiled
def open_choice(t, st, slots, f, tally, hull, hopes, memo):  # type: ignore[no-untyped-def]
    """Start on a spatial choice that is entered; False where the front beats all of it."""
    root = np.int64(0)
    st.column = column_of(f, st.cycles)
    if not slots.prune:
        return True
    if hopeless(t, st, f, root):
        tally.beaten[0] += weight_below(t, st, root)
        return False
    hopes.decided = slots.level[slots.size - 1] + 1
    if memo.level >= 0:
        hopes.decided = memo.level
        forget(memo)
    build_hull(t, st, hull, memo, hopes.decided)
    start_outside(t, st)
    if list_hopes(t, st, hull, hopes, f, root, hopes.decided) == 0:
        tally.beaten[0] += weight_below(t, st, root)
        return False
    return True


@compiled
def next_split(t, st, slots, k, entering):  # type: ignore[no-untyped-def]
    """Take the first or the next split of one dimension; False where there is none left."""
    level, d = slots.level[k], slots.dim[k]
    if entering:
        at = st.left[level, d]
        st.position[k] = t.option_start[level, d, at]
        st.stop[k] = st.position[k] + t.option_count[level, d, at]
    else:
        st.position[k] += 1
    if st.position[k] == st.stop[k]:
        return False
    st.left[level + 1, d] = t.option_next[st.position[k]]
    return True


@compiled
def next_order(t, st, slots, f, tally, hopes, k, entering):  # type: ignore[no-untyped-def]
    """Take the first or the next loop order of a level; False where there is none left.

    The level's loops are settled before the first one; tiles that do not fit or that the front
    beats in every order end the larger ones too.
    """
    level = slots.level[k]
    if entering:
        st.stop[k] = 1
        fits = settle_level(t, st, level)
        if not fits or (slots.prune and not hope_left(t, st, hopes, f, level)):
            cut = tally.beaten if fits else tally.over_capacity
            cut[level + 1] += order_weight(t, st, slots, level + 1)
            skip_larger(t, st, slots, k, cut)
            return False
        st.position[k] = 0
        st.stop[k] = list_orders(t, st, level)
    else:
        st.position[k] += 1
    if st.position[k] == st.stop[k]:
        return False
    enter_order(t, st, level, st.heads[level, st.position[k]])
    return True


@compiled
def lost(t, st, slots, f, tally, hull, hopes, child):  # type: ignore[no-untyped-def]
    """Tell whether a lower bound shows that nothing below the current order is of use."""
    tally.bounded[child] += 1
    tally.allowed -= 1
    if hopeless(t, st, f, child) or (
        child < hopes.decided and list_hopes(t, st, hull, hopes, f, child, hopes.decided) == 0
    ):
        tally.beaten[child] += order_weight(t, st, slots, child)
        return True
    return False


@compiled
def try_mapping(t, st, slots, f, tally, choice, child):  # type: ignore[no-untyped-def]
    """Cost the mapping that the decisions make; return how that ended."""
    tight = finish(t, st, f, choice, child)
    if tight < 0:
        return FULL
    if tight > 0:
        tally.over_capacity[tight] += order_weight(t, st, slots, child)
        return DONE
    tally.evaluated += 1
    tally.covered += order_weight(t, st, slots, child)
    return LIMIT if tally.evaluated >= tally.limit or tally.allowed <= 0 else DONE


@compiled
def walk(t, st, slots, f, tally, hull, hopes, memo, choice):  # type: ignore[no-untyped-def]
    """Walk all mappings of the spatial choice that is open; return how it ended."""
    remember = slots.prune and memo.level >= 0
    k = np.int64(0)
    entering = slots.size > 0
    for slot in range(slots.size):
        st.stop[slot] = 1
    while k >= 0:
        if slots.dim[k] >= 0:
            entering = next_split(t, st, slots, k, entering)
            k += 1 if entering else -1
            continue
        if not next_order(t, st, slots, f, tally, hopes, k, entering):
            st.stop[k] = 1
            entering = False
            k -= 1
            continue
        entering = False
        child = slots.level[k] + 1
        if slots.prune and lost(t, st, slots, f, tally, hull, hopes, child):
            if tally.allowed <= 0:
                return LIMIT
            continue
        ended = DONE
        if remember and child == memo.level:
            ended = try_remembered(t, st, slots, f, tally, memo, choice)
        elif k + 1 < slots.size:
            entering = not entering
            k += 1
        else:
            ended = try_mapping(t, st, slots, f, tally, choice, child)
        if ended != DONE:
            return ended
    return DONE


@compiled
def replay(t, st, left, head, probe):  # type: ignore[no-untyped-def]
    """Cost a stored mapping of the spatial choice entered, the MACs' own energy left out.

    A row read at level ``probe`` costs 1 pJ, a row written there for ``probe - depth``; all others
    nothing. Returns the energy.
    """
    depth = t.depth
    st.energy[0] = 0.0
    for child in range(1, depth):
        for d in range(8):
            st.left[child, d] = left[child, d]
        settle_level(t, st, child - 1)
        for level in range(depth):
            st.read_price[level] = 1.0 if level == probe else 0.0
            st.write_price[level] = 1.0 if level == probe - depth else 0.0
        enter_order(t, st, child - 1, np.int64(head[child - 1]))
    last = depth - 1
    for level in range(depth):
        st.reads[depth, level] = st.reads[last, level]
        st.writes[depth, level] = st.writes[last, level]
    return st.energy[last] + charge(t, st, depth, depth)


@compiled
def describe(t, st, f, row, rows, used, memory):  # type: ignore[no-untyped-def]
    """Write down what one mapping of the front does; return its network energy.

    ``rows`` (2, L) gets the rows read and written at each level, ``used`` (L,) the words that each
    must hold, ``memory`` (2,) the words read from and written to level 0.
    """
    depth = t.depth
    network = replay(t, st, f.left[row], f.head[row], np.int64(-1))
    for level in range(depth):
        used[level] = 0.0
        for x in range(3):
            if level > 0 and t.keeps[level, x]:
                used[level] += st.words[level, x]
    memory[0] = st.reads[depth, 0]
    memory[1] = st.writes[depth, 0]
    for level in range(depth):
        read = replay(t, st, f.left[row], f.head[row], level)
        written = replay(t, st, f.left[row], f.head[row], level + depth)
        rows[0, level] = np.rint(read - network)
        rows[1, level] = np.rint(written - network)
    return network
