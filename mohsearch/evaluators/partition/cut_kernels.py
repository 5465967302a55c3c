"""Compiled lower hulls of time against bytes: of downsets, and of sets of ops on their own.

How few bytes a set of given time must exchange is hard to say exactly; the lower convex hull of all
(time, bytes) pairs is not: each of its corners is a minimum cut (Eisner and Severance, JACM 1976).
Bytes are given as the time they take on a link.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.partition.flow_kernels import SINK, SOURCE, UNBOUNDED, add_arc, cut
from mohsearch.workloads.op_graph import Floats

FREE, INSIDE, OUTSIDE = 0, 1, 2

MAX_CORNERS = 4096
"""Corners of one hull; beyond this many it counts as unknown."""

compiled = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]

inner = njit(  # type: ignore[call-overload]
    cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False
)
"""Called from compiled code alone: no wrapper for calls from Python, and no reference counts."""


class Flow(NamedTuple):
    """Graph, tensors and scratch of the cuts.

    ``size`` (E,) is the time of each edge's bytes on a link, ``rising`` (E,) the edges of each op
    from the smallest to the largest.
    """

    time: Floats
    succ_starts: NDArray[np.int32]
    edge_dst: NDArray[np.int32]
    size: Floats
    rising: NDArray[np.int64]
    state: NDArray[np.int64]
    node: NDArray[np.int64]
    chosen: NDArray[np.bool_]
    head: NDArray[np.int64]
    level: NDArray[np.int64]
    queue: NDArray[np.int64]
    ahead: NDArray[np.int64]
    path: NDArray[np.int64]
    then: NDArray[np.int64]
    to: NDArray[np.int64]
    capacity: Floats
    room: Floats


def new_flow(
    time: Floats,
    succ_starts: NDArray[np.int32],
    edge_dst: NDArray[np.int32],
    size: Floats,
    rising: NDArray[np.int64],
) -> Flow:
    """Return a graph with scratch for its largest network."""
    n, edges = len(time), len(edge_dst)
    nodes = 2 + n + 2 * edges
    readers = np.diff(succ_starts).astype(np.int64)
    arcs = 4 * n + 8 * edges + 2 * int((readers * readers).sum()) + 2
    whole = np.int64
    nowhere = np.empty(nodes, whole)
    return Flow(
        time=time,
        succ_starts=succ_starts,
        edge_dst=edge_dst,
        size=size,
        rising=rising,
        state=np.empty(n, whole),
        node=np.empty(n, whole),
        chosen=np.empty(n, np.bool_),
        head=nowhere,
        level=nowhere.copy(),
        queue=nowhere.copy(),
        ahead=nowhere.copy(),
        path=nowhere.copy(),
        then=np.empty(arcs, whole),
        to=np.empty(arcs, whole),
        capacity=np.empty(arcs),
        room=np.empty(arcs),
    )


@inner
def _add_tensors(flow, u, nodes, arcs, both):  # type: ignore[no-untyped-def]
    """Add the arcs that cost what op ``u`` sends, and with ``both`` what others are sent of it.

    A tensor costs its largest edge across the cut: one step a size, over all readers of at least
    that size. Returns the new numbers of nodes and arcs.
    """
    first, count = flow.succ_starts[u], flow.succ_starts[u + 1] - flow.succ_starts[u]
    a = flow.node[u]
    below = 0.0
    for k in range(count):
        size = flow.size[flow.rising[first + k]]
        step = size - below
        if step <= 0.0:
            continue
        below = size
        if a != SINK:
            x = nodes
            nodes += 1
            arcs = add_arc(flow.head, flow.then, flow.to, flow.capacity, arcs, a, x, step)
            for q in range(k, count):
                v = flow.node[flow.edge_dst[flow.rising[first + q]]]
                arcs = add_arc(flow.head, flow.then, flow.to, flow.capacity, arcs, x, v, UNBOUNDED)
        if both and a != SOURCE:
            x = nodes
            nodes += 1
            arcs = add_arc(flow.head, flow.then, flow.to, flow.capacity, arcs, x, a, step)
            for q in range(k, count):
                v = flow.node[flow.edge_dst[flow.rising[first + q]]]
                if v != SINK:
                    arcs = add_arc(
                        flow.head, flow.then, flow.to, flow.capacity, arcs, v, x, UNBOUNDED
                    )
    return nodes, arcs


@inner
def _touches(flow, u, both):  # type: ignore[no-untyped-def]
    """Whether a cut may cross the tensor of op ``u`` at all."""
    mine = flow.state[u]
    if mine == OUTSIDE and not both:
        return False
    for e in range(flow.succ_starts[u], flow.succ_starts[u + 1]):
        other = flow.state[flow.edge_dst[e]]
        if mine == FREE or other != mine:
            return True
    return False


@inner
def _build(flow, both):  # type: ignore[no-untyped-def]
    """Build the network of a state of all ops; without ``both`` its source side is a downset.

    Returns the numbers of nodes and arcs, and the first arc of the times: each free op has one to
    the sink and one from the source.
    """
    n = len(flow.time)
    nodes = 2
    for u in range(n):
        if flow.state[u] == FREE:
            flow.node[u] = nodes
            nodes += 1
        else:
            flow.node[u] = SOURCE if flow.state[u] == INSIDE else SINK
    flow.head[:] = -1
    arcs = 0
    for u in range(n):
        if _touches(flow, u, both):
            nodes, arcs = _add_tensors(flow, u, nodes, arcs, both)
        if flow.state[u] == FREE and not both:
            for e in range(flow.succ_starts[u], flow.succ_starts[u + 1]):
                v = flow.edge_dst[e]
                if flow.state[v] == FREE:
                    arcs = add_arc(
                        flow.head, flow.then, flow.to, flow.capacity, arcs, flow.node[v],
                        flow.node[u], UNBOUNDED,
                    )  # fmt: skip
    times = arcs
    for u in range(n):
        if flow.state[u] == FREE:
            arcs = add_arc(
                flow.head, flow.then, flow.to, flow.capacity, arcs, flow.node[u], SINK, 0.0
            )
            arcs = add_arc(
                flow.head, flow.then, flow.to, flow.capacity, arcs, SOURCE, flow.node[u], 0.0
            )
    return nodes, arcs, times


@inner
def _cheapest(flow, nodes, arcs, times, slope, both):  # type: ignore[no-untyped-def]
    """Return time and bytes of the set that minimises bytes plus ``slope`` times time.

    Infinite slopes: the fewest bytes among sets of the least, or of the most, time.
    """
    for i in range(arcs):
        flow.room[i] = flow.capacity[i]
    e = times
    for u in range(len(flow.time)):
        if flow.state[u] != FREE:
            continue
        time = flow.time[u]
        if time > 0.0:
            weight = UNBOUNDED if np.isinf(slope) else abs(slope) * time
            flow.room[e if slope > 0.0 else e + 2] = weight
        e += 4
    cut(
        flow.head, flow.then, flow.to, flow.room, nodes, flow.level, flow.queue, flow.ahead,
        flow.path,
    )  # fmt: skip
    total = 0.0
    for u in range(len(flow.time)):
        flow.chosen[u] = flow.level[flow.node[u]] >= 0
        if flow.chosen[u]:
            total += flow.time[u]
    return total, _exchanged(flow, both)


@inner
def _exchanged(flow, both):  # type: ignore[no-untyped-def]
    """Return what the chosen ops send to others and, with ``both``, are sent by others."""
    total = 0.0
    for u in range(len(flow.time)):
        if not (flow.chosen[u] or both):
            continue
        largest = 0.0
        for e in range(flow.succ_starts[u], flow.succ_starts[u + 1]):
            if flow.chosen[flow.edge_dst[e]] != flow.chosen[u]:
                largest = max(largest, flow.size[e])
        total += largest
    return total


@compiled
def hull(flow, both, todo, time, bytes_s):  # type: ignore[no-untyped-def]
    """Fill the corners of one hull from the least time to the most; return how many there are.

    ``flow.state`` says which ops a set must hold and which it must not. Without ``both`` sets are
    downsets, and count what they send; else any sets, and count what they are sent as well. Returns
    -1 if there are too many corners for ``time`` and ``bytes_s``, or for ``todo`` (rows, 4).
    """
    nodes, arcs, times = _build(flow, both)
    start, start_bytes = _cheapest(flow, nodes, arcs, times, np.inf, both)
    end, end_bytes = _cheapest(flow, nodes, arcs, times, -np.inf, both)
    time[0], bytes_s[0] = start, start_bytes
    count = 1
    if end <= start:
        return count
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = start, start_bytes, end, end_bytes
    top = 1
    while top > 0:
        top -= 1
        t1, b1, t2, b2 = todo[top, 0], todo[top, 1], todo[top, 2], todo[top, 3]
        slope = (b1 - b2) / (t2 - t1)
        t, b = _cheapest(flow, nodes, arcs, times, slope, both)
        line = b1 + slope * t1
        if t1 < t < t2 and b + slope * t < line - 1e-12 * (b1 + abs(slope) * t2):
            if top + 2 > len(todo):
                return -1
            todo[top, 0], todo[top, 1], todo[top, 2], todo[top, 3] = t, b, t2, b2
            todo[top + 1, 0], todo[top + 1, 1], todo[top + 1, 2], todo[top + 1, 3] = t1, b1, t, b
            top += 2
        else:
            if count >= len(time):
                return -1
            time[count], bytes_s[count] = t2, b2
            count += 1
    return count
