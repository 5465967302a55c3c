"""Multi-chip packages: the chip, its links, and what the package costs to make."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.hardware.manufacturing import (
    good_die_usd,
    load_manufacturing,
    organic_package_usd,
    wafer_of,
)

MAX_CHIPS = 64
"""Sets of chips are 64-bit masks."""

Positive = Annotated[float, Field(gt=0, le=1e30)]
NotNegative = Annotated[float, Field(ge=0, le=1e30)]

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


def package_cost_usd(chips: int, area_mm2: float, process: str) -> float:
    """Return the cost of a package of equal dies on an organic substrate.

    Dies with bumps (also those under the substrate where there are several), substrate, and all of
    it lost where a bond fails. Source: Feng and Ma, Chiplet Actuary (DAC 2022).

    Examples
    --------
    >>> round(package_cost_usd(36, 6.0, "14nm"), 2), round(package_cost_usd(1, 216.0, "14nm"), 2)
    (34.98, 24.23)
    """
    prices = load_manufacturing()
    wafer = wafer_of(prices, float(process.removesuffix("nm")))
    area = np.array(area_mm2, dtype=np.float64)
    dies = np.array(chips, dtype=np.float64)
    return float(organic_package_usd(dies, area, good_die_usd(area, wafer, prices), prices))
