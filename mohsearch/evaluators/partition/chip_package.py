"""Multi-chip packages: the chip, its links, and what the package costs to make.

The cost follows Chiplet Actuary (Feng and Ma, DAC 2022): negative-binomial yield of the dies, dies
a wafer, organic substrate, and bonding yield.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog

MAX_CHIPS = 64
"""Sets of chips are 64-bit masks."""

Positive = Annotated[float, Field(gt=0, le=1e30)]
NotNegative = Annotated[float, Field(ge=0, le=1e30)]

WAFER_USD = {"5nm": 16988.0, "7nm": 9346.0, "10nm": 5992.0, "14nm": 3984.0, "28nm": 2891.0}
"""Price of a 300 mm wafer (Chiplet Actuary's table)."""

DEFECTS_PER_CM2 = {"5nm": 0.11, "7nm": 0.09, "10nm": 0.08, "14nm": 0.08, "28nm": 0.07}

WAFER_DIAMETER_MM, WAFER_EDGE_MM, SCRIBE_MM = 300.0, 5.0, 0.2
CLUSTERING = 10.0
BUMP_USD_PER_MM2 = 0.005
SUBSTRATE_USD_PER_MM2 = 0.005
SUBSTRATE_AREA_FACTOR = 4.0
BOND_YIELD = 0.99

Process = Literal["5nm", "7nm", "10nm", "14nm", "28nm"]


class ChipCard(Card):
    """One chip; numbers are ``element_bytes`` long."""

    peak_ops_per_s: Positive
    sram_bytes: Positive
    sram_bandwidth_bytes_per_s: Positive
    op_overhead_s: NotNegative = 0.0
    element_bytes: Annotated[float, Field(gt=0, le=16)] = 1.0
    energy_j_per_op: NotNegative = 0.0
    idle_power_w: NotNegative = 0.0
    area_mm2: Annotated[float, Field(gt=0, le=900)] = 6.0
    double_buffer: bool = False


class LinkCard(Card):
    """The link from each chip to the next."""

    bandwidth_bytes_per_s: Positive
    hop_latency_s: NotNegative = 0.0
    energy_j_per_bit: NotNegative = 0.0
    phy_area_mm2: NotNegative = 0.0


class ChipPackage(Card):
    """A package of equal chips on a one-directional ring.

    Examples
    --------
    >>> package = load_chip_package("mcm36")
    >>> package.chips, package.chip.peak_ops_per_s
    (36, 4000000000000.0)
    """

    title: str = ""
    source: str = ""
    chips: Annotated[int, Field(ge=1, le=MAX_CHIPS)]
    chip: ChipCard
    link: LinkCard
    process: Process = "14nm"
    substrate: Literal["organic"] = "organic"

    @property
    def die_area_mm2(self) -> float:
        """Area of one chip with the PHYs of its two links."""
        return self.chip.area_mm2 + 2 * self.link.phy_area_mm2

    def cost_usd(self, chips: int) -> float:
        """Return the manufacturing cost of a package with ``chips`` chips."""
        return package_cost_usd(chips, self.die_area_mm2, self.process)


@lru_cache(maxsize=64)
def _load(path: Path, _changed: int) -> ChipPackage:
    return read_card(ChipPackage, path)


def load_chip_package(
    name_or_path: str | Path = "mcm36",
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> ChipPackage:
    """Load a package card by name (shelf ``evaluators/packages``) or path.

    Raises
    ------
    InputError
        If nothing answers to the name, or the card is wrong.
    """
    path = (catalog or Catalog.around()).resolve(
        "evaluators", str(name_or_path), folder="packages", kind="chip package", base=base,
        source=source, field=field,
    )  # fmt: skip
    return _load(path.resolve(), path.stat().st_mtime_ns)


def die_yield(area_mm2: float, process: str) -> float:
    """Return the share of good dies (negative binomial, clustering 10).

    Examples
    --------
    >>> round(die_yield(6.0, "14nm"), 4)
    0.9952
    """
    defects = DEFECTS_PER_CM2[process] * area_mm2 / 100.0
    return math.pow(1.0 + defects / CLUSTERING, -CLUSTERING)


def dies_per_wafer(area_mm2: float) -> float:
    """Return the number of dies of an area on a wafer, scribe lines included."""
    side = math.sqrt(area_mm2)
    area = area_mm2 + 2 * SCRIBE_MM * side + SCRIBE_MM**2
    usable = WAFER_DIAMETER_MM / 2 - WAFER_EDGE_MM
    rim = math.pi * (WAFER_DIAMETER_MM - 2 * WAFER_EDGE_MM) / math.sqrt(2 * area)
    return math.pi * usable**2 / area - rim


def good_die_usd(area_mm2: float, process: str) -> float:
    """Return the cost of a known good die."""
    return WAFER_USD[process] / (dies_per_wafer(area_mm2) * die_yield(area_mm2, process))


def package_cost_usd(chips: int, area_mm2: float, process: str) -> float:
    """Return the cost of a package of equal dies on an organic substrate.

    Dies with bumps (also those under the substrate where there are several), substrate, and all of
    it lost where a bond fails. Source: Feng and Ma, Chiplet Actuary (DAC 2022).

    Examples
    --------
    >>> round(package_cost_usd(36, 6.0, "14nm"), 2), round(package_cost_usd(1, 216.0, "14nm"), 2)
    (34.98, 24.23)
    """
    silicon = chips * area_mm2
    bumps = (1 if chips == 1 else 2) * BUMP_USD_PER_MM2 * silicon
    dies = chips * good_die_usd(area_mm2, process) + bumps
    substrate_area = SUBSTRATE_AREA_FACTOR * silicon
    if chips == 1:
        layers = 1.0
    else:
        layers = 2.0 if silicon > 900 else 1.75 if silicon > 289 else 1.5
    substrate = substrate_area * SUBSTRATE_USD_PER_MM2 * layers
    lost = 1.0 / BOND_YIELD**chips - 1.0
    return dies + substrate + (substrate + dies) * lost
