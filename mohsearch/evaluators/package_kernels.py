"""Compiled kernels of the package evaluator: sizing, energy, area and the fluid schedule.

All arrays are those of :class:`mohsearch.evaluators.package_space.MohamSpace`,
:class:`mohsearch.evaluators.package.PackageTables` and
:class:`mohsearch.evaluators.package_schedule.NetworkTables`; nothing is checked here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SHARING_PROPORTIONAL = 0
SHARING_MAX_MIN = 1
SHARING_TWO_PASS = 2

LATENCY, BUFFER_ENERGY, HOP_ENERGY, AREA, STALLED, UTILISATION, INSTANCES = range(7)
"""Columns of :func:`evaluate_population`: s, pJ, pJ, um2, s, 1, 1."""

COLUMNS = 7


@njit(cache=True, nogil=True)
def place_instances(x, n, m, tile_of_slot):  # type: ignore[no-untyped-def]
    """Fill ``tile_of_slot`` (-1 for empty slots) and return the number of instances."""
    holder = np.full(m, -1, np.int64)
    for s in range(m):
        tile_of_slot[s] = -1
        if x[3 * n + s] >= 0:
            holder[x[3 * n + m + s]] = s
    k = 0
    for rank in range(m):
        if holder[rank] >= 0:
            tile_of_slot[holder[rank]] = k
            k += 1
    return k


@njit(cache=True, nogil=True)
def size_instances(  # type: ignore[no-untyped-def]
    x, n, m, unique, offsets, row_rank, row_fanout, base_rank, base_fanout, rows, rank, fanout
):
    """Fill each layer's mapping row and each slot's per-level maxima of size rank and fan-out."""
    templates, levels = base_rank.shape
    for s in range(m):
        t = x[3 * n + s]
        if t >= 0:
            for j in range(levels):
                rank[s, j] = base_rank[t, j]
            for j in range(levels + 1):
                fanout[s, j] = base_fanout[t, j]
    for layer in range(n):
        s = x[2 * n + layer]
        t = x[3 * n + s]
        row = offsets[unique[layer] * templates + t] + x[n + layer]
        rows[layer] = row
        for j in range(levels):
            rank[s, j] = max(rank[s, j], row_rank[row, j])
        for j in range(levels + 1):
            fanout[s, j] = max(fanout[s, j], row_fanout[row, j])


@njit(cache=True, nogil=True)
def area_of(template, rank, fanout, size_area, mac_area):  # type: ignore[no-untyped-def]
    """Return the area of one instance in um2: levels from the outside in, then the MACs."""
    count = 1.0
    area = 0.0
    for j in range(len(rank)):
        count *= fanout[j]
        area += count * size_area[rank[j]]
    return area + count * fanout[len(rank)] * mac_area[template]


@njit(cache=True, nogil=True)
def energy_of(row, rank, row_fixed, row_access, size_energy):  # type: ignore[no-untyped-def]
    """Return the energy in pJ of mapping ``row`` on an instance of the sizes ``rank``."""
    energy = row_fixed[row]
    for j in range(len(rank)):
        r = rank[j]
        energy += row_access[row, j, 0] * size_energy[r, 0]
        energy += row_access[row, j, 1] * size_energy[r, 1]
    return energy


@njit(cache=True, nogil=True)
def _share_max_min(low, high, demand, bandwidth, rate):  # type: ignore[no-untyped-def]
    """Water-fill one interface over the active slots low..high; return the bandwidth used."""
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


@njit(cache=True, nogil=True)
def _share(  # type: ignore[no-untyped-def]
    k, starts, demand, interface_bandwidth, system_bandwidth, sharing, rate
):
    """Fill each tile's progress rate; return the clock's stretch.

    Tiles stand grouped by interface: those of interface ``j`` are ``starts[j]:starts[j + 1]``.
    """
    total = 0.0
    wanted = 0.0
    for j in range(len(starts) - 1):
        asked = 0.0
        for s in range(starts[j], starts[j + 1]):
            asked += demand[s]
        wanted += asked
        if asked <= interface_bandwidth:
            total += asked
            for s in range(starts[j], starts[j + 1]):
                rate[s] = 1.0
        elif sharing == SHARING_MAX_MIN:
            total += _share_max_min(starts[j], starts[j + 1], demand, interface_bandwidth, rate)
        else:
            total += interface_bandwidth
            for s in range(starts[j], starts[j + 1]):
                rate[s] = interface_bandwidth / asked if demand[s] > 0.0 else 1.0
    if sharing == SHARING_TWO_PASS:
        return max(1.0, wanted / system_bandwidth)
    if total > system_bandwidth:
        factor = system_bandwidth / total
        for s in range(k):
            if demand[s] > 0.0:
                rate[s] *= factor
    return 1.0


@njit(cache=True, nogil=True)
def _fill_queues(order, place, into, k, queue, head, waiting):  # type: ignore[no-untyped-def]
    """Sort the layers by place, in order; return the position of each place's next layer."""
    n = len(order)
    for layer in range(n):
        head[place[layer] + 1] += 1
        waiting[layer] = into[layer + 1] - into[layer]
    for s in range(k):
        head[s + 1] += head[s]
    coming = head[:k].copy()
    for i in range(n):
        s = place[order[i]]
        queue[coming[s]] = order[i]
        coming[s] += 1
    coming[:] = head[:k]
    return coming


@njit(cache=True, nogil=True, inline="always")
def _launch(s, layer, now, work, demand_of, running, left, demand, start):  # type: ignore[no-untyped-def]
    running[s] = layer
    left[s] = work[layer]
    demand[s] = demand_of[layer]
    start[layer] = now


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
        By layer: where it runs, 0..k-1, places grouped by interface as ``starts`` tells.
    work, demand_of
        By layer: seconds alone, and the bytes/s it counts with at full speed.
    flow_of
        By layer: the bytes/s it really moves at full speed; only traced.
    trace
        Shape (segments, 1 + interfaces): if it has rows, each event fills one with the time at
        which the segment ends and the bytes/s of each interface in it. Unused rows keep their
        values. At most ``n`` segments occur.
    """
    n = len(order)
    queue = np.empty(n, np.int64)
    head = np.zeros(k + 1, np.int64)
    waiting = np.empty(n, np.int64)
    running = np.full(k, -1, np.int64)
    left = np.full(k, np.inf)
    rate = np.ones(k)
    demand = np.zeros(k)
    coming = _fill_queues(order, place, into, k, queue, head, waiting)
    for s in range(k):
        if head[s] < head[s + 1] and waiting[queue[head[s]]] == 0:
            _launch(s, queue[head[s]], 0.0, work, demand_of, running, left, demand, start)
    now = 0.0
    for segment in range(n):
        stretch = _share(k, starts, demand, interface_bandwidth, system_bandwidth, sharing, rate)
        step = np.inf
        first = -1
        for s in range(k):
            need = left[s] / rate[s]
            if need < step:
                step = need
                first = s
        if first < 0:
            return np.nan  # no layer can run: the order is not topological
        now += step * stretch
        for s in range(k):
            left[s] = max(0.0, left[s] - step * rate[s])
        if len(trace) > 0:
            trace[segment, 0] = now
            trace[segment, 1:] = 0.0
            for j in range(len(starts) - 1):
                for s in range(starts[j], starts[j + 1]):
                    if running[s] >= 0:
                        trace[segment, 1 + j] += flow_of[running[s]] * rate[s] / stretch
        layer = running[first]
        end[layer] = now
        running[first] = -1
        left[first] = np.inf
        demand[first] = 0.0
        coming[first] += 1
        for e in range(outof[layer], outof[layer + 1]):
            other = after[e]
            waiting[other] -= 1
            s = place[other]
            ready = waiting[other] == 0 and running[s] < 0 and queue[coming[s]] == other
            if ready and s != first:
                _launch(s, other, now, work, demand_of, running, left, demand, start)
        if coming[first] < head[first + 1] and waiting[queue[coming[first]]] == 0:
            other = queue[coming[first]]
            _launch(first, other, now, work, demand_of, running, left, demand, start)
    return now


@njit(cache=True, nogil=True)
def evaluate_population(  # type: ignore[no-untyped-def]
    X,
    m,
    unique,
    offsets,
    into,
    outof,
    after,
    row_rank,
    row_fanout,
    row_fixed,
    row_access,
    row_work,
    row_demand,
    row_cycles_s,
    row_bytes,
    base_rank,
    base_fanout,
    size_energy,
    size_area,
    mac_area,
    place_of_tile,
    hops_of_tile,
    interface_starts,
    interface_bandwidth,
    system_bandwidth,
    hop_energy_pj_per_byte,
    sharing,
    out,
):
    """Evaluate every genome of X (count, n_var) into out (count, COLUMNS)."""
    n = len(unique)
    levels = row_rank.shape[1]
    tile_of_slot = np.empty(m, np.int64)
    rows = np.empty(n, np.int64)
    rank = np.zeros((m, levels), np.int64)
    fanout = np.ones((m, levels + 1), np.int64)
    place = np.empty(n, np.int64)
    work = np.empty(n)
    demand = np.empty(n)
    start = np.empty(n)
    end = np.empty(n)
    moved = np.empty(interface_starts.shape[1] - 1)
    trace = np.empty((0, 0))
    for i in range(len(X)):
        x = X[i]
        k = place_instances(x, n, m, tile_of_slot)
        size_instances(
            x, n, m, unique, offsets, row_rank, row_fanout, base_rank, base_fanout,
            rows, rank, fanout,
        )  # fmt: skip
        area = 0.0
        for s in range(m):
            if tile_of_slot[s] >= 0:
                area += area_of(x[3 * n + s], rank[s], fanout[s], size_area, mac_area)
        energy = 0.0
        hop_bytes = 0.0
        alone = 0.0
        place_bytes = np.zeros(k)
        for layer in range(n):
            row = rows[layer]
            s = x[2 * n + layer]
            tile = tile_of_slot[s]
            energy += energy_of(row, rank[s], row_fixed, row_access, size_energy)
            hop_bytes += row_bytes[row] * hops_of_tile[k, tile]
            alone += row_cycles_s[row]
            place[layer] = place_of_tile[k, tile]
            place_bytes[place[layer]] += row_bytes[row]
            work[layer] = row_work[row]
            demand[layer] = row_demand[row]
        latency = simulate(
            x[:n], place, work, demand, demand, into, outof, after, k, interface_starts[k],
            interface_bandwidth, system_bandwidth, sharing, start, end, trace,
        )  # fmt: skip
        busiest = 0.0
        for j in range(len(moved)):
            moved[j] = 0.0
            for s in range(interface_starts[k, j], interface_starts[k, j + 1]):
                moved[j] += place_bytes[s]
            busiest = max(busiest, moved[j])
        taken = 0.0
        for layer in range(n):
            taken += end[layer] - start[layer]
        out[i, LATENCY] = latency
        out[i, BUFFER_ENERGY] = energy
        out[i, HOP_ENERGY] = hop_bytes * hop_energy_pj_per_byte
        out[i, AREA] = area
        out[i, STALLED] = max(0.0, taken - alone)
        out[i, UTILISATION] = busiest / (interface_bandwidth * latency)
        out[i, INSTANCES] = k
