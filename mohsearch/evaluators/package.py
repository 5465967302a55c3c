"""Packages of sub-accelerators: instance sizes, energy, area and latency of whole genomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mohsearch.evaluators.mapper.table import MappingTable
from mohsearch.evaluators.package_kernels import (
    AREA,
    BUFFER_ENERGY,
    COLUMNS,
    HOP_ENERGY,
    INSTANCES,
    LATENCY,
    STALLED,
    UTILISATION,
    evaluate_population,
    place_instances,
    size_instances,
)
from mohsearch.evaluators.package_network import NetworkTables, PackageNetwork
from mohsearch.evaluators.package_schedule import SHARING_CODES, Schedule, schedule_layers
from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.hardware.architecture import Architecture

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PJ, UM2 = 1e-12, 1e-6
"""J per pJ, mm2 per um2."""


class SizedCosts(Protocol):
    """What the package evaluator asks of a template.

    Levels are numbered as in :class:`mohsearch.hardware.architecture.Architecture`: 0 is the
    memory, the on-chip level of column ``j`` of the mapping table is ``j + 1``.
    """

    @property
    def levels(self) -> Sequence[Any]:
        """Return all levels, the memory first."""

    @property
    def mac_area_um2(self) -> float:
        """Area of one MAC."""

    def read_energy_pj(self, level: int, size_words: ArrayLike) -> FloatArray:
        """Return the energy to read a row, by size."""

    def write_energy_pj(self, level: int, size_words: ArrayLike) -> FloatArray:
        """Return the energy to write a row, by size."""

    def area_um2(self, level: int, size_words: ArrayLike) -> FloatArray:
        """Return the area of one memory, by size."""


@dataclass(frozen=True)
class PackageTables:
    """A mapping table with its sizes replaced by ranks into look-up tables of energy and area.

    A merged size is a maximum of demanded sizes, hence always one of them: ``row_rank`` numbers the
    distinct sizes of each level of each template upwards, so that the maximum of ranks is the rank
    of the maximum. Entry 0 stands for a level the template does not have.

    Attributes
    ----------
    offsets
        int64, shape (U * T + 1,), rows of each layer and template.
    row_rank
        int64, shape (M, L).
    row_fanout
        int64, shape (M, L + 1).
    row_fixed_pj
        float64, shape (M,).
    row_access
        float64, shape (M, L, 2): reads and writes.
    row_cycles_s, row_work_s
        float64, shape (M,): latency alone, without and with the limit of the chiplet's link.
    row_bytes
        float64, shape (M,): read from and written to memory.
    row_demand
        float64, shape (M,): bytes/s that the mapping asks of its memory interface.
    base_rank, base_fanout
        int64, shapes (T, L) and (T, L + 1): least values of an instance of each template (under
        fixed hardware those of the instance).
    size_words, size_energy, size_area
        int64 (R,), float64 (R, 2), float64 (R,): the size behind each rank, the energy to read and
        to write one row in pJ, and the area in um2.
    mac_area_um2
        float64, shape (T,).
    """

    offsets: IntArray
    row_rank: IntArray
    row_fanout: IntArray
    row_fixed_pj: FloatArray
    row_access: FloatArray
    row_cycles_s: FloatArray
    row_work_s: FloatArray
    row_bytes: FloatArray
    row_demand: FloatArray
    base_rank: IntArray
    base_fanout: IntArray
    size_words: IntArray
    size_energy: FloatArray
    size_area: FloatArray
    mac_area_um2: FloatArray

    @property
    def template_of_row(self) -> IntArray:
        """Template of each row, shape (M,)."""
        templates = len(self.mac_area_um2)
        cells = np.tile(np.arange(templates), (len(self.offsets) - 1) // templates)
        return np.repeat(cells, np.diff(self.offsets))

    def instance_area_um2(self, template: ArrayLike, rank: ArrayLike, fanout: ArrayLike) -> Any:
        """Return instance areas: template (...), rank (..., L) and fanout (..., L + 1)."""
        count = np.cumprod(np.asarray(fanout, dtype=np.float64), axis=-1)
        levels = (count[..., :-1] * self.size_area[np.asarray(rank)]).sum(axis=-1)
        return levels + count[..., -1] * self.mac_area_um2[np.asarray(template)]

    def row_energy_pj(self, rank: IntArray | None = None) -> FloatArray:
        """Return the energy of every row on hardware of the given ranks (default: its own)."""
        energy = self.size_energy[self.row_rank if rank is None else rank]
        total: FloatArray = self.row_fixed_pj + (self.row_access * energy).sum(axis=(1, 2))
        return total

    def features(self, network: PackageNetwork) -> FloatArray:
        """Return latency (s), energy (pJ) and area (um2) of each row alone in a package.

        The latency counts the bandwidth of one memory interface, the energy one hop, and the
        hardware has the mapping's own minimal size. Shape (M, 3).
        """
        widest = min(network.interface_bandwidth_bytes_per_s, network.system_bandwidth_bytes_per_s)
        latency = self.row_work_s * np.maximum(1.0, self.row_demand / widest)
        hop_pj = self.row_bytes * 8 * network.hop_energy_pj_per_bit
        area = self.instance_area_um2(self.template_of_row, self.row_rank, self.row_fanout)
        return np.column_stack([latency, self.row_energy_pj() + hop_pj, area])


def tabulate(
    table: MappingTable,
    costs: Sequence[SizedCosts],
    network: PackageNetwork,
    *,
    clock_hz: float = 1e9,
    fixed: Sequence[FixedInstance] | None = None,
) -> PackageTables:
    """Turn a mapping table into the look-up tables of the package evaluator.

    Parameters
    ----------
    table
        Mappings of unique layers on templates; under ``fixed`` one template per kind of instance,
        as :func:`restrict` makes it.
    costs
        Energy and area of each template, same order as ``table.templates``.
    network
        Bandwidths.
    clock_hz
        Clock of every instance.
    fixed
        The given size and fan-out of each template; all its rows then cost what they cost there.
    """
    rows, levels = table.size_words.shape
    templates = len(table.templates)
    template_of_row = np.repeat(
        np.tile(np.arange(templates), len(table.layers)), np.diff(table.offsets)
    )
    rank = np.zeros((rows, levels), dtype=np.int64)
    base_rank = np.zeros((templates, levels), dtype=np.int64)
    base_fanout = np.ones((templates, levels + 1), dtype=np.int64)
    fanout = table.fanout.astype(np.int64)
    words, energies, areas = [np.zeros(1, dtype=np.int64)], [np.zeros((1, 2))], [np.zeros(1)]
    known = 1
    for t, cost in enumerate(costs):
        mine = np.flatnonzero(template_of_row == t)
        if fixed is not None:
            base_fanout[t] = fixed[t].fanout
            fanout[mine] = base_fanout[t]
        for j in range(len(cost.levels) - 1):
            demanded = table.size_words[mine, j] if fixed is None else [fixed[t].size_words[j]]
            sizes = np.unique(np.asarray(demanded, dtype=np.int64))
            if not sizes.size:
                continue
            rank[mine, j] = known + np.searchsorted(sizes, demanded)
            base_rank[t, j] = known
            words.append(sizes)
            pair = (cost.read_energy_pj(j + 1, sizes), cost.write_energy_pj(j + 1, sizes))
            energies.append(np.column_stack(pair))
            areas.append(cost.area_um2(j + 1, sizes))
            known += len(sizes)
    moved = (table.dram_read_bytes + table.dram_write_bytes).astype(np.float64)
    alone = table.cycles / clock_hz
    work = np.maximum(alone, moved / network.link_bandwidth_bytes_per_s)
    busy = _full_speed_s(table, clock_hz) if network.sharing == "two-pass" else work
    return PackageTables(
        offsets=table.offsets.astype(np.int64),
        row_rank=rank,
        row_fanout=fanout,
        row_fixed_pj=table.fixed_energy_pj.astype(np.float64),
        row_access=np.ascontiguousarray(np.stack([table.reads, table.writes], axis=2)),
        row_cycles_s=alone,
        row_work_s=work,
        row_bytes=moved,
        row_demand=moved / busy,
        base_rank=base_rank,
        base_fanout=base_fanout,
        size_words=np.concatenate(words),
        size_energy=np.concatenate(energies),
        size_area=np.concatenate(areas),
        mac_area_um2=np.array([c.mac_area_um2 for c in costs], dtype=np.float64),
    )


def _full_speed_s(table: MappingTable, clock_hz: float) -> FloatArray:
    """Return the time each mapping would take if all its MACs were busy all the time.

    The authors' program derives a layer's bandwidth from it, which overstates the need of layers
    that memory or utilisation slows down.
    """
    templates = len(table.templates)
    macs = np.repeat([layer.macs for layer in table.layers], templates)
    units = table.fanout.prod(axis=1, dtype=np.float64)
    seconds: FloatArray = np.repeat(macs, np.diff(table.offsets)) / units / clock_hz
    return seconds


@dataclass(frozen=True)
class FixedInstance:
    """The given hardware of one instance.

    Attributes
    ----------
    template
        Number of its template.
    size_words
        Size of each on-chip level, length L (0 where the template has no such level).
    fanout
        Ratio of instances, length L + 1, as in the mapping table.
    """

    template: int
    size_words: tuple[int, ...]
    fanout: tuple[int, ...]


def largest_instance(
    architecture: Architecture, template: int, table: MappingTable
) -> FixedInstance:
    """Return the largest instance of a template: capacities and fan-outs at their limits.

    The fan-out below level ``j`` stands in column ``j``, as in ``table``.
    """
    columns = table.size_words.shape[1]
    sizes, fanout = [0] * columns, [1] * (columns + 1)
    for j, level in enumerate(architecture.levels):
        widest = (math.prod(a.limit for a in level.axes(gemm=gemm)) for gemm in (False, True))
        fanout[j] = max(widest)
        if j:
            sizes[j - 1] = int(level.capacity_words or 0)
    return FixedInstance(template, tuple(sizes), tuple(fanout))


def restrict(
    table: MappingTable, kinds: Sequence[FixedInstance], names: Sequence[str]
) -> MappingTable:
    """Return a table with one template per kind of instance and the mappings that fit it.

    A mapping fits where no level needs more words and no fan-out exceeds the instance's.
    """
    cells, chosen = [0], []
    certificates = []
    templates = len(table.templates)
    for u in range(len(table.layers)):
        for kind in kinds:
            block = table.rows(u, kind.template)
            rows = np.arange(block.start, block.stop)
            fits = (table.size_words[rows] <= kind.size_words).all(axis=1)
            fits &= (table.fanout[rows] <= kind.fanout).all(axis=1)
            chosen.append(rows[fits])
            cells.append(cells[-1] + int(fits.sum()))
            certificates.append(table.certificates[u * templates + kind.template])
    rows = np.concatenate(chosen)
    return replace(
        table,
        templates=tuple(names),
        offsets=np.array(cells, dtype=np.int64),
        cycles=table.cycles[rows],
        dram_read_bytes=table.dram_read_bytes[rows],
        dram_write_bytes=table.dram_write_bytes[rows],
        fixed_energy_pj=table.fixed_energy_pj[rows],
        reads=table.reads[rows],
        writes=table.writes[rows],
        size_words=table.size_words[rows],
        fanout=table.fanout[rows],
        notation=tuple(table.notation[r] for r in rows),
        certificates=tuple(certificates),
    )


@dataclass(frozen=True)
class SizedPackage:
    """One genome as hardware and schedule.

    Attributes
    ----------
    slots
        int64, shape (k,): slot of each instance, in the order of tiles.
    rank, fanout
        int64, shapes (k, L) and (k, L + 1).
    rows
        int64, shape (n,): mapping row of each layer.
    tile_of_layer
        int64, shape (n,).
    energy_pj
        float64, shape (n,): each layer without its hops.
    hop_energy_pj
        float64, shape (n,).
    area_um2
        float64, shape (k,).
    schedule
        Starts, ends, stalls and interface traffic.
    """

    slots: IntArray
    rank: IntArray
    fanout: IntArray
    rows: IntArray
    tile_of_layer: IntArray
    energy_pj: FloatArray
    hop_energy_pj: FloatArray
    area_um2: FloatArray
    schedule: Schedule


class PackageEvaluator:
    """Latency, energy and area of populations of genomes.

    Parameters
    ----------
    space
        Layout of the genomes.
    tables
        Look-up tables of the same rows as the space's.
    network
        Network on package.
    """

    def __init__(self, space: MohamSpace, tables: PackageTables, network: PackageNetwork) -> None:
        if not np.array_equal(space.offsets, tables.offsets):
            raise ValueError("space and tables have different mapping rows")
        self.space = space
        self.tables = tables
        self.network = network
        self.layout: NetworkTables = network.tables(space.max_instances)

    def evaluate(self, X: NDArray[Any]) -> dict[str, FloatArray]:
        """Return the metrics of valid genomes X (count, n_var), each of shape (count,)."""
        space, tables, network, layout = self.space, self.tables, self.network, self.layout
        genomes = np.ascontiguousarray(np.atleast_2d(X), dtype=np.int64)
        out = np.empty((len(genomes), COLUMNS))
        evaluate_population(
            genomes,
            space.max_instances,
            space.unique_of_layer,
            space.offsets,
            space.predecessor_offsets,
            space.successor_offsets,
            space.successors,
            tables.row_rank,
            tables.row_fanout,
            tables.row_fixed_pj,
            tables.row_access,
            tables.row_work_s,
            tables.row_demand,
            tables.row_cycles_s,
            tables.row_bytes,
            tables.base_rank,
            tables.base_fanout,
            tables.size_energy,
            tables.size_area,
            tables.mac_area_um2,
            layout.place_of_tile,
            layout.hops_of_tile,
            layout.interface_starts,
            float(network.interface_bandwidth_bytes_per_s),
            float(network.system_bandwidth_bytes_per_s),
            8.0 * network.hop_energy_pj_per_bit,
            SHARING_CODES[network.sharing],
            out,
        )
        latency = out[:, LATENCY]
        energy = (out[:, BUFFER_ENERGY] + out[:, HOP_ENERGY]) * PJ
        return {
            "latency_s": latency,
            "energy_j": energy,
            "area_mm2": out[:, AREA] * UM2,
            "edp_js": latency * energy,
            "power_w": energy / latency,
            "throughput_per_s": 1.0 / latency,
            "nop_energy_j": out[:, HOP_ENERGY] * PJ,
            "stalled_s": out[:, STALLED],
            "interface_utilisation": np.minimum(out[:, UTILISATION], 1.0),  # 1 and a rounding
            "instances": out[:, INSTANCES],
        }

    def realise(self, x: NDArray[Any]) -> SizedPackage:
        """Return the hardware and the schedule of one valid genome, shape (n_var,)."""
        space, tables = self.space, self.tables
        genome = np.ascontiguousarray(x, dtype=np.int64)
        n, m = space.n_layers, space.max_instances
        levels = tables.row_rank.shape[1]
        tile_of_slot = np.empty(m, dtype=np.int64)
        k = place_instances(genome, n, m, tile_of_slot)
        rows = np.empty(n, dtype=np.int64)
        rank = np.zeros((m, levels), dtype=np.int64)
        fanout = np.ones((m, levels + 1), dtype=np.int64)
        size_instances(
            genome, n, m, space.unique_of_layer, space.offsets, tables.row_rank,
            tables.row_fanout, tables.base_rank, tables.base_fanout, rows, rank, fanout,
        )  # fmt: skip
        slots = np.flatnonzero(tile_of_slot >= 0)
        slots = slots[np.argsort(tile_of_slot[slots])]
        blocks = space.view(genome)
        tile = tile_of_slot[blocks.slot]
        energy = self.tables.size_energy[rank[blocks.slot]]
        hops = self.layout.hops_of_tile[k, tile]
        into, before = space.predecessor_offsets, space.predecessors
        schedule = schedule_layers(
            blocks.order,
            tile,
            tables.row_cycles_s[rows],
            tables.row_bytes[rows],
            [before[into[v] : into[v + 1]].tolist() for v in range(n)],
            self.network.assignment(k),
            self.network,
            demand_bytes_per_s=tables.row_demand[rows],
        )
        return SizedPackage(
            slots=slots,
            rank=rank[slots],
            fanout=fanout[slots],
            rows=rows,
            tile_of_layer=tile,
            energy_pj=tables.row_fixed_pj[rows]
            + (tables.row_access[rows] * energy).sum(axis=(1, 2)),
            hop_energy_pj=tables.row_bytes[rows] * hops * 8 * self.network.hop_energy_pj_per_bit,
            area_um2=tables.instance_area_um2(blocks.template[slots], rank[slots], fanout[slots]),
            schedule=schedule,
        )
