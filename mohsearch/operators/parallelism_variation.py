"""Variation of training configurations; every row that the operators return runs.

Rows are those of :class:`mohsearch.evaluators.training_time.parallel_grid.ParallelGrid`: tensor and
pipeline degree, microbatch, virtual stages, recomputation, sequence parallelism.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling

from mohsearch.evaluators.training_time.parallel_grid import ParallelGrid

Integers = NDArray[np.int64]

_FIXED = "every configuration of this problem has the same value there"


class RandomConfigurations(Sampling):  # type: ignore[misc]  # pymoo ships no types
    """Uniform draws among all configurations that run."""

    def _do(self, problem: Any, n_samples: int, random_state: Any = None, **_: Any) -> Integers:
        rows: Integers = problem.grid.rows
        return np.asarray(rows[random_state.integers(len(rows), size=n_samples)])


class GeneCrossover(Crossover):  # type: ignore[misc]
    """Exchange genes at random; a child that does not run keeps the genes of its parent."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(2, 2, **kwargs)

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        parents = np.array(X, dtype=np.int64)
        swapped = random_state.random(parents.shape[1:]) < 0.5
        children = np.where(swapped[None], parents[::-1], parents)
        for child, parent in zip(children, parents, strict=True):
            broken = ~problem.grid.is_valid(child)
            child[broken] = parent[broken]
        return children


class _RedrawMutation(Mutation):  # type: ignore[misc]
    """Draw some genes anew among the configurations that run with the others as they are."""

    genes: tuple[int, ...]

    @classmethod
    def refusal(cls, problem: Any) -> str | None:
        """Say why the operator cannot act on a problem; None where it can."""
        rows = problem.grid.rows[:, cls.genes]
        return None if (rows != rows[0]).any() else _FIXED

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        children = np.array(X, dtype=np.int64)
        draws = random_state.random(len(children))
        for k, row in enumerate(children):
            choices = neighbours(problem.grid, row, self.genes)
            if len(choices):
                children[k] = choices[int(draws[k] * len(choices))]
        return children


class DegreeExchange(_RedrawMutation):
    """Exchange tensor, pipeline and data parallelism; all devices stay in use."""

    genes = (0, 1)


class BatchMutation(_RedrawMutation):
    """Another microbatch or interleaving."""

    genes = (2, 3)


class TechniqueMutation(_RedrawMutation):
    """Another recomputation, with or without sequence parallelism."""

    genes = (4, 5)


def neighbours(grid: ParallelGrid, row: Integers, genes: tuple[int, ...]) -> Integers:
    """Return the other rows that run and differ from a row in these genes only, shape (n, 6)."""
    rows = grid.rows
    others = [gene for gene in range(rows.shape[1]) if gene not in genes]
    same = (rows[:, others] == row[others]).all(axis=1)
    differs = (rows[:, genes] != row[list(genes)]).any(axis=1)
    return np.asarray(rows[same & differs])
