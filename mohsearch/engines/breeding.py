"""Offspring without pymoo's populations: tournaments, batches of operators, no known genome."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.engines.duplicates import GenomeIndex, as_genomes
from mohsearch.engines.engine import FloatArray, IntArray, Searchable
from mohsearch.engines.sampling import fresh_samples

MATING_ROUNDS = 20
"""Matings tried per generation before fresh samples fill what duplicates left open."""


class Breeder:
    """Makes generations with a portfolio's operators.

    Parameters
    ----------
    portfolio
        pymoo operators ``sampling``, ``crossover`` and ``mutation``, and optionally ``immigrants``.
    seen
        Genomes that are not to be made again.
    rng
        Source of all randomness.
    """

    def __init__(
        self, problem: Searchable, portfolio: Any, seen: GenomeIndex, rng: np.random.Generator
    ) -> None:
        self.problem = problem
        self.portfolio = portfolio
        self.seen = seen
        self.rng = rng
        self._immigrants: Any = getattr(portfolio, "immigrants", None)

    def first(self, count: int) -> NDArray[Any]:
        """Return a first population of at most ``count`` distinct genomes."""
        return self._samples(self.portfolio.sampling, count, set())

    def next(
        self, X: NDArray[Any], rank: IntArray, crowding: FloatArray, count: int
    ) -> NDArray[Any]:
        """Return the next ``count`` genomes: offspring of ``X``, then immigrants.

        Where mating keeps yielding known genomes, fresh samples take their place; fewer than
        ``count`` come back only when these are known too.
        """
        taken: set[bytes] = set()
        newcomers = 0
        if self._immigrants is not None:
            newcomers = min(self._immigrants.count(len(X)), count - 1)
        batches = self._offspring(X, rank, crowding, count - newcomers, taken)
        if newcomers:
            batches.append(self._samples(self._immigrants.sampling, newcomers, taken))
        missing = count - sum(len(batch) for batch in batches)
        if missing:
            batches.append(self._samples(self.portfolio.sampling, missing, taken))
        return np.concatenate(batches)

    def _samples(self, sampling: Any, count: int, taken: set[bytes]) -> NDArray[Any]:
        rows = fresh_samples(self.problem, sampling, count, self.rng, self.seen, taken)
        return np.asarray(rows, dtype=self.seen.dtype)

    def _offspring(
        self,
        X: NDArray[Any],
        rank: IntArray,
        crowding: FloatArray,
        count: int,
        taken: set[bytes],
    ) -> list[NDArray[Any]]:
        batches: list[NDArray[Any]] = []
        missing = count
        for _ in range(MATING_ROUNDS):
            if missing <= 0:
                break
            children = as_genomes(self._mate(X, rank, crowding, missing), self.seen.dtype)
            keep: list[int] = []
            for position, key in enumerate(self.seen.keys(children)):
                if len(keep) < missing and key not in taken and key not in self.seen:
                    taken.add(key)
                    keep.append(position)
            batches.append(children if len(keep) == len(children) else children[keep])
            missing -= len(keep)
        return batches

    def _mate(
        self, X: NDArray[Any], rank: IntArray, crowding: FloatArray, count: int
    ) -> NDArray[Any]:
        """Apply crossover and mutation to winners of tournaments, as pymoo's mating does."""
        crossover, mutation, rng = self.portfolio.crossover, self.portfolio.mutation, self.rng
        matings = -(-count // crossover.n_offsprings)
        kind = np.float64 if self.seen.dtype.kind == "f" else np.int64
        winners = tournament(rank, crowding, matings * crossover.n_parents, rng)
        pairs = X[winners].astype(kind).reshape(crossover.n_parents, matings, -1)
        crossed = rng.random(matings) < _probability(crossover)
        if crossed.all():
            children = crossover._do(self.problem, pairs, random_state=rng)
        else:
            children = pairs[np.arange(crossover.n_offsprings) % crossover.n_parents]
            if crossed.any():
                made = crossover._do(self.problem, pairs, random_state=rng)
                children[:, crossed] = made[:, crossed]
        children = np.asarray(children.reshape(-1, self.problem.n_var))
        changed = rng.random(len(children)) < _probability(mutation)
        if changed.all():
            return np.asarray(mutation._do(self.problem, children, random_state=rng))
        if changed.any():
            mutants = mutation._do(self.problem, children.copy(), random_state=rng)
            children[changed] = mutants[changed]
        return children


def tournament(
    rank: IntArray, crowding: FloatArray, count: int, rng: np.random.Generator
) -> IntArray:
    """Return winners of binary tournaments: smaller rank, then more room, then by chance.

    Everyone takes part equally often, up to one round.
    """
    rounds = -(-2 * count // len(rank))
    drawn = np.concatenate([rng.permutation(len(rank)) for _ in range(rounds)])
    a, b = drawn[: 2 * count].reshape(2, count)
    coin = rng.random(count) < 0.5
    tie = np.where(crowding[a] == crowding[b], coin, crowding[a] > crowding[b])
    return np.where(np.where(rank[a] == rank[b], tie, rank[a] < rank[b]), a, b)


def _probability(operator: Any) -> float:
    value = operator.prob
    return float(getattr(value, "value", value))
