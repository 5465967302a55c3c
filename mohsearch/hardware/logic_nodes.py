"""Technology cards of the CrossFlow models: logic nodes, main memories, package networks.

``evaluators/technology/logic/<node>.yaml``, ``evaluators/technology/memory/<memory>.yaml`` and
``evaluators/networks/<network>.yaml``. Source of the fields: DeepFlow paper, Table I.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.hardware.figures import SourcedCard

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class CoreCard(Card):
    """Minimal compute unit (MCU) at its nominal operating point."""

    power_w: Positive
    flop_per_cycle: Positive
    area_mm2: Positive
    frequency_hz: Positive
    voltage_v: Positive
    threshold_v: Positive
    margin_v: NonNegative
    max_voltage_v: Positive | None = None
    mcus_per_bundle: Annotated[int, Field(gt=0)]
    array_width: Annotated[int, Field(gt=0)]
    array_depth: Annotated[int, Field(gt=0)] | None = None
    dataflow: Literal["none", "wst", "ast", "ost", "best"] = "best"
    utilization: Share


class SramCard(Card):
    """One on-chip memory level, per bit and per bank."""

    energy_j_per_bit: Positive
    static_power_w_per_bit: NonNegative
    area_mm2_per_bit: Positive
    bank_bytes: Positive
    crossbar_mm2_per_link: NonNegative
    latency_s: NonNegative = 0.0
    overhead: Annotated[float, Field(ge=0, lt=1)]
    utilization: Share


class NodeScale(Card):
    """How a logic node follows from another one at the same performance."""

    base: str
    area_factor: Positive
    power_factor: Positive
    voltage_factor: Positive = 1.0


class LogicNodeCard(SourcedCard):
    """Logic node: own figures, or the scaled ones of another node."""

    name: str
    node_nm: Positive
    core: CoreCard | None = None
    registers: SramCard | None = None
    l1: SramCard | None = None
    l2: SramCard | None = None
    scaled: NodeScale | None = None

    @model_validator(mode="after")
    def _complete(self) -> LogicNodeCard:
        parts = (self.core, self.registers, self.l1, self.l2)
        if self.scaled is None and any(part is None for part in parts):
            raise ValueError("give core, registers, l1 and l2, or scaled")
        if self.scaled is not None and any(part is not None for part in parts):
            raise ValueError("give own figures or scaled ones, not both")
        return self


class MemoryCard(SourcedCard):
    """Main memory: one stack or chip and its links."""

    name: str
    energy_j_per_bit: Positive
    static_power_w_per_bit: NonNegative
    stack_bytes: Positive
    area_mm2_per_stack: Positive
    controller_mm2_per_stack: Positive
    latency_s: NonNegative
    link_frequency_hz: Positive
    voltage_v: Positive
    threshold_v: Positive
    margin_v: NonNegative
    max_voltage_v: Positive
    links_per_mm: Positive
    links_per_stack: Positive
    utilization: Share = 1.0
    on_interposer: bool = True
    """Whether the stacks share a silicon interposer with the chip, or sit on the board."""
    node_bandwidth_bytes_per_s: Positive | None = None
    """Bandwidth per node that the DeepFlow paper's case studies assume for this memory."""


class NetworkCard(SourcedCard):
    """Network between packages (or inside one): link technology and the bandwidth of a node."""

    name: str
    scope: Literal["inter", "intra"]
    latency_s: NonNegative
    node_bandwidth_bytes_per_s: Positive | None = None
    link_frequency_hz: Positive
    voltage_v: Positive
    threshold_v: Positive
    margin_v: NonNegative
    max_voltage_v: Positive | None = None
    energy_j_per_bit: Positive
    area_mm2_per_link: Positive
    links_per_mm: Positive
    utilization: Share


def _scaled_sram(card: SramCard, scale: NodeScale) -> SramCard:
    return card.model_copy(
        update={
            # Accesses a second stay the same, so that the energy of one falls as power does.
            "energy_j_per_bit": card.energy_j_per_bit * scale.power_factor,
            "area_mm2_per_bit": card.area_mm2_per_bit * scale.area_factor,
            "crossbar_mm2_per_link": card.crossbar_mm2_per_link * scale.area_factor,
        }
    )


def _scaled_node(
    card: LogicNodeCard, base: LogicNodeCard, scale: NodeScale, path: Path
) -> LogicNodeCard:
    """Return ``card`` with the figures of ``base`` at another area, power and voltage."""
    if base.core is None or base.registers is None or base.l1 is None or base.l2 is None:
        raise InputError("the base node has no figures", source=path, field="scaled.base")
    core = base.core.model_copy(
        update={
            "power_w": base.core.power_w * scale.power_factor,
            "area_mm2": base.core.area_mm2 * scale.area_factor,
            "voltage_v": base.core.voltage_v * scale.voltage_factor,
        }
    )
    return card.model_copy(
        update={
            "core": core,
            "registers": _scaled_sram(base.registers, scale),
            "l1": _scaled_sram(base.l1, scale),
            "l2": _scaled_sram(base.l2, scale),
        }
    )


def load_logic_node(name: str, catalog: Catalog | None = None) -> LogicNodeCard:
    """Return a logic node with its figures worked out.

    Examples
    --------
    >>> n12, n7 = load_logic_node("N12"), load_logic_node("N7")
    >>> round(n12.core.area_mm2 / n7.core.area_mm2, 6)
    1.8
    """
    catalog = catalog or Catalog()
    seen: list[str] = []

    def load(wanted: str, source: str | None) -> LogicNodeCard:
        if wanted in seen:
            raise InputError(f"node {wanted} is scaled from itself", source=source)
        seen.append(wanted)
        path = catalog.resolve(
            "evaluators", wanted, folder="technology/logic", kind="logic node", source=source
        )
        card = read_card(LogicNodeCard, path)
        if card.scaled is None:
            return card
        base = load(card.scaled.base, str(path))  # which may be a scaled node itself
        return _scaled_node(card, base, card.scaled, path)

    return load(name, None)


def load_memory(name: str, catalog: Catalog | None = None) -> MemoryCard:
    """Return a main memory card by name or path."""
    path = (catalog or Catalog()).resolve(
        "evaluators", name, folder="technology/memory", kind="main memory"
    )
    return read_card(MemoryCard, path)


def load_network(name: str, catalog: Catalog | None = None) -> NetworkCard:
    """Return a network card by name or path."""
    path = (catalog or Catalog()).resolve("evaluators", name, folder="networks", kind="network")
    return read_card(NetworkCard, path)
