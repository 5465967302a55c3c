"""The door to DEAP: its multi-objective selections with our operators.

Only the selection is DEAP's: parents are paired and varied by the portfolio. Two of DEAP's
selections draw from Python's and NumPy's global generators; they run inside
:class:`lent_randomness`, which seeds both from the search's own stream and restores them.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
from deap import base, tools
from numpy.typing import NDArray

from mohsearch.core.seeds import generator
from mohsearch.engines.breeding import Breeder
from mohsearch.engines.directions import reference_directions
from mohsearch.engines.engine import Capabilities, Engine, FloatArray, IntArray

BEYOND = 1e30
"""What stands for the objectives of a genome that breaks constraints, times 1 + its violation."""


class _Individual:
    """A row with a DEAP fitness."""

    __slots__ = ("fitness", "x")

    def __init__(self, x: NDArray[Any], fitness: Any) -> None:
        self.x = x
        self.fitness = fitness


class lent_randomness:
    """Context in which the global generators follow ``rng``; both are restored at its end.

    Examples
    --------
    >>> before = random.getstate()
    >>> with lent_randomness(np.random.default_rng(1)):
    ...     _ = random.random()
    >>> random.getstate() == before
    True
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __enter__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(int(self._rng.integers(2**63)))
        np.random.seed(int(self._rng.integers(2**32)))  # noqa: NPY002

    def __exit__(self, *_: Any) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002


class DeapEngine(Engine):
    """Evolution whose survivors are selected by one of DEAP's selections.

    ``nsga2`` and ``nsga3`` use the logarithmic sorting: the default one takes fourteen times as
    long. Parents meet in binary tournaments by rank, then crowding distance (``nsga2``) or chance
    (``spea2``); under ``nsga3`` by chance alone, as that algorithm has it.

    DEAP knows no constraints. Genomes that break some get values beyond all others, larger with the
    sum of violations, which is Deb's constrained domination (2002) in a sorting by domination.
    ``nsga3`` refuses constraints: it scales by the worst values it ever saw.
    """

    algorithms: ClassVar = {
        "nsga2": Capabilities(
            "selection by deap.tools.selNSGA2; Deb et al. 2002",
            min_objectives=2,
            immigrants=True,
        ),
        "nsga3": Capabilities(
            "selection by deap.tools.selNSGA3WithMemory; Deb and Jain 2014",
            min_objectives=2,
            constraints=False,
            immigrants=True,
        ),
        "spea2": Capabilities(
            "selection by deap.tools.selSPEA2; Zitzler, Laumanns and Thiele 2001",
            min_objectives=2,
            immigrants=True,
        ),
    }
    default_algorithm = "nsga2"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rng = generator(self.seed, "deap", self.algorithm)
        self._rng = generator(self.seed, "deap", self.algorithm, "selection")
        self._breeder = Breeder(self.problem, self.portfolio, self.seen, rng)
        weights = (-1.0,) * self.problem.n_obj
        self._fitness = type("Fitness", (base.Fitness,), {"weights": weights})
        self._members: list[_Individual] = []
        if self.algorithm == "nsga3":
            directions = reference_directions(self.problem.n_obj, self.population_size)
            self._nsga3 = tools.selNSGA3WithMemory(directions, nd="log")

    def ask(self, k: int) -> NDArray[Any]:
        """Return the next generation (see :class:`~mohsearch.engines.breeding.Breeder`)."""
        if not self._members:
            return self._breeder.first(k)
        count = len(self._members)
        rank = np.zeros(count, dtype=np.int64) if self.algorithm == "nsga3" else self._ranks()
        room = np.zeros(count)
        if self.algorithm == "nsga2":
            room = np.array([member.fitness.crowding_dist for member in self._members])
        return self._breeder.next(self.population(), rank, room, k)

    def _ranks(self) -> IntArray:
        rank = np.empty(len(self._members), dtype=np.int64)
        places = {id(member): i for i, member in enumerate(self._members)}
        fronts = tools.sortLogNondominated(self._members, len(self._members))
        for level, front in enumerate(fronts):
            for member in front:
                rank[places[id(member)]] = level
        return rank

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Let DEAP select the next population from parents and offspring."""
        rows = np.asarray(X, dtype=self.seen.dtype)
        values = constrained(F, G).tolist()
        born = [_Individual(x, self._fitness(f)) for x, f in zip(rows, values, strict=True)]
        everyone = self._members + born
        count = min(self.population_size, len(everyone))
        if self.algorithm == "nsga2":
            self._members = tools.selNSGA2(everyone, count, nd="log")
            return
        with lent_randomness(self._rng):
            if self.algorithm == "spea2":
                self._members = tools.selSPEA2(everyone, count)
            else:
                self._members = self._nsga3(everyone, count)

    def population(self) -> NDArray[Any]:
        """Return the current population."""
        if not self._members:
            return np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
        return np.stack([member.x for member in self._members])


def constrained(F: FloatArray, G: FloatArray) -> FloatArray:
    """Return objectives under which plain domination is Deb's constrained domination.

    Parameters
    ----------
    F
        Minimised objectives below 1e30, shape (n, m).
    G
        Constraints, feasible where <= 0, shape (n, k).

    Examples
    --------
    >>> F, G = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[-1.0], [1.0]])
    >>> constrained(F, G).tolist()
    [[1.0, 2.0], [2e+30, 2e+30]]
    """
    violation = np.maximum(G, 0.0).sum(axis=1, keepdims=True)
    return np.asarray(np.where(violation > 0, BEYOND * (1.0 + violation), F))
