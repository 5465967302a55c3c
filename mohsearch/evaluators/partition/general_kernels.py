"""Compiled propagation of equations (2) to (4) of Xie et al. in full, and search on top of it.

The domain of an op is a 64-bit set of chips. Four rules prune, each a consequence of the equations:

* an edge goes forwards, and at most ``1 + beside`` chips far, where ``beside`` counts the ops that
  could fill the chips between its ends (:mod:`mohsearch.evaluators.partition.reachability`);
* a direct dependency of two chips is allowed only if no indirect one exists or would come about;
* once both ends of an edge are placed, the ops between them share their chips;
* every chip below a used one must have an op that can still be there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.partition.streams import take_order, uniform

ONE = np.uint64(1)
ZERO = np.uint64(0)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)

TRAIL, LINKS, TOP, HEAD, WAITING = range(5)
"""Counters: entries of the trail, of the list of chip edges, the highest chip that must be used,
and place and length of the queue."""

COUNTERS = 5

compiled = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
"""Without reference counts, which would take most of the time of such small functions."""

inner = njit(  # type: ignore[call-overload]
    cache=True, nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
"""The same, called from compiled code alone: nothing is compiled for calls from Python."""


class Network(NamedTuple):
    """The graph: edges by source and by destination, slack, and ops between the ends of edges."""

    succ_starts: NDArray[np.int32]
    pred_starts: NDArray[np.int32]
    pred_edges: NDArray[np.int32]
    edge_src: NDArray[np.int32]
    edge_dst: NDArray[np.int32]
    slack: NDArray[np.int64]
    between_starts: NDArray[np.int64]
    between: NDArray[np.int32]
    sources: NDArray[np.int64]


class Search(NamedTuple):
    """The state of one search; every change is on the trail."""

    domain: NDArray[np.uint64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    placed: NDArray[np.int64]
    direct: NDArray[np.uint64]
    allowed_after: NDArray[np.uint64]
    allowed_before: NDArray[np.uint64]
    after: NDArray[np.uint64]
    shared: NDArray[np.uint64]
    queue: NDArray[np.int64]
    waiting: NDArray[np.bool_]
    counters: NDArray[np.int64]
    trail_op: NDArray[np.int64]
    trail_domain: NDArray[np.uint64]
    link_from: NDArray[np.int64]
    link_to: NDArray[np.int64]


def new_search(n: int, chips: int) -> Search:
    """Return an empty state for ``n`` ops and ``chips`` chips."""
    whole: Any = np.int64
    return Search(
        domain=np.empty(n, np.uint64),
        low=np.empty(n, whole),
        high=np.empty(n, whole),
        placed=np.zeros(chips, whole),
        direct=np.zeros(chips, np.uint64),
        allowed_after=np.zeros(chips, np.uint64),
        allowed_before=np.zeros(chips, np.uint64),
        after=np.zeros(chips, np.uint64),
        shared=np.zeros(chips, np.uint64),
        queue=np.empty(n, whole),
        waiting=np.zeros(n, np.bool_),
        counters=np.zeros(COUNTERS, whole),
        trail_op=np.empty(n * chips + 1, whole),
        trail_domain=np.empty(n * chips + 1, np.uint64),
        link_from=np.empty(chips * chips, whole),
        link_to=np.empty(chips * chips, whole),
    )


@inner
def set_bounds(search, u):  # type: ignore[no-untyped-def]
    """Set lowest and highest chip of an op from its domain, which is not empty."""
    domain = search.domain[u]
    c = 0
    while not (domain >> np.uint64(c)) & ONE:
        c += 1
    search.low[u] = c
    c = len(search.placed) - 1
    while not (domain >> np.uint64(c)) & ONE:
        c -= 1
    search.high[u] = c


@compiled
def shrink(search, u, mask):  # type: ignore[no-untyped-def]
    """Restrict the domain of an op; return whether something is left."""
    counters = search.counters
    old = search.domain[u]
    new = old & mask
    if new == old:
        return True
    if new == ZERO:
        return False
    search.trail_op[counters[TRAIL]] = u
    search.trail_domain[counters[TRAIL]] = old
    counters[TRAIL] += 1
    search.domain[u] = new
    c = search.low[u]
    while not (new >> np.uint64(c)) & ONE:
        c += 1
    search.low[u] = c
    c = search.high[u]
    while not (new >> np.uint64(c)) & ONE:
        c -= 1
    search.high[u] = c
    counters[TOP] = max(counters[TOP], search.low[u])
    if c == search.low[u]:
        search.placed[c] += 1
    if not search.waiting[u]:
        search.waiting[u] = True
        size = len(search.queue)
        search.queue[(counters[HEAD] + counters[WAITING]) % size] = u
        counters[WAITING] += 1
    return True


@inner
def judge_links(search):  # type: ignore[no-untyped-def]
    """Work out which direct dependencies of chips are there or may still come."""
    chips = len(search.placed)
    direct = search.direct
    after = search.after
    for a in range(chips - 1, -1, -1):
        rest = direct[a]
        after[a] = ZERO
        b = a + 1
        while b < chips and rest >> np.uint64(b):
            if (rest >> np.uint64(b)) & ONE:
                after[a] |= after[b] | (ONE << np.uint64(b))
            b += 1
    shared = search.shared  # direct successors of all chips before
    for a in range(chips):
        shared[a] = ZERO
        for c in range(a):
            if (after[c] >> np.uint64(a)) & ONE:
                shared[a] |= direct[c]
    search.allowed_before[:] = ZERO
    for a in range(chips):
        mine = ONE << np.uint64(a)
        mask = direct[a] | mine
        above = shared[a] | direct[a]
        for b in range(a + 1, chips):
            bit = ONE << np.uint64(b)
            if (shared[a] | after[a]) & bit == ZERO and after[b] & above == ZERO:
                mask |= bit
        search.allowed_after[a] = mask
        for b in range(a, chips):
            if (mask >> np.uint64(b)) & ONE:
                search.allowed_before[b] |= mine


@inner
def link(search, a, b):  # type: ignore[no-untyped-def]
    """Enter a direct dependency of two chips; return -1 if forbidden, 0 if known, 1 if new."""
    bit = ONE << np.uint64(b)
    if a == b or search.direct[a] & bit != ZERO:
        return 0
    if search.allowed_after[a] & bit == ZERO:
        return -1
    counters = search.counters
    search.link_from[counters[LINKS]] = a
    search.link_to[counters[LINKS]] = b
    counters[LINKS] += 1
    search.direct[a] |= bit
    judge_links(search)
    return 1


@compiled
def undo(search, trail, links, top):  # type: ignore[no-untyped-def]
    """Go back to earlier lengths of the trails."""
    counters = search.counters
    while counters[WAITING] > 0:
        search.waiting[search.queue[counters[HEAD]]] = False
        counters[HEAD] = (counters[HEAD] + 1) % len(search.queue)
        counters[WAITING] -= 1
    while counters[TRAIL] > trail:
        counters[TRAIL] -= 1
        u = search.trail_op[counters[TRAIL]]
        if search.low[u] == search.high[u]:
            search.placed[search.low[u]] -= 1
        search.domain[u] = search.trail_domain[counters[TRAIL]]
        set_bounds(search, u)
    if counters[LINKS] > links:
        while counters[LINKS] > links:
            counters[LINKS] -= 1
            i = counters[LINKS]
            search.direct[search.link_from[i]] &= ~(ONE << np.uint64(search.link_to[i]))
        judge_links(search)
    counters[TOP] = top


@inner
def share_between(search, network, e):  # type: ignore[no-untyped-def]
    """Put the ops between the placed ends of an edge onto their chips, if they can be there."""
    start, stop = network.between_starts[e], network.between_starts[e + 1]
    if start == stop:
        return True
    u, v = network.edge_src[e], network.edge_dst[e]
    mask = search.domain[u] | search.domain[v]
    for i in range(start, stop):
        if not shrink(search, network.between[i], mask):
            return False
    return True


@inner
def visit(search, network, u):  # type: ignore[no-untyped-def]
    """Propagate the domain of one op along its edges.

    Returns -1 in a dead end, 1 if chips have become dependent, else 0.
    """
    low, high = search.low[u], search.high[u]
    fixed = low == high
    chips = len(search.placed)
    changed = 0
    for e in range(network.succ_starts[u], network.succ_starts[u + 1]):
        v = network.edge_dst[e]
        mask = ALL << np.uint64(low)
        reach = high + network.slack[e]
        if reach < chips - 1:
            mask &= (ONE << np.uint64(reach + 1)) - ONE
        if fixed:
            mask &= search.allowed_after[low]
        if not shrink(search, v, mask):
            return -1
        if fixed and search.low[v] == search.high[v]:
            made = link(search, low, search.low[v])
            if made < 0 or not share_between(search, network, e):
                return -1
            changed |= made
    for i in range(network.pred_starts[u], network.pred_starts[u + 1]):
        e = network.pred_edges[i]
        v = network.edge_src[e]
        mask = (ONE << np.uint64(high)) | ((ONE << np.uint64(high)) - ONE)
        least = low - network.slack[e]
        if least > 0:
            mask &= ALL << np.uint64(least)
        if fixed:
            mask &= search.allowed_before[low]
        if not shrink(search, v, mask):
            return -1
        if fixed and search.low[v] == search.high[v]:
            made = link(search, search.low[v], low)
            if made < 0 or not share_between(search, network, e):
                return -1
            changed |= made
    return changed


@inner
def review_edges(search, network):  # type: ignore[no-untyped-def]
    """Apply the allowed dependencies of chips to all edges with one placed end."""
    for e in range(len(network.edge_src)):
        u, v = network.edge_src[e], network.edge_dst[e]
        if search.low[u] == search.high[u]:
            if not shrink(search, v, search.allowed_after[search.low[u]]):
                return False
        elif search.low[v] == search.high[v]:
            if not shrink(search, u, search.allowed_before[search.low[v]]):
                return False
    return True


@inner
def cover_chips(search, network):  # type: ignore[no-untyped-def]
    """Keep every chip below a used one reachable; return False where one is lost."""
    top = search.counters[TOP]
    need = ZERO
    for c in range(top + 1):
        if search.placed[c] == 0:
            need |= ONE << np.uint64(c)
    if need == ZERO:
        return True
    once, twice = ZERO, ZERO
    for domain in search.domain:
        twice |= once & domain
        once |= domain
    if need & ~once != ZERO:
        return False
    lonely = need & ~twice
    if lonely != ZERO:
        for u in range(len(search.domain)):
            mine = search.domain[u] & lonely
            if mine != ZERO and not shrink(search, u, mine & (~mine + ONE)):
                return False
            if mine != ZERO and mine & (mine - ONE) != ZERO:
                return False
    if need & ONE != ZERO:
        last = -1
        for u in network.sources:
            if search.domain[u] & ONE != ZERO:
                if last >= 0:
                    return True
                last = u
        return last >= 0 and shrink(search, last, ONE)
    return True


@inner
def limit_chips(search):  # type: ignore[no-untyped-def]
    """Take away the chips above the first that no op can be on."""
    once = ZERO
    for domain in search.domain:
        once |= domain
    free = ~once & (once + ONE)  # lowest chip that is missing
    if free == ZERO or once < free:
        return True
    for u in range(len(search.domain)):
        if not shrink(search, u, free - ONE):
            return False
    return True


@compiled
def propagate(search, network):  # type: ignore[no-untyped-def]
    """Apply all rules until nothing changes; return False in a dead end."""
    counters = search.counters
    while True:
        dependent = False
        while counters[WAITING] > 0:
            u = search.queue[counters[HEAD]]
            counters[HEAD] = (counters[HEAD] + 1) % len(search.queue)
            counters[WAITING] -= 1
            search.waiting[u] = False
            made = visit(search, network, u)
            if made < 0:
                return False
            dependent = dependent or made > 0
        if dependent and not review_edges(search, network):
            return False
        if counters[WAITING] == 0 and not cover_chips(search, network):
            return False
        if counters[WAITING] == 0 and not dependent:
            return True


@compiled
def reset(search, network):  # type: ignore[no-untyped-def]
    """Start anew: full domains, propagated; return False if the graph has no partition at all."""
    n = len(search.domain)
    chips = len(search.placed)
    search.counters[:] = 0
    search.waiting[:] = False
    search.placed[:] = n if chips == 1 else 0
    search.direct[:] = ZERO
    full = ALL >> np.uint64(64 - chips)
    search.domain[:] = full
    search.low[:] = 0
    search.high[:] = chips - 1
    judge_links(search)
    if len(network.sources) == 1 and chips > 1:
        shrink(search, network.sources[0], ONE)
    return propagate(search, network) and limit_chips(search) and propagate(search, network)


@inner
def pick(search, u, weights, state):  # type: ignore[no-untyped-def]
    """Draw a chip of an op's domain with the given weights; uniformly where these are all zero."""
    domain = search.domain[u]
    low, high = search.low[u], search.high[u]
    total = 0.0
    count = 0
    for c in range(low, high + 1):
        if (domain >> np.uint64(c)) & ONE:
            total += weights[c]
            count += 1
    even = not total > 0.0
    point = uniform(state) * (count if even else total)
    last = low
    for c in range(low, high + 1):
        if (domain >> np.uint64(c)) & ONE and (even or weights[c] > 0.0):
            last = c
            point -= 1.0 if even else weights[c]
            if point < 0.0:
                break
    return last


@inner
def place(search, network, u, c):  # type: ignore[no-untyped-def]
    """Put an op on a chip and propagate."""
    return shrink(search, u, ONE << np.uint64(c)) and propagate(search, network)


@inner
def attempt(  # type: ignore[no-untyped-def]
    search, network, order, wanted, fix, table, flat, max_fails, levels, state
):
    """Run SAMPLE or FIX once from the present state; return dead ends, negative if given up.

    ``levels`` (n + 1, 6) keeps the decisions: step, op, chip and lengths of the trails.
    """
    n = len(order)
    depth = 0
    fails = 0
    step = n if not fix else 0
    while step < 2 * n:
        u = order[step % n]
        if search.low[u] == search.high[u]:
            step += 1
            continue
        if step < n:
            c = wanted[u]
            if c < 0 or c >= len(search.placed) or not (search.domain[u] >> np.uint64(c)) & ONE:
                step += 1
                continue
        else:
            weights = flat if fix else table[u % len(table)]
            c = pick(search, u, weights, state)
        levels[depth, 0] = step
        levels[depth, 1] = u
        levels[depth, 2] = c
        levels[depth, 3] = search.counters[TRAIL]
        levels[depth, 4] = search.counters[LINKS]
        levels[depth, 5] = search.counters[TOP]
        depth += 1
        if place(search, network, u, c):
            step += 1
            continue
        while True:  # take back the last decision, and rule its chip out where it was made
            fails += 1
            if fails > max_fails or depth == 0:
                return -fails
            depth -= 1
            undo(search, levels[depth, 3], levels[depth, 4], levels[depth, 5])
            u, c = levels[depth, 1], levels[depth, 2]
            step = levels[depth, 0]
            if shrink(search, u, ~(ONE << np.uint64(c))) and propagate(search, network):
                break
    return fails


@njit(cache=True, nogil=True)
def general_rows(  # type: ignore[no-untyped-def]
    rows, rung, fails, chosen, wanted, fix, probabilities, orders, seeds, max_fails, jumps,
    search, network, slack,
):  # fmt: skip
    """Fill the rows numbered ``chosen``, each by one attempt after the other.

    In attempt i no edge may reach further than ``jumps[i]`` chips, nor than its own ``slack``. The
    rung of a row that was found becomes 0; others keep theirs and their labels.
    """
    n = rows.shape[1]
    order = np.empty(n, np.int64)
    state = np.empty(1, np.uint64)
    flat = np.ones(len(search.placed))
    levels = np.empty((n + 1, 6), np.int64)
    for s in chosen:
        state[0] = ~seeds[s]
        for jump in jumps:
            for e in range(len(slack)):
                network.slack[e] = min(slack[e], jump)
            take_order(order, orders, s, state)
            if not reset(search, network):
                continue
            found = attempt(
                search, network, order, wanted[s], fix, probabilities[s % len(probabilities)],
                flat, max_fails, levels, state,
            )  # fmt: skip
            fails[s] += abs(found)
            if found >= 0:
                rows[s] = search.low
                rung[s] = 0
                break
