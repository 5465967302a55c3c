"""Every distinct genome of a search with its metrics, in the order of evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.engines.duplicates import GenomeIndex, as_genomes, genome_dtype
from mohsearch.engines.engine import FloatArray, IntArray, Searchable


class Archive:
    """Distinct genomes, numbered from 0 in the order of their first evaluation.

    Parameters
    ----------
    problem
        Gives the gene bounds and the names of metrics and constraints.
    capacity
        Genomes to make room for; more are taken too.
    """

    def __init__(self, problem: Searchable, capacity: int = 256) -> None:
        self.dtype = genome_dtype(problem.xl, problem.xu, problem.vtype)
        self.index = GenomeIndex(self.dtype)
        card = problem.card
        self.metric_names = tuple(m.name for m in (*card.metrics, *card.constraints))
        self._objectives = tuple(m.name for m in problem.objective_cards)
        self._constraints = tuple(m.name for m in card.constraints)
        self._signs = np.asarray(problem.signs, dtype=np.float64)
        self._genomes = np.empty((capacity, problem.n_var), dtype=self.dtype)
        self._metrics = {name: np.empty(capacity) for name in self.metric_names}

    def __len__(self) -> int:
        return len(self.index)

    @property
    def genomes(self) -> NDArray[Any]:
        """All genomes, shape (n, n_var)."""
        return self._genomes[: len(self)]

    @property
    def metrics(self) -> dict[str, FloatArray]:
        """Every metric and constraint of all genomes, each of shape (n,)."""
        return {name: column[: len(self)] for name, column in self._metrics.items()}

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
        start, stop = len(self), len(self) + len(X)
        if stop > len(self._genomes):
            size = max(stop, 2 * len(self._genomes))
            self._genomes = _grown(self._genomes, size)
            self._metrics = {name: _grown(c, size) for name, c in self._metrics.items()}
        self._genomes[start:stop] = as_genomes(X, self.dtype)
        for name in self.metric_names:
            self._metrics[name][start:stop] = metrics[name]
        for key in keys:
            self.index.add(key)
        if len(self) != stop:
            raise ValueError("genomes to append must be distinct and new")

    def ids(self, keys: Sequence[bytes]) -> IntArray:
        """Return the number of each genome, -1 where it is not held."""
        return np.fromiter((self.index.get(k) for k in keys), dtype=np.int64, count=len(keys))

    def objectives(self, ids: IntArray | slice = slice(None)) -> FloatArray:
        """Return the minimised objective matrix of some genomes, shape (n, n_obj)."""
        columns = [self._metrics[name][: len(self)][ids] for name in self._objectives]
        return np.column_stack(columns) * self._signs

    def constraints(self, ids: IntArray | slice = slice(None)) -> FloatArray:
        """Return the constraint matrix of some genomes, shape (n, n_constraints)."""
        columns = [self._metrics[name][: len(self)][ids] for name in self._constraints]
        count = len(self.genomes[ids])
        return np.column_stack(columns) if columns else np.empty((count, 0))

    def front(self) -> IntArray:
        """Return the non-dominated feasible genomes, ascending in the first objective.

        Of genomes with equal objective vectors the first evaluated stands for all.
        """
        return self.front_of(np.arange(len(self), dtype=np.int64))

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


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown
