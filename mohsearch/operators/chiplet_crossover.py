"""Crossovers of partition genomes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover


class _GeneCrossover(Crossover):  # type: ignore[misc]  # pymoo ships no types
    """Two children of two parents by a mask of genes; children are repaired."""

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(2, 2, prob=prob, **kwargs)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        space = problem.space
        first, second = (np.asarray(parent, dtype=np.int64) for parent in X)
        taken = self._mask(space, len(first), random_state)
        children = np.stack([np.where(taken, second, first), np.where(taken, first, second)])
        repaired = space.repair(children.reshape(-1, space.n_var), random_state)
        return np.asarray(repaired).reshape(children.shape)

    @abstractmethod
    def _mask(self, space: Any, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return which genes come from the second parent, shape (count, n_var)."""


class CutCrossover(_GeneCrossover):
    """One cut along the program order: a child has one parent's chips before it, the other's after.

    Where a leading gene says how many chips to use, it goes with the part before the cut.
    """

    def _mask(self, space: Any, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        cut = rng.integers(1, max(space.n_var, 2), size=(count, 1))
        return np.arange(space.n_var) >= cut


class UniformCrossover(_GeneCrossover):
    """Every gene from either parent with equal chance."""

    def _mask(self, space: Any, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        return rng.random((count, space.n_var)) < 0.5
