"""Training accelerators with tensor and vector cores: their space, derived parameters and area.

Source: PHAZE, table 1 and appendix C.1. An accelerator is (tensor cores, vector cores, width,
depth, global buffer); a tensor core has width x depth elements, a vector core ``width`` lanes, and
every core a buffer whose size follows from its elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import builtin_root

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Area = Annotated[float, Field(gt=0)]

CORE_COUNTS = tuple(2**k for k in range(13))
WIDTHS = tuple(2**k for k in range(1, 9))
GLOBAL_BUFFERS_MIB = tuple(2**k for k in range(1, 8))

REFERENCE = (8, 2, 128, 128, 128)
"""The accelerator whose area is the budget: TPUv4 in the paper's terms (global buffer in MiB)."""

LEAST_SHARE = 0.3
"""Smaller shares of the budget are left out, unless there is one core of a kind (as published)."""

MAX_BANDWIDTH_WORDS = 4096


class CoreTechnology(Card):
    """Areas of the parts; buffer areas by size."""

    name: str
    node_nm: Area
    tensor_element_area_um2: Area
    vector_lane_area_um2: Area
    core_buffer_area_um2: Mapping[int, Area]
    global_buffer_area_um2: Mapping[int, Area]


@lru_cache(maxsize=1)
def default_technology() -> CoreTechnology:
    """Return the published 22 nm areas."""
    path = builtin_root() / "evaluators" / "technology" / "cores" / "training22.yaml"
    return read_card(CoreTechnology, path)


@dataclass(frozen=True)
class Architectures:
    """Accelerators as columns, each of shape (architectures,).

    Attributes
    ----------
    tensor_cores, vector_cores
        Numbers of cores.
    width, depth
        Elements of a tensor core; a vector core has ``width`` lanes.
    global_buffer_mib
        On-chip buffer shared by all cores.
    """

    tensor_cores: Integers
    vector_cores: Integers
    width: Integers
    depth: Integers
    global_buffer_mib: Integers

    def __len__(self) -> int:
        return len(self.tensor_cores)

    def take(self, index: NDArray[np.bool_] | Integers) -> Architectures:
        """Return some of the accelerators, by mask or place."""
        return Architectures(
            self.tensor_cores[index],
            self.vector_cores[index],
            self.width[index],
            self.depth[index],
            self.global_buffer_mib[index],
        )

    @property
    def tensor_buffer_kib(self) -> Integers:
        """Buffer of one tensor core: an element's share is 1/64 KiB, at least 1 KiB."""
        return np.asarray(np.maximum(1, self.width * self.depth // 64), dtype=np.int64)

    @property
    def vector_buffer_kib(self) -> Integers:
        """Buffer of one vector core."""
        return np.maximum(1, self.width // 64)

    @property
    def global_buffer_words_per_cycle(self) -> Floats:
        """Bandwidth of the global buffer: full with several cores, else by the longer side."""
        cores = np.maximum(self.tensor_cores, self.vector_cores)
        side = np.maximum(self.width, self.depth)
        alone = np.clip(MAX_BANDWIDTH_WORDS * side / max(WIDTHS), 4, MAX_BANDWIDTH_WORDS)
        return np.where(cores > 1, float(MAX_BANDWIDTH_WORDS), alone)

    def area_um2(self, technology: CoreTechnology | None = None) -> Floats:
        """Return the areas in um2.

        Raises
        ------
        KeyError
            If the technology has no buffer of a size that is needed.

        Examples
        --------
        >>> tpu = Architectures(*(np.array([value]) for value in REFERENCE))
        >>> round(float(tpu.area_um2()[0]), 5)
        278826676.31216
        """
        tech = technology or default_technology()
        tensor = self.width * self.depth * tech.tensor_element_area_um2
        tensor = tensor + _looked_up(tech.core_buffer_area_um2, self.tensor_buffer_kib)
        vector = self.width * tech.vector_lane_area_um2
        vector = vector + _looked_up(tech.core_buffer_area_um2, self.vector_buffer_kib)
        shared = _looked_up(tech.global_buffer_area_um2, self.global_buffer_mib)
        return np.asarray(self.tensor_cores * tensor + self.vector_cores * vector + shared)


def _looked_up(table: Mapping[int, float], sizes: Integers) -> Floats:
    distinct, place = np.unique(sizes, return_inverse=True)
    return np.array([table[int(size)] for size in distinct], dtype=np.float64)[place]


def core_grid(cores: Integers) -> tuple[Integers, Integers]:
    """Return the two sides of the grid in which cores stand, the longer first.

    Examples
    --------
    >>> [side.tolist() for side in core_grid(np.array([1, 2, 8]))]
    [[1, 2, 4], [1, 1, 2]]
    """
    short = 2 ** (np.log2(cores).astype(np.int64) // 2)
    return np.maximum(short, cores // short), np.minimum(short, cores // short)


def all_architectures() -> Architectures:
    """Return the whole grid, 75,712 accelerators, larger values first."""
    values = (CORE_COUNTS, CORE_COUNTS, WIDTHS, WIDTHS, GLOBAL_BUFFERS_MIB)
    grid = np.meshgrid(*(np.array(v[::-1], dtype=np.int64) for v in values), indexing="ij")
    return Architectures(*(axis.ravel() for axis in grid))


def feasible_architectures(
    *,
    budget_um2: float | None = None,
    least_share: float = LEAST_SHARE,
    technology: CoreTechnology | None = None,
) -> Architectures:
    """Return the accelerators within an area budget, in the order of :func:`all_architectures`.

    Parameters
    ----------
    budget_um2
        Largest area; that of :data:`REFERENCE` by default.
    least_share
        Smallest share of the budget, where both kinds have several cores.
    technology
        Areas; the published ones by default.

    Examples
    --------
    >>> len(feasible_architectures())
    29360
    """
    if budget_um2 is None:
        reference = Architectures(*(np.array([value]) for value in REFERENCE))
        budget_um2 = float(reference.area_um2(technology)[0])
    grid = all_architectures()
    area = grid.area_um2(technology)
    single = (grid.tensor_cores == 1) | (grid.vector_cores == 1)
    kept = (area <= budget_um2 * (1 + 1e-15)) & (single | (area >= least_share * budget_um2))
    return grid.take(kept)


def exploration_order(
    architectures: Architectures,
    *,
    bin_um2: float = 10_000.0,
    technology: CoreTechnology | None = None,
) -> tuple[Integers, Integers]:
    """Return places in the order of falling area bins, and each one's bin counted from 0.

    The published search visits areas in bins of ``bin_um2``, the largest first; within a bin the
    order of the list stays.
    """
    bins = np.floor(architectures.area_um2(technology) / bin_um2).astype(np.int64)
    order = np.argsort(-bins, kind="stable")
    _, number = np.unique(-bins[order], return_inverse=True)
    return order, number.astype(np.int64)
