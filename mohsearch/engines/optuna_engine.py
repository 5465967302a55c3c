"""The door to Optuna's samplers.

``tpe``, ``random`` and ``qmc`` see each gene as an integer parameter of its own. That fits short
genomes whose genes vary freely; long ones and orders are refused: Optuna stores and models every
parameter, and a permutation is no set of independent integers. ``nsgaii`` sees one parameter only,
the number of a row in a side table; its parents are selected by Optuna, their children made by the
portfolio, so that it takes any genome. Optuna's own bookkeeping grows with the number of trials;
it suits runs of up to some ten thousand evaluations.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import IntDistribution

from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.engines.array_engine import survivors
from mohsearch.engines.breeding import Breeder
from mohsearch.engines.engine import Capabilities, Engine, FloatArray

MAX_ROWS = 2**31 - 1
_BY_GENE = {"tpe", "random", "qmc"}


class OptunaEngine(Engine):
    """An Optuna sampler behind ask and tell, with the study in memory."""

    algorithms: ClassVar = {
        "nsgaii": Capabilities(
            "Optuna's NSGA-II over row numbers; children by the portfolio",
            constraints=False,
            immigrants=True,
        ),
        "tpe": Capabilities(
            "tree-structured Parzen estimator, gene by gene; Bergstra et al. 2011",
            constraints=False,
            operators=(),
            max_genes=64,
        ),
        "random": Capabilities(
            "uniform, gene by gene", constraints=False, operators=(), max_genes=64
        ),
        "qmc": Capabilities(
            "quasi-random Sobol sequence, gene by gene",
            constraints=False,
            operators=(),
            max_genes=64,
        ),
    }
    default_algorithm = "nsgaii"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        problem = self.problem
        if self.algorithm in _BY_GENE:
            _refuse_dependent_genes(problem, self.algorithm)
            bounds = zip(problem.xl.tolist(), problem.xu.tolist(), strict=True)
            self._space = {
                f"gene{i}": IntDistribution(int(low), int(high))
                for i, (low, high) in enumerate(bounds)
            }
        else:
            self._space = {"row": IntDistribution(0, MAX_ROWS)}
            rng = generator(self.seed, "optuna", "nsgaii", "children")
            self._breeder = Breeder(problem, self.portfolio, self.seen, rng)
        self._rows: dict[int, NDArray[Any]] = {}
        self._first: list[NDArray[Any]] = []
        self._children: list[int] = []
        self._trials: list[Any] = []
        self._batch = np.empty((0, problem.n_var), dtype=self.seen.dtype)
        with _quietly():
            self._study = optuna.create_study(
                directions=["minimize"] * problem.n_obj, sampler=self._make_sampler()
            )

    def _make_sampler(self) -> Any:
        seed = int(generator(self.seed, "optuna", self.algorithm).integers(2**32))
        if self.algorithm == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        if self.algorithm == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if self.algorithm == "qmc":
            return optuna.samplers.QMCSampler(
                seed=seed, scramble=True, warn_independent_sampling=False
            )
        return optuna.samplers.NSGAIISampler(
            seed=seed, population_size=self.population_size, child_generation_strategy=self._child
        )

    def ask(self, k: int) -> NDArray[Any]:
        """Return the rows of ``k`` new trials."""
        self._children = []
        if self.algorithm == "nsgaii" and not self._rows:
            self._first = list(self._breeder.first(k))
            k = len(self._first)
        with _quietly():
            self._trials = [self._study.ask(dict(self._space)) for _ in range(k)]
        self._batch = np.array([self._row(trial.params) for trial in self._trials])
        return self._batch

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Report the values of the trials last asked for."""
        with _quietly():
            for trial, values in zip(self._trials, F.tolist(), strict=True):
                self._study.tell(trial, values)

    def population(self) -> NDArray[Any]:
        """Return the last batch."""
        return self._batch

    def _row(self, parameters: Mapping[str, Any]) -> NDArray[Any]:
        if self.algorithm == "nsgaii":
            number = parameters["row"]
            if number not in self._rows:
                # Optuna draws the numbers of its first generation; they get our first samples.
                self._rows[number] = self._first.pop(0)
            return self._rows[number]
        return np.array([parameters[name] for name in self._space], dtype=self.seen.dtype)

    def _store(self, rows: NDArray[Any]) -> list[int]:
        numbers: list[int] = []
        number = len(self._rows)
        for row in rows:
            while number in self._rows:
                number += 1
            self._rows[number] = row
            numbers.append(number)
        return numbers

    def _child(
        self, study: Any, search_space: Mapping[str, Any], parents: Sequence[Any]
    ) -> dict[str, int]:
        """Return one child's row number; a whole generation is bred at its first call."""
        if not self._children:
            X = np.stack([self._rows[trial.params["row"]] for trial in parents])
            F = np.array([trial.values for trial in parents], dtype=np.float64)
            order, rank, crowding = survivors(F, np.zeros(len(F)), len(F))
            bred = self._breeder.next(X[order], rank, crowding, self.population_size)
            self._children = self._store(bred if len(bred) else X)
        return {"row": self._children.pop(0)}


def _refuse_dependent_genes(problem: Any, algorithm: str) -> None:
    """Refuse genomes that are no box of integers."""
    if getattr(problem, "space", None) is not None or any(
        variable.kind not in {"integer", "categorical"} for variable in problem.card.variables
    ):
        raise InputError(
            f"optuna algorithm {algorithm!r} varies genes independently, and the genes of this "
            "problem depend on each other; able: nsgaii"
        )


class _quietly(warnings.catch_warnings):
    """Context without Optuna's notes on experimental arguments and on new studies."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self._level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def __exit__(self, *details: Any) -> None:
        optuna.logging.set_verbosity(self._level)
        super().__exit__(*details)
