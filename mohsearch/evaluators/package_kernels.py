"""Compiled kernels of the package evaluator: sizing, energy, area, and whole populations.

All arrays are those of :class:`mohsearch.evaluators.package_space.MohamSpace`,
:class:`mohsearch.evaluators.package.PackageTables` and
:class:`mohsearch.evaluators.package_schedule.NetworkTables`; nothing is checked here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mohsearch.evaluators.package_fluid import simulate

LATENCY, BUFFER_ENERGY, HOP_ENERGY, AREA, STALLED, UTILISATION, INSTANCES = range(7)
"""Columns of :func:`evaluate_population`: s, pJ, pJ, um2, s, 1, 1."""

COLUMNS = 7


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def area_of(template, rank, fanout, size_area, mac_area):  # type: ignore[no-untyped-def]
    """Return the area of one instance in um2: levels from the outside in, then the MACs."""
    count = 1.0
    area = 0.0
    for j in range(len(rank)):
        count *= fanout[j]
        area += count * size_area[rank[j]]
    return area + count * fanout[len(rank)] * mac_area[template]


@njit(cache=True, nogil=True, error_model="numpy")
def energy_of(x, n, rows, rank, row_fixed, row_access, size_energy):  # type: ignore[no-untyped-def]
    """Return the energy in pJ of all layers at the sizes ``rank`` of their slots."""
    energy = 0.0
    levels = rank.shape[1]
    for layer in range(n):
        row = rows[layer]
        s = x[2 * n + layer]
        energy += row_fixed[row]
        for j in range(levels):
            r = rank[s, j]
            energy += row_access[row, j, 0] * size_energy[r, 0]
            energy += row_access[row, j, 1] * size_energy[r, 1]
    return energy


@njit(cache=True, nogil=True, error_model="numpy")
def load_of(  # type: ignore[no-untyped-def]
    x, n, k, rows, tile_of_slot, place_of_tile, hops_of_tile, row_work, row_demand, row_cycles_s,
    row_bytes, place, work, demand, place_bytes,
):  # fmt: skip
    """Fill place, work and demand of each layer and the bytes of each place.

    Returns bytes times hops, and the time all layers would take alone.
    """
    hop_bytes = 0.0
    alone = 0.0
    place_bytes[:k] = 0.0
    for layer in range(n):
        row = rows[layer]
        tile = tile_of_slot[x[2 * n + layer]]
        here = place_of_tile[k, tile]
        place[layer] = here
        work[layer] = row_work[row]
        demand[layer] = row_demand[row]
        alone += row_cycles_s[row]
        hop_bytes += row_bytes[row] * hops_of_tile[k, tile]
        place_bytes[here] += row_bytes[row]
    return hop_bytes, alone


@njit(cache=True, nogil=True, error_model="numpy")
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
    place_bytes = np.empty(m)
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
        energy = energy_of(x, n, rows, rank, row_fixed, row_access, size_energy)
        hop_bytes, alone = load_of(
            x, n, k, rows, tile_of_slot, place_of_tile, hops_of_tile, row_work, row_demand,
            row_cycles_s, row_bytes, place, work, demand, place_bytes,
        )  # fmt: skip
        latency = simulate(
            x[:n], place, work, demand, demand, into, outof, after, k, interface_starts[k],
            interface_bandwidth, system_bandwidth, sharing, start, end, trace,
        )  # fmt: skip
        busiest = 0.0
        for j in range(interface_starts.shape[1] - 1):
            low, high = interface_starts[k, j], interface_starts[k, j + 1]
            busiest = max(busiest, place_bytes[low:high].sum())
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
