"""Several pymoo operators as one: each acts with its own probability, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling


class CombinedCrossover(Crossover):  # type: ignore[misc]  # pymoo ships no types
    """Crossovers of two parents and two children, one after the other.

    Every member acts on the children so far of each mating with its probability. A mating that no
    member acts on yields copies of its parents, for the mutations to change.

    Parameters
    ----------
    members
        Pairs of operator and probability per mating; may be empty.

    Raises
    ------
    ValueError
        If a member does not make two children of two parents.
    """

    def __init__(self, members: Sequence[tuple[Any, float]]) -> None:
        super().__init__(2, 2, prob=1.0)
        self.members = tuple(members)
        for operator, _ in self.members:
            if (operator.n_parents, operator.n_offsprings) != (2, 2):
                raise ValueError(f"{type(operator).__name__} must make two children of two parents")

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[Any]:
        children = np.array(X, copy=True)
        for operator, probability in self.members:
            chosen = random_state.random(X.shape[1]) < probability
            if chosen.all():
                children = operator._do(problem, children, random_state=random_state)
            elif chosen.any():
                pairs = np.ascontiguousarray(children[:, chosen])
                children[:, chosen] = operator._do(problem, pairs, random_state=random_state)
        return children


class CombinedMutation(Mutation):  # type: ignore[misc]
    """Mutations one after the other.

    Parameters
    ----------
    members
        Pairs of operator and probability per individual; may be empty.
    """

    def __init__(self, members: Sequence[tuple[Any, float]]) -> None:
        super().__init__(prob=1.0)
        self.members = tuple(members)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[Any]:
        children = np.array(X, copy=True)
        for operator, probability in self.members:
            chosen = random_state.random(len(X)) < probability
            if chosen.all():
                children = operator._do(problem, children, random_state=random_state)
            elif chosen.any():
                rows = np.ascontiguousarray(children[chosen])
                children[chosen] = operator._do(problem, rows, random_state=random_state)
        return children


class CombinedSampling(Sampling):  # type: ignore[misc]
    """A first population in parts.

    Parameters
    ----------
    members
        Pairs of operator and share. Shares are scaled to add to 1; whole numbers of individuals by
        largest remainder.

    Raises
    ------
    ValueError
        If there is no member.
    """

    def __init__(self, members: Sequence[tuple[Any, float]]) -> None:
        super().__init__()
        if not members:
            raise ValueError("a first population needs a sampling operator")
        self.members = tuple(members)

    def counts(self, n_samples: int) -> list[int]:
        """Return how many individuals each member makes."""
        total = sum(share for _, share in self.members)
        exact = [n_samples * share / total for _, share in self.members]
        counts = [int(part) for part in exact]
        by_rest = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
        for i in by_rest[: n_samples - sum(counts)]:
            counts[i] += 1
        return counts

    def _do(self, problem: Any, n_samples: int, random_state: Any = None, **_: Any) -> NDArray[Any]:
        return np.concatenate(
            [
                operator._do(problem, count, random_state=random_state)
                for (operator, _), count in zip(self.members, self.counts(n_samples), strict=True)
                if count or n_samples == 0
            ]
        )


class Immigrants:
    """Fresh individuals that join every generation.

    Parameters
    ----------
    sampling
        What makes them: a pymoo ``Sampling``.
    share
        Their number as a part of the population.
    """

    def __init__(self, sampling: Any, share: float) -> None:
        self.sampling = sampling
        self.share = share

    def count(self, population: int) -> int:
        """Return the number of immigrants for a population, rounded to the nearest."""
        return round(self.share * population)

    def draw(
        self, problem: Any, population: int, random_state: np.random.Generator
    ) -> NDArray[Any]:
        """Return the immigrants of one generation, shape (count, n_var)."""
        fresh: NDArray[Any] = self.sampling._do(
            problem, self.count(population), random_state=random_state
        )
        return fresh
