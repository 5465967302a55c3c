"""Compiled bound from inside: the best ways to fill the levels inside the last decision.

The levels from ``decided`` inwards follow from what the last decision leaves to them. For one
spatial choice all they can be left is listed beforehand, each with the traffic it asks of the
levels outside under the most favourable order of the loops there. Ways that are worse in every
respect are dropped; the rest bound every mapping that is still open.
"""

from __future__ import annotations

import numpy as np

from mohsearch.evaluators.mapper.front import (
    PARETO,
    SLACK,
    cell_beats,
    cell_of,
    column_of,
    scalar_value,
)
from mohsearch.evaluators.mapper.kernel_layout import (
    CLASS,
    MAX_DIVISORS,
    MAX_LEVELS,
    I,
    O,
    P,
    Q,
    R,
    S,
    W,
)
from mohsearch.evaluators.mapper.kernels import (
    charge,
    compiled,
    enter_order,
    least_cycles,
    least_energy,
    list_orders,
    price_index,
    settle_level,
    size_tile,
)
from mohsearch.evaluators.mapper.memo import recall

MOST_TILES = 40000
"""More ways than this are not listed: the walk itself is about as fast then."""

MOST_ENTRIES = 256


HULL = np.dtype(
    [
        ("size", "i8"),
        ("complete", "i1"),
        ("cost", "f8", (MOST_ENTRIES, 3)),  # own energy, own area, cycles of own bandwidths
        ("reads", "f8", (MOST_ENTRIES, MAX_LEVELS)),  # words per instance asked of levels outside
        ("writes", "f8", (MOST_ENTRIES, MAX_LEVELS)),
    ],
    align=True,
)
"""Ways to fill the inner levels, none worse than another in every column."""

HOPES = np.dtype(
    [
        ("decided", "i8"),  # the level from which on the hull speaks
        ("size", "i8", MAX_LEVELS),
        ("cell", "i8", (MAX_LEVELS, MOST_ENTRIES)),  # place in the front's grid
        ("cycles", "f8", (MAX_LEVELS, MOST_ENTRIES)),
        ("energy", "f8", (MAX_LEVELS, MOST_ENTRIES)),
        ("value", "f8", (MAX_LEVELS, MOST_ENTRIES)),  # bound of a single objective
        ("area", "f8", (MAX_LEVELS, MOST_ENTRIES)),  # least area of all levels inside
        ("across", "f8", (2, MAX_LEVELS)),  # least words read from and written to levels outside
    ],
    align=True,
)
"""What bounds leave possible below the node that the walk stands on, by level."""


@compiled
def follow(t, st, memo, i):  # type: ignore[no-untyped-def]
    """Make a remembered split the current one."""
    level = memo.level
    for j in range(t.actives):
        d = t.active[j]
        st.left[level + 1, d] = memo.left[i, d]
    settle_level(t, st, level)
    st.head[level] = memo.head[i]


@compiled
def build_hull(t, st, hull, memo, decided):  # type: ignore[no-untyped-def]
    """List the ways to fill levels ``decided`` and inwards under the spatial choice entered.

    Where ``memo`` is in use, ``decided`` is its level: the last decision is part of the hull.
    """
    hull.size = 0
    hull.complete = 0
    if runs_diagonally_outside(t, st, decided):
        return
    choices = np.zeros((8, MAX_DIVISORS), dtype=np.int64)
    counts = np.zeros(8, dtype=np.int64)
    tiles = 1.0
    for i in range(t.actives):
        d = t.active[i]
        counts[d] = reachable(t, st, d, decided, choices[d])
        tiles *= counts[d]
    if tiles > MOST_TILES:
        return
    for x in range(3):
        st.reuse[decided, x] = 1.0
    at = np.zeros(8, dtype=np.int64)
    for level in range(decided):
        st.head[level] = -1
    k = 0
    last = t.actives - 1
    at[:] = -1
    while k >= 0:
        d = t.active[k]
        at[k] += 1
        if at[k] >= counts[d]:
            at[k] = -1
            k -= 1
            continue
        st.left[decided, d] = choices[d, at[k]]
        if k < last:
            k += 1
            continue
        if not add_tile(t, st, hull, memo, decided):
            # larger tiles cannot fit either
            while k >= 0 and at[k] == 0:
                at[k] = -1
                k -= 1
            if k >= 0:
                at[k] = -1
                k -= 1
        if hull.size < 0:
            hull.size = 0
            return
    hull.complete = 1


@compiled
def runs_diagonally_outside(t, st, decided):  # type: ignore[no-untyped-def]
    """Tell whether the spread of I depends on tiles that the hull does not know."""
    for child in range(decided, t.depth + 1):
        if st.diagonal[child] and t.parent[child, I] >= 0:
            for level in range(t.parent[child, I], decided - 1):
                s = st.sigma[level]
                if (s[P] > 1 and s[R] > 1) or (s[Q] > 1 and s[S] > 1):
                    return True
    return False


@compiled
def reachable(t, st, d, decided, found):  # type: ignore[no-untyped-def]
    """List, rising, what of dimension ``d`` can be left to level ``decided``."""
    here = np.zeros(MAX_DIVISORS, dtype=np.bool_)
    here[st.left[0, d]] = True
    for level in range(decided):
        there = np.zeros(MAX_DIVISORS, dtype=np.bool_)
        for at in range(MAX_DIVISORS):
            if here[at]:
                start = t.option_start[level, d, at]
                for option in range(start, start + t.option_count[level, d, at]):
                    there[t.option_next[option]] = True
        here = there
    count = 0
    for at in range(MAX_DIVISORS):
        if here[at]:
            found[count] = at
            count += 1
    return count


@compiled
def add_tile(t, st, hull, memo, decided):  # type: ignore[no-untyped-def]
    """Add what one tile of level ``decided`` costs; False where it does not fit that level."""
    advances = 1.0
    for i in range(t.actives):
        d = t.active[i]
        rest = t.divisors[d, st.left[decided, d]]
        st.rest[decided, d] = rest
        advances *= st.rest[0, d] / rest
    used = size_tile(t, st, decided)
    if used > t.capacity[decided]:
        return False
    st.advances[decided] = advances
    at = price_index(t, decided, used)
    st.read_price[decided] = t.price_read[at]
    st.write_price[decided] = t.price_write[at]
    st.chip_area[decided] = st.instances[decided] * t.price_area[at]
    loops = np.ones(4)
    for i in range(t.actives):
        d = t.active[i]
        loops[CLASS[d]] *= st.rest[0, d] / st.rest[decided, d]
    none = loops[W] == 1.0 and loops[I] == 1.0 and loops[O] == 1.0
    for x in range(3):
        if loops[x] == 1.0 and not (none and x == W):
            continue
        for y in range(3):
            st.reuse[decided, y] = loops[y] if x == y else 1.0
        if x != I:
            st.reuse[decided, I] = best_halo(t, st, decided, P if x == W else R)
        if memo.level < 0:
            add_entry(t, st, hull, decided, decided)
            continue
        key = recall(t, st, memo)
        if key < 0:
            hull.size = -1
            return True
        for i in range(memo.start[key], memo.start[key] + memo.count[key]):
            follow(t, st, memo, i)
            add_entry(t, st, hull, decided, decided + 1)
    return True


@compiled
def best_halo(t, st, decided, first):  # type: ignore[no-untyped-def]
    """Return the most that a halo along ``first`` or the dimension after it can save of I."""
    reuse = 1.0
    for d in (first, first + 1):
        if st.rest[0, d] > st.rest[decided, d]:
            shift = st.rest[decided, d] * st.inside[decided - 1, d] * t.stride[d - P]
            reuse = max(reuse, st.extent[decided, (d - P) % 2] / shift)
    return reuse


@compiled
def add_entry(t, st, hull, decided, settled):  # type: ignore[no-untyped-def]
    """Cost the levels from ``decided`` inwards and keep them unless an entry is no worse.

    The loops of levels before ``settled`` are fixed.
    """
    depth = t.depth
    for level in range(depth):
        st.reads[decided, level] = 0.0
        st.writes[decided, level] = 0.0
        if level < decided:
            st.read_price[level] = 0.0
            st.write_price[level] = 0.0
    st.energy[decided] = charge(t, st, decided, decided)
    for level in range(decided, depth - 1):
        if level >= settled:
            if not settle_level(t, st, level):
                return
            list_orders(t, st, level)
            enter_order(t, st, level, st.heads[level, 0])
        else:
            enter_order(t, st, level, st.head[level])
    last = depth - 1
    for level in range(depth):
        st.reads[depth, level] = st.reads[last, level]
        st.writes[depth, level] = st.writes[last, level]
    energy = st.energy[last] + charge(t, st, depth, depth)
    area = st.chip_area[last] + st.inner_area[depth]
    cycles = 0.0
    for level in range(decided, depth):
        cycles = max(cycles, np.ceil(st.reads[depth, level] / t.read_bandwidth[level]))
        cycles = max(cycles, np.ceil(st.writes[depth, level] / t.write_bandwidth[level]))
    keep_entry(st, hull, decided, depth, energy, area, cycles)


@compiled
def keep_entry(st, hull, decided, depth, energy, area, cycles):  # type: ignore[no-untyped-def]
    """Keep an entry unless one is no worse; drop those it makes useless."""
    count = hull.size
    kept = 0
    reads, writes = st.reads[depth], st.writes[depth]
    for i in range(count):
        no_worse = hull.cost[i, 0] <= energy and hull.cost[i, 1] <= area
        no_worse = no_worse and hull.cost[i, 2] <= cycles
        no_better = hull.cost[i, 0] >= energy and hull.cost[i, 1] >= area
        no_better = no_better and hull.cost[i, 2] >= cycles
        for level in range(decided):
            no_worse = no_worse and hull.reads[i, level] <= reads[level]
            no_worse = no_worse and hull.writes[i, level] <= writes[level]
            no_better = no_better and hull.reads[i, level] >= reads[level]
            no_better = no_better and hull.writes[i, level] >= writes[level]
        if no_worse:
            return
        if no_better:
            continue
        if kept < i:
            for j in range(3):
                hull.cost[kept, j] = hull.cost[i, j]
            for level in range(decided):
                hull.reads[kept, level] = hull.reads[i, level]
                hull.writes[kept, level] = hull.writes[i, level]
        kept += 1
    if kept >= MOST_ENTRIES:
        hull.size = -1
        return
    hull.cost[kept, 0] = energy
    hull.cost[kept, 1] = area
    hull.cost[kept, 2] = cycles
    for level in range(decided):
        hull.reads[kept, level] = reads[level]
        hull.writes[kept, level] = writes[level]
    hull.size = kept + 1


@compiled
def list_hopes(t, st, hull, hopes, f, known, decided):  # type: ignore[no-untyped-def]
    """Note what each entry of the hull can still give below what is fixed; return how many may.

    Entries that the front beats are left out: nothing further in makes them better.
    """
    if hull.complete == 0:
        energy = least_energy(t, st, known, t.depth)
        cycles = least_cycles(t, st, known)
        return add_hope(hopes, f, known, np.int64(0), cycles, energy, st.inner_area[known + 1], st)
    base = least_energy(t, st, known, decided)
    between = st.inner_area[known + 1] - st.inner_area[decided]
    base_cycles = least_cycles(t, st, known)
    least_across(t, st, hopes, known, decided)
    count = np.int64(0)
    for i in range(hull.size):
        energy = base + hull.cost[i, 0]
        cycles = max(base_cycles, hull.cost[i, 2])
        for level in range(decided):
            read = max(hull.reads[i, level], hopes.across[0, level])
            write = max(hull.writes[i, level], hopes.across[1, level])
            if read == 0.0 and write == 0.0:
                continue
            rows = st.instances[level] / t.per_access[level]
            if level <= known:
                energy += rows * (read * st.read_price[level] + write * st.write_price[level])
            else:
                energy += rows * (read * st.least_read[level] + write * st.least_write[level])
            read += st.reads[known, level]
            write += st.writes[known, level]
            if read > cycles * t.read_bandwidth[level]:
                cycles = np.ceil(read / t.read_bandwidth[level])
            if write > cycles * t.write_bandwidth[level]:
                cycles = np.ceil(write / t.write_bandwidth[level])
        count = add_hope(hopes, f, known, count, cycles, energy, between + hull.cost[i, 1], st)
    return count


@compiled
def least_across(t, st, hopes, known, decided):  # type: ignore[no-untyped-def]
    """Note the least words that levels from ``decided`` inwards ask of each level outside.

    Loops known so far that neither address a tensor nor leave it in place make it travel again.
    """
    for level in range(decided):
        hopes.across[0, level] = 0.0
        hopes.across[1, level] = 0.0
    for child in range(decided, t.depth):
        for x in range(3):
            parent = t.parent[child, x]
            if parent < 0 or parent >= decided:
                continue
            words = st.parent_rows[child, x] * t.per_access[parent] / st.instances[parent]
            words *= st.repeats[known, x] / st.reuse[known, x]
            if x == O:
                hopes.across[1, parent] += words
                words = max(words - st.share[parent], 0.0)
            hopes.across[0, parent] += words


@compiled
def add_hope(hopes, f, known, count, cycles, energy, area, st):  # type: ignore[no-untyped-def]
    """Note one hope unless the front beats it; ``area`` is that of all levels inside."""
    if f.kind != PARETO:
        value = scalar_value(f.kind, cycles, energy)
        if value * SLACK >= f.best:
            return count
        hopes.value[known, count] = value
    else:
        column = st.column if cycles == st.cycles else column_of(f, cycles)
        cell = cell_of(f, column, energy)
        if cell_beats(f, cell, cycles, energy, st.chip_area[known] + area):
            return count
        hopes.cell[known, count] = cell
        hopes.cycles[known, count] = cycles
        hopes.energy[known, count] = energy
    hopes.area[known, count] = area
    hopes.size[known] = count + 1
    return count + 1


@compiled
def hope_left(t, st, hopes, f, known):  # type: ignore[no-untyped-def]
    """Tell whether any hope noted at ``known`` survives the tile just given to the next level."""
    child = known + 1
    own = st.chip_area[child] - st.chip_area[known]
    if f.kind != PARETO:
        for i in range(hopes.size[known]):
            if hopes.value[known, i] * SLACK < f.best:
                return True
        return False
    least_own = st.inner_area[child] - st.inner_area[child + 1]
    whole = st.chip_area[child] + st.inner_area[child + 1]
    for i in range(hopes.size[known]):
        area = st.chip_area[known] + hopes.area[known, i]
        area = max(area + own - least_own, whole) if child < hopes.decided else max(area, whole)
        cell = hopes.cell[known, i]
        if not cell_beats(f, cell, hopes.cycles[known, i], hopes.energy[known, i], area):
            return True
    return False
