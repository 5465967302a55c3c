"""Provable bounds on what any package can reach, over all genomes of a space.

Each bound takes the best kept mapping of every layer by itself and drops what it cannot know; the
docstrings give the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.package import PJ, UM2, FloatArray, PackageTables
from mohsearch.evaluators.package_network import PackageNetwork
from mohsearch.evaluators.package_space import MohamSpace

GRID = 20
"""Steps of the multiplier grid of :func:`latency_bounds_s`."""


def least_duration_s(tables: PackageTables, network: PackageNetwork) -> FloatArray:
    """Return the least time that each mapping can take in any schedule, shape (M,).

    No layer progresses faster than alone on its link, and its traffic passes one interface: with
    demand d it gets at most the interface bandwidth B, and never more than the system's.
    """
    widest = min(network.interface_bandwidth_bytes_per_s, network.system_bandwidth_bytes_per_s)
    return tables.row_work_s * np.maximum(1.0, tables.row_demand / widest)


def _allowed(space: MohamSpace, tables: PackageTables) -> NDArray[np.bool_]:
    """Say of each mapping row whether its template may occur, shape (M,)."""
    if space.fixed_templates is None:
        return np.ones(len(tables.row_bytes), dtype=bool)
    return np.isin(tables.template_of_row, space.fixed_templates)


class _LeastByLayer:
    """Minima over all allowed mappings of each layer."""

    def __init__(self, space: MohamSpace, tables: PackageTables) -> None:
        templates = space.n_templates
        starts = tables.offsets[::templates]
        self._used = np.unique(space.unique_of_layer)
        self._spans = [(int(starts[u]), int(starts[u + 1])) for u in self._used]
        self._index = np.searchsorted(self._used, space.unique_of_layer)
        self._allowed = _allowed(space, tables)

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return the least of ``values`` (M,) for each layer, shape (n,)."""
        capped = np.where(self._allowed, values, np.inf)
        least = np.array([capped[a:b].min() for a, b in self._spans])
        return least[self._index]


def critical_path(space: MohamSpace, duration_s: FloatArray) -> list[int]:
    """Return the layers of a longest dependency path, for durations of shape (n,).

    Examples
    --------
    >>> from mohsearch.evaluators.package_space import MohamSpace
    >>> space = MohamSpace.from_arrays([0, 0, 0], [[], [], [0]], [0, 1], np.ones((1, 3)),
    ...                                templates=1)
    >>> critical_path(space, np.array([1.0, 3.0, 1.0])), critical_path(space, np.ones(3))
    ([1], [0, 2])
    """
    n = space.n_layers
    into, before = space.predecessor_offsets, space.predecessors
    outof, after = space.successor_offsets, space.successors
    waiting = np.diff(into).copy()
    ready = [int(v) for v in np.flatnonzero(waiting == 0)]
    finish = np.zeros(n)
    previous = np.full(n, -1)
    for v in ready:  # `ready` grows while it is walked
        earlier = before[into[v] : into[v + 1]]
        if len(earlier):
            previous[v] = earlier[np.argmax(finish[earlier])]
            finish[v] = finish[previous[v]]
        finish[v] += duration_s[v]
        for s in after[outof[v] : outof[v + 1]]:
            waiting[s] -= 1
            if waiting[s] == 0:
                ready.append(int(s))
    path = [int(np.argmax(finish))]
    while previous[path[-1]] >= 0:
        path.append(int(previous[path[-1]]))
    return path[::-1]


def latency_bounds_s(
    space: MohamSpace, tables: PackageTables, network: PackageNetwork
) -> dict[str, float]:
    """Return lower bounds of the latency by argument; each holds, so does their maximum.

    For every genome, with layer i on mapping row r(i), latency T satisfies

    - ``T >= sum(duration(r(i)) for i in P)`` for any dependency path P,
    - ``T >= sum(duration(r(i))) / m``: m instances run one layer at a time,
    - ``T >= sum(bytes(r(i))) / min(S, interfaces x B)``: all traffic passes the interfaces.

    Hence ``T >= sum over i of min over r of (a [i in P] duration(r) + b duration(r) / m +
    c bytes(r) / bandwidth)`` for all a, b, c >= 0 with a + b + c = 1. ``critical_path``, ``work``
    and ``traffic`` are the corners; ``combined`` is the best point of a grid of multipliers.
    """
    m = space.max_instances
    least = _LeastByLayer(space, tables)
    duration = least_duration_s(tables, network)
    shortest = least(duration)
    on_path = np.zeros(space.n_layers, dtype=bool)
    on_path[critical_path(space, shortest)] = True
    most = max(len(network.interface_positions(k)) for k in range(1, m + 1))
    through = min(
        network.system_bandwidth_bytes_per_s, most * network.interface_bandwidth_bytes_per_s
    )
    traffic = tables.row_bytes / through
    best = 0.0
    for a, b in ((i, j) for i in range(GRID + 1) for j in range(GRID + 1 - i)):
        shared = (b * duration / m + (GRID - a - b) * traffic) / GRID
        on = least(shared + a / GRID * duration)
        best = max(best, float(np.where(on_path, on, least(shared)).sum()))
    return {
        "critical_path": float(shortest[on_path].sum()),
        "work": float(shortest.sum()) / m,
        "traffic": float(least(traffic).sum()),
        "combined": best,
    }


def least_energy_j(space: MohamSpace, tables: PackageTables, network: PackageNetwork) -> float:
    """Return a lower bound of the energy.

    An instance's memories are at least as large as each of its mappings demands, so a mapping costs
    at least its energy at the cheapest size from its own upwards; all its traffic takes at least
    one hop.
    """
    cheapest = tables.size_energy.copy()
    for low, high in pairwise(_group_edges(tables)):
        cheapest[low:high] = np.minimum.accumulate(cheapest[low:high][::-1], axis=0)[::-1]
    row_pj = tables.row_fixed_pj + (tables.row_access * cheapest[tables.row_rank]).sum(axis=(1, 2))
    row_pj = row_pj + tables.row_bytes * 8 * network.hop_energy_pj_per_bit
    return float(_LeastByLayer(space, tables)(row_pj).sum()) * PJ


def least_area_mm2(space: MohamSpace, tables: PackageTables) -> float:
    """Return a lower bound of the area (the area itself under fixed hardware).

    Component areas must not fall with size. Let a package use the templates T'. Then

    1. each layer i has an instance of some template t in T' at least as large as the smallest that
       i needs there, and every other template of T' has an instance at least as large as the
       smallest that any layer needs there: ``area >= max over i of min over t of (area(i, t) +
       sum of smallest(t') over the others)``;
    2. if T' is one template, each level in all instances together is at least as large as the
       layer that needs most of it requires: ``area >= sum over levels of max over i of min over
       mappings of the level's area``, and likewise the MACs.

    The bound is the least over all sets T'.

    Raises
    ------
    ValueError
        If an area falls with size, so that the argument does not hold.
    """
    if space.fixed_templates is not None:
        kinds = space.fixed_templates[space.fixed_templates >= 0]
        rank, fanout = tables.base_rank[kinds], tables.base_fanout[kinds]
        areas = tables.instance_area_um2(kinds, rank, fanout)
        return float(areas.sum()) * UM2
    _check_area_rises(tables)
    templates = space.n_templates
    total, parts = _row_areas(tables)
    used = np.unique(space.unique_of_layer)
    cell = np.full((len(used), templates), np.inf)
    component = np.full((len(used), templates, parts.shape[1]), np.inf)
    for i, u in enumerate(used):
        for t in range(templates):
            low, high = tables.offsets[u * templates + t : u * templates + t + 2].tolist()
            if low < high:
                cell[i, t] = total[low:high].min()
                component[i, t] = parts[low:high].min(axis=0)
    best = np.inf
    sets: list[Sequence[int]] = [
        c for k in range(1, templates + 1) for c in combinations(range(templates), k)
    ]
    smallest = cell.min(axis=0)
    for chosen in sets:
        mine = cell[:, list(chosen)]
        if not np.isfinite(smallest[list(chosen)]).all() or np.isinf(mine).all(axis=1).any():
            continue  # a template that no layer can use, or a layer that none of them can run
        others = smallest[list(chosen)].sum() - smallest[list(chosen)]
        bound = (mine + others).min(axis=1).max()
        if len(chosen) == 1:
            bound = max(bound, component[:, chosen[0]].max(axis=0).sum())
        best = min(best, float(bound))
    return best * UM2


def _row_areas(tables: PackageTables) -> tuple[FloatArray, FloatArray]:
    """Return the area of each row's own hardware, in all (M,) and by level and MACs (M, L + 1)."""
    count = np.cumprod(tables.row_fanout.astype(np.float64), axis=1)
    macs = count[:, -1] * tables.mac_area_um2[tables.template_of_row]
    parts = np.column_stack([count[:, :-1] * tables.size_area[tables.row_rank], macs])
    return parts.sum(axis=1), parts


def _group_edges(tables: PackageTables) -> list[int]:
    """Return where the sizes of each level of each template begin, and the end of the last."""
    return [*np.unique(tables.base_rank[tables.base_rank > 0]).tolist(), len(tables.size_area)]


def _check_area_rises(tables: PackageTables) -> None:
    for low, high in pairwise(_group_edges(tables)):
        if (np.diff(tables.size_area[low:high]) < 0).any():
            raise ValueError("a component's area falls with its size")


def ideal_point(
    space: MohamSpace, tables: PackageTables, network: PackageNetwork
) -> dict[str, float]:
    """Return the best value that any genome can have in each metric alone (where one is proven).

    Products of bounds bound products; traffic takes at least one hop; nothing moves more than its
    bandwidth.
    """
    latency = max(latency_bounds_s(space, tables, network).values())
    energy = least_energy_j(space, tables, network)
    moved = float(_LeastByLayer(space, tables)(tables.row_bytes).sum())
    fixed = space.fixed_templates
    return {
        "latency_s": latency,
        "energy_j": energy,
        "area_mm2": least_area_mm2(space, tables),
        "edp_js": latency * energy,
        "throughput_per_s": 1.0 / latency,
        "nop_energy_j": moved * 8 * network.hop_energy_pj_per_bit * PJ,
        "stalled_s": 0.0,
        "interface_utilisation": 1.0,
        "instances": 1.0 if fixed is None else float((fixed >= 0).sum()),
    }
