"""All ways to cut one training run over a cluster: degrees, microbatch, interleaving, techniques.

A configuration is one row of six indices: tensor and pipeline degree, microbatch, virtual stages,
recomputation and sequence parallelism. The replicas are what the degrees leave of the devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_time.cases import TrainingRuns

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

GENES = ("tensor", "pipeline", "microbatch", "virtual_stages", "recompute", "sequence_parallel")
"""Columns of a row; ``recompute`` counts through none, selective, full."""


@dataclass(frozen=True)
class ParallelGrid:
    """Values of the six axes, and which combinations run.

    Attributes
    ----------
    run
        The training run, one row; its own configuration does not matter.
    devices
        All are used.
    axes
        Values by gene, each ascending.
    """

    run: TrainingRuns
    devices: int
    axes: tuple[tuple[int, ...], ...]

    @classmethod
    def build(
        cls, run: TrainingRuns, devices: int, values: Mapping[str, Sequence[int]]
    ) -> ParallelGrid:
        """Lay the grid out.

        Parameters
        ----------
        run
            One row.
        devices
            Of the run.
        values
            By gene, see :data:`GENES`.

        Raises
        ------
        InputError
            If no combination runs.
        """
        axes = tuple(tuple(sorted({int(v) for v in values[gene]})) for gene in GENES)
        grid = cls(run, devices, axes)
        if not grid.valid.any():
            raise InputError(
                f"no combination of the values given cuts {int(run.layers[0])} layers, "
                f"{int(run.heads[0])} heads and a batch of {int(run.batch[0])} over {devices} "
                "devices"
            )
        return grid

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each axis."""
        return tuple(len(axis) for axis in self.axes)

    @cached_property
    def valid(self) -> Flags:
        """Which combinations run, shape of the axes.

        Sizes must divide as Megatron-LM demands; sequence parallelism needs several slices, and
        interleaving several stages and whole rounds of microbatches (Narayanan et al., SC21,
        section 2.2).
        """
        every = np.indices(self.shape).reshape(len(GENES), -1).T
        t, p, b, v, _, along = (self.values(every, gene) for gene in range(len(GENES)))
        run = {name: int(getattr(self.run, name)[0]) for name in _SIZES}
        data = self.devices // (t * p)
        good = (self.devices % (t * p) == 0) & (p <= run["layers"])
        good &= (run["heads"] % t == 0) & (run["intermediate"] % t == 0)
        good &= (run["kv_heads"] % t == 0) | (t % run["kv_heads"] == 0)
        data = np.maximum(data, 1)
        good &= run["batch"] % (b * data) == 0
        good &= (along == 0) | ((t > 1) & (run["sequence"] % t == 0))
        rounds = run["batch"] // (b * data) % p == 0
        good &= (v == 1) | ((p > 1) & (run["layers"] % (p * v) == 0) & rounds)
        return np.asarray(good.reshape(self.shape))

    @cached_property
    def rows(self) -> Integers:
        """All rows that run, shape (n, 6)."""
        return np.argwhere(self.valid)

    @cached_property
    def _number(self) -> Integers:
        number = np.full(self.shape, -1, dtype=np.int64)
        number[tuple(self.rows.T)] = np.arange(len(self.rows))
        return number

    def place(self, X: Integers) -> Integers:
        """Return where rows (n, 6) within the axes stand among those that run; -1 if not there."""
        return np.asarray(self._number[tuple(X.T)])

    def values(self, X: Integers, gene: int) -> Integers:
        """Return the values that one gene of rows (n, 6) stands for."""
        return np.array(self.axes[gene], dtype=np.int64)[X[:, gene]]

    def is_valid(self, X: Integers) -> Flags:
        """Return which rows (n, 6) within the axes run."""
        return np.asarray(self.valid[tuple(np.asarray(X, dtype=np.int64).T)])

    def find(self, values: Mapping[str, int]) -> Integers:
        """Return the row with these values, shape (6,).

        Raises
        ------
        InputError
            If an axis lacks its value, or the combination does not run.
        """
        row = []
        for gene, axis in zip(GENES, self.axes, strict=True):
            if values[gene] not in axis:
                known = ", ".join(map(str, axis))
                raise InputError(f"{gene} {values[gene]} is none of: {known}")
            row.append(axis.index(values[gene]))
        found = np.array(row, dtype=np.int64)
        if not self.is_valid(found[None])[0]:
            raise InputError("this configuration does not run: its sizes do not divide")
        return found

    def replicas(self, X: Integers) -> Integers:
        """Return the data-parallel degree of rows that run, shape (n,)."""
        return np.asarray(self.devices // (self.values(X, 0) * self.values(X, 1)))

    def runs(self, X: Integers) -> TrainingRuns:
        """Return rows that run, shape (n, 6), as training runs.

        Sequence parallelism is of software that overlaps the collectives of the backward pass with
        weight gradients (Korthikanti et al. 2022); elsewhere the run says whether it does.
        """
        base = self.run.take(np.zeros(len(X), dtype=np.int64))
        columns = {name: self.values(X, gene).astype(float) for gene, name in enumerate(GENES)}
        along = columns.pop("sequence_parallel") > 0
        return replace(
            base,
            **columns,
            data=self.replicas(X).astype(float),
            sequence_parallel=along,
            overlap_tensor=base.overlap_tensor | along,
        )


_SIZES = ("layers", "heads", "kv_heads", "intermediate", "sequence", "batch")
