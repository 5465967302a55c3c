"""Compiled minimum cuts: Dinic's algorithm over arrays.

A network is a set of linked lists of arcs: ``head`` (nodes,) is the first arc of each node,
``then`` the next arc of the same node (-1: none), ``to`` where an arc leads, ``room`` what may
still flow.
Arc ``e`` and its reverse ``e ^ 1`` stand side by side. Node 0 is the source, node 1 the sink.
"""

from __future__ import annotations

from numba import njit

SOURCE, SINK = 0, 1

NOTHING = 1e-15
"""Room below which an arc counts as full; callers scale the sum of all capacities to about 1."""

UNBOUNDED = 1e30
"""Room of an arc that no minimum cut may cross, beside capacities whose sum is about 1."""

inner = njit(  # type: ignore[call-overload]
    cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False
)
"""Called from compiled code alone: no wrapper for calls from Python, and no reference counts."""


@inner
def add_arc(head, then, to, room, count, a, b, capacity):  # type: ignore[no-untyped-def]
    """Append an arc from a to b, and its empty reverse; return the new number of arcs."""
    to[count] = b
    room[count] = capacity
    then[count] = head[a]
    head[a] = count
    to[count + 1] = a
    room[count + 1] = 0.0
    then[count + 1] = head[b]
    head[b] = count + 1
    return count + 2


@inner
def _levels(head, then, to, room, nodes, level, queue):  # type: ignore[no-untyped-def]
    """Fill the distance of each node from the source, -1 where it is cut off."""
    for i in range(nodes):
        level[i] = -1
    level[SOURCE] = 0
    queue[0] = SOURCE
    first, end = 0, 1
    while first < end:
        u = queue[first]
        first += 1
        e = head[u]
        while e >= 0:
            v = to[e]
            if level[v] < 0 and room[e] > NOTHING:
                level[v] = level[u] + 1
                queue[end] = v
                end += 1
            e = then[e]


@inner
def _push(to, room, path, depth):  # type: ignore[no-untyped-def]
    """Send what fits along a path of arcs; return the place of the first that is full."""
    least = room[path[0]]
    for k in range(1, depth):
        least = min(least, room[path[k]])
    full = depth
    for k in range(depth - 1, -1, -1):
        e = path[k]
        room[e] -= least
        room[e ^ 1] += least
        if room[e] <= NOTHING:
            full = k
    return full


@inner
def cut(head, then, to, room, nodes, level, queue, ahead, path):  # type: ignore[no-untyped-def]
    """Let as much flow as fits; ``level`` is then not negative on the source side of a least cut.

    The smallest source side of all least cuts. ``queue``, ``ahead`` and ``path`` (nodes,) are
    scratch.
    """
    while True:
        _levels(head, then, to, room, nodes, level, queue)
        if level[SINK] < 0:
            return
        for i in range(nodes):
            ahead[i] = head[i]
        depth = 0
        u = SOURCE
        while True:
            if u == SINK:
                depth = _push(to, room, path, depth)
                u = to[path[depth] ^ 1]
                continue
            e = ahead[u]
            while e >= 0 and not (room[e] > NOTHING and level[to[e]] == level[u] + 1):
                e = then[e]
            ahead[u] = e
            if e >= 0:
                path[depth] = e
                depth += 1
                u = to[e]
            elif depth == 0:
                break
            else:
                level[u] = -2
                depth -= 1
                u = to[path[depth] ^ 1]
