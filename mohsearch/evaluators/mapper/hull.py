"""Compiled bound from inside: the best ways to fill the levels inside the last decision.

The levels from ``decided`` inwards follow from what the last decision leaves to them. For one
spatial choice all they can be left is listed beforehand, each with the traffic it asks of the levels
outside under the most favourable order of the loops there. Ways that are worse in every respect
are dropped; the rest bound every mapping that is still open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.front import PARETO, SLACK, cell_beats, cell_of, scalar_value
from mohsearch.evaluators.mapper.kernels import (
    CLASS,
    MAX_DIVISORS,
    MAX_LEVELS,
    C,
    I,
    O,
    P,
    R,
    W,
    charge,
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


class Hull(NamedTuple):
    """Ways to fill the inner levels, none worse than another in every column.

    Attributes
    ----------
    size
        Shape (2,): entries, and 1 where the list is complete.
    cost
        Shape (H, 3): own energy (pJ), own area (um2), cycles that own bandwidths take.
    reads, writes
        Shapes (H, MAX_LEVELS): words per instance asked of each level outside.
    """

    size: NDArray[np.int64]
    cost: NDArray[np.float64]
    reads: NDArray[np.float64]
    writes: NDArray[np.float64]


def new_hull() -> Hull:
    """Allocate an empty hull."""
    return Hull(
        size=np.zeros(2, dtype=np.int64),
        cost=np.zeros((MOST_ENTRIES, 3)),
        reads=np.zeros((MOST_ENTRIES, MAX_LEVELS)),
        writes=np.zeros((MOST_ENTRIES, MAX_LEVELS)),
    )


@njit(cache=True)
def follow(t, lists, st, memo, i):  # type: ignore[no-untyped-def]
    """Make a remembered split the current one."""
    level = memo.level[0]
    for j in range(t.actives):
        d = t.active[j]
        st.left[level + 1, d] = memo.left[i, d]
    settle_level(t, lists, st, level)
    list_orders(t, st, level)
    st.taken[level] = memo.variant[i]


class Hopes(NamedTuple):
    """What bounds leave possible below the node that the walk stands on, by level.

    Attributes
    ----------
    size
        Shape (L,).
    decided
        Shape (1,): the level from which on nothing is decided.
    cell
        Shape (L, H): place in the front's grid.
    cycles, energy, value
        Shape (L, H): bounds, and that of a single objective.
    area
        Shape (L, H): least area of all levels inside.
    across
        Shape (2, L): least words read from and written to each level by those further in.
    """

    size: NDArray[np.int64]
    decided: NDArray[np.int64]
    cell: NDArray[np.int64]
    cycles: NDArray[np.float64]
    energy: NDArray[np.float64]
    value: NDArray[np.float64]
    area: NDArray[np.float64]
    across: NDArray[np.float64]


def new_hopes() -> Hopes:
    """Allocate an empty list of hopes."""
    shape = (MAX_LEVELS, MOST_ENTRIES)
    return Hopes(
        size=np.zeros(MAX_LEVELS, dtype=np.int64),
        decided=np.zeros(1, dtype=np.int64),
        cell=np.zeros(shape, dtype=np.int64),
        cycles=np.zeros(shape),
        energy=np.zeros(shape),
        value=np.zeros(shape),
        area=np.zeros(shape),
        across=np.zeros((2, MAX_LEVELS)),
    )


@njit(cache=True)
def build_hull(t, lists, st, hull, memo, decided):  # type: ignore[no-untyped-def]
    """List the ways to fill levels ``decided`` and inwards under the spatial choice entered.

    Where ``memo`` is in use, ``decided`` is its level: the last decision is part of the hull.
    """
    hull.size[0] = 0
    hull.size[1] = 0
    if runs_diagonally_outside(t, st, decided):
        return
    choices = np.zeros((8, MAX_DIVISORS), dtype=np.int64)
    counts = np.zeros(8, dtype=np.int64)
    tiles = 1.0
    for i in range(t.actives):
        d = t.active[i]
        counts[d] = reachable(t, lists, st, d, decided, choices[d])
        tiles *= counts[d]
    if tiles > MOST_TILES:
        return
    for x in range(3):
        st.reuse[decided, x] = 1.0
    at = np.zeros(8, dtype=np.int64)
    for level in range(decided):
        st.loops[level] = 0
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
        if not add_tile(t, lists, st, hull, memo, decided):
            # larger tiles cannot fit either
            while k >= 0 and at[k] == 0:
                at[k] = -1
                k -= 1
            if k >= 0:
                at[k] = -1
                k -= 1
        if hull.size[0] < 0:
            hull.size[0] = 0
            return
    hull.size[1] = 1


@njit(cache=True)
def runs_diagonally_outside(t, st, decided):  # type: ignore[no-untyped-def]
    """Tell whether the spread of I depends on tiles that the hull does not know."""
    for child in range(decided, t.depth + 1):
        if st.diagonal[child] and t.parent[child, I] >= 0:
            for level in range(t.parent[child, I], decided - 1):
                s = st.sigma[level]
                if (s[4] > 1 and s[6] > 1) or (s[5] > 1 and s[7] > 1):
                    return True
    return False


@njit(cache=True)
def reachable(t, lists, st, d, decided, found):  # type: ignore[no-untyped-def]
    """List, rising, what of dimension ``d`` can be left to level ``decided``."""
    here = np.zeros(MAX_DIVISORS, dtype=np.bool_)
    here[st.left[0, d]] = True
    for level in range(decided):
        there = np.zeros(MAX_DIVISORS, dtype=np.bool_)
        for at in range(MAX_DIVISORS):
            if here[at]:
                start = t.option_start[level, d, at]
                for option in range(start, start + t.option_count[level, d, at]):
                    there[lists.option_next[option]] = True
        here = there
    count = 0
    for at in range(MAX_DIVISORS):
        if here[at]:
            found[count] = at
            count += 1
    return count


@njit(cache=True)
def add_tile(t, lists, st, hull, memo, decided):  # type: ignore[no-untyped-def]
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
    st.read_price[decided] = lists.read_price[at]
    st.write_price[decided] = lists.write_price[at]
    st.chip_area[decided] = st.instances[decided] * lists.area[at]
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
        if memo.level[0] < 0:
            add_entry(t, lists, st, hull, decided, decided)
            continue
        key = recall(t, lists, st, memo)
        if key < 0:
            hull.size[0] = -1
            return True
        for i in range(memo.start[key], memo.start[key] + memo.count[key]):
            follow(t, lists, st, memo, i)
            add_entry(t, lists, st, hull, decided, decided + 1)
    return True


@njit(cache=True)
def best_halo(t, st, decided, first):  # type: ignore[no-untyped-def]
    """Return the most that a halo along ``first`` or the dimension after it can save of I."""
    reuse = 1.0
    for d in (first, first + 1):
        if st.rest[0, d] > st.rest[decided, d]:
            shift = st.rest[decided, d] * st.inside[decided - 1, d] * t.stride[d - P]
            reuse = max(reuse, st.extent[decided, (d - P) % 2] / shift)
    return reuse


@njit(cache=True)
def add_entry(t, lists, st, hull, decided, settled):  # type: ignore[no-untyped-def]
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
            if not settle_level(t, lists, st, level):
                return
            list_orders(t, st, level)
            enter_order(t, st, level, 0)
        else:
            enter_order(t, st, level, st.taken[level])
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


@njit(cache=True)
def keep_entry(st, hull, decided, depth, energy, area, cycles):  # type: ignore[no-untyped-def]
    """Keep an entry unless one is no worse; drop those it makes useless."""
    count = hull.size[0]
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
            hull.cost[kept] = hull.cost[i]
            hull.reads[kept] = hull.reads[i]
            hull.writes[kept] = hull.writes[i]
        kept += 1
    if kept >= hull.cost.shape[0]:
        hull.size[0] = -1
        return
    hull.cost[kept, 0] = energy
    hull.cost[kept, 1] = area
    hull.cost[kept, 2] = cycles
    for level in range(MAX_LEVELS):
        hull.reads[kept, level] = reads[level]
        hull.writes[kept, level] = writes[level]
    hull.size[0] = kept + 1


@njit(cache=True)
def list_hopes(t, st, hull, hopes, f, known, decided):  # type: ignore[no-untyped-def]
    """Note what each entry of the hull can still give below what is fixed; return how many may.

    Entries that the front beats are left out: nothing further in makes them better.
    """
    if hull.size[1] == 0:
        energy = least_energy(t, st, known, t.depth)
        cycles = least_cycles(t, st, known)
        return add_hope(hopes, f, known, 0, cycles, energy, st.inner_area[known + 1], st)
    base = least_energy(t, st, known, decided)
    between = st.inner_area[known + 1] - st.inner_area[decided]
    base_cycles = least_cycles(t, st, known)
    least_across(t, st, hopes, known, decided)
    count = 0
    for i in range(hull.size[0]):
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
            cycles = max(cycles, np.ceil(read / t.read_bandwidth[level]))
            cycles = max(cycles, np.ceil(write / t.write_bandwidth[level]))
        count = add_hope(hopes, f, known, count, cycles, energy, between + hull.cost[i, 1], st)
    return count


@njit(cache=True)
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


@njit(cache=True)
def add_hope(hopes, f, known, count, cycles, energy, area, st):  # type: ignore[no-untyped-def]
    """Note one hope unless the front beats it; ``area`` is that of all levels inside."""
    if f.scalar[0] != PARETO:
        value = scalar_value(f.scalar[0], cycles, energy)
        if value * SLACK >= f.scalar[1]:
            return count
        hopes.value[known, count] = value
    else:
        cell = cell_of(f, cycles, energy)
        if cell_beats(f, cell, cycles, energy, st.chip_area[known] + area):
            return count
        hopes.cell[known, count] = cell
        hopes.cycles[known, count] = cycles
        hopes.energy[known, count] = energy
    hopes.area[known, count] = area
    hopes.size[known] = count + 1
    return count + 1


@njit(cache=True)
def hope_left(t, st, hopes, f, known):  # type: ignore[no-untyped-def]
    """Tell whether any hope noted at ``known`` survives the tile just given to the next level."""
    child = known + 1
    own = st.chip_area[child] - st.chip_area[known]
    if f.scalar[0] != PARETO:
        for i in range(hopes.size[known]):
            if hopes.value[known, i] * SLACK < f.scalar[1]:
                return True
        return False
    least_own = st.inner_area[child] - st.inner_area[child + 1]
    whole = st.chip_area[child] + st.inner_area[child + 1]
    for i in range(hopes.size[known]):
        area = st.chip_area[known] + hopes.area[known, i]
        area = max(area + own - least_own, whole) if child < hopes.decided[0] else max(area, whole)
        cell = hopes.cell[known, i]
        if not cell_beats(f, cell, hopes.cycles[known, i], hopes.energy[known, i], area):
            return True
    return False
