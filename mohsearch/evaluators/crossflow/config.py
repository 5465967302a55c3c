"""The configuration file of CrossFlow: its schema, and the arrays it stands for.

The keys are those of the DeepFlow authors' files, so that their configurations load as they are;
``system``, ``technology``, ``overrides``, ``model`` and ``gemm`` are additions.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from mohsearch.core.cards import Card
from mohsearch.evaluators.crossflow.layout import (
    FLOWS,
    SCOPES,
    FloatArray,
)

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)([Bb])\s*")
_PREFIX = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def parse_bytes(text: Any) -> Any:
    """Turn ``"32 KB"`` into bytes; prefixes are powers of 1024, ``b`` means bits.

    Examples
    --------
    >>> parse_bytes("32 KB"), parse_bytes("8 Kb"), parse_bytes(512)
    (32768.0, 1024.0, 512)
    """
    if not isinstance(text, str):
        return text
    match = _SIZE.fullmatch(text)
    if match is None:
        with contextlib.suppress(ValueError):
            return float(text)
        raise ValueError("a size such as '32 KB' or '4 GB', or a number of bytes")
    value = float(match[1]) * 2.0 ** _PREFIX[match[2]]
    return value / 8.0 if match[4] == "b" else value


Bytes = Annotated[float, BeforeValidator(parse_bytes), Field(gt=0)]


class Loose(Card):
    """A section in which keys nobody reads (any more) are allowed, as in the authors' files."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ModelParam(Loose):
    """LSTM language model."""

    batch_size: Count = 64
    vocab_size: Count = 40000
    num_layers: Count = 1
    layer_size: Count = 4096
    seq_len: Count = 10
    num_gates: Count = 4
    projection: Count = 2048
    num_non_linear: int = 5
    num_add: int = 8
    data_scale: float = 100


class SwParam(Loose):
    """Software: seconds per kernel launch, bytes per number."""

    kernel_launch_overhead: NonNegative = 9e-6
    precision: Positive = 2


class Rail(Loose):
    """Supply voltages in V: the lowest is threshold plus margin."""

    nominal_voltage: Positive
    threshold_voltage: NonNegative
    margin_voltage: NonNegative
    max_voltage: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Rail:
        if self.threshold_voltage >= self.nominal_voltage:
            raise ValueError(
                f"threshold_voltage ({self.threshold_voltage:g}) must be below nominal_voltage "
                f"({self.nominal_voltage:g})"
            )
        lowest = self.threshold_voltage + self.margin_voltage
        if self.max_voltage is not None and self.max_voltage < lowest:
            raise ValueError(
                f"max_voltage ({self.max_voltage:g}) must reach threshold_voltage + margin_voltage "
                f"({lowest:g})"
            )
        return self


class CoreParam(Rail):
    """Minimal compute unit."""

    nominal_power_per_mcu: Positive
    nominal_flop_rate_per_mcu: Positive
    nominal_area_per_mcu: Positive
    operating_area_per_mcu: Positive | None = None
    nominal_frequency: Positive
    num_mcu_per_bundle: Count
    FMA_width: Count = 4
    FMA_depth: Count | None = None
    dataflow: Literal["none", "wst", "ast", "ost", "best"] = "best"
    util: Share = 1.0


class DramParam(Rail):
    """Main memory."""

    dynamic_energy_per_bit: Positive
    static_power_per_bit: NonNegative
    area_per_bit: NonNegative = 0.0
    stack_capacity: Bytes
    area_per_stack: Positive
    latency: NonNegative
    mem_ctrl_area: Positive
    nominal_frequency: Positive
    num_links_per_mm: Positive
    num_links_per_stack: Positive
    util: Share = 1.0


class SramParam(Loose):
    """On-chip memory level."""

    dynamic_energy_per_bit: Positive
    static_power_per_bit: NonNegative
    area_per_bit: Positive
    bank_capacity: Bytes
    controller_area_per_link: NonNegative = 0.0
    controller_power_per_link: NonNegative = 0.0
    latency: NonNegative = 0.0
    overhead: Annotated[float, Field(ge=0, lt=1)] = 0.0
    util: Share = 1.0


class LinkParam(Rail):
    """Network link."""

    latency: NonNegative
    nominal_frequency: Positive
    nominal_energy_per_link: Positive
    nominal_area_per_link: Positive
    num_links_per_mm: Positive
    util: Share = 1.0


class NetworkParam(Loose):
    """Links inside a package and between packages."""

    intra_node: LinkParam
    inter_node: LinkParam


class TechParam(Loose):
    """All technology."""

    core: CoreParam
    DRAM: DramParam
    l2: SramParam = Field(alias="SRAM-L2")
    l1: SramParam = Field(alias="SRAM-L1")
    registers: SramParam = Field(alias="SRAM-R")
    network: NetworkParam


class NetworkShare(Loose):
    """Fractions of the two networks."""

    intra_node: NonNegative = 0.0
    inter_node: NonNegative = 0.0


class AreaBreakdown(Loose):
    """Areas in mm2, and fractions of the chip."""

    node_area_budget: Positive
    proc_chip_area_budget: Positive
    core: NonNegative
    L2: NonNegative
    L1: NonNegative
    reg_mem: NonNegative
    DRAM: NonNegative
    network: NetworkShare = NetworkShare()


class PowerBreakdown(Loose):
    """Power in W, and fractions of it."""

    TDP: Positive
    core: NonNegative
    DRAM: NonNegative
    L2: NonNegative
    L1: NonNegative
    reg_mem: NonNegative
    network: NetworkShare = NetworkShare()


class PerimeterBreakdown(Loose):
    """Fractions of the chip's perimeter."""

    DRAM: NonNegative
    inter_node: NonNegative = 0.0
    intra_node: NonNegative = 0.0


class SystemHierarchy(Loose):
    """Packages, devices and link sharing."""

    num_nodes_per_wafer: Count = 1
    num_workers: Count = 1
    inter_derate: NonNegative = 1
    intra_derate: NonNegative = 0
    kp1_inter: bool = False
    kp2_inter: bool = False
    dp_inter: bool = False
    lp_inter: bool = False


class NetworkTopology(Loose):
    """Topology of the authors' files; as in their program nothing depends on it.

    How links are shared is said by ``inter_derate`` and ``intra_derate``.
    """

    inter_wafer: str = "hic"
    intra_wafer: str = "none"


class MemoryLevel(Loose):
    """One level of the hierarchy."""

    type: Literal["SRAM-R", "SRAM-L1", "SRAM-L2", "DRAM"]
    scope: Literal["mcu", "mcu-bundle", "global"]


class MemoryHierarchy(Loose):
    """Four levels, nearest first."""

    l0: MemoryLevel = MemoryLevel(type="SRAM-R", scope="mcu")
    l1: MemoryLevel = MemoryLevel(type="SRAM-L1", scope="mcu-bundle")
    l2: MemoryLevel = MemoryLevel(type="SRAM-L2", scope="global")
    l3: MemoryLevel = MemoryLevel(type="DRAM", scope="global")

    @model_validator(mode="after")
    def _order(self) -> MemoryHierarchy:
        kinds = (self.l0.type, self.l1.type, self.l2.type, self.l3.type)
        if kinds != ("SRAM-R", "SRAM-L1", "SRAM-L2", "DRAM"):
            raise ValueError("levels must be SRAM-R, SRAM-L1, SRAM-L2, DRAM from l0 to l3")
        return self


class SchedulingParam(Loose):
    """Parallelism strategy. Kernel types: -1 none, 1 CR, 2 RC."""

    auto: bool = False
    dp: Count = 1
    lp: Count = 1
    kp_hidden_dim1: Count = 1
    kp_hidden_dim2: Count = 1
    kp_softmax_dim1: Count = 1
    kp_softmax_dim2: Count = 1
    kp_embedding_dim1: Count = 1
    kp_embedding_dim2: Count = 1
    kp_projection_dim1: Count = 1
    kp_projection_dim2: Count = 1
    kp_hidden_type: Literal[-1, 1, 2] = -1
    kp_softmax_type: Literal[-1, 1, 2] = -1
    kp_embedding_type: Literal[-1, 1, 2] = -1
    kp_projection_type: Literal[-1, 1, 2] = -1

    @model_validator(mode="after")
    def _kinds(self) -> SchedulingParam:
        for layer in ("hidden", "softmax", "embedding", "projection"):
            d1, d2, kind = (getattr(self, f"kp_{layer}_{x}") for x in ("dim1", "dim2", "type"))
            if kind == -1 and d1 * d2 > 1:
                raise ValueError(
                    f"kp_{layer}_type must be 1 (CR) or 2 (RC) to split by {d1} x {d2}"
                )
            if kind == 1 and d2 > 1:
                raise ValueError(f"kp_{layer}_dim2 must be 1: CR (type 1) splits one dimension")
        return self


class GemmShape(Loose):
    """Product of an m x k and a k x n matrix, alone or split over devices."""

    m: Count
    k: Count
    n: Count
    strategy: str | None = None
    """As in ``RC-2-4`` or ``CR-8``; default the whole product on one device."""


class Overrides(Loose):
    """Figures that replace what the generator worked out."""

    dram_bandwidth_bytes_per_s: Positive | None = None
    dram_size_bytes: Bytes | None = None
    inter_bandwidth_bytes_per_s: NonNegative | None = None
    intra_bandwidth_bytes_per_s: NonNegative | None = None
    flop_per_s: Positive | None = None


class TechnologyNames(Loose):
    """Technology by the names of cards, over what ``tech_param`` says."""

    logic: str | None = None
    memory: str | None = None
    inter_network: str | None = None
    intra_network: str | None = None


class CrossflowConfig(Loose):
    """One design point of CrossFlow."""

    compat: Literal["none", "deepflow"] = "none"
    system: str | None = None
    technology: TechnologyNames = TechnologyNames()
    model_param: ModelParam = ModelParam()
    sw_param: SwParam = SwParam()
    tech_param: TechParam
    area_breakdown: AreaBreakdown
    power_breakdown: PowerBreakdown
    perimeter_breakdown: PerimeterBreakdown
    system_hierarchy: SystemHierarchy = SystemHierarchy()
    network_topology: NetworkTopology = NetworkTopology()
    memory_hierarchy: MemoryHierarchy = MemoryHierarchy()
    scheduling_param: SchedulingParam = SchedulingParam()
    strategy: str | None = None
    gemm: GemmShape | tuple[GemmShape, ...] | None = None
    overrides: Overrides = Overrides()
    tile_candidates: Annotated[int, Field(ge=2)] = 20
    """Candidates per level of the authors' random tiling, under ``compat: deepflow`` only."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid on top, mapping by mapping.

    Examples
    --------
    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def technology_row(config: CrossflowConfig) -> FloatArray:
    """Return the technology row of a configuration."""
    tech, levels = config.tech_param, config.memory_hierarchy
    core, dram = tech.core, tech.DRAM
    row = [
        core.nominal_power_per_mcu, core.nominal_flop_rate_per_mcu, core.nominal_area_per_mcu,
        core.operating_area_per_mcu or core.nominal_area_per_mcu, core.nominal_frequency,
        core.nominal_voltage, core.threshold_voltage, core.margin_voltage,
        core.num_mcu_per_bundle, core.FMA_width, core.FMA_depth or core.FMA_width,
        FLOWS.index(core.dataflow), core.util, core.max_voltage or math.inf,
        dram.dynamic_energy_per_bit, dram.static_power_per_bit, dram.stack_capacity,
        dram.area_per_stack, dram.latency, dram.mem_ctrl_area, dram.nominal_frequency,
        dram.nominal_voltage, dram.threshold_voltage, dram.margin_voltage,
        dram.max_voltage or math.inf,
        dram.num_links_per_mm, dram.num_links_per_stack, dram.util,
    ]  # fmt: skip
    srams = ((tech.registers, levels.l0), (tech.l1, levels.l1), (tech.l2, levels.l2))
    for sram, level in srams:
        row += [
            sram.dynamic_energy_per_bit, sram.static_power_per_bit, sram.area_per_bit,
            sram.bank_capacity, sram.controller_area_per_link, sram.latency, sram.overhead,
            sram.util, SCOPES.index(level.scope),
        ]  # fmt: skip
    for link in (tech.network.intra_node, tech.network.inter_node):
        row += [
            link.latency, link.nominal_frequency, link.nominal_voltage, link.threshold_voltage,
            link.margin_voltage, link.nominal_energy_per_link, link.nominal_area_per_link,
            link.num_links_per_mm, link.util, link.max_voltage or math.inf,
            _root_without_power(link.threshold_voltage),
        ]  # fmt: skip
    return np.array(row, dtype=np.float64)


def _root_without_power(threshold_v: float) -> float:
    """Return what the authors' polynomial solver finds at zero power (not quite the threshold)."""
    roots = np.roots([1.0, -2.0 * threshold_v, threshold_v**2, 0.0])
    real = roots.real[np.abs(roots.imag) < 1e-10]
    return float(real[0]) if real.size else threshold_v


def allocation_row(config: CrossflowConfig) -> FloatArray:
    """Return the allocation row of a configuration."""
    area, power, edge = (
        config.area_breakdown, config.power_breakdown, config.perimeter_breakdown,
    )  # fmt: skip
    row = [area.node_area_budget, area.proc_chip_area_budget, power.TDP]
    for share in (area, power):
        row += [
            share.core, share.DRAM, share.L2, share.L1, share.reg_mem,
            share.network.intra_node, share.network.inter_node,
        ]  # fmt: skip
    row += [edge.DRAM, edge.inter_node, edge.intra_node]
    return np.array(row, dtype=np.float64)
