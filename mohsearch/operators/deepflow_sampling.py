"""First populations of the deepflow search."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.sampling import Sampling

from mohsearch.evaluators.crossflow.design_space import (
    FRACTIONS,
    G_NODE_AREA,
    G_TDP,
    WHOLE,
    DeepflowSpace,
)


class DirichletDesigns(Sampling):  # type: ignore[misc]  # pymoo ships no types
    """Fractions from a Dirichlet distribution, everything else uniform.

    Budgets in W and mm2 are uniform in their logarithm.

    Parameters
    ----------
    alpha
        Concentration: 1 is uniform on the simplex, more keeps shares nearer to equal.
    unspent
        Part of the classes that give out a uniform 50 to 100 % of their budget instead of all.
    """

    def __init__(self, alpha: float = 1.0, unspent: float = 0.0) -> None:
        super().__init__()
        if alpha <= 0.0:
            raise ValueError(f"alpha must be positive, got {alpha}")
        if not 0.0 <= unspent <= 1.0:
            raise ValueError(f"unspent must lie in 0..1, got {unspent}")
        self.alpha = alpha
        self.unspent = unspent

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.float64]:
        space: DeepflowSpace = problem.space
        X = _free_genes(space, n_samples, random_state)
        for part in space.classes:
            share = random_state.dirichlet(np.full(len(part.genes), self.alpha), n_samples)
            total = np.where(
                random_state.random(n_samples) < self.unspent,
                random_state.uniform(0.5, 1.0, n_samples),
                1.0,
            )
            X[:, part.genes] = share * (part.total * total)[:, None]
        return space.repair(X)


class BalancedDesigns(Sampling):  # type: ignore[misc]
    """Fractions around those of the system that the problem starts from, everything else uniform.

    Parameters
    ----------
    spread
        Standard deviation of the logarithm of each fraction before the class is scaled to its
        total.
    """

    def __init__(self, spread: float = 0.5) -> None:
        super().__init__()
        if spread < 0.0:
            raise ValueError(f"spread must not be negative, got {spread}")
        self.spread = spread

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.float64]:
        space: DeepflowSpace = problem.space
        X = _free_genes(space, n_samples, random_state)
        for part in space.classes:
            noise = random_state.normal(0.0, self.spread, (n_samples, len(part.genes)))
            share = space.known[part.genes] * np.exp(noise)
            whole = share.sum(axis=1, keepdims=True)
            even = np.full_like(share, part.total / len(part.genes))
            X[:, part.genes] = np.divide(part.total * share, whole, out=even, where=whole > 0.0)
        return space.repair(X)


class PercentageDesigns(Sampling):  # type: ignore[misc]
    """Starts as the authors' program draws them: distinct percentages per class, scaled to add up.

    Percentages are whole numbers from 1 to 99.

    Source: ``GD_search.py`` (nanocad-lab/DeepFlow at 566c192).
    """

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.float64]:
        space: DeepflowSpace = problem.space
        X = _free_genes(space, n_samples, random_state)
        for part in space.classes:
            draws = random_state.permuted(np.tile(np.arange(1, 100), (n_samples, 1)), axis=1)
            share = draws[:, : len(part.genes)].astype(np.float64)
            X[:, part.genes] = part.total * share / share.sum(axis=1, keepdims=True)
        return space.repair(X)


class EveryCombination(Sampling):  # type: ignore[misc]
    """Every combination of the whole-number genes in turn, from a random one on.

    Fractions are the system's and budgets at their upper bound, so that a random search with as
    many evaluations as combinations tries all technologies, strategies and mapping orders.

    Parameters
    ----------
    spread
        As :class:`BalancedDesigns`: above 0 the fractions vary around the system's.
    """

    def __init__(self, spread: float = 0.0) -> None:
        super().__init__()
        self.spread = spread

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.float64]:
        space: DeepflowSpace = problem.space
        if self.spread > 0.0:
            X = BalancedDesigns(self.spread)._do(problem, n_samples, random_state)
        else:
            X = np.tile(space.upper, (n_samples, 1))
            X[:, :FRACTIONS] = space.known
        X[:, [G_TDP, G_NODE_AREA]] = space.upper[[G_TDP, G_NODE_AREA]]
        total = combinations(space)
        number = (random_state.integers(total) + np.arange(n_samples)) % total
        for gene in WHOLE[::-1]:
            low, high = int(space.lower[gene]), int(space.upper[gene])
            number, digit = np.divmod(number, high - low + 1)
            X[:, gene] = low + digit
        return space.repair(X)


def combinations(space: DeepflowSpace) -> int:
    """Return how many combinations of whole-number genes there are."""
    return int(np.prod(space.upper[WHOLE] - space.lower[WHOLE] + 1))


def _free_genes(space: DeepflowSpace, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return genomes with random technology, budgets, strategy and order."""
    X = np.tile(space.lower, (count, 1))
    for gene in WHOLE:
        low, high = int(space.lower[gene]), int(space.upper[gene])
        if high > low:
            X[:, gene] = rng.integers(low, high + 1, count)
    for gene in (G_TDP, G_NODE_AREA):
        low, high = space.lower[gene], space.upper[gene]
        if high > low:
            X[:, gene] = np.exp(rng.uniform(np.log(low), np.log(high), count))
    return X
