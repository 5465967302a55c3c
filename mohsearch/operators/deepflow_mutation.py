"""Mutations of the deepflow search: moves that keep every budget's fractions adding up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.mutation import Mutation

from mohsearch.evaluators.crossflow.design_space import (
    G_LOGIC,
    G_MEMORY,
    G_NETWORK,
    G_NODE_AREA,
    G_ORDER,
    G_STACKS,
    G_STRATEGY,
    G_TDP,
    DeepflowSpace,
    FractionClass,
)

Genomes = NDArray[np.float64]
TECHNOLOGY = (G_LOGIC, G_MEMORY, G_NETWORK, G_STACKS)


def _fixed_fractions(problem: Any) -> str | None:
    if not any(len(part.genes) > 1 for part in problem.space.classes):
        return "the fractions are fixed"
    return None


class TransferMutation(Mutation):  # type: ignore[misc]  # pymoo ships no types
    """Moves a part of one component's share of a budget to another component.

    The part is uniform in its logarithm between ``finest`` and 1.

    Parameters
    ----------
    finest
        Smallest part that is moved.
    """

    refusal = staticmethod(_fixed_fractions)

    def __init__(self, prob: float = 1.0, finest: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)
        if not 0.0 < finest <= 1.0:
            raise ValueError(f"finest must lie in 0..1, got {finest}")
        self.finest = finest

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children, rng = np.array(X, dtype=np.float64), random_state
        for rows, part in _dealt(problem.space, len(children), rng, least=2):
            pick = rng.permuted(np.tile(part.genes, (len(rows), 1)), axis=1)
            giver, taker = pick[:, 0], pick[:, 1]
            moved = children[rows, giver] * _steps(rng, len(rows), self.finest)
            children[rows, giver] -= moved
            children[rows, taker] += moved
        return children


class ScaleMutation(Mutation):  # type: ignore[misc]
    """Multiplies one share by a log-normal factor and scales its class back to the same sum.

    Parameters
    ----------
    spread
        Largest standard deviation of the factor's logarithm; the one used is drawn, uniform in its
        logarithm, from a hundredth of it upwards.
    """

    refusal = staticmethod(_fixed_fractions)

    def __init__(self, prob: float = 1.0, spread: float = 0.7, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)
        self.spread = spread

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children, rng = np.array(X, dtype=np.float64), random_state
        for rows, part in _dealt(problem.space, len(children), rng, least=2):
            noise = np.zeros((len(rows), len(part.genes)))
            which = rng.integers(len(part.genes), size=len(rows))
            size = self.spread * _steps(rng, len(rows), 0.01)
            noise[np.arange(len(rows)), which] = rng.normal(0.0, 1.0, len(rows)) * size
            _multiply(children, rows, part, noise)
        return children


class JitterMutation(Mutation):  # type: ignore[misc]
    """Multiplies all shares of one budget by log-normal factors, the sum staying as it is.

    Parameters
    ----------
    spread
        As :class:`ScaleMutation`.
    """

    refusal = staticmethod(_fixed_fractions)

    def __init__(self, prob: float = 1.0, spread: float = 0.5, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)
        self.spread = spread

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children, rng = np.array(X, dtype=np.float64), random_state
        for rows, part in _dealt(problem.space, len(children), rng, least=2):
            size = self.spread * _steps(rng, len(rows), 0.01)
            noise = rng.normal(0.0, 1.0, (len(rows), len(part.genes))) * size[:, None]
            _multiply(children, rows, part, noise)
        return children


class SpendMutation(Mutation):  # type: ignore[misc]
    """Gives out a whole budget, or keeps up to half of it back: shares are scaled alike.

    A budget that is given out already is not given out again.
    """

    refusal = staticmethod(
        lambda problem: None if problem.space.classes else "the fractions are fixed"
    )

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children, rng = np.array(X, dtype=np.float64), random_state
        for rows, part in _dealt(problem.space, len(children), rng, least=1):
            block = np.ix_(rows, part.genes)
            sums = children[block].sum(axis=1)
            whole = sums >= part.total * (1.0 - 1e-9)
            give = (rng.random(len(rows)) < 0.5) & ~whole
            goal = np.where(give, 1.0, rng.uniform(0.5, 1.0, len(rows)))
            scale = np.divide(part.total * goal, sums, out=np.ones(len(rows)), where=sums > 0.0)
            children[block] *= scale[:, None]
        return children


class StrategyMutation(Mutation):  # type: ignore[misc]
    """Moves a factor from one parallel dimension to another, or exchanges CR for RC."""

    refusal = staticmethod(
        lambda problem: None if problem.space.free[G_STRATEGY] else "the strategy is fixed"
    )

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children = np.array(X, dtype=np.float64)
        near = problem.space.neighbours
        chance = random_state.random(len(children))
        for i, now in enumerate(children[:, G_STRATEGY].astype(np.int64)):
            children[i, G_STRATEGY] = near[now][int(chance[i] * len(near[now]))]
        return children


class OrderMutation(Mutation):  # type: ignore[misc]
    """Nests the parallel dimensions onto the devices in another order."""

    refusal = staticmethod(
        lambda problem: None if problem.space.free[G_ORDER] else "the mapping order is fixed"
    )

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children = np.array(X, dtype=np.float64)
        low, high = problem.space.lower[G_ORDER], problem.space.upper[G_ORDER]
        count = int(high - low) + 1
        step = random_state.integers(1, count, len(children))
        children[:, G_ORDER] = low + (children[:, G_ORDER] - low + step) % count
        return children


class TechnologyMutation(Mutation):  # type: ignore[misc]
    """Takes one of logic node, memory, network and number of stacks a step up or down."""

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Return why the operator cannot act on a problem, None if it can."""
        if not problem.space.free[list(TECHNOLOGY)].any():
            return "the technology is fixed"
        return None

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children, rng, space = np.array(X, dtype=np.float64), random_state, problem.space
        genes = np.array([g for g in TECHNOLOGY if space.free[g]])
        gene = genes[rng.integers(len(genes), size=len(children))]
        rows = np.arange(len(children))
        step = np.where(rng.random(len(children)) < 0.5, -1.0, 1.0)
        now = children[rows, gene]
        outside = (now + step < space.lower[gene]) | (now + step > space.upper[gene])
        children[rows, gene] = now + np.where(outside, -step, step)
        return children


class BudgetMutation(Mutation):  # type: ignore[misc]
    """Multiplies the node's power or area by a log-normal factor, within their bounds.

    Parameters
    ----------
    spread
        As :class:`ScaleMutation`.
    """

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Return why the operator cannot act on a problem, None if it can."""
        return (
            None if problem.space.free[[G_TDP, G_NODE_AREA]].any() else "power and area are fixed"
        )

    def __init__(self, prob: float = 1.0, spread: float = 0.5, **kwargs: Any) -> None:
        super().__init__(prob=prob, **kwargs)
        self.spread = spread

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children, rng, space = np.array(X, dtype=np.float64), random_state, problem.space
        genes = np.array([g for g in (G_TDP, G_NODE_AREA) if space.free[g]])
        gene = genes[rng.integers(len(genes), size=len(children))]
        rows = np.arange(len(children))
        size = self.spread * _steps(rng, len(children), 0.01)
        factor = np.exp(rng.normal(0.0, 1.0, len(children)) * size)
        value = children[rows, gene] * factor
        children[rows, gene] = np.clip(value, space.lower[gene], space.upper[gene])
        return children


def _dealt(
    space: DeepflowSpace, count: int, rng: np.random.Generator, least: int
) -> list[tuple[NDArray[np.int64], FractionClass]]:
    """Deal individuals to classes of at least ``least`` genes; return (rows, class) pairs."""
    parts = [part for part in space.classes if len(part.genes) >= least]
    dealt = rng.integers(len(parts), size=count)
    pairs = ((np.flatnonzero(dealt == i), part) for i, part in enumerate(parts))
    return [(rows, part) for rows, part in pairs if len(rows)]


def _steps(rng: np.random.Generator, count: int, finest: float) -> NDArray[np.float64]:
    """Draw step sizes between ``finest`` and 1, uniform in their logarithm."""
    return np.asarray(finest ** rng.random(count))


def _multiply(
    children: Genomes, rows: NDArray[np.int64], part: FractionClass, noise: NDArray[np.float64]
) -> None:
    """Multiply shares by exp(noise) and scale each class back to the sum it had."""
    block = np.ix_(rows, part.genes)
    old = children[block]
    new = old * np.exp(noise)
    sums = new.sum(axis=1, keepdims=True)
    scale = np.divide(old.sum(axis=1, keepdims=True), sums, out=np.ones_like(sums), where=sums > 0)
    children[block] = np.minimum(new * scale, part.total)
