"""Compiled fluid simulation of layers that share memory interfaces, from event to event.

Two kernels give the same schedule wherever both apply. Under proportional sharing all layers of an
interface progress at one rate, so each interface has a clock and a layer ends at a fixed reading of
it; under max-min sharing every layer has its own rate.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SHARING_PROPORTIONAL = 0
SHARING_MAX_MIN = 1
SHARING_TWO_PASS = 2


@njit(cache=True, nogil=True)
def simulate(  # type: ignore[no-untyped-def]
    order,
    place,
    work,
    demand_of,
    flow_of,
    into,
    outof,
    after,
    k,
    starts,
    interface_bandwidth,
    system_bandwidth,
    sharing,
    start,
    end,
    trace,
):
    """Run the fluid schedule; fill start and end of each layer and return the latest end.

    Parameters
    ----------
    order
        Layer ids; a layer runs after its predecessors and after the earlier layers of its place.
    place
        By layer: where it runs, 0..k-1, places grouped by interface: those of interface ``j`` are
        ``starts[j]:starts[j + 1]``.
    work, demand_of
        By layer: seconds alone, and the bytes/s it counts with at full speed.
    flow_of
        By layer: the bytes/s it really moves at full speed; only traced.
    into, outof, after
        Offsets of predecessors; offsets and ids of successors.
    trace
        Shape (n or 0, 1 + interfaces): if it has rows, each event fills one with the time at which
        the segment ends and the bytes/s of each interface in it.
    """
    n = len(order)
    queue = np.empty(n, np.int64)
    waiting = np.empty(n, np.int64)
    coming = np.empty(k, np.int64)
    last = np.empty(k, np.int64)
    _fill_queues(order, place, into, queue, coming, last, waiting)
    if sharing == SHARING_MAX_MIN:
        return _own_rates(
            place, work, demand_of, flow_of, outof, after, k, starts, interface_bandwidth,
            system_bandwidth, queue, waiting, coming, last, start, end, trace,
        )  # fmt: skip
    return _shared_clocks(
        place, work, demand_of, flow_of, outof, after, k, starts, interface_bandwidth,
        system_bandwidth, sharing, queue, waiting, coming, last, start, end, trace,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _fill_queues(order, place, into, queue, coming, last, waiting):  # type: ignore[no-untyped-def]
    """Sort the layers by place, in order: place ``s`` holds ``queue[coming[s]:last[s]]``."""
    n = len(order)
    last[:] = 0
    for layer in range(n):
        last[place[layer]] += 1
        waiting[layer] = into[layer + 1] - into[layer]
    total = 0
    for s in range(len(last)):
        coming[s] = total
        total += last[s]
        last[s] = coming[s]
    for i in range(n):
        s = place[order[i]]
        queue[last[s]] = order[i]
        last[s] += 1


@njit(cache=True, nogil=True)
def _note(segment, now, rate, stretch, flow_of, running, starts, trace):  # type: ignore[no-untyped-def]
    """Write one segment of the trace: its end and the throughput of each interface."""
    trace[segment, 0] = now
    for j in range(len(starts) - 1):
        trace[segment, 1 + j] = 0.0
        for s in range(starts[j], starts[j + 1]):
            if running[s] >= 0:
                trace[segment, 1 + j] += flow_of[running[s]] * rate[s] / stretch


@njit(cache=True, nogil=True, error_model="numpy")
def _shared_clocks(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0912
    place, work, demand_of, flow_of, outof, after, k, starts, interface_bandwidth,
    system_bandwidth, sharing, queue, waiting, coming, last, start, end, trace,
):  # fmt: skip
    """Simulate proportional (or two-pass) sharing: one clock per interface.

    Clock ``j`` runs at ``1 / slow[j]`` of the package's time, which itself runs slower than real
    time where the system limit binds. A layer without traffic runs by the clock of the last group.
    """
    groups = len(starts)
    free = groups - 1
    interface = np.empty(k, np.int64)
    for j in range(free):
        interface[starts[j] : starts[j + 1]] = j
    running = np.full(k, -1, np.int64)
    target = np.full(k, np.inf)
    free_target = np.full(k, np.inf)
    demand = np.zeros(k)
    clock = np.zeros(groups)
    slow = np.ones(groups)
    rate = np.ones(groups)
    asked = np.zeros(groups)
    soonest = np.full(groups, np.inf)
    where = np.zeros(groups, np.int64)
    stale = np.ones(groups, np.bool_)
    for s in range(k):
        if coming[s] < last[s] and waiting[queue[coming[s]]] == 0:
            _start(s, queue[coming[s]], 0.0, work, demand_of, free, interface, running, free_target,
                   target, demand, clock, stale, start)  # fmt: skip
    now = 0.0
    for segment in range(len(queue)):
        for j in range(groups):
            if stale[j]:
                stale[j] = False
                if j < free:
                    _refresh(j, starts[j], starts[j + 1], target, demand, asked, soonest, where)
                    slow[j] = max(1.0, asked[j] / interface_bandwidth)
                    rate[j] = 1.0 / slow[j]
                else:
                    _refresh(j, 0, k, free_target, demand, asked, soonest, where)
        stretch = _stretch(asked, free, interface_bandwidth, system_bandwidth, sharing)
        if sharing == SHARING_PROPORTIONAL:
            rate[free] = stretch
            slow[free] = 1.0 / stretch
        step = np.inf
        first = -1
        for j in range(groups):
            need = (soonest[j] - clock[j]) * slow[j]
            if need < step:
                step = need
                first = j
        if first < 0:
            return np.nan  # no layer can run: the order is not topological
        step = max(step, 0.0)
        now += step * stretch
        for j in range(groups):
            clock[j] += step * rate[j]
        clock[first] = soonest[first]
        s = where[first]
        layer = running[s]
        if len(trace) > 0:
            _note(segment, now, rate[interface], stretch, flow_of, running, starts, trace)
        end[layer] = now
        running[s] = -1
        target[s] = np.inf
        free_target[s] = np.inf
        demand[s] = 0.0
        stale[first] = True
        coming[s] += 1
        if coming[s] < last[s] and waiting[queue[coming[s]]] == 0:
            _start(s, queue[coming[s]], now, work, demand_of, free, interface, running, free_target,
                   target, demand, clock, stale, start)  # fmt: skip
        for e in range(outof[layer], outof[layer + 1]):
            other = after[e]
            waiting[other] -= 1
            p = place[other]
            if waiting[other] == 0 and running[p] < 0 and queue[coming[p]] == other:
                _start(p, other, now, work, demand_of, free, interface, running, free_target,
                       target, demand, clock, stale, start)  # fmt: skip
    return now


@njit(cache=True, nogil=True, inline="always")
def _refresh(j, low, high, target, demand, asked, soonest, where):  # type: ignore[no-untyped-def]
    """Add up what the places low..high ask for, and find the one whose layer ends first."""
    total = 0.0
    least = np.inf
    place = -1
    for s in range(low, high):
        total += demand[s]
        if target[s] < least:
            least = target[s]
            place = s
    asked[j] = total
    soonest[j] = least
    where[j] = place


@njit(cache=True, nogil=True, inline="always")
def _stretch(asked, free, interface_bandwidth, system_bandwidth, sharing):  # type: ignore[no-untyped-def]
    """Return by how much the system limit slows the package's time down."""
    total = 0.0
    for j in range(free):
        part = asked[j]
        if sharing == SHARING_PROPORTIONAL:
            part = min(part, interface_bandwidth)
        total += part
    return max(1.0, total / system_bandwidth)


@njit(cache=True, nogil=True, inline="always")
def _start(  # type: ignore[no-untyped-def]
    s, layer, now, work, demand_of, free, interface, running, free_target, target, demand, clock,
    stale, start,
):  # fmt: skip
    running[s] = layer
    demand[s] = demand_of[layer]
    start[layer] = now
    if demand[s] > 0.0:
        j = interface[s]
        target[s] = clock[j] + work[layer]
    else:
        j = free
        free_target[s] = clock[j] + work[layer]
    stale[j] = True


@njit(cache=True, nogil=True, error_model="numpy")
def _own_rates(  # type: ignore[no-untyped-def]  # noqa: C901
    place, work, demand_of, flow_of, outof, after, k, starts, interface_bandwidth,
    system_bandwidth, queue, waiting, coming, last, start, end, trace,
):  # fmt: skip
    """Simulate max-min sharing: every layer has a rate of its own."""
    running = np.full(k, -1, np.int64)
    left = np.full(k, np.inf)
    rate = np.ones(k)
    demand = np.zeros(k)
    for s in range(k):
        if coming[s] < last[s] and waiting[queue[coming[s]]] == 0:
            _launch(s, queue[coming[s]], 0.0, work, demand_of, running, left, demand, start)
    now = 0.0
    for segment in range(len(queue)):
        total = 0.0
        for j in range(len(starts) - 1):
            total += _fill(starts[j], starts[j + 1], demand, interface_bandwidth, rate)
        if total > system_bandwidth:
            for s in range(k):
                if demand[s] > 0.0:
                    rate[s] *= system_bandwidth / total
        step = np.inf
        first = -1
        for s in range(k):
            need = left[s] / rate[s]
            if need < step:
                step = need
                first = s
        if first < 0:
            return np.nan  # no layer can run: the order is not topological
        now += step
        for s in range(k):
            left[s] = max(0.0, left[s] - step * rate[s])
        if len(trace) > 0:
            _note(segment, now, rate, 1.0, flow_of, running, starts, trace)
        layer = running[first]
        end[layer] = now
        running[first] = -1
        left[first] = np.inf
        demand[first] = 0.0
        coming[first] += 1
        if coming[first] < last[first] and waiting[queue[coming[first]]] == 0:
            other = queue[coming[first]]
            _launch(first, other, now, work, demand_of, running, left, demand, start)
        for e in range(outof[layer], outof[layer + 1]):
            other = after[e]
            waiting[other] -= 1
            s = place[other]
            if waiting[other] == 0 and running[s] < 0 and queue[coming[s]] == other:
                _launch(s, other, now, work, demand_of, running, left, demand, start)
    return now


@njit(cache=True, nogil=True, inline="always")
def _launch(s, layer, now, work, demand_of, running, left, demand, start):  # type: ignore[no-untyped-def]
    running[s] = layer
    left[s] = work[layer]
    demand[s] = demand_of[layer]
    start[layer] = now


@njit(cache=True, nogil=True, inline="always")
def _fill(low, high, demand, bandwidth, rate):  # type: ignore[no-untyped-def]
    """Water-fill one interface over its places low..high; return the bandwidth used."""
    left = bandwidth
    active = 0
    for s in range(low, high):
        rate[s] = -1.0
        if demand[s] > 0.0:
            active += 1
        else:
            rate[s] = 1.0
    used = 0.0
    while active > 0:
        fair = left / active
        settled = False
        for s in range(low, high):
            if rate[s] < 0.0 and demand[s] <= fair:
                rate[s] = 1.0
                left -= demand[s]
                used += demand[s]
                active -= 1
                settled = True
        if not settled:
            for s in range(low, high):
                if rate[s] < 0.0:
                    rate[s] = fair / demand[s]
                    used += fair
            active = 0
    return used
