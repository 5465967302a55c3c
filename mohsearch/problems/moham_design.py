"""A genome of the moham problem in the field's words: package, instances and schedule as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.table import MappingTable
from mohsearch.evaluators.package import PJ, UM2, PackageEvaluator, SizedPackage
from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.application import Application


def describe_package(
    evaluator: PackageEvaluator,
    x: NDArray[Any],
    application: Application,
    architectures: Sequence[Architecture],
    table: MappingTable,
    metrics: Mapping[str, float],
) -> dict[str, Any]:
    """Return the design of one valid genome as plain JSON types."""
    sized = evaluator.realise(x)
    held_by = bottleneck(evaluator, sized)
    held_by["chain"] = [application.layers[v].name for v in held_by["chain"]]
    return {
        "package": _package(evaluator, sized),
        "instances": _instances(evaluator, x, sized, architectures),
        "layers": _layers(evaluator, x, sized, application, table),
        "metrics": dict(metrics),
        "bottleneck": held_by,
    }


def _package(evaluator: PackageEvaluator, sized: SizedPackage) -> dict[str, Any]:
    network = evaluator.network
    k = len(sized.slots)
    latency = sized.schedule.latency_s
    moved = sized.schedule.interface_bytes
    bandwidth = network.interface_bandwidth_bytes_per_s
    interfaces = [
        {
            "position": list(position),
            "bytes": float(moved[j]) if j < len(moved) else 0.0,
            "utilisation": float(moved[j] / bandwidth / latency) if j < len(moved) else 0.0,
        }
        for j, position in enumerate(network.interface_positions(k))
    ]
    links = [
        {
            "from": list(a),
            "to": list(b),
            "bytes": load,
            "utilisation": load / network.link_bandwidth_bytes_per_s / latency,
        }
        for (a, b), load in sorted(link_loads(evaluator, sized).items())
    ]
    return {"mesh": list(network.mesh(k)), "interfaces": interfaces, "links": links}


def link_loads(
    evaluator: PackageEvaluator, sized: SizedPackage
) -> dict[tuple[tuple[int, int], tuple[int, int]], float]:
    """Return the bytes over each link of the mesh, both directions together.

    Links are named from the memory interface towards the tile (XY routing, columns first).
    """
    network = evaluator.network
    k = len(sized.slots)
    moved = np.bincount(
        sized.tile_of_layer, weights=evaluator.tables.row_bytes[sized.rows], minlength=k
    )
    loads: dict[tuple[tuple[int, int], tuple[int, int]], float] = {}
    for tile, interface in enumerate(network.assignment(k)):
        nodes = network.route(k, tile, interface)
        for link in pairwise(nodes):
            loads[link] = loads.get(link, 0.0) + float(moved[tile])
    return loads


def _instances(
    evaluator: PackageEvaluator,
    x: NDArray[Any],
    sized: SizedPackage,
    architectures: Sequence[Architecture],
) -> list[dict[str, Any]]:
    network, tables = evaluator.network, evaluator.tables
    k = len(sized.slots)
    chosen = network.assignment(k)
    template = evaluator.space.view(x).template
    alone = sized.schedule.end_s - sized.schedule.start_s
    described = []
    for tile, slot in enumerate(sized.slots):
        t = int(template[slot])
        architecture = architectures[t]
        mine = np.flatnonzero(sized.tile_of_layer == tile)
        rows = sized.rows[mine]
        counts = np.cumprod(sized.fanout[tile])
        levels = []
        for j, level in enumerate(architecture.levels[1:]):
            rank = sized.rank[tile, j]
            access = (tables.row_access[rows, j] * tables.size_energy[rank]).sum()
            words = int(tables.size_words[rank])
            levels.append(
                {
                    "name": level.name,
                    "size_bytes": words * level.word_bits / 8,
                    "instances": int(counts[j]),
                    "area_mm2": float(tables.size_area[rank] * counts[j]) * UM2,
                    "energy_j": float(access) * PJ,
                }
            )
        hop = float(sized.hop_energy_pj[mine].sum()) * PJ
        described.append(
            {
                "id": tile,
                "template": architecture.name,
                "variant": architecture.variant,
                "tile": list(network.tile_position(k, tile)),
                "interface": chosen[tile],
                "levels": levels,
                "macs": int(counts[-1]),
                "mac_area_mm2": float(counts[-1] * tables.mac_area_um2[t]) * UM2,
                "area_mm2": float(sized.area_um2[tile]) * UM2,
                "energy_j": float(sized.energy_pj[mine].sum()) * PJ + hop,
                "hop_energy_j": hop,
                "busy_s": float(alone[mine].sum()),
                "layers": len(mine),
            }
        )
    return described


def _layers(
    evaluator: PackageEvaluator,
    x: NDArray[Any],
    sized: SizedPackage,
    application: Application,
    table: MappingTable,
) -> list[dict[str, Any]]:
    """Return the layers in execution order."""
    schedule = sized.schedule
    energy = (sized.energy_pj + sized.hop_energy_pj) * PJ
    return [
        {
            "name": application.layers[v].name,
            "network": application.networks[application.layers[v].network],
            "instance": int(sized.tile_of_layer[v]),
            "mapping": table.notation[sized.rows[v]],
            "start_s": float(schedule.start_s[v]),
            "end_s": float(schedule.end_s[v]),
            "stalled_s": float(schedule.stalled_s[v]),
            "energy_j": float(energy[v]),
            "memory_bytes": float(evaluator.tables.row_bytes[sized.rows[v]]),
        }
        for v in evaluator.space.view(x).order
    ]


def bottleneck(evaluator: PackageEvaluator, sized: SizedPackage) -> dict[str, Any]:
    """Say what holds the latency up: the chain of layers, each waiting for the one before.

    ``chain`` is that chain, from time 0 to the end. ``stalled_s`` is the time in it lost to shared
    package bandwidth, ``compute_s`` the rest; ``waits_for`` counts why its layers waited.
    """
    space, schedule = evaluator.space, sized.schedule
    into, before = space.predecessor_offsets, space.predecessors
    start, end, tile = schedule.start_s, schedule.end_s, sized.tile_of_layer
    layer = int(np.argmax(end))
    chain = [layer]
    waits = {"dependency": 0, "instance": 0}
    while start[layer] > 0:
        earlier = before[into[layer] : into[layer + 1]]
        waited = earlier[end[earlier] == start[layer]]
        kind = "dependency"
        if not len(waited):
            waited = np.flatnonzero((tile == tile[layer]) & (end == start[layer]))
            kind = "instance"
        # a layer whose time is lost in rounding ends where it starts, and never waits for itself
        waited = waited[~np.isin(waited, chain)]
        if not len(waited):
            break
        waits[kind] += 1
        layer = int(waited[0])
        chain.append(layer)
    stalled = float(schedule.stalled_s[chain].sum())
    return {
        "chain": chain[::-1],
        "stalled_s": stalled,
        "compute_s": float((end - start)[chain].sum()) - stalled,
        "waits_for": waits,
    }
