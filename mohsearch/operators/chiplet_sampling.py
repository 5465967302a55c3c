"""First populations of the chiplet search: random, exact and greedy partitions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pymoo.core.sampling import Sampling

from mohsearch.operators.chiplet_moves import shift_boundaries

_PRIORS = ("uniform", "balanced", "cuts")
_ORDERS = ("random", "topological")


class SampledPartitions(Sampling):  # type: ignore[misc]  # pymoo ships no types
    """Random valid partitions.

    Parameters
    ----------
    prior
        ``uniform``: every op on any chip, by the paper's SAMPLE mode (its search Random);
        ``balanced``: normal around the op's balanced position, same mode; ``cuts``: the program
        order cut at random places.
    sigma
        Standard deviation of ``balanced``, in chips.
    order
        Order in which ops are assigned: a fresh random one per partition, or topological.
    """

    def __init__(
        self,
        prior: Literal["uniform", "balanced", "cuts"] = "cuts",
        sigma: float = 1.0,
        order: Literal["random", "topological"] = "random",
    ) -> None:
        super().__init__()
        if prior not in _PRIORS:
            raise ValueError(f"prior: {prior!r} is none of {', '.join(_PRIORS)}")
        if order not in _ORDERS:
            raise ValueError(f"order: {order!r} is none of {', '.join(_ORDERS)}")
        if sigma <= 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        self.prior, self.sigma, self.order = prior, sigma, order

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        drawn = problem.space.sample(
            n_samples, random_state, prior=self.prior, sigma=self.sigma, order=self.order
        )
        return np.asarray(problem.space.encode(drawn, random_state))


class ExactSeeds(Sampling):  # type: ignore[misc]
    """Partitions that dynamic programs prove best: by number of chips, by limit on the interval.

    The one with the least interval comes first, then those that no other beats in all objectives,
    then the rest, both in random order.

    Parameters
    ----------
    copies
        Whether to go on with copies that have a few ops moved over a boundary when there are no
        more.
    """

    def __init__(self, copies: bool = True) -> None:
        super().__init__()
        self.copies = copies

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        count = n_samples if self.copies else min(n_samples, len(problem.seeds))
        return _seeded(problem, problem.seeds, problem.best_seeds, count, random_state)


class GreedySeeds(Sampling):  # type: ignore[misc]
    """The greedy heuristics' partitions; when there are no more, copies with a few ops moved."""

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        return _seeded(problem, problem.greedy, 1, n_samples, random_state)


def _seeded(
    problem: Any, seeds: NDArray[np.int64], best: int, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the first seed, the ``best`` first ones and the others, each in random order."""
    space = problem.space
    head, tail = rng.permutation(np.arange(1, best)), rng.permutation(np.arange(best, len(seeds)))
    order = np.concatenate([[0], head, tail]).astype(np.int64)
    rows = seeds[order[np.arange(count) % len(seeds)]].copy()
    extra = rows[len(seeds) :]
    if len(extra):
        shift_boundaries(space, extra, rng)
    return np.asarray(space.repair(space.encode(rows), rng))
