"""Sampling and crossover of training accelerators; every row they return is valid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.sampling import Sampling

from mohsearch.evaluators.training_grid import (
    ARCHITECTURE,
    BUFFER,
    DEPTH,
    MICROBATCH,
    TENSOR_CORES,
    VECTOR_CORES,
    WIDTH,
    TrainingGrid,
)
from mohsearch.operators.phaze_moves import SINGLE_STEPS, one_way_to_train

Integers = NDArray[np.int64]

BLOCKS = ((TENSOR_CORES, WIDTH, DEPTH), (VECTOR_CORES,), (BUFFER,))
"""Parts of an accelerator that are inherited together."""


class RandomTraining(Sampling):  # type: ignore[misc]  # pymoo ships no types
    """Uniform draws of an admitted accelerator and of how it trains."""

    def _do(self, problem: Any, n_samples: int, random_state: Any = None, **_: Any) -> Integers:
        return random_designs(problem.grid, n_samples, random_state)


class LargeTraining(Sampling):  # type: ignore[misc]
    """Draws among the accelerators of the largest areas.

    Parameters
    ----------
    share
        Part of all admitted accelerators, by area, that is drawn from.
    """

    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise ValueError(f"share must lie above 0, at most 1; got {share}")
        self.share = share

    def _do(self, problem: Any, n_samples: int, random_state: Any = None, **_: Any) -> Integers:
        return random_designs(problem.grid, n_samples, random_state, self.share)


def random_designs(
    grid: TrainingGrid, count: int, rng: np.random.Generator, share: float = 1.0
) -> Integers:
    """Return random valid rows, shape (count, 8), of the accelerators with the largest areas.

    Examples
    --------
    >>> grid = TrainingGrid.build()
    >>> random_designs(grid, 3, np.random.default_rng(1)).shape
    (3, 8)
    """
    most = max(1, round(share * len(grid.accelerators)))
    rows = np.empty((count, len(grid.shape)), dtype=np.int64)
    rows[:, ARCHITECTURE] = grid.accelerators[rng.integers(most, size=count)]
    for gene in range(MICROBATCH, len(grid.shape)):
        rows[:, gene] = rng.integers(grid.shape[gene], size=count)
    return rows


class BlockCrossover(Crossover):  # type: ignore[misc]
    """Exchange the tensor cores, the vector cores, the buffer and each training gene at random.

    A child beyond the area budget loses halves, one below the window gains doubles, at random until
    it is admitted; a child that gets nowhere keeps its parent's accelerator.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(2, 2, **kwargs)

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        children = np.array(X, dtype=np.int64)
        count = children.shape[1]
        for block in (*BLOCKS, *((gene,) for gene in range(MICROBATCH, children.shape[2]))):
            swapped = np.flatnonzero(random_state.random(count) < 0.5)
            for gene in block:
                first = children[0, swapped, gene].copy()
                children[0, swapped, gene] = children[1, swapped, gene]
                children[1, swapped, gene] = first
        for child, parent in zip(children, X, strict=True):
            child[:, ARCHITECTURE] = fit_budget(
                problem.grid, child[:, ARCHITECTURE], parent[:, ARCHITECTURE], random_state
            )
        return children


class TrainingCrossover(Crossover):  # type: ignore[misc]
    """Exchange how two accelerators train: microbatch, memory and recomputation together."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(2, 2, **kwargs)

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Say why the operator cannot act on a problem; None where it can."""
        return one_way_to_train(problem.grid)

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        children = np.array(X, dtype=np.int64)
        children[0, :, MICROBATCH:] = X[1, :, MICROBATCH:]
        children[1, :, MICROBATCH:] = X[0, :, MICROBATCH:]
        return children


def fit_budget(
    grid: TrainingGrid, rows: Integers, fallback: Integers, rng: np.random.Generator
) -> Integers:
    """Return admitted rows of five indices near those given, which must lie on the grid.

    Parameters
    ----------
    grid
        Areas and the window of the budget.
    rows
        Shape (n, 5).
    fallback
        Admitted rows to take where repair gets nowhere, shape (n, 5).
    """
    fitted = np.array(rows, dtype=np.int64)
    limits = np.array(grid.area_mm2.shape)
    largest = grid.area_mm2[grid.admitted].max()
    for _ in range(int(limits.sum())):
        wrong = np.flatnonzero(~grid.is_admitted(fitted))
        if not len(wrong):
            return fitted
        large = grid.area_mm2[tuple(fitted[wrong].T)] > largest
        sign = np.where(large, -1, 1)
        targets = fitted[wrong, None] + SINGLE_STEPS[None]
        inside = ((targets >= 0) & (targets < limits)).all(axis=-1)
        inside &= SINGLE_STEPS.sum(axis=1)[None] == sign[:, None]
        chance = rng.random(inside.shape) * inside
        chosen = chance.argmax(axis=1)
        places = np.arange(len(wrong))
        moved = chance[places, chosen] > 0
        fitted[wrong[moved]] = targets[places, chosen][moved]
    lost = ~grid.is_admitted(fitted)
    fitted[lost] = fallback[lost]
    return fitted
