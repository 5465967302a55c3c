"""Several pymoo operators as one: each acts with its own probability, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling


def any_of(members: Sequence[tuple[Any, float]]) -> float:
    """Return the probability that at least one member acts."""
    return 1.0 - math.prod(1.0 - probability for _, probability in members)


def choose_members(
    probabilities: Sequence[float], forced: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw which members act on which individuals, shape (members, individuals).

    Members act independently; where ``forced`` is set, given that at least one acts.

    Parameters
    ----------
    probabilities
        Of each member.
    forced
        Shape (individuals,).
    """
    rates = np.asarray(probabilities, dtype=np.float64)
    chosen: NDArray[np.bool_] = rng.random((len(rates), len(forced))) < rates[:, None]
    if len(rates) and forced.any():
        # the first member that acts, given that one does; those after it stay as drawn
        first_chance = rates * np.cumprod(np.concatenate([[1.0], 1.0 - rates[:-1]]))
        limits = np.cumsum(first_chance) / first_chance.sum()
        first = np.searchsorted(limits, rng.random(int(forced.sum())), side="right")
        first = np.minimum(first, len(rates) - 1)
        position = np.arange(len(rates))[:, None]
        chosen[:, forced] &= position > first
        chosen[:, forced] |= position == first
    return chosen


class CombinedCrossover(Crossover):  # type: ignore[misc]  # pymoo ships no types
    """Crossovers of two parents and two children, one after the other.

    Every member acts on the children so far of each mating with its probability. A mating that no
    member acts on yields copies of its parents, for the mutations to change.

    Parameters
    ----------
    members
        Pairs of operator and probability per mating; may be empty.
    acting
        Part of the matings on which at least one member acts (default: what the probabilities
        amount to).

    Raises
    ------
    ValueError
        If a member does not make two children of two parents.
    """

    def __init__(self, members: Sequence[tuple[Any, float]], acting: float | None = None) -> None:
        super().__init__(2, 2, prob=1.0)
        self.members = tuple(members)
        self.acting = acting
        self.crossed: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        for operator, _ in self.members:
            if (operator.n_parents, operator.n_offsprings) != (2, 2):
                raise ValueError(f"{type(operator).__name__} must make two children of two parents")

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[Any]:
        children = np.array(X, copy=True)
        count = X.shape[1]
        probabilities = [probability for _, probability in self.members]
        if self.acting is None:
            chosen = choose_members(probabilities, np.zeros(count, dtype=np.bool_), random_state)
        else:
            forced = random_state.random(count) < self.acting
            chosen = choose_members(probabilities, forced, random_state) & forced
        self.crossed = np.asarray(chosen.any(axis=0))
        for (operator, _rate), mine in zip(self.members, chosen, strict=True):
            if mine.all():
                children = operator._do(problem, children, random_state=random_state)
            elif mine.any():
                pairs = np.ascontiguousarray(children[:, mine])
                children[:, mine] = operator._do(problem, pairs, random_state=random_state)
        return children


class CombinedMutation(Mutation):  # type: ignore[misc]
    """Mutations one after the other.

    Parameters
    ----------
    members
        Pairs of operator and probability per individual; may be empty.
    after
        The crossover that made the children. If given, at least one member acts on each child that
        no crossover acted on: none is a mere copy. Children it did not make count as uncrossed.
    """

    def __init__(
        self, members: Sequence[tuple[Any, float]], after: CombinedCrossover | None = None
    ) -> None:
        super().__init__(prob=1.0)
        self.members = tuple(members)
        self.after = after

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[Any]:
        children = np.array(X, copy=True)
        forced = np.zeros(len(X), dtype=np.bool_)
        if self.after is not None:
            crossed = np.tile(self.after.crossed, 2)  # pymoo: all first children, then all second
            forced = ~crossed if len(crossed) == len(X) else ~forced
        chosen = choose_members([p for _, p in self.members], forced, random_state)
        for (operator, _rate), mine in zip(self.members, chosen, strict=True):
            if mine.all():
                children = operator._do(problem, children, random_state=random_state)
            elif mine.any():
                rows = np.ascontiguousarray(children[mine])
                children[mine] = operator._do(problem, rows, random_state=random_state)
        return children


def combine(
    crossovers: Sequence[tuple[Any, float]],
    mutations: Sequence[tuple[Any, float]],
    copies: Literal["keep", "redraw"] = "redraw",
) -> tuple[CombinedCrossover, CombinedMutation]:
    """Return both kinds of operators, combined.

    Parameters
    ----------
    crossovers, mutations
        Pairs of operator and probability.
    copies
        What becomes of children on which no operator acts. ``keep``: they are copies of their
        parents. ``redraw``: what acts on a child is drawn given that something does. That is the
        distribution which remains when copies are discarded as duplicates and matings repeated,
        without the repeating.
    """
    if copies == "keep":
        return CombinedCrossover(crossovers), CombinedMutation(mutations)
    crossed, mutated = any_of(crossovers), any_of(mutations)
    changed = crossed + (1.0 - crossed) * mutated
    crossover = CombinedCrossover(crossovers, crossed / changed if changed else 0.0)
    return crossover, CombinedMutation(mutations, after=crossover)


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
