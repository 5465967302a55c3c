"""Manufacturing cost of dies and packages: wafer price, yield, bonding, substrate.

The model is Chiplet Actuary's (Feng and Ma, DAC 2022): a die costs its share of a wafer over its
yield; bonding k known-good dies loses a package, and the dies on it, with probability 1 - y^k.
Prices and defect densities: ``evaluators/technology/manufacturing/<name>.yaml``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.hardware.figures import SourcedCard

FloatArray = NDArray[np.float64]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


_LEAST_LOG = -230.0
"""Logarithm of the smallest yield that is told apart from none: 1e-100."""


class WaferCard(Card):
    """Wafer of one process: price, defects and how they cluster."""

    wafer_usd: Positive
    defects_per_cm2: Positive
    clustering: Positive


class SubstrateCard(Card):
    """Organic package substrate; its price per area grows in steps with the dies' area."""

    usd_per_mm2: Positive
    area_factor: Positive
    single_die_factor: Positive
    factors: tuple[Positive, ...]
    above_mm2: tuple[float, ...]


class InterposerCard(WaferCard):
    """Silicon interposer under all dies of a package."""

    area_factor: Positive
    bonding_yield: Share
    bump_usd_per_mm2: Positive


class ManufacturingCard(SourcedCard):
    """Prices of one source.

    ``logic`` maps a node in nm to its wafer; between two nodes price and defect density follow a
    straight line in the logarithms, beyond the last one the last line goes on.
    """

    name: str
    wafer_diameter_mm: Positive
    wafer_edge_mm: Positive
    scribe_mm: Positive
    logic: dict[str, WaferCard]
    substrate: SubstrateCard
    interposer: InterposerCard
    bonding_yield: Share
    bump_usd_per_mm2: Positive
    memory_usd_per_gib: dict[str, Positive]

    @model_validator(mode="after")
    def _steps_match(self) -> ManufacturingCard:
        if len(self.substrate.factors) != len(self.substrate.above_mm2):
            raise ValueError("substrate: factors and above_mm2 must have the same length")
        if len(self.logic) < 2:
            raise ValueError("logic: give at least two nodes")
        if 2.0 * self.wafer_edge_mm >= self.wafer_diameter_mm:
            raise ValueError("wafer_edge_mm: nothing is left of the wafer")
        return self


@lru_cache(maxsize=8)
def load_manufacturing(name: str = "chiplet_actuary") -> ManufacturingCard:
    """Return a manufacturing card by name or path."""
    path = Catalog().resolve(
        "evaluators", name, folder="technology/manufacturing", kind="manufacturing"
    )
    return read_card(ManufacturingCard, path)


def wafer_of(card: ManufacturingCard, node_nm: float) -> WaferCard:
    """Return price and defect density of a logic node.

    Examples
    --------
    >>> card = load_manufacturing()
    >>> wafer_of(card, 7).wafer_usd
    9346.0
    >>> 3984 < wafer_of(card, 12).wafer_usd < 5992
    True
    """
    nodes = sorted((float(name), wafer) for name, wafer in card.logic.items())
    for nm, wafer in nodes:
        if nm == node_nm:
            return wafer
    at = int(np.searchsorted([nm for nm, _ in nodes], node_nm))
    at = min(max(at, 1), len(nodes) - 1)
    (low, fine), (high, coarse) = nodes[at - 1], nodes[at]
    part = math.log(node_nm / low) / math.log(high / low)

    def between(a: float, b: float) -> float:
        logarithm = math.log(a) + part * math.log(b / a)
        if abs(logarithm) > -_LEAST_LOG:
            raise InputError(f"{card.name} says nothing of a node of {node_nm:g} nm")
        return math.exp(logarithm)

    return WaferCard(
        wafer_usd=between(fine.wafer_usd, coarse.wafer_usd),
        defects_per_cm2=between(fine.defects_per_cm2, coarse.defects_per_cm2),
        clustering=fine.clustering,
    )


def die_yield(area_mm2: FloatArray, wafer: WaferCard) -> FloatArray:
    """Return the share of good dies, negative binomial.

    Examples
    --------
    >>> wafer = wafer_of(load_manufacturing(), 14)
    >>> round(float(die_yield(np.array(6.0), wafer)), 4)
    0.9952
    """
    defects = wafer.defects_per_cm2 * np.asarray(area_mm2, dtype=np.float64) / 100.0
    # Through the logarithm: a clustering without end is Poisson's law, not 1.
    logarithm = -wafer.clustering * np.log1p(defects / wafer.clustering)
    good: FloatArray = np.exp(np.maximum(logarithm, _LEAST_LOG))
    return good


def dies_per_wafer(area_mm2: FloatArray, card: ManufacturingCard) -> FloatArray:
    """Return how many square dies a wafer holds (not rounded); 0 where none fits.

    Examples
    --------
    >>> int(dies_per_wafer(np.array(6.0), load_manufacturing()))
    9166
    """
    area, scribe = np.asarray(area_mm2, dtype=np.float64), card.scribe_mm
    pitch = area + 2.0 * scribe * np.sqrt(area) + scribe**2
    across = card.wafer_diameter_mm / 2.0 - card.wafer_edge_mm
    count: FloatArray = math.pi * across**2 / pitch - 2.0 * math.pi * across / np.sqrt(2.0 * pitch)
    return np.maximum(count, 0.0)


def good_die_usd(area_mm2: FloatArray, wafer: WaferCard, card: ManufacturingCard) -> FloatArray:
    """Return the cost of a known-good die; infinite where no die fits a wafer.

    Examples
    --------
    >>> card = load_manufacturing()
    >>> round(float(good_die_usd(np.array(6.0), wafer_of(card, 14), card)), 3)
    0.437
    """
    count = dies_per_wafer(area_mm2, card)
    with np.errstate(divide="ignore"):
        cost: FloatArray = wafer.wafer_usd / (count * die_yield(area_mm2, wafer))
    return cost


def _bonded(card: ManufacturingCard, dies: FloatArray) -> FloatArray:
    """Return the share of packages in which every die was bonded well."""
    logarithm = math.log(card.bonding_yield) * np.asarray(dies, dtype=np.float64)
    share: FloatArray = np.exp(np.maximum(logarithm, _LEAST_LOG))
    return share


def organic_package_usd(
    dies: FloatArray, die_area_mm2: FloatArray, die_usd: FloatArray, card: ManufacturingCard
) -> FloatArray:
    """Return the cost of packages of equal dies on an organic substrate, dies included.

    Parameters
    ----------
    dies
        Dies per package.
    die_area_mm2, die_usd
        Area and cost of a known-good die, bumps not included.

    Examples
    --------
    >>> card = load_manufacturing()
    >>> seven = wafer_of(card, 7)
    >>> area = np.array([6.0, 216.0])
    >>> die = good_die_usd(area, seven, card)
    >>> cost = organic_package_usd(np.array([36.0, 1.0]), area, die, card)
    >>> cost.round(2).tolist()
    [65.4, 50.44]
    """
    total = np.asarray(dies * die_area_mm2, dtype=np.float64)
    factor = np.full(total.shape, card.substrate.factors[0])
    for step, above in zip(card.substrate.factors, card.substrate.above_mm2, strict=True):
        factor = np.where(total > above, step, factor)
    factor = np.where(np.asarray(dies) == 1, card.substrate.single_die_factor, factor)
    substrate = total * card.substrate.area_factor * card.substrate.usd_per_mm2 * factor
    # Several dies: bumps on the substrate's side as well, as in the source's code.
    sides = np.where(np.asarray(dies) == 1, 1.0, 2.0)
    chips = dies * (die_usd + sides * die_area_mm2 * card.bump_usd_per_mm2)
    whole: FloatArray = (substrate + chips) / _bonded(card, dies)
    return whole


def interposer_package_usd(
    dies: FloatArray, dies_area_mm2: FloatArray, dies_usd: FloatArray, card: ManufacturingCard
) -> FloatArray:
    """Return the cost of packages on a silicon interposer (2.5D), dies included.

    Parameters
    ----------
    dies
        Dies and memory stacks bonded to the interposer.
    dies_area_mm2, dies_usd
        Their total area and cost.
    """
    inter, sub = card.interposer, card.substrate
    area = np.asarray(dies_area_mm2, dtype=np.float64) * inter.area_factor
    # An interposer larger than a wafer's dies are priced by area over yield.
    count = dies_per_wafer(area, card)
    usable = math.pi * (card.wafer_diameter_mm / 2.0 - card.wafer_edge_mm) ** 2
    price = inter.wafer_usd * np.where(count >= 1.0, 1.0 / np.maximum(count, 1.0), area / usable)
    silicon = price / die_yield(area, inter)
    base = area * sub.area_factor * sub.usd_per_mm2 * sub.factors[-1]
    bumps = np.asarray(dies_area_mm2) * inter.bump_usd_per_mm2
    bonded = (silicon + bumps + dies_usd) / _bonded(card, dies)
    whole: FloatArray = (bonded + base) / inter.bonding_yield
    return whole
