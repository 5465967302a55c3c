"""Metrics of a design point beside time: energy, power, area, cost, headroom, utilisation.

Energy is what moves and computes (per bit and flop at each component's operating voltage) plus
leakage over the time; nothing is spent twice, so that no component exceeds its power budget. The
die is the smallest square that holds the parts and has the edge that its links need; it never
exceeds the chip's budget. Cost: :mod:`mohsearch.hardware.manufacturing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import technology_row
from mohsearch.evaluators.crossflow.evaluate import NO_OVERRIDE
from mohsearch.evaluators.crossflow.layout import (
    C_AREA,
    D_AREA,
    D_CTRL,
    D_PER_MM,
    K_AREA_USED,
    K_BUNDLES,
    K_DRAM_LINKS,
    K_LEVEL,
    K_LINKS,
    K_MCUS,
    K_NET,
    L_BANKS,
    LEVEL_FIELDS,
    LINK_FIELDS,
    N_AREA,
    N_PER_MM,
    NET,
    NET_FIELDS,
    S_AREA,
    S_BANK,
    S_CTRL,
    S_OVERHEAD,
    SRAM,
    SRAM_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.point_rows import V_DRAM, V_INTER
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.hardware.logic_nodes import load_logic_node, load_memory, load_network
from mohsearch.hardware.manufacturing import (
    WaferCard,
    good_die_usd,
    interposer_package_usd,
    load_manufacturing,
    organic_package_usd,
    wafer_of,
)
from mohsearch.hardware.systems import load_system


@dataclass(frozen=True)
class Technology:
    """One combination of logic node, main memory and networks, ready for evaluation.

    Attributes
    ----------
    row
        Technology row (:mod:`~mohsearch.evaluators.crossflow.layout`).
    overrides
        Rates forced to the cards' quoted bandwidths, negative where none.
    node_nm, wafer
        Logic process and its price.
    stack_usd
        Price of a memory stack; NaN where no source gives one.
    on_interposer
        Whether the memory shares an interposer with the chip.
    """

    name: str
    row: FloatArray
    overrides: FloatArray
    node_nm: float
    wafer: WaferCard
    stack_usd: float
    on_interposer: bool


@lru_cache(maxsize=512)
def technology_of(
    system: str = "V100", *, logic: str | None = None, memory: str | None = None,
    inter_network: str | None = None, intra_network: str | None = None,
    quoted_bandwidths: bool = False,
) -> Technology:  # fmt: skip
    """Return a system's technology with some of it replaced by other cards.

    Parameters
    ----------
    quoted_bandwidths
        Force the rates of main memory and of the network between packages to the cards'
        ``node_bandwidth_bytes_per_s``, as the paper's case studies do.

    Raises
    ------
    InputError
        If a card is unknown, or has no quoted bandwidth where one is wanted.

    Examples
    --------
    >>> technology_of("V100", logic="N7", memory="HBM3").node_nm
    7.0
    """
    chosen = {
        "logic": logic, "memory": memory, "inter_network": inter_network,
        "intra_network": intra_network,
    }  # fmt: skip
    given = {key: name for key, name in chosen.items() if name is not None}
    config = config_from({"system": system, "technology": given})
    base = load_system(system).crossflow or {}
    names: dict[str, Any] = {**base.get("technology", {}), **given}
    node = load_logic_node(names["logic"])
    stack = load_memory(names["memory"])
    overrides = NO_OVERRIDE.copy()
    if quoted_bandwidths:
        network = load_network(names["inter_network"])
        for column, card in ((V_DRAM, stack), (V_INTER, network)):
            if card.node_bandwidth_bytes_per_s is None:
                raise InputError(f"the card {card.name} has no quoted bandwidth of a node")
            overrides[column] = card.node_bandwidth_bytes_per_s
    prices = load_manufacturing()
    per_gib = prices.memory_usd_per_gib.get(stack.name, math.nan)
    size = config.tech_param.DRAM.stack_capacity
    return Technology(
        name="/".join(str(n) for n in (system, *names.values())),
        row=technology_row(config), overrides=overrides, node_nm=node.node_nm,
        wafer=wafer_of(prices, node.node_nm), stack_usd=per_gib * size / 2**30,
        on_interposer=stack.on_interposer,
    )  # fmt: skip


def edge_used_mm(tech: FloatArray, chips: FloatArray) -> FloatArray:
    """Return (n,) millimetres of the chip's edge that its links take."""
    edge: FloatArray = chips[:, K_DRAM_LINKS] / tech[:, D_PER_MM]
    for which in (0, 1):
        links = chips[:, K_NET + which * LINK_FIELDS + K_LINKS]
        edge = edge + links / tech[:, NET + which * NET_FIELDS + N_PER_MM]
    return edge


def die_area_mm2(tech: FloatArray, chips: FloatArray) -> FloatArray:
    """Return (n,) areas of the smallest square dies that hold the parts and their links' edge."""
    area: FloatArray = np.maximum(chips[:, K_AREA_USED], (edge_used_mm(tech, chips) / 4.0) ** 2)
    return area


def stacks_of(chips: FloatArray) -> FloatArray:
    """Return (n,) memory stacks."""
    stacks: FloatArray = chips[:, K_LEVEL + 3 * LEVEL_FIELDS + L_BANKS]
    return stacks


def device_area_mm2(tech: FloatArray, chips: FloatArray) -> FloatArray:
    """Return (n,) areas of die and memory stacks of one device."""
    area: FloatArray = die_area_mm2(tech, chips) + stacks_of(chips) * tech[:, D_AREA]
    return area


def device_cost_usd(
    technology: Technology, chips: FloatArray, nodes_per_package: FloatArray | float = 1.0
) -> FloatArray:
    """Return (n,) manufacturing cost of one device: its share of a package, memory included.

    ``nodes_per_package`` devices share a package, each point its own number or all the same. A
    package on an interposer bonds all dies and stacks of its devices; memory that is not on the
    interposer is added to an organic package. Boards, cooling, test and design are not counted.
    """
    card = load_manufacturing()
    tech = np.broadcast_to(technology.row, (chips.shape[0], technology.row.size))
    area, stacks = die_area_mm2(tech, chips), stacks_of(chips)
    area = np.maximum(area, 1e-3)
    die = good_die_usd(area, technology.wafer, card) + area * card.bump_usd_per_mm2
    memory = stacks * technology.stack_usd
    if technology.on_interposer:
        package = interposer_package_usd(
            nodes_per_package * (1.0 + stacks),
            nodes_per_package * (area + stacks * tech[:, D_AREA]),
            nodes_per_package * (die + memory), card,
        )  # fmt: skip
        device: FloatArray = package / nodes_per_package
        return device
    count = np.broadcast_to(np.asarray(nodes_per_package, dtype=np.float64), area.shape)
    die = good_die_usd(area, technology.wafer, card)
    whole: FloatArray = organic_package_usd(count, area, die, card) / nodes_per_package + memory
    return whole


def area_by_component_mm2(tech: FloatArray, chips: FloatArray) -> dict[str, FloatArray]:
    """Return (n,) areas of what a chip holds; they sum to the used area.

    Parameters
    ----------
    tech : (n, TECHNOLOGY_COLUMNS)
    chips : (n, CHIP_COLUMNS)

    Returns
    -------
    dict
        ``cores``, ``registers``, ``l1``, ``l2`` (cells with their overhead), ``crossbar`` (all
        levels), ``memory_controllers``, ``links``.
    """
    areas: dict[str, FloatArray] = {"cores": chips[:, K_MCUS] * tech[:, C_AREA]}
    crossbar: FloatArray = np.zeros(chips.shape[0])
    for level, name in enumerate(("registers", "l1", "l2")):
        t, banks = SRAM + level * SRAM_FIELDS, chips[:, K_LEVEL + level * LEVEL_FIELDS + L_BANKS]
        bits = 8.0 * tech[:, t + S_BANK]
        areas[name] = banks * bits * tech[:, t + S_AREA] / (1.0 - tech[:, t + S_OVERHEAD])
        crossbar = crossbar + banks * chips[:, K_BUNDLES] * tech[:, t + S_CTRL]
    areas["crossbar"] = crossbar
    areas["memory_controllers"] = stacks_of(chips) * tech[:, D_CTRL]
    links: FloatArray = np.zeros(chips.shape[0])
    for which in (0, 1):
        count = chips[:, K_NET + which * LINK_FIELDS + K_LINKS]
        links = links + count * tech[:, NET + which * NET_FIELDS + N_AREA]
    areas["links"] = links
    return areas
