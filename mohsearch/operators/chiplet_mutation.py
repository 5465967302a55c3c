"""Mutations of partition genomes: of single genes, and of the partition they stand for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.mutation import Mutation

from mohsearch.operators.chiplet_moves import merge_or_split, shift_boundaries

Labels = NDArray[np.int64]


class _GeneMutation(Mutation):  # type: ignore[misc]  # pymoo ships no types
    """Changes genes of the genome as it is; what comes out is repaired."""

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        space = problem.space
        children = np.array(X, dtype=np.int64)
        head = 0 if space.genome == "labels" else 1
        if head:
            self._change_chips(space, children, random_state)
        self._change(space, children[:, head:], head, random_state)
        return np.asarray(space.repair(children, random_state))

    def _change_chips(self, space: Any, X: Labels, rng: np.random.Generator) -> None:
        """Change the number of chips of one row in ten by one."""
        X[:, 0] += (rng.random(len(X)) < 0.1) * rng.choice([-1, 1], size=len(X))

    @abstractmethod
    def _change(self, space: Any, genes: Labels, head: int, rng: np.random.Generator) -> None:
        """Change rows of genes in place; ``head`` genes stand before them."""


class StepMutation(_GeneMutation):
    """A run of neighbouring genes takes one step.

    Chips and offsets change by one, weights and keys by a tenth of their range or less. The run is
    up to an eighth of the genome, short ones more often.
    """

    def _change(self, space: Any, genes: Labels, head: int, rng: np.random.Generator) -> None:
        count, n = genes.shape
        length = 1 + np.floor(rng.random(count) ** 3 * (n // 8 + 1)).astype(np.int64)
        start = np.floor(rng.random(count) * n).astype(np.int64)
        step = rng.choice([-1, 1], size=count)
        if space.genome in {"segments", "keys"}:
            reach = (space.upper[head:] - space.lower[head:]).max() / 10
            step = step * np.ceil(rng.random(count) ** 2 * reach).astype(np.int64)
        place = np.arange(n)
        inside = (place >= start[:, None]) & (place < (start + length)[:, None])
        genes += inside * step[:, None]


class ResetMutation(_GeneMutation):
    """Some genes are drawn anew, uniformly within their bounds.

    Parameters
    ----------
    genes
        How many on average.
    """

    def __init__(self, genes: float = 4.0, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)
        if genes <= 0:
            raise ValueError(f"genes must be positive, got {genes}")
        self.genes = genes

    def _change(self, space: Any, genes: Labels, head: int, rng: np.random.Generator) -> None:
        chosen = rng.random(genes.shape) < min(1.0, self.genes / genes.shape[1])
        fresh = rng.integers(space.lower[head:], space.upper[head:] + 1, size=genes.shape)
        genes[chosen] = fresh[chosen]


class _PartitionMutation(Mutation):  # type: ignore[misc]
    """Changes the partition that a genome stands for, and encodes it again."""

    _move: Callable[[Any, Labels, np.random.Generator], None]

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        space = problem.space
        partitions = space.partitions(np.asarray(X)).copy()
        type(self)._move(space, partitions, random_state)
        return np.asarray(space.repair(space.encode(partitions), random_state))


class BoundaryMutation(_PartitionMutation):
    """Up to 16 ops go from a chip to its neighbour.

    From the chip with the most work in half the cases; see
    :func:`~mohsearch.operators.chiplet_moves.shift_boundaries`.
    """

    _move = staticmethod(shift_boundaries)


class ChipsMutation(_PartitionMutation):
    """Two neighbouring chips become one, or the chip with the most work becomes two."""

    _move = staticmethod(merge_or_split)
