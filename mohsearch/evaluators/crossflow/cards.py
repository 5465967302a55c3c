"""Technology and system cards laid under a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import merged
from mohsearch.hardware.logic_nodes import (
    LogicNodeCard,
    MemoryCard,
    NetworkCard,
    SramCard,
    load_logic_node,
    load_memory,
    load_network,
)
from mohsearch.hardware.systems import load_system


def _sram_keys(card: SramCard) -> dict[str, Any]:
    return {
        "dynamic_energy_per_bit": card.energy_j_per_bit,
        "static_power_per_bit": card.static_power_w_per_bit,
        "area_per_bit": card.area_mm2_per_bit,
        "bank_capacity": card.bank_bytes,
        "controller_area_per_link": card.crossbar_mm2_per_link,
        "latency": card.latency_s,
        "overhead": card.overhead,
        "util": card.utilization,
    }


def logic_keys(card: LogicNodeCard) -> dict[str, Any]:
    """Return the ``tech_param`` entries of a logic node."""
    core, registers, l1, l2 = card.core, card.registers, card.l1, card.l2
    if core is None or registers is None or l1 is None or l2 is None:
        raise InputError("the node's figures have not been worked out", source=card.name)
    return {
        "core": {
            "nominal_power_per_mcu": core.power_w,
            "nominal_flop_rate_per_mcu": core.flop_per_cycle,
            "nominal_area_per_mcu": core.area_mm2,
            "operating_area_per_mcu": core.area_mm2,
            "nominal_frequency": core.frequency_hz,
            "nominal_voltage": core.voltage_v,
            "threshold_voltage": core.threshold_v,
            "margin_voltage": core.margin_v,
            "max_voltage": core.max_voltage_v,
            "num_mcu_per_bundle": core.mcus_per_bundle,
            "FMA_width": core.array_width,
            "FMA_depth": core.array_depth,
            "dataflow": core.dataflow,
            "util": core.utilization,
        },
        "SRAM-R": _sram_keys(registers),
        "SRAM-L1": _sram_keys(l1),
        "SRAM-L2": _sram_keys(l2),
    }


def memory_keys(card: MemoryCard) -> dict[str, Any]:
    """Return the ``tech_param.DRAM`` entries of a main memory."""
    return {
        "dynamic_energy_per_bit": card.energy_j_per_bit,
        "static_power_per_bit": card.static_power_w_per_bit,
        "stack_capacity": card.stack_bytes,
        "area_per_stack": card.area_mm2_per_stack,
        "latency": card.latency_s,
        "mem_ctrl_area": card.controller_mm2_per_stack,
        "nominal_frequency": card.link_frequency_hz,
        "nominal_voltage": card.voltage_v,
        "threshold_voltage": card.threshold_v,
        "margin_voltage": card.margin_v,
        "max_voltage": card.max_voltage_v,
        "num_links_per_mm": card.links_per_mm,
        "num_links_per_stack": card.links_per_stack,
        "util": card.utilization,
    }


def network_keys(card: NetworkCard) -> dict[str, Any]:
    """Return the ``tech_param.network`` entries of a network."""
    return {
        "latency": card.latency_s,
        "nominal_frequency": card.link_frequency_hz,
        "nominal_voltage": card.voltage_v,
        "threshold_voltage": card.threshold_v,
        "margin_voltage": card.margin_v,
        "max_voltage": card.max_voltage_v,
        "nominal_energy_per_link": card.energy_j_per_bit,
        "nominal_area_per_link": card.area_mm2_per_link,
        "num_links_per_mm": card.links_per_mm,
        "util": card.utilization,
    }


def with_cards(
    data: Mapping[str, Any], catalog: Catalog, source: Path | None = None
) -> dict[str, Any]:
    """Return the configuration with its named system below it and its named technology on top.

    Raises
    ------
    InputError
        If a name is unknown or a system has no CrossFlow allocation.
    """
    result = _with_named(data, catalog)
    name = data.get("system")
    if isinstance(name, str):
        card = load_system(name, catalog)
        if card.crossflow is None:
            raise InputError(
                f"the system {card.name} has no CrossFlow allocation", source=source, field="system"
            )
        result = merged(_with_named(card.crossflow, catalog), result)
    return result


def _with_named(data: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Lay the explicit technology of one mapping on the cards that it names."""
    names = data.get("technology")
    if not isinstance(names, Mapping):
        return dict(data)
    return merged({"tech_param": _named_technology(names, catalog)}, data)


def _named_technology(names: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    tech: dict[str, Any] = {}
    if isinstance(names.get("logic"), str):
        tech.update(logic_keys(load_logic_node(names["logic"], catalog)))
    if isinstance(names.get("memory"), str):
        tech["DRAM"] = memory_keys(load_memory(names["memory"], catalog))
    for key, scope in (("inter_network", "inter_node"), ("intra_network", "intra_node")):
        if isinstance(names.get(key), str):
            card = load_network(names[key], catalog)
            tech.setdefault("network", {})[scope] = network_keys(card)
    return tech
