"""Technology cards: energy and area of MACs, registers, register files, SRAM, DRAM and links."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
FloatArray = NDArray[np.float64]
RegisterFileArea = Literal["physical", "accelergy"]


_LARGEST_LOG = 230.0
"""Logarithm of 1e100, more than any energy or area."""


class WidthPolynomial(Card):
    """``quadratic * (bits / 32)**2 + linear * (bits / 32)``."""

    quadratic: NonNegative
    linear: NonNegative

    def at(self, bits: int) -> float:
        """Return the value at a word width in bits."""
        scale = bits / 32
        return self.quadratic * scale**2 + self.linear * scale


class MacCard(Card):
    """Integer multiply-accumulate."""

    energy_pj: WidthPolynomial
    area_um2: WidthPolynomial


class RegisterCard(Card):
    """One flip-flop."""

    energy_pj_per_bit: NonNegative
    area_um2_per_bit: NonNegative


class RegisterFileCard(Card):
    """Decoder of a register file, times ``depth * ceil(log2(depth)) / 32``."""

    decode_energy_pj: NonNegative
    decode_area_um2: NonNegative


class AddressGeneratorCard(Card):
    """What a memory that computes its own addresses pays per access and in area."""

    energy_pj: NonNegative
    area_um2: NonNegative


class SramCurve(Card):
    """One SRAM sweep over size at fixed row width and number of read/write ports."""

    width_bits: Annotated[int, Field(gt=0)]
    ports: Annotated[int, Field(gt=0)]
    size_bytes: tuple[Annotated[int, Field(gt=0)], ...]
    read_pj: tuple[Positive, ...]
    write_pj: tuple[Positive, ...]
    area_um2: tuple[Positive, ...]

    @model_validator(mode="after")
    def _sizes_rise(self) -> SramCurve:
        count = len(self.size_bytes)
        if count < 2 or any(len(c) != count for c in (self.read_pj, self.write_pj, self.area_um2)):
            raise ValueError("an SRAM curve needs at least two sizes and one value for each")
        if any(b <= a for a, b in pairwise(self.size_bytes)):
            raise ValueError("the sizes of an SRAM curve must rise")
        return self


def monotone_log_log(
    sizes: ArrayLike, knots: tuple[int, ...], values: tuple[float, ...]
) -> FloatArray:
    """Interpolate linearly in log-log space over the running maximum of ``values``.

    The curve never falls: below the first knot it is flat, above the last one it keeps the slope
    of the last rising stretch (at least 0). It passes through every knot that is not below an
    earlier one.

    Examples
    --------
    >>> monotone_log_log([1, 2, 4, 16], (2, 8), (1.0, 2.0)).round(4).tolist()
    [1.0, 1.0, 1.4142, 2.8284]
    """
    x = np.log(np.maximum(np.asarray(sizes, dtype=np.float64), knots[0]))
    log_knots = np.log(np.asarray(knots, dtype=np.float64))
    hull = np.maximum.accumulate(np.asarray(values, dtype=np.float64))
    log_hull = np.log(hull)
    slope = (log_hull[-1] - log_hull[-2]) / (log_knots[-1] - log_knots[-2])
    beyond = np.maximum(x - log_knots[-1], 0.0) * slope
    logarithm = np.interp(x, log_knots, log_hull) + beyond
    if logarithm.size and logarithm.max() > _LARGEST_LOG:
        largest = float(np.max(sizes))
        raise InputError(f"a memory of {largest:g} bytes is too far beyond the largest one known")
    return np.asarray(np.exp(logarithm), dtype=np.float64)


class TechnologyCard(Card):
    """Energies and areas of one process node, ``evaluators/technology/<name>.yaml``.

    Sizes may be arrays; results have their shape.

    Examples
    --------
    >>> cmos45 = load_technology("cmos45")
    >>> round(cmos45.mac_energy_pj(8), 4), round(cmos45.mac_area_um2(8), 2)
    (0.5608, 332.25)
    >>> cmos45.sram(64, 2).size_bytes[0]
    512
    """

    name: str
    node_nm: Positive
    source: str
    mac: MacCard
    register_cell: RegisterCard = Field(alias="register")
    register_file: RegisterFileCard
    address_generator: AddressGeneratorCard
    dram_energy_pj_per_bit: dict[str, Positive]
    link_energy_pj_per_bit: dict[str, NonNegative]
    network_hop_energy_pj_per_word: NonNegative
    sram_curves: tuple[SramCurve, ...] = Field(alias="sram")

    @cached_property
    def _sram(self) -> dict[tuple[int, int], SramCurve]:
        return {(c.width_bits, c.ports): c for c in self.sram_curves}

    def sram(self, width_bits: int, ports: int) -> SramCurve:
        """Return the SRAM sweep of one row width and port count.

        Raises
        ------
        KeyError
            If the card has no such sweep; the message lists those it has.
        """
        try:
            return self._sram[width_bits, ports]
        except KeyError:
            known = ", ".join(f"{w} bit with {p} port(s)" for w, p in sorted(self._sram))
            raise KeyError(
                f"{self.name} has no SRAM of {width_bits} bit with {ports} port(s); it has: {known}"
            ) from None

    def mac_energy_pj(self, bits: int) -> float:
        """Return the energy of one multiply-accumulate."""
        return self.mac.energy_pj.at(bits)

    def mac_area_um2(self, bits: int) -> float:
        """Return the area of one multiply-accumulate unit."""
        return self.mac.area_um2.at(bits)

    def register_energy_pj(self, bits: int) -> float:
        """Return the energy of one register access, read or write."""
        return self.register_cell.energy_pj_per_bit * bits

    def register_area_um2(self, bits: ArrayLike) -> FloatArray:
        """Return the area of ``bits`` flip-flops."""
        return self.register_cell.area_um2_per_bit * np.asarray(bits, dtype=np.float64)

    def register_file_energy_pj(self, width_bits: int, depth: ArrayLike) -> FloatArray:
        """Return the energy of one row access of a register file, read or write."""
        decode = self.register_file.decode_energy_pj * _decoder_size(depth)
        return np.asarray(self.register_energy_pj(width_bits) + decode)

    def register_file_area_um2(
        self, width_bits: int, depth: ArrayLike, model: RegisterFileArea = "physical"
    ) -> FloatArray:
        """Return the area of a register file.

        ``physical`` counts the flip-flops of every row; ``accelergy`` counts those of one row
        only, as Accelergy's Aladdin table does, and is there for comparisons.
        """
        rows = np.asarray(depth, dtype=np.float64)
        stored_rows = rows if model == "physical" else np.minimum(rows, 1.0)
        decode = self.register_file.decode_area_um2 * _decoder_size(depth)
        return np.asarray(self.register_area_um2(width_bits * stored_rows) + decode)

    def sram_read_pj(self, width_bits: int, ports: int, size_bytes: ArrayLike) -> FloatArray:
        """Return the energy to read one row."""
        curve = self.sram(width_bits, ports)
        return monotone_log_log(size_bytes, curve.size_bytes, curve.read_pj)

    def sram_write_pj(self, width_bits: int, ports: int, size_bytes: ArrayLike) -> FloatArray:
        """Return the energy to write one row."""
        curve = self.sram(width_bits, ports)
        return monotone_log_log(size_bytes, curve.size_bytes, curve.write_pj)

    def sram_area_um2(self, width_bits: int, ports: int, size_bytes: ArrayLike) -> FloatArray:
        """Return the area of one bank."""
        curve = self.sram(width_bits, ports)
        return monotone_log_log(size_bytes, curve.size_bytes, curve.area_um2)


def _decoder_size(depth: ArrayLike) -> FloatArray:
    rows = np.maximum(np.asarray(depth, dtype=np.float64), 1.0)
    return np.asarray(rows * np.ceil(np.log2(rows)) / 32)


def load_technology(
    name: str,
    catalog: Catalog | None = None,
    *,
    source: str | Path | None = None,
    field: str | None = None,
) -> TechnologyCard:
    """Load a technology card by name; ``source`` and ``field`` say where it was written.

    Raises
    ------
    UnknownNameError
        If no shelf holds it.
    InputError
        If the card is wrong; the message holds the field path.
    """
    shelf = catalog or Catalog.around()
    where: dict[str, Any] = {"source": source, "field": field}
    path = shelf.find("evaluators", name, folder="technology", kind="technology", **where)
    return read_card(TechnologyCard, path)
