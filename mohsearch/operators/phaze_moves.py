"""Variation of training accelerators: moves along the area budget that always stay within it.

Rows of :class:`mohsearch.evaluators.training_grid.TrainingGrid` hold indices of powers of two, so a
step of +1 doubles. A move is a vector of steps on the five axes of the accelerator; of the moves
that lead to an admitted accelerator one is drawn uniformly, and where there is none the row stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.mutation import Mutation

from mohsearch.evaluators.training_grid import ARCHITECTURE, MICROBATCH, TrainingGrid

Integers = NDArray[np.int64]


def draw_move(
    grid: TrainingGrid, X: Integers, moves: Integers, rng: np.random.Generator
) -> Integers:
    """Return the rows after one admitted move each, drawn uniformly; others unchanged.

    Parameters
    ----------
    grid
        Which accelerators are admitted.
    X
        Shape (n, 8).
    moves
        Steps, shape (moves, 5).
    """
    children = np.array(X, dtype=np.int64)
    if not len(moves):
        return children
    targets = children[:, None, ARCHITECTURE] + moves[None]
    chance = rng.random(targets.shape[:2]) * grid.is_admitted(targets)
    chosen = chance.argmax(axis=1)
    rows = np.arange(len(children))
    moved = chance[rows, chosen] > 0
    children[moved, ARCHITECTURE] = targets[rows, chosen][moved]
    return children


def _signed(moves: Sequence[tuple[int, ...]]) -> Integers:
    both = [*moves, *(tuple(-step for step in move) for move in moves)]
    return np.array(sorted(set(both)), dtype=np.int64)


SINGLE_STEPS = _signed([tuple(int(a == b) for b in range(5)) for a in range(5)])
"""Twice or half of one number."""

EXCHANGES = _signed(
    [
        (w + d, 0, -w, -d, 0)
        for w, d in product(range(-3, 4), repeat=2)
        if (w or d) and abs(w + d) <= 3
    ]
)
"""More smaller or fewer larger tensor cores, or other sides: the number of elements stays."""

VECTOR_MOVES = _signed(
    [(0, k, 0, 0, 0) for k in range(1, 5)]
    + [(-j, k, 0, 0, 0) for j in (1, 2) for k in range(1, 5)]
    + [(0, k, -k, k, 0) for k in (1, 2)]
    + [(k, k, -k, 0, 0) for k in (1, 2)]
)
"""Vector cores for area left over, for tensor cores, or for lanes."""

BUFFER_MOVES = _signed(
    [
        (t, v, 0, d, -g)
        for g in (1, 2, 3)
        for t, v, d in ((1, 0, 0), (0, 1, 0), (0, 3, 0), (0, 0, 1), (1, 1, 0), (0, 0, 0))
    ]
)
"""Global buffer for cores, rows or nothing."""


def _reachable(grid: TrainingGrid, moves: Integers) -> bool:
    """Return whether any move can act: the axes it needs have several values."""
    room = np.array(grid.area_mm2.shape) - 1
    return bool((np.abs(moves) <= room).all(axis=1).any())


class _MoveMutation(Mutation):  # type: ignore[misc]  # pymoo ships no types
    moves: Integers

    @classmethod
    def refusal(cls, problem: Any) -> str | None:
        """Say why the operator cannot act on a problem; None where it can."""
        if _reachable(problem.grid, cls.moves):
            return None
        return "it changes the accelerator, which this problem fixes"

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        return draw_move(problem.grid, X, self.moves, random_state)


class StepMutation(_MoveMutation):
    """Double or halve one number of the accelerator."""

    moves = SINGLE_STEPS


class ArrayExchange(_MoveMutation):
    """Exchange the number of tensor cores for their size or shape; the elements stay as many."""

    moves = EXCHANGES


class VectorExchange(_MoveMutation):
    """Take or give vector cores, alone or in exchange for tensor cores or lanes."""

    moves = VECTOR_MOVES


class BufferExchange(_MoveMutation):
    """Exchange global buffer for cores or rows."""

    moves = BUFFER_MOVES


class AreaNeighbour(Mutation):  # type: ignore[misc]
    """Jump to an accelerator of nearly the same area, whatever its shape.

    Parameters
    ----------
    reach
        Mean distance in the list of all accelerators ordered by area.
    """

    def __init__(self, prob: float = 1.0, reach: float = 200.0, **kwargs: Any) -> None:
        if reach < 1:
            raise ValueError(f"reach must be at least 1; got {reach}")
        super().__init__(prob=prob, **kwargs)
        self.reach = reach

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Say why the operator cannot act on a problem; None where it can."""
        if len(problem.grid.accelerators) > 1:
            return None
        return "it changes the accelerator, which this problem fixes"

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        grid: TrainingGrid = problem.grid
        children = np.array(X, dtype=np.int64)
        place = grid.rank[tuple(children[:, ARCHITECTURE].T)]
        step = random_state.geometric(1.0 / self.reach, size=len(children))
        step = np.where(random_state.random(len(children)) < 0.5, -step, step)
        last = len(grid.accelerators) - 1
        target = np.where((place + step < 0) | (place + step > last), place - step, place + step)
        children[:, ARCHITECTURE] = grid.accelerators[np.clip(target, 0, last)]
        return children


class FillBudget(Mutation):  # type: ignore[misc]
    """Double numbers at random, one after the other, until the area budget admits no more."""

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Say why the operator cannot act on a problem; None where it can."""
        return AreaNeighbour.refusal(problem)

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        children = np.array(X, dtype=np.int64)
        grow = SINGLE_STEPS[(SINGLE_STEPS >= 0).all(axis=1)]
        active = np.ones(len(children), dtype=np.bool_)
        while active.any():
            grown = draw_move(problem.grid, children[active], grow, random_state)
            changed = (grown != children[active]).any(axis=1)
            children[active] = grown
            active[active] = changed
        return children


def one_way_to_train(grid: TrainingGrid) -> str | None:
    """Say so where microbatch, memory and recomputation are given; None where one is free."""
    if max(grid.shape[MICROBATCH:]) > 1:
        return None
    return "microbatch, memory and recomputation have one value each"


class TrainingMutation(Mutation):  # type: ignore[misc]
    """Give the microbatch, the memory or the recomputation another value."""

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Say why the operator cannot act on a problem; None where it can."""
        return one_way_to_train(problem.grid)

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        children = np.array(X, dtype=np.int64)
        sizes = np.array(problem.grid.shape)
        several = np.flatnonzero(sizes[MICROBATCH:] > 1) + MICROBATCH
        gene = random_state.choice(several, size=len(children))
        offset = 1 + (random_state.random(len(children)) * (sizes[gene] - 1)).astype(np.int64)
        rows = np.arange(len(children))
        children[rows, gene] = (children[rows, gene] + offset) % sizes[gene]
        return children
