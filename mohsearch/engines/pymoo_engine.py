"""The door to pymoo's algorithms, through ask and tell."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pymoo.core.population import Population
from pymoo.core.termination import NoTermination

from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.engines.array_mating import on_arrays
from mohsearch.engines.directions import reference_directions
from mohsearch.engines.duplicates import SeenElimination
from mohsearch.engines.engine import Capabilities, Engine, FloatArray
from mohsearch.engines.rows import genomes, population_of, set_values
from mohsearch.engines.sampling import fresh_samples

MATING_ROUNDS = 20
"""Matings tried per generation before fresh samples fill what duplicates left open."""

_CLASSES = {
    "nsga2": "pymoo.algorithms.moo.nsga2:NSGA2",
    "nsga3": "pymoo.algorithms.moo.nsga3:NSGA3",
    "unsga3": "pymoo.algorithms.moo.unsga3:UNSGA3",
    "sms-emoa": "pymoo.algorithms.moo.sms:SMSEMOA",
    "age-moea2": "pymoo.algorithms.moo.age2:AGEMOEA2",
    "moead": "mohsearch.engines.pymoo_decomposition:NovelMOEAD",
    "ga": "pymoo.algorithms.soo.nonconvex.ga:GA",
}
_REFERENCE_DIRECTIONS = {"nsga3", "unsga3", "moead"}


class PymooEngine(Engine):
    """A pymoo algorithm with our operators and a linear-time duplicate filter.

    The algorithm never evaluates and never decides when to stop: both are the driver's. No genome
    is evaluated twice: mating that keeps yielding known genomes is helped out by fresh samples.
    The portfolio's immigrants, if any, take the place of offspring after the first generation.
    MOEA/D has as many subproblems as there are evenly spaced directions; where the population is
    larger, some of them have a second child in a generation.
    """

    algorithms: ClassVar = {
        "nsga2": Capabilities("rank and crowding; Deb et al. 2002", immigrants=True),
        "nsga3": Capabilities(
            "reference directions; Deb and Jain 2014",
            min_objectives=2,
            constraints=False,
            immigrants=True,
        ),
        "unsga3": Capabilities(
            "reference directions with selection pressure; Seada and Deb 2016",
            min_objectives=2,
            constraints=False,
            immigrants=True,
        ),
        "sms-emoa": Capabilities(
            "least hypervolume contribution goes; Beume et al. 2007",
            min_objectives=2,
            max_objectives=3,
            immigrants=True,
        ),
        "age-moea2": Capabilities(
            "survival by an estimate of the front's shape; Panichella 2022",
            min_objectives=2,
            immigrants=True,
        ),
        "moead": Capabilities(
            "decomposition, one scalar problem per direction; Zhang and Li 2007",
            min_objectives=2,
            constraints=False,
        ),
        "ga": Capabilities("single-objective genetic algorithm", max_objectives=1, immigrants=True),
    }
    default_algorithm = "nsga2"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        immigrants = getattr(self.portfolio, "immigrants", None)
        if immigrants is not None and not self.algorithms[self.algorithm].immigrants:
            raise InputError(
                f"pymoo algorithm {self.algorithm!r} takes no immigrants; the portfolio has some"
            )
        self._immigrants: Any = immigrants
        self._rng = generator(self.seed, "pymoo", "immigrants")
        self._filter = SeenElimination(self.seen)
        self.sequential = self.algorithm == "moead"  # type: ignore[misc]
        self._algorithm = self._make_algorithm()
        self._asked: Any = None

    def _make_algorithm(self) -> Any:
        module, _, name = _CLASSES[self.algorithm].partition(":")
        algorithm_class = getattr(importlib.import_module(module), name)
        arguments: dict[str, Any] = {
            "sampling": self.portfolio.sampling,
            "crossover": self.portfolio.crossover,
            "mutation": self.portfolio.mutation,
        }
        if self.algorithm in _REFERENCE_DIRECTIONS:
            arguments["ref_dirs"] = reference_directions(self.problem.n_obj, self.population_size)
        if self.algorithm == "moead":
            arguments |= {
                "n_neighbors": min(20, len(arguments["ref_dirs"])),
                "rounds": MATING_ROUNDS,
                "duplicates": self._filter,
                "fresh": self._fresh,
            }
        else:
            arguments["pop_size"] = self.population_size
            arguments["eliminate_duplicates"] = self._filter
        algorithm = algorithm_class(**arguments)
        seed = int(generator(self.seed, "pymoo", self.algorithm).integers(2**31))
        algorithm.setup(self.problem, seed=seed, termination=NoTermination())
        algorithm.mating.n_max_iterations = MATING_ROUNDS
        algorithm.mating = on_arrays(algorithm.mating)
        # the best of each generation, which pymoo would look for only to print it
        algorithm._set_optimum = lambda: None
        return algorithm

    def ask(self, k: int) -> NDArray[Any]:
        """Return the next generation: offspring of the algorithm, then immigrants."""
        self._filter.start_batch()
        algorithm = self._algorithm
        started = algorithm.is_initialized
        if self.algorithm == "moead":
            algorithm.n_offsprings = k
            self._asked = algorithm.ask()
            return genomes(self._asked)
        count = 0
        if self._immigrants is not None and started:
            count = min(self._immigrants.count(self.population_size), k - 1)
        algorithm.n_offsprings = k - count
        bred = algorithm.ask()
        bred = Population.empty() if bred is None else bred if len(bred) <= k else bred[:k]
        if count:
            bred = self._filled_up(bred, min(k, len(bred) + count), self._immigrants.sampling)
        self._asked = self._filled_up(bred, k, self.portfolio.sampling)
        return genomes(self._asked) if len(self._asked) else self._no_rows()

    def _fresh(self, count: int) -> NDArray[Any]:
        """Return at most ``count`` fresh samples, and accept them into the batch."""
        rows = fresh_samples(
            self.problem, self.portfolio.sampling, count, self._rng, self.seen, set()
        )
        return rows[self._filter.new_rows(rows)] if len(rows) else rows

    def _filled_up(self, bred: Any, k: int, sampling: Any) -> Any:
        """Return ``bred`` with fresh samples up to ``k``."""
        if len(bred) >= k:
            return bred
        taken = set(self.seen.keys(genomes(bred))) if len(bred) else set()
        rows = fresh_samples(self.problem, sampling, k - len(bred), self._rng, self.seen, taken)
        if not len(rows):
            return bred
        fresh = population_of(rows)
        return Population.merge(bred, fresh) if len(bred) else fresh

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Hand the values to the algorithm, which selects its next population."""
        set_values(self._asked, F, G)
        self._algorithm.tell(infills=self._asked)

    def population(self) -> NDArray[Any]:
        """Return the algorithm's current population."""
        population = self._algorithm.pop
        if not len(population):
            return self._no_rows()
        # moead changes its population in place
        return np.asarray(population.get("X")) if self.algorithm == "moead" else genomes(population)

    def _no_rows(self) -> NDArray[Any]:
        return np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
