"""Every distinct genome of a search with its metrics, in the order of evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.engines.duplicates import GenomeIndex, as_genomes, genome_dtype
from mohsearch.engines.engine import FloatArray, IntArray, Searchable
from mohsearch.engines.spool import SpooledRows

FRONT_BLOCK = 4096
"""The front is brought up to date after at least so many new genomes."""


class Archive:
    """Distinct genomes, numbered from 0 in the order of their first evaluation.

    Parameters
    ----------
    problem
        Gives the gene bounds and the names of metrics and constraints.
    capacity
        Genomes to make room for; more are taken too.
    scratch
        Folder for a nameless file that takes older genomes and metrics, so that some 30 bytes of
        memory a genome remain (see :class:`~mohsearch.engines.duplicates.GenomeIndex`); without
        one, everything stays in memory.
    """

    def __init__(
        self, problem: Searchable, capacity: int = 256, scratch: Path | None = None
    ) -> None:
        self.dtype = genome_dtype(problem.xl, problem.xu, problem.vtype)
        self.index = GenomeIndex(self.dtype)
        card = problem.card
        self.metric_names = tuple(m.name for m in (*card.metrics, *card.constraints))
        places = {name: place for place, name in enumerate(self.metric_names)}
        self._objectives = [places[m.name] for m in problem.objective_cards]
        self._constraints = [places[m.name] for m in card.constraints]
        self._signs = np.asarray(problem.signs, dtype=np.float64)
        self._genomes = SpooledRows(problem.n_var, self.dtype, capacity, scratch)
        width = len(self.metric_names)
        self._metrics = SpooledRows(width, np.dtype(np.float64), capacity, scratch)
        self._front = np.empty(0, dtype=np.int64)
        self._in_front = 0

    def __len__(self) -> int:
        return len(self.index)

    @property
    def genomes(self) -> NDArray[Any]:
        """All genomes, shape (n, n_var); read from the scratch file if there is one."""
        return self.genomes_of(slice(None))

    @property
    def metrics(self) -> dict[str, FloatArray]:
        """Every metric and constraint of all genomes, each of shape (n,); read as the genomes."""
        return self.metrics_of(slice(None))

    def genomes_of(self, ids: IntArray | slice) -> NDArray[Any]:
        """Return some genomes, shape (n, n_var)."""
        return self._genomes.take(ids)

    def metrics_of(self, ids: IntArray | slice) -> dict[str, FloatArray]:
        """Return every metric and constraint of some genomes, each of the shape of ``ids``."""
        rows = self._metrics.take(ids)
        return {name: rows[..., place] for place, name in enumerate(self.metric_names)}

    def unseen(self, keys: Sequence[bytes]) -> list[int]:
        """Return the positions in ``keys`` of genomes not yet held, the first of equal ones."""
        fresh: dict[bytes, int] = {}
        for position, key in enumerate(keys):
            if key not in self.index:
                fresh.setdefault(key, position)
        return list(fresh.values())

    def append(
        self, X: NDArray[Any], metrics: Mapping[str, FloatArray], keys: Sequence[bytes]
    ) -> None:
        """Add genomes that are distinct and new, with all their metrics and digests."""
        stop = len(self) + len(X)
        rows = as_genomes(X, self.dtype)
        values = np.empty((len(X), len(self.metric_names)))
        for place, name in enumerate(self.metric_names):
            values[:, place] = metrics[name]
        self._genomes.append(rows)
        self._metrics.append(values)
        for key in keys:
            self.index.add(key)
        if len(self) != stop:
            raise ValueError("genomes to append must be distinct and new")
        if stop - self._in_front >= max(FRONT_BLOCK, len(self._front)):
            self._update_front()

    def ids(self, keys: Sequence[bytes]) -> IntArray:
        """Return the number of each genome, -1 where it is not held."""
        return np.fromiter((self.index.get(k) for k in keys), dtype=np.int64, count=len(keys))

    def objectives(self, ids: IntArray | slice = slice(None)) -> FloatArray:
        """Return the minimised objective matrix of some genomes, shape (n, n_obj)."""
        return np.ascontiguousarray(self._metrics.take(ids)[:, self._objectives]) * self._signs

    def constraints(self, ids: IntArray | slice = slice(None)) -> FloatArray:
        """Return the constraint matrix of some genomes, shape (n, n_constraints)."""
        return np.ascontiguousarray(self._metrics.take(ids)[:, self._constraints])

    def front(self) -> IntArray:
        """Return the non-dominated feasible genomes, ascending in the first objective.

        Of genomes with equal objective vectors the first evaluated stands for all.
        """
        self._update_front()
        return self._front.copy()

    def _update_front(self) -> None:
        """Bring the front up to the newest genome: what was dominated before stays so."""
        fresh = np.arange(self._in_front, len(self), dtype=np.int64)
        self._front = self.front_of(np.concatenate([self._front, fresh]))
        self._in_front = len(self)

    def front_of(self, ids: IntArray) -> IntArray:
        """Return the non-dominated feasible ones among the genomes ``ids`` (see :meth:`front`)."""
        import moocore

        ids = np.unique(ids[ids >= 0])
        ids = ids[(self.constraints(ids) <= 0).all(axis=1)]
        if not len(ids):
            return ids
        F = self.objectives(ids)
        if F.shape[1] == 1:
            return ids[[int(np.argmin(F[:, 0]))]]
        chosen = moocore.is_nondominated(F, keep_weakly=False)
        ids, F = ids[chosen], F[chosen]
        return ids[np.lexsort(F.T[::-1])]
