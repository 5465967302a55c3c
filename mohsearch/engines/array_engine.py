"""NSGA-II on whole arrays: the same search as pymoo's with a fraction of its overhead.

pymoo keeps every individual as a Python object; where an evaluation takes microseconds, that is
most of the time. Here a population is a few arrays, sorting is moocore's, and the portfolio's pymoo
operators are called on whole batches.
"""

from __future__ import annotations

from typing import Any, ClassVar

import moocore
import numpy as np
from numpy.typing import NDArray

from mohsearch.core.seeds import generator
from mohsearch.engines.breeding import Breeder
from mohsearch.engines.convergence import crowding_distances
from mohsearch.engines.engine import Capabilities, Engine, FloatArray, IntArray


class ArrayEngine(Engine):
    """NSGA-II (Deb et al. 2002) with constraint domination, no genome evaluated twice."""

    algorithms: ClassVar = {
        "nsga2": Capabilities("rank and crowding, on arrays; Deb et al. 2002", immigrants=True)
    }
    default_algorithm = "nsga2"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rng = generator(self.seed, "array", self.algorithm)
        self._breeder = Breeder(self.problem, self.portfolio, self.seen, rng)
        self._X = np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
        self._F = np.empty((0, self.problem.n_obj))
        self._violation = np.empty(0)
        self._rank = np.empty(0, dtype=np.int64)
        self._crowding = np.empty(0)

    def ask(self, k: int) -> NDArray[Any]:
        """Return the next generation (see :class:`~mohsearch.engines.breeding.Breeder`)."""
        if not len(self._X):
            return self._breeder.first(k)
        return self._breeder.next(self._X, self._rank, self._crowding, k)

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Select the next population from parents and offspring."""
        violation = np.maximum(G, 0.0).sum(axis=1)
        self._X = np.concatenate([self._X, np.asarray(X, dtype=self.seen.dtype)])
        self._F = np.concatenate([self._F, F])
        self._violation = np.concatenate([self._violation, violation])
        chosen, self._rank, self._crowding = survivors(
            self._F, self._violation, self.population_size
        )
        self._X, self._F = self._X[chosen], self._F[chosen]
        self._violation = self._violation[chosen]

    def population(self) -> NDArray[Any]:
        """Return the current population."""
        return self._X


def survivors(
    F: FloatArray, violation: FloatArray, count: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Select by constraint violation, rank and crowding distance.

    Feasible points come first, by non-dominated rank; infeasible ones follow by violation. The
    front that does not fit whole is cut by crowding distance; equal distances keep their order.

    Parameters
    ----------
    F
        Minimised objectives, shape (n, m).
    violation
        Sum of constraint violations, shape (n,); 0 is feasible.
    count
        Points to keep.

    Returns
    -------
    chosen, rank, crowding
        Indices of the points kept, and their ranks and crowding distances.

    Examples
    --------
    >>> F = np.array([[1.0, 1.0], [0.0, 2.0], [2.0, 2.0]])
    >>> survivors(F, np.zeros(3), 2)[0].tolist()
    [0, 1]
    """
    feasible = np.flatnonzero(violation <= 0)
    infeasible = np.flatnonzero(violation > 0)
    infeasible = infeasible[np.argsort(violation[infeasible], kind="stable")]
    ranks = moocore.pareto_rank(F[feasible]) if len(feasible) else np.empty(0, dtype=np.int64)
    chosen: list[IntArray] = []
    rank: list[IntArray] = []
    crowding: list[FloatArray] = []
    room, level = count, 0
    while room > 0 and level <= (ranks.max() if len(ranks) else -1):
        members = feasible[ranks == level]
        distances = _distinct_crowding(F[members])
        if len(members) > room:
            kept = np.argsort(-distances, kind="stable")[:room]
            members, distances = members[kept], distances[kept]
        chosen.append(members)
        rank.append(np.full(len(members), level))
        crowding.append(distances)
        room -= len(members)
        level += 1
    rest = infeasible[: max(room, 0)]
    chosen.append(rest)
    rank.append(level + np.arange(len(rest)))
    crowding.append(np.zeros(len(rest)))
    return np.concatenate(chosen), np.concatenate(rank), np.concatenate(crowding)


def _distinct_crowding(F: FloatArray) -> FloatArray:
    """Return crowding distances among distinct points; further copies of a point have none."""
    _, first = np.unique(F, axis=0, return_index=True)
    if len(first) == len(F):
        return crowding_distances(F)
    first.sort()
    distances = np.zeros(len(F))
    distances[first] = crowding_distances(F[first])
    return distances
