"""The door to DEAP: its NSGA-II selection with our operators.

Only the selection is DEAP's. Its tournament and its other selectors draw from Python's and NumPy's
global generators, which no search here may touch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from deap import base, tools
from numpy.typing import NDArray

from mohsearch.core.seeds import generator
from mohsearch.engines.breeding import Breeder
from mohsearch.engines.engine import Capabilities, Engine, FloatArray


class _Individual:
    """A row with a DEAP fitness."""

    __slots__ = ("fitness", "x")

    def __init__(self, x: NDArray[Any], fitness: Any) -> None:
        self.x = x
        self.fitness = fitness


class DeapEngine(Engine):
    """NSGA-II whose survivors are selected by ``deap.tools.selNSGA2``.

    Its logarithmic sorting is used: the default one takes fourteen times as long.
    """

    algorithms: ClassVar = {
        "nsga2": Capabilities(
            "selection by deap.tools.selNSGA2; Deb et al. 2002",
            min_objectives=2,
            constraints=False,
            immigrants=True,
        )
    }
    default_algorithm = "nsga2"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rng = generator(self.seed, "deap", self.algorithm)
        self._breeder = Breeder(self.problem, self.portfolio, self.seen, rng)
        weights = (-1.0,) * self.problem.n_obj
        self._fitness = type("Fitness", (base.Fitness,), {"weights": weights})
        self._members: list[_Individual] = []

    def ask(self, k: int) -> NDArray[Any]:
        """Return the next generation (see :class:`~mohsearch.engines.breeding.Breeder`)."""
        if not self._members:
            return self._breeder.first(k)
        rank = np.empty(len(self._members), dtype=np.int64)
        places = {id(member): i for i, member in enumerate(self._members)}
        fronts = tools.sortLogNondominated(self._members, len(self._members))
        for level, front in enumerate(fronts):
            for member in front:
                rank[places[id(member)]] = level
        crowding = np.array([member.fitness.crowding_dist for member in self._members])
        return self._breeder.next(self.population(), rank, crowding, k)

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Let DEAP select the next population from parents and offspring."""
        rows = np.asarray(X, dtype=self.seen.dtype)
        born = [_Individual(x, self._fitness(f)) for x, f in zip(rows, F.tolist(), strict=True)]
        self._members = tools.selNSGA2(self._members + born, self.population_size, nd="log")

    def population(self) -> NDArray[Any]:
        """Return the current population."""
        if not self._members:
            return np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
        return np.stack([member.x for member in self._members])
