"""Compiled cost of mappings, level by level: tiles, loop orders, traffic and lower bounds.

A walk decides the loops of a mapping from the outermost level inwards. Row ``l`` of most working
arrays holds what is known once all loops outside level ``l`` are fixed: what is left of each bound,
the tile of the level, the reuse that the loops outside offer, the energy and the words moved so
far. All counts are exact in float64 (below 2**53).

The arguments ``t`` and ``st`` of the functions are one record each of :data:`TABLES` and
:data:`STATE` in :mod:`mohsearch.evaluators.mapper.kernel_layout`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mohsearch.evaluators.mapper.kernel_layout import (
    CLASS,
    IRRELEVANT,
    MAX_LEVELS,
    C,
    G,
    I,
    K,
    N,
    O,
    P,
    Q,
    R,
    S,
    W,
)

compiled = njit(cache=True, error_model="numpy")
"""How the mapper's functions are compiled: division by zero gives infinity, without a test."""


@compiled
def sums_of_two(n, a, m, b):  # type: ignore[no-untyped-def]
    """Count the distinct values of ``a * i + b * j`` for i < n, j < m."""
    if n == 1.0 or m == 1.0:
        return n * m
    x, y = np.int64(a), np.int64(b)
    while y:
        x, y = y, x % y
    return n * m - max(n - b / x, 0.0) * max(m - a / x, 0.0)


@compiled
def size_tile(t, st, level):  # type: ignore[no-untyped-def]
    """Work out the tile of a level from what is left to it; return the words it keeps."""
    rest, inside, words = st.rest[level], st.inside[level], st.words[level]
    rows = (rest[P] * inside[P] - 1) * t.stride[0] + (rest[R] * inside[R] - 1) * t.stride[2] + 1
    columns = (rest[Q] * inside[Q] - 1) * t.stride[1] + (rest[S] * inside[S] - 1) * t.stride[3] + 1
    st.extent[level, 0] = rows
    st.extent[level, 1] = columns
    n = rest[N] * inside[N]
    g = rest[G] * inside[G]
    k = rest[K] * inside[K] * g
    c = rest[C] * inside[C]
    words[W] = k * c * rest[R] * inside[R] * rest[S] * inside[S]
    words[I] = n * g * c * rows * columns
    words[O] = n * k * rest[P] * inside[P] * rest[Q] * inside[Q]
    used = 0.0
    for x in range(3):
        if t.keeps[level, x]:
            used += words[x]
    return used


@compiled
def price_index(t, level, used):  # type: ignore[no-untyped-def]
    """Return where the prices of a level that holds ``used`` words stand."""
    return t.price_start[level] + np.int64(np.ceil(used / t.size_unit[level]))


@compiled
def hop_energy(t, st, level, distinct):  # type: ignore[no-untyped-def]
    """Return the network energy per distinct word sent below every instance of a level."""
    if t.hop_price[level] == 0.0:
        return 0.0
    fanout = st.instances[level + 1] / st.instances[level]
    multicast = fanout / distinct
    hops = (
        np.sqrt(fanout * multicast)
        + (np.sqrt(fanout) - np.sqrt(multicast)) / 2
        - np.sqrt(fanout / multicast)
        + 0.5
    )
    return hops * st.instances[level] * t.hop_price[level]


@compiled
def least_left(t, st, level, d):  # type: ignore[no-untyped-def]
    """Return the smallest remainder that any split hands to ``level``, as a divisor index."""
    at = st.left[0, d]
    for outer in range(level):
        at = t.option_next[t.option_start[outer, d, at]]
    return at


@compiled
def enter_spatial(t, st):  # type: ignore[no-untyped-def]
    """Prepare everything that depends on the spatial choice (``st.sigma``) alone.

    Returns 0, or the level whose capacity even the least tile exceeds.
    """
    depth = t.depth
    st.inside[depth, :] = 1.0
    for level in range(depth - 1, -1, -1):
        for d in range(8):
            st.inside[level, d] = st.inside[level + 1, d] * st.sigma[level, d]
    st.instances[0] = 1.0
    st.cycles = 1.0
    for d in range(8):
        st.rest[0, d] = t.bounds[d] / st.inside[0, d]
        st.cycles *= st.rest[0, d]
        index = 0
        while t.divisors[d, index] != st.rest[0, d]:
            index += 1
        st.left[0, d] = index
    for level in range(depth):
        parallel = 1.0
        for d in range(8):
            parallel *= st.sigma[level, d]
        st.instances[level + 1] = st.instances[level] * parallel
    st.inner_area[depth] = st.instances[depth] * t.mac_area
    for level in range(depth - 1, 0, -1):
        for d in range(8):
            at = least_left(t, st, level, d)
            st.left[level, d] = at
            st.rest[level, d] = t.divisors[d, at]
        used = size_tile(t, st, level)
        if used > t.capacity[level]:
            return level
        at = price_index(t, level, used)
        st.least_read[level] = t.price_read[at]
        st.least_write[level] = t.price_write[at]
        st.inner_area[level] = st.inner_area[level + 1] + st.instances[level] * t.price_area[at]
    at = t.price_start[0]
    st.least_read[0] = t.price_read[at]
    st.least_write[0] = t.price_write[at]
    prepare_edges(t, st)
    start_outside(t, st)
    return 0


@compiled
def prepare_edges(t, st):  # type: ignore[no-untyped-def]
    """Set what flows at least between each level and its parents, and how it spreads."""
    depth = t.depth
    b = t.bounds
    volume = np.empty(3)
    volume[W] = b[G] * b[K] * b[C] * b[R] * b[S]
    volume[O] = b[N] * b[G] * b[K] * b[P] * b[Q]
    rows = sums_of_two(b[P], t.stride[0], b[R], t.stride[2])
    volume[I] = b[N] * b[G] * b[C] * rows * sums_of_two(b[Q], t.stride[1], b[S], t.stride[3])
    copies = np.ones((MAX_LEVELS + 1, 3))
    for level in range(depth):
        for x in range(3):
            copies[level + 1, x] = copies[level, x]
            for d in range(8):
                if IRRELEVANT[x, d]:
                    copies[level + 1, x] *= st.sigma[level, d]
    for level in range(depth):
        st.share[level] = volume[O] * copies[level, O] / st.instances[level]
    for child in range(1, depth + 1):
        st.diagonal[child] = False
        for x in range(3):
            parent = t.parent[child, x]
            if parent < 0:
                continue
            least = spread_out(t, st, parent, child, x)
            if child < depth:
                received = volume[x] * copies[child, x] / st.instances[child]
                st.child_rows[child, x] = volume[x] * copies[child, x] / t.per_access[child]
                st.parent_rows[child, x] = volume[x] * copies[parent, x] / t.per_access[parent]
            else:
                received = st.cycles
                served = st.cycles * least * st.instances[parent]
                st.parent_rows[child, x] = served / t.per_access[parent]
            varies = x == I and st.diagonal[child]
            st.least_hops[child, x] = 0.0 if varies else received * st.hops[child, x]


@compiled
def spread_out(t, st, parent, child, x):  # type: ignore[no-untyped-def]
    """Set spread and hops of one edge; return the least spread that any tile gives."""
    spread = 1.0
    least = 1.0
    network = 0.0
    for level in range(child - 1, parent - 1, -1):
        s = st.sigma[level]
        distinct = 1.0
        for d in range(8):
            if not IRRELEVANT[x, d]:
                distinct *= s[d]
        spread *= distinct
        network += spread * hop_energy(t, st, level, distinct)
        if x == I and ((s[P] > 1 and s[R] > 1) or (s[Q] > 1 and s[S] > 1)):
            st.diagonal[child] = True
            distinct = s[N] * s[G] * s[C] * (s[P] + s[R] - 1) * (s[Q] + s[S] - 1)
        least *= distinct
    st.spread[child, x] = spread
    st.hops[child, x] = network
    return least


@compiled
def start_outside(t, st):  # type: ignore[no-untyped-def]
    """Set row 0: no loop is fixed yet; the MACs' energy and their fixed traffic are known."""
    depth = t.depth
    st.read_price[0] = st.least_read[0]
    st.write_price[0] = st.least_write[0]
    st.advances[0] = 1.0
    st.energy[0] = st.cycles * st.instances[depth] * t.mac_price
    st.chip_area[0] = 0.0
    for level in range(depth):
        st.reads[0, level] = 0.0
        st.writes[0, level] = 0.0
    for x in range(3):
        st.reuse[0, x] = 1.0
        st.repeats[0, x] = 1.0
        parent = t.parent[depth, x]
        if x == I and st.diagonal[depth]:
            continue
        served = st.cycles * st.spread[depth, x]
        st.reads[0, parent] += served
        if x == O:
            st.reads[0, parent] -= st.share[parent]
            st.writes[0, parent] += served


@compiled
def settle_level(t, st, level):  # type: ignore[no-untyped-def]
    """Fix the loops of a level and size the next one; False where its tile is too large."""
    child = level + 1
    advances = st.advances[level]
    classes = st.classes[level]
    classes[0] = classes[1] = classes[2] = classes[3] = 1.0
    for i in range(t.actives):
        d = t.active[i]
        before = st.left[level, d]
        if t.option_count[level, d, before] == 1:
            st.left[child, d] = t.option_next[t.option_start[level, d, before]]
        rest = t.divisors[d, st.left[child, d]]
        st.rest[child, d] = rest
        factor = st.rest[level, d] / rest
        st.factor[level, d] = factor
        st.step[level, d] = rest * st.inside[level, d]
        classes[CLASS[d]] *= factor
        advances *= factor
    st.advances[child] = advances
    used = size_tile(t, st, child)
    if used > t.capacity[child]:
        return False
    at = price_index(t, child, used)
    st.read_price[child] = t.price_read[at]
    st.write_price[child] = t.price_write[at]
    st.chip_area[child] = st.chip_area[level] + st.instances[child] * t.price_area[at]
    return True


@compiled
def list_orders(t, st, level):  # type: ignore[no-untyped-def]
    """List the loop orders of a level that may differ in cost; return how many there are.

    Only the innermost class of loops saves traffic: N, P, Q that of W, K that of I, C, R, S that of
    O; and where it has a halo, the innermost loop that of I. So an order is known by its innermost
    loop: the rest of that loop's class follows, then all others.
    """
    heads = st.heads[level]
    factor = st.factor[level]
    if not t.free_order[level]:
        heads[0] = -1
        for j in range(t.actives):
            d = t.order[level, j]
            if factor[d] > 1.0:
                heads[0] = d
                break
        return 1
    count = list_heads(t, st, level, W, N, P, np.int64(0))
    count = list_heads(t, st, level, O, C, R, count)
    if st.classes[level, I] > 1.0 and t.matters[level, I]:
        heads[count] = K
        count += 1
    if count == 0:
        heads[0] = -1
        for i in range(t.actives):
            if factor[t.active[i]] > 1.0:
                heads[0] = t.active[i]
        count += 1
    return count


@compiled
def list_heads(t, st, level, tensor, plain, own, count):  # type: ignore[no-untyped-def]
    """List the innermost loops that let ``tensor`` stay; return how many heads there are then.

    ``own`` is the class's dimension along the rows of I, the one after it that along the columns,
    ``plain`` the other one.
    """
    if st.classes[level, tensor] == 1.0:
        return count
    factor, before = st.factor[level], count
    if t.halo[level, 0] and factor[own] > 1.0:
        st.heads[level, count] = own
        count += 1
    if t.halo[level, 1] and factor[own + 1] > 1.0:
        st.heads[level, count] = own + 1
        count += 1
    if count == before and t.matters[level, tensor]:
        across = own if factor[own] > 1.0 else own + 1
        st.heads[level, count] = plain if factor[plain] > 1.0 else across
        count += 1
    return count


@compiled
def take_order(t, st, level, head):  # type: ignore[no-untyped-def]
    """Make ``head`` the innermost loop and work out the reuse of what lies inside."""
    st.head[level] = head
    classes = st.classes[level]
    first = CLASS[head] if head >= 0 else 3
    run = 1.0
    whole = True
    if t.free_order[level] or head < 0:
        run = classes[first]
        for x in range(4):
            whole = whole and (x == first or classes[x] == 1.0)
    else:
        for j in range(t.actives):
            d = t.order[level, j]
            factor = st.factor[level, d]
            if factor > 1.0:
                whole = whole and CLASS[d] == first
                if not whole:
                    break
                run *= factor
    for x in range(3):
        reuse = run if x == first else 1.0
        if head < 0 or (whole and x == first):
            reuse *= st.reuse[level, x]
        st.reuse[level + 1, x] = reuse
        st.repeats[level + 1, x] = st.repeats[level, x] * classes[x]


@compiled
def input_fills(t, st, child):  # type: ignore[no-untyped-def]
    """Count the input words one instance of ``child`` receives; the innermost loop has a halo."""
    tile = st.words[child, I]
    for level in range(child - 1, -1, -1):
        d = st.head[level]
        if d < 0:
            continue
        if d < P:
            break
        extent = st.extent[child, (d - P) % 2]
        shift = st.step[level, d] * t.stride[d - P]
        if shift < extent:
            bound = st.factor[level, d]
            sweep = tile + (bound - 1) * (tile / extent * shift)
            return sweep * (st.advances[child] / bound)
        break
    return tile * st.advances[child] / st.reuse[child, I]


@compiled
def input_spread(t, st, parent, child):  # type: ignore[no-untyped-def]
    """Count the distinct input tiles below one parent where rows or columns run diagonally.

    Returns the count and the network energy per word that one child receives.
    """
    spread = 1.0
    network = 0.0
    for level in range(child - 1, parent - 1, -1):
        s = st.sigma[level]
        rest, inside = st.rest[level + 1], st.inside[level + 1]
        p = rest[P] * inside[P] * t.stride[0]
        q = rest[Q] * inside[Q] * t.stride[1]
        r = rest[R] * inside[R] * t.stride[2]
        c = rest[S] * inside[S] * t.stride[3]
        distinct = s[N] * s[G] * s[C]
        distinct *= sums_of_two(s[P], p, s[R], r) * sums_of_two(s[Q], q, s[S], c)
        spread *= distinct
        network += spread * hop_energy(t, st, level, distinct)
    return spread, network


@compiled
def charge(t, st, child, known):  # type: ignore[no-untyped-def]
    """Add what flows between ``child`` and its parents to row ``known``; return its energy."""
    depth = t.depth
    energy = 0.0
    for x in range(3):
        parent = t.parent[child, x]
        if parent < 0:
            continue
        if child == depth:
            fills = st.cycles
        elif x == I:
            fills = input_fills(t, st, child)
        else:
            fills = st.words[child, x] * st.advances[child] / st.reuse[child, x]
        spread = st.spread[child, x]
        network = st.hops[child, x]
        varies = x == I and st.diagonal[child]
        if varies:
            spread, network = input_spread(t, st, parent, child)
        served = fills * spread
        st.edge_fills[child, x] = fills
        st.edge_served[child, x] = served
        energy += fills * network
        reads = served
        per_access = t.per_access[parent]
        if x == O:
            reads = served - st.share[parent]
            rows = np.ceil(served / per_access) * st.instances[parent]
            energy += rows * st.write_price[parent]
            if child < depth:
                st.writes[known, parent] += served
                if not t.zero_fill:
                    fills = max(fills - st.share[child], 0.0)
        energy += np.ceil(reads / per_access) * st.instances[parent] * st.read_price[parent]
        if child < depth or varies:
            st.reads[known, parent] += reads
        if child < depth:
            rows = np.ceil(fills / t.per_access[child]) * st.instances[child]
            energy += rows * st.write_price[child]
            st.writes[known, child] += fills
    return energy


@compiled
def enter_order(t, st, level, head):  # type: ignore[no-untyped-def]
    """Take a loop order and charge the traffic into the next level."""
    child = level + 1
    take_order(t, st, level, head)
    for other in range(t.depth):
        st.reads[child, other] = st.reads[level, other]
        st.writes[child, other] = st.writes[level, other]
    st.energy[child] = st.energy[level]
    st.energy[child] += charge(t, st, child, child)


@compiled
def least_energy(t, st, known, upto):  # type: ignore[no-untyped-def]
    """Return a lower bound on energy once everything outside level ``known`` is fixed.

    Counts what is spent so far, the least traffic into levels before ``upto``, and of the MACs'
    own traffic what is served by levels before ``upto`` (network not counted unless ``upto`` is
    the depth).
    """
    depth = t.depth
    energy = st.energy[known]
    for child in range(known + 1, depth + 1):
        if upto <= child < depth:
            continue
        for x in range(3):
            parent = t.parent[child, x]
            if parent < 0 or (child == depth and parent >= upto):
                continue
            if parent <= known:
                read = st.read_price[parent]
                write = st.write_price[parent]
            else:
                read = st.least_read[parent]
                write = st.least_write[parent]
            again = 1.0
            if child < depth:
                again = st.repeats[known, x] / st.reuse[known, x]
                filled = again if x != O or t.zero_fill else again - 1.0
                energy += st.child_rows[child, x] * filled * st.least_write[child]
            rows = st.parent_rows[child, x] * again
            if x == O:
                first = st.share[parent] * st.instances[parent] / t.per_access[parent]
                energy += rows * write + max(rows - first, 0.0) * read
            else:
                energy += rows * read
            if child < depth or upto == depth:
                energy += st.least_hops[child, x] * again
    return energy


@compiled
def least_cycles(t, st, known):  # type: ignore[no-untyped-def]
    """Return the cycles that compute and the traffic known so far take at least."""
    worst = st.cycles
    for level in range(t.depth):
        reads, writes = st.reads[known, level], st.writes[known, level]
        if reads > worst * t.read_bandwidth[level]:
            worst = np.ceil(reads / t.read_bandwidth[level])
        if writes > worst * t.write_bandwidth[level]:
            worst = np.ceil(writes / t.write_bandwidth[level])
    return worst
