"""The grid of the training search: accelerators within an area budget and how they train.

A design is one row of eight indices: five choose the accelerator (tensor cores, vector cores,
width, depth, global buffer), three the training (microbatch, memory, recomputation). Source: PHAZE,
table 1 and appendix C.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_architecture import (
    CORE_COUNTS,
    GLOBAL_BUFFERS_MIB,
    LEAST_SHARE,
    REFERENCE,
    WIDTHS,
    Architectures,
    default_technology,
)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

TENSOR_CORES, VECTOR_CORES, WIDTH, DEPTH, BUFFER, MICROBATCH, HBM, RECOMPUTE = range(8)
ARCHITECTURE = slice(0, 5)
UM2_PER_MM2 = 1e6
GIB = 1024**3


@dataclass(frozen=True)
class TrainingGrid:
    """Values of the eight axes, and which accelerators the area budget admits.

    Attributes
    ----------
    axes
        Values of the five axes of the accelerator, each ascending.
    microbatches
        Samples.
    hbm_bytes
        Memory of a device.
    recompute
        Modes, as :func:`mohsearch.workloads.training.build_training` names them.
    area_mm2
        Of every accelerator, shape of the five axes.
    excess_mm2
        How far each lies outside the window of the budget, same shape; 0 inside.
    """

    axes: tuple[Integers, ...]
    microbatches: tuple[int, ...]
    hbm_bytes: tuple[int, ...]
    recompute: tuple[str, ...]
    area_mm2: Floats
    excess_mm2: Floats

    @classmethod
    def build(
        cls,
        *,
        tensor_cores: Sequence[int] = CORE_COUNTS,
        vector_cores: Sequence[int] = CORE_COUNTS,
        widths: Sequence[int] = WIDTHS,
        depths: Sequence[int] = WIDTHS,
        global_buffers_mib: Sequence[int] = GLOBAL_BUFFERS_MIB,
        microbatches: Sequence[int] = (1, 2, 4, 8),
        hbm_gib: Sequence[int] = (32, 64, 80),
        recompute: Sequence[str] = ("none", "full"),
        budget_mm2: float | None = None,
        least_share: float = LEAST_SHARE,
    ) -> TrainingGrid:
        """Lay the grid out.

        Parameters
        ----------
        tensor_cores, vector_cores, widths, depths, global_buffers_mib, microbatches, hbm_gib
            Values of the axes.
        recompute
            Modes of recomputation.
        budget_mm2
            Largest area; that of :data:`~mohsearch.evaluators.training_architecture.REFERENCE` by
            default.
        least_share
            Smallest share of the budget, where both kinds have several cores.

        Raises
        ------
        InputError
            If the areas do not know a buffer that is needed, or no accelerator fits the budget.

        Examples
        --------
        >>> grid = TrainingGrid.build()
        >>> len(grid.accelerators), grid.size
        (29360, 704640)
        """
        values = (tensor_cores, vector_cores, widths, depths, global_buffers_mib)
        axes = tuple(np.array(sorted(v), dtype=np.int64) for v in values)
        mesh = np.meshgrid(*axes, indexing="ij")
        grid = Architectures(*(axis.ravel() for axis in mesh))
        area = _areas_mm2(grid)
        if budget_mm2 is None:
            reference = Architectures(*(np.array([value]) for value in REFERENCE))
            budget_mm2 = float(_areas_mm2(reference)[0])
        single = (grid.tensor_cores == 1) | (grid.vector_cores == 1)
        least = np.where(single, 0.0, least_share * budget_mm2)
        over = np.where(area <= budget_mm2 * (1 + 1e-15), 0.0, area - budget_mm2)
        excess = over + np.maximum(0.0, least - area)
        if not (excess == 0).any():
            raise InputError(
                f"no accelerator fits the area budget of {budget_mm2:g} mm2; the smallest is "
                f"{area.min():g} mm2"
            )
        shape = mesh[0].shape
        return cls(
            axes,
            tuple(microbatches),
            tuple(int(size) * GIB for size in hbm_gib),
            tuple(recompute),
            area.reshape(shape),
            excess.reshape(shape),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each of the eight axes."""
        training = (len(self.microbatches), len(self.hbm_bytes), len(self.recompute))
        return (*self.area_mm2.shape, *training)

    @cached_property
    def admitted(self) -> NDArray[np.bool_]:
        """Whether the budget admits an accelerator, shape of the five axes."""
        return np.asarray(self.excess_mm2 == 0)

    @cached_property
    def accelerators(self) -> Integers:
        """Indices of all admitted accelerators, larger areas first, shape (count, 5)."""
        rows = np.argwhere(self.admitted)
        area = self.area_mm2[tuple(rows.T)]
        return np.asarray(rows[np.lexsort((*rows.T[::-1], -area))], dtype=np.int64)

    @cached_property
    def rank(self) -> Integers:
        """Place of every admitted accelerator in :attr:`accelerators`, -1 for others."""
        rank = np.full(self.area_mm2.shape, -1, dtype=np.int64)
        rank[tuple(self.accelerators.T)] = np.arange(len(self.accelerators))
        return rank

    @property
    def size(self) -> int:
        """Number of valid designs."""
        return len(self.accelerators) * int(np.prod(self.shape[5:]))

    def designs(self) -> Integers:
        """Return all valid designs, shape (size, 8): larger areas first, then by training."""
        settings = np.indices(self.shape[5:]).reshape(3, -1).T
        hardware = np.repeat(self.accelerators, len(settings), axis=0)
        return np.hstack([hardware, np.tile(settings, (len(self.accelerators), 1))])

    def architectures(self, X: Integers) -> Architectures:
        """Return the accelerators of designs or of rows of five indices."""
        return Architectures(*(axis[X[:, k]] for k, axis in enumerate(self.axes)))

    def is_admitted(self, rows: Integers) -> NDArray[np.bool_]:
        """Return whether rows of five indices lie on the grid and within the budget.

        Parameters
        ----------
        rows
            Shape (..., 5); indices may lie outside the grid.
        """
        limits = np.array(self.area_mm2.shape)
        inside = ((rows >= 0) & (rows < limits)).all(axis=-1)
        clipped = np.clip(rows, 0, limits - 1)
        return np.asarray(inside & self.admitted[tuple(np.moveaxis(clipped, -1, 0))])


def _areas_mm2(architectures: Architectures) -> Floats:
    tech = default_technology()
    needed = (
        ("core buffer", tech.core_buffer_area_um2, architectures.tensor_buffer_kib, "KiB"),
        ("core buffer", tech.core_buffer_area_um2, architectures.vector_buffer_kib, "KiB"),
        ("global buffer", tech.global_buffer_area_um2, architectures.global_buffer_mib, "MiB"),
    )
    for what, table, sizes, unit in needed:
        unknown = sorted(set(np.unique(sizes).tolist()) - set(table))
        if unknown:
            known = ", ".join(map(str, sorted(table)))
            raise InputError(
                f"the area of a {what} of {unknown[0]} {unit} is not known; known sizes: {known}"
            )
    return architectures.area_um2() / UM2_PER_MM2
