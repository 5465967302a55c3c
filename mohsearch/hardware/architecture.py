"""Sub-accelerator architectures: storage levels from memory to MAC, and their mapping rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mohsearch.hardware.technology import RegisterFileArea, TechnologyCard

FloatArray = NDArray[np.float64]
MemoryKind = Literal["dram", "sram", "register_file", "register"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a storage level is built of.

    Attributes
    ----------
    kind
        ``dram``, ``sram``, ``register_file`` (decoded) or ``register`` (no decoder).
    width_bits
        Width of one row as the technology sees it.
    ports
        Read/write ports (SRAM only).
    generates_addresses
        Whether the memory pays for its own address generators ("smart" in Accelergy).
    dram_type
        Key of the technology's DRAM table (DRAM only).
    """

    kind: MemoryKind
    width_bits: int
    ports: int = 1
    generates_addresses: bool = False
    dram_type: str = ""


@dataclass(frozen=True, slots=True)
class TemporalRule:
    """Which loops over time a level may hold.

    Attributes
    ----------
    dims
        Dimensions that may have a factor above 1 here.
    whole
        Dimensions whose entire remaining bound (all that the levels inside leave) must stand here,
        so that no level further out has any of it.
    order
        Required order of the loops, outermost first (a level may use any subset of it); None where
        the order is free.
    """

    dims: tuple[str, ...]
    whole: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the spatial fan-out below a level.

    Attributes
    ----------
    name
        ``X`` or ``Y``.
    limit
        Most instances along this axis: the product of the factors stays at or below it.
    dims
        Dimensions that may be unrolled along it.
    whole
        Dimensions whose entire remaining bound must be unrolled along it.
    exact
        Dimensions with a fixed fan-out f, as (dim, f): the wiring fixes the factor. A dimension
        with bound D <= f gets the factor D (the other lanes idle); a larger one is padded up to the
        next multiple of f and gets the factor f. ``limit`` is the product of these factors.
    """

    name: str
    limit: int
    dims: tuple[str, ...]
    whole: tuple[str, ...] = ()
    exact: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One storage level.

    Attributes
    ----------
    name
        Unique name, as printed in mappings.
    keeps
        Tensors (of ``W``, ``I``, ``O``) that live here; all others bypass the level.
    capacity_words
        Largest size of one instance in words; None for unbounded (memory).
    word_bits
        Bits of one word.
    words_per_access
        Words that one access moves; a size has ``ceil(size / words_per_access)`` rows.
    read_words_per_cycle, write_words_per_cycle
        Bandwidth of one instance; None for unbounded.
    memory
        What it is built of.
    temporal
        Loops over time allowed here.
    fanout
        Axes of the fan-out to the next level inside (at most two), () for none.
    gemm_fanout
        Replaces ``fanout`` for layers with P = Q = R = S = 1; None for no difference.
    hop_energy_pj_per_word
        Energy per word and hop of the network that spans the fan-out; 0 for none.
    granularity_rows
        Sizes of instances are multiples of this many rows.
    """

    name: str
    keeps: tuple[str, ...]
    capacity_words: int | None
    word_bits: int
    words_per_access: int
    memory: Memory
    temporal: TemporalRule
    read_words_per_cycle: float | None = None
    write_words_per_cycle: float | None = None
    fanout: tuple[Axis, ...] = ()
    gemm_fanout: tuple[Axis, ...] | None = None
    hop_energy_pj_per_word: float = 0.0
    granularity_rows: int = 16

    def axes(self, *, gemm: bool = False) -> tuple[Axis, ...]:
        """Return the fan-out axes for a convolution or, with ``gemm``, for a matrix product."""
        return self.gemm_fanout if gemm and self.gemm_fanout is not None else self.fanout

    def max_fanout(self, *, gemm: bool = False) -> int:
        """Return the most instances of the next level below one instance."""
        return prod(axis.limit for axis in self.axes(gemm=gemm))

    def rows(self, size_words: ArrayLike) -> NDArray[np.int64]:
        """Return the rows that ``size_words`` words take."""
        size = np.asarray(size_words, dtype=np.int64)
        return np.asarray(-(-size // self.words_per_access), dtype=np.int64)

    def granular_words(self, used_words: ArrayLike) -> NDArray[np.int64]:
        """Return the size an instance needs to hold ``used_words``.

        Rows are rounded up to the granularity, never above the level's capacity; where nothing is
        used the size is 0.
        """
        rows = -(-self.rows(used_words) // self.granularity_rows) * self.granularity_rows
        words = rows * self.words_per_access
        if self.capacity_words is not None:
            words = np.minimum(words, self.capacity_words)
        return np.asarray(words, dtype=np.int64)


@dataclass(frozen=True)
class Architecture:
    """A sub-accelerator template: levels from memory (outermost) to the MACs.

    Level 0 is the memory outside the chip; all others are on chip. Energies are per row access,
    vectorised over the size of an instance.

    Attributes
    ----------
    name, variant
        Template and variant of its card.
    levels
        Outermost first.
    mac_bits
        Width of a multiply-accumulate unit.
    technology
        Energies and areas.
    register_file_area
        ``physical`` or ``accelergy``, see :meth:`TechnologyCard.register_file_area_um2`.

    Examples
    --------
    >>> from mohsearch.hardware.templates import load_template
    >>> eyeriss = load_template("eyeriss")
    >>> eyeriss.max_macs
    168
    >>> glb = eyeriss.level_index("shared_glb")
    >>> eyeriss.read_energy_pj(glb, [65536, 131072]).round(2).tolist()
    [38.15, 58.28]
    """

    name: str
    variant: str
    levels: tuple[Level, ...]
    mac_bits: int
    technology: TechnologyCard = field(repr=False)
    register_file_area: RegisterFileArea = "physical"

    @property
    def mac_energy_pj(self) -> float:
        """Energy of one multiply-accumulate."""
        return self.technology.mac_energy_pj(self.mac_bits)

    @property
    def mac_area_um2(self) -> float:
        """Area of one multiply-accumulate unit."""
        return self.technology.mac_area_um2(self.mac_bits)

    @property
    def max_macs(self) -> int:
        """Multiply-accumulate units of the largest instance."""
        return prod(level.max_fanout() for level in self.levels)

    def level_index(self, name: str) -> int:
        """Return the position of a level, 0 for the memory.

        Raises
        ------
        KeyError
            If there is no such level.
        """
        for index, level in enumerate(self.levels):
            if level.name == name:
                return index
        raise KeyError(f"{self.name} has no level {name!r}: {[lv.name for lv in self.levels]}")

    def read_energy_pj(self, level: int, size_words: ArrayLike) -> FloatArray:
        """Return the energy to read one row of an instance of ``size_words``, same shape."""
        return self._access_energy_pj(self.levels[level], size_words, write=False)

    def write_energy_pj(self, level: int, size_words: ArrayLike) -> FloatArray:
        """Return the energy to write one row of an instance of ``size_words``, same shape."""
        return self._access_energy_pj(self.levels[level], size_words, write=True)

    def area_um2(self, level: int, size_words: ArrayLike) -> FloatArray:
        """Return the area of one instance of ``size_words``, same shape; 0 for size 0.

        A level that keeps no tensor has a fixed size and costs its area whatever is asked.
        """
        part, tech = self.levels[level], self.technology
        fixed = not part.keeps
        size = np.full_like(size_words, part.capacity_words or 0) if fixed else size_words
        memory, rows = part.memory, part.rows(size)
        if memory.kind == "dram":
            return np.zeros(rows.shape)
        if memory.kind == "sram":
            area = tech.sram_area_um2(memory.width_bits, memory.ports, rows * memory.width_bits / 8)
        elif memory.kind == "register_file":
            area = tech.register_file_area_um2(memory.width_bits, rows, self.register_file_area)
        else:
            stored = rows if self.register_file_area == "physical" else np.minimum(rows, 1)
            area = tech.register_area_um2(memory.width_bits * stored)
        if memory.generates_addresses:
            area = area + tech.address_generator.area_um2
        return np.where(rows > 0, area, 0.0)

    def with_memory_bandwidth(self, words_per_cycle: float) -> Architecture:
        """Return the same architecture with another memory bandwidth, read and write each."""
        memory = replace(
            self.levels[0],
            read_words_per_cycle=words_per_cycle,
            write_words_per_cycle=words_per_cycle,
        )
        return replace(self, levels=(memory, *self.levels[1:]))

    def _access_energy_pj(self, part: Level, size_words: ArrayLike, *, write: bool) -> FloatArray:
        memory, tech, rows = part.memory, self.technology, part.rows(size_words)
        if memory.kind == "dram":
            energy = tech.dram_energy_pj_per_bit[memory.dram_type] * memory.width_bits
            return np.full(rows.shape, energy)
        if memory.kind == "sram":
            size_bytes = rows * memory.width_bits / 8
            read_or_write = tech.sram_write_pj if write else tech.sram_read_pj
            result = read_or_write(memory.width_bits, memory.ports, size_bytes)
        elif memory.kind == "register_file":
            result = tech.register_file_energy_pj(memory.width_bits, rows)
        else:
            result = np.full(rows.shape, tech.register_energy_pj(memory.width_bits))
        if memory.generates_addresses:
            result = result + tech.address_generator.energy_pj
        return np.asarray(result, dtype=np.float64)
