"""Energy, latency and area of a mapping on an architecture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.mapper.counts import (
    TIMELOOP_RULES,
    CountRules,
    NestCounts,
    count_accesses,
    layer_tensors,
)
from mohsearch.evaluators.mapper.notation import Mapping
from mohsearch.hardware.architecture import Architecture, Level
from mohsearch.workloads.layer import DIMS, LayerShape

Granularity = Literal["rows", "moham"]


@dataclass(frozen=True, slots=True)
class LevelCost:
    """What one level costs, all its instances together unless said otherwise.

    Attributes
    ----------
    name
        The level.
    instances
        Instances at work.
    used_words, size_words
        What one instance must hold, and its size.
    read_rows, write_rows
        Row accesses; writes are fills and updates.
    read_cycles, write_cycles
        Cycles that one instance's bandwidth makes of them, per port direction.
    energy_pj
        Energy of all accesses at this size.
    area_um2
        Area of all instances.
    """

    name: str
    instances: int
    used_words: int
    size_words: int
    read_rows: int
    write_rows: int
    read_cycles: int
    write_cycles: int
    energy_pj: float
    area_um2: float


@dataclass(frozen=True, slots=True)
class MappingCost:
    """Cost of one layer under one mapping.

    Attributes
    ----------
    cycles
        Latency: the slowest of the MACs and of every level's reads and writes.
    compute_cycles
        Cycles of the MACs alone.
    bottleneck
        ``compute``, or ``<level> read`` or ``<level> write``.
    energy_pj
        Levels, MACs and networks together.
    mac_energy_pj, network_energy_pj
        Parts of the energy.
    area_um2
        Levels and MACs.
    macs
        Multiply-accumulates done, padding included.
    mac_instances
        Multiply-accumulate units at work.
    levels
        Outermost first.
    """

    cycles: int
    compute_cycles: int
    bottleneck: str
    energy_pj: float
    mac_energy_pj: float
    network_energy_pj: float
    area_um2: float
    macs: int
    mac_instances: int
    levels: tuple[LevelCost, ...]


def mapping_cost(
    architecture: Architecture,
    mapping: Mapping,
    layer: LayerShape,
    *,
    sizes_words: Sequence[int] | None = None,
    granularity: Granularity = "rows",
    rules: CountRules = TIMELOOP_RULES,
    double_buffered: bool = False,
) -> MappingCost:
    """Return energy, latency and area of ``layer`` under ``mapping``.

    Parameters
    ----------
    architecture
        Its levels must be the mapping's, in order.
    mapping
        The loop nest.
    layer
        Strides, dilations and the least bounds; the mapping's own may be larger (padding).
    sizes_words
        Size of one instance of every level, the memory's ignored (default: the least that the
        mapping needs, see :func:`minimal_sizes`).
    granularity
        How the least size is rounded when ``sizes_words`` is not given.
    rules
        Counting choices.
    double_buffered
        Whether every on-chip level holds two tiles, so that the least size doubles.

    Raises
    ------
    ValueError
        If the levels do not match, or the mapping does not cover the layer.
    InfeasibleError
        If a level does not hold its tiles or has fewer instances below it than the mapping uses;
        the message names the level.

    Examples
    --------
    >>> from mohsearch.evaluators.mapper.notation import parse_mapping
    >>> from mohsearch.hardware.templates import load_template
    >>> nest = parse_mapping(
    ...     "DRAM[IOW] K8 Q7 C4 | shared_glb[IO] P56 // K2X Q7X C4Y S3Y |"
    ...     " ifmap_spad[I] | weights_spad[W] R3 C4 | psum_spad[O] K4"
    ... )
    >>> layer = LayerShape(K=64, C=64, P=56, Q=49, R=3, S=3)
    >>> cost = mapping_cost(load_template("eyeriss"), nest, layer)
    >>> cost.mac_instances, cost.cycles, cost.bottleneck
    (168, 602112, 'compute')
    """
    _check_levels(architecture, mapping)
    _check_covers(mapping, layer)
    counts = count_accesses(mapping, layer_tensors(layer), rules)
    if sizes_words is None:
        sizes_words = minimal_sizes(
            architecture, counts, granularity=granularity, double_buffered=double_buffered
        )
    check_capacity(architecture, counts, sizes_words, double_buffered=double_buffered)
    levels = tuple(
        _level_cost(architecture, counts, index, size) for index, size in enumerate(sizes_words)
    )
    cycles, bottleneck = _slowest(counts.compute_cycles, levels)
    mac_energy = architecture.mac_energy_pj * counts.macs
    network = network_energy_pj(architecture, counts)
    return MappingCost(
        cycles=cycles,
        compute_cycles=counts.compute_cycles,
        bottleneck=bottleneck,
        energy_pj=sum(level.energy_pj for level in levels) + mac_energy + network,
        mac_energy_pj=mac_energy,
        network_energy_pj=network,
        area_um2=sum(level.area_um2 for level in levels)
        + architecture.mac_area_um2 * mapping.macs_used,
        macs=counts.macs,
        mac_instances=mapping.macs_used,
        levels=levels,
    )


def _slowest(compute_cycles: int, levels: Sequence[LevelCost]) -> tuple[int, str]:
    """Return the cycles and the name of what takes longest; they all overlap."""
    times = {"compute": compute_cycles}
    for level in levels:
        times[f"{level.name} read"] = level.read_cycles
        times[f"{level.name} write"] = level.write_cycles
    bottleneck = max(times, key=lambda name: times[name])
    return times[bottleneck], bottleneck


def row_accesses(counts: NestCounts, level: int, words_per_access: int) -> tuple[int, int]:
    """Return the row reads and row writes of all instances of a level (rule 10)."""
    reads = writes = 0
    for access in counts.accesses[level].values():
        reads += ceil(access.reads / words_per_access)
        writes += ceil(access.fills / words_per_access) + ceil(access.updates / words_per_access)
    return reads * counts.instances[level], writes * counts.instances[level]


def minimal_sizes(
    architecture: Architecture,
    counts: NestCounts,
    *,
    granularity: Granularity = "rows",
    double_buffered: bool = False,
) -> tuple[int, ...]:
    """Return the least size in words of one instance of every level, 0 for the memory.

    ``rows`` rounds the rows up to the level's granularity, within its capacity. ``moham`` is the
    rule of MOHaM's published program: ``floor(used / words_per_access) + 1`` rows, rounded up to
    a multiple of 16, so that an exactly full buffer grows by one row.
    """
    sizes = [0]
    for index, level in enumerate(architecture.levels[1:], start=1):
        used = counts.used_words(index) * (2 if double_buffered else 1)
        if granularity == "moham":
            rows = ceil((used // level.words_per_access + 1) / 16) * 16
            sizes.append(rows * level.words_per_access)
        else:
            sizes.append(int(level.granular_words(used)))
    return tuple(sizes)


def check_capacity(
    architecture: Architecture,
    counts: NestCounts,
    sizes_words: Sequence[int],
    *,
    double_buffered: bool = False,
) -> None:
    """Raise where a mapping does not fit.

    Capacities and fan-outs are checked; which loops a template's rules allow is not.

    Raises
    ------
    ValueError
        If the levels of mapping and architecture differ.
    InfeasibleError
        If a level does not hold its tiles or has too few instances below it.
    """
    _check_levels(architecture, counts.mapping)
    names = [level.name for level in architecture.levels]
    if len(sizes_words) != len(names):
        raise ValueError(f"{len(sizes_words)} sizes for {len(names)} levels")
    for level, loops in zip(architecture.levels, counts.mapping.levels, strict=True):
        available = max(level.max_fanout(gemm=False), level.max_fanout(gemm=True))
        if loops.fanout > available:
            raise InfeasibleError(
                f"{architecture.name}: {level.name} has {available} instances below it, the mapping"
                f" uses {loops.fanout}"
            )
    for index in range(1, len(names)):
        used = counts.used_words(index) * (2 if double_buffered else 1)
        capacity = architecture.levels[index].capacity_words
        size = sizes_words[index] if capacity is None else min(capacity, sizes_words[index])
        if used > size:
            raise InfeasibleError(
                f"{architecture.name}: {names[index]} of {size} words cannot hold"
                f" {used} words of tiles"
            )


def _check_levels(architecture: Architecture, mapping: Mapping) -> None:
    names = [level.name for level in architecture.levels]
    if [level.name for level in mapping.levels] != names:
        raise ValueError(f"the mapping's levels are not those of {architecture.name}: {names}")


def _check_covers(mapping: Mapping, layer: LayerShape) -> None:
    bounds = mapping.bounds()
    for dim, bound in zip(DIMS, layer.bounds(), strict=True):
        if bounds.get(dim, 1) < bound:
            raise ValueError(f"the loops over {dim} reach {bounds.get(dim, 1)} of {bound}")


def network_energy_pj(architecture: Architecture, counts: NestCounts) -> float:
    """Return the energy of the on-chip networks that span a fan-out.

    Operands travel inwards, results outwards; as in Timeloop, partial results read back are not
    charged.
    """
    energy = 0.0
    for index, level in enumerate(architecture.levels):
        if level.hop_energy_pj_per_word:
            fanout = counts.mapping.levels[index].fanout
            hops = sum(
                transfer.words * multicast_hops(transfer.multicast, fanout)
                for transfer in counts.transfers[index].values()
            )
            energy += hops * counts.instances[index] * level.hop_energy_pj_per_word
    return energy


def multicast_hops(multicast: float, fanout: int) -> float:
    """Return the mean hops of one word to ``multicast`` of ``fanout`` nodes of a square mesh.

    Examples
    --------
    >>> multicast_hops(1, 64), multicast_hops(16, 16)
    (4.0, 15.5)
    """
    return (
        sqrt(fanout * multicast)
        + (sqrt(fanout) - sqrt(multicast)) / 2
        - sqrt(fanout / multicast)
        + 0.5
    )


def _level_cost(
    architecture: Architecture, counts: NestCounts, index: int, size_words: int
) -> LevelCost:
    level = architecture.levels[index]
    instances = counts.instances[index]
    read_rows, write_rows = row_accesses(counts, index, level.words_per_access)
    read_cycles, write_cycles = bandwidth_cycles(level, counts, index)
    energy = read_rows * float(architecture.read_energy_pj(index, size_words)) + write_rows * float(
        architecture.write_energy_pj(index, size_words)
    )
    return LevelCost(
        name=level.name,
        instances=instances,
        used_words=counts.used_words(index),
        size_words=size_words,
        read_rows=read_rows,
        write_rows=write_rows,
        read_cycles=read_cycles,
        write_cycles=write_cycles,
        energy_pj=energy,
        area_um2=instances * float(architecture.area_um2(index, size_words)),
    )


def bandwidth_cycles(level: Level, counts: NestCounts, index: int) -> tuple[int, int]:
    """Return the cycles one instance needs for its reads and for its writes (rule 11)."""
    accesses = counts.accesses[index].values()
    reads = sum(access.reads for access in accesses)
    writes = sum(access.fills + access.updates for access in accesses)
    read_rate, write_rate = level.read_words_per_cycle, level.write_words_per_cycle
    return (
        ceil(reads / read_rate) if read_rate else 0,
        ceil(writes / write_rate) if write_rate else 0,
    )
