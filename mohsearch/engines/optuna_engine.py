"""The door to Optuna's samplers.

``tpe``, ``gp``, ``random`` and ``qmc`` see the independent variables that a problem offers
(:class:`mohsearch.problems.base.Box`), each as a parameter of its own; a problem without such a box
is refused: Optuna stores and models every parameter, and a permutation is no set of independent
integers. ``tpe`` and ``gp`` learn from every single evaluation. ``nsgaii`` and ``nsgaiii`` see one
parameter only, the number of a row in a side table; their parents are selected by Optuna, the
children made by the portfolio, so that they take any genome. Optuna's own bookkeeping grows with
the number of trials; ``Capabilities.max_evaluations`` says how far each sampler is of use.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.core.seeds import generator
from mohsearch.engines.array_engine import survivors
from mohsearch.engines.breeding import Breeder
from mohsearch.engines.directions import reference_directions
from mohsearch.engines.engine import Capabilities, Engine, FloatArray

MAX_ROWS = 2**31 - 1
GENOME = "genome"
"""Attribute of a trial of a shared study."""
_BY_ROW = {"nsgaii", "nsgaiii"}
_ONE_BY_ONE = {"tpe", "gp"}
_WHOLE_NUMBERS = {"integer", "categorical"}


class OptunaEngine(Engine):
    """An Optuna sampler behind ask and tell, with the study in memory."""

    algorithms: ClassVar = {
        "nsgaii": Capabilities(
            "Optuna's NSGA-II over row numbers; children by the portfolio",
            immigrants=True,
            max_evaluations=50_000,
        ),
        "nsgaiii": Capabilities(
            "Optuna's NSGA-III over row numbers; children by the portfolio",
            min_objectives=2,
            immigrants=True,
            max_evaluations=50_000,
        ),
        "tpe": Capabilities(
            "tree-structured Parzen estimator, variable by variable; Bergstra et al. 2011",
            operators=(),
            max_genes=64,
            max_evaluations=2_000,
        ),
        "gp": Capabilities(
            "Gaussian process and expected hypervolume improvement; needs the extra 'gp'",
            operators=(),
            max_genes=64,
            max_evaluations=200,
        ),
        "random": Capabilities(
            "uniform, variable by variable",
            operators=(),
            max_genes=64,
            max_evaluations=50_000,
        ),
        "qmc": Capabilities(
            "quasi-random Sobol sequence, variable by variable",
            operators=(),
            max_genes=64,
            max_evaluations=50_000,
        ),
    }
    default_algorithm = "nsgaii"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        problem = self.problem
        # A matter of the algorithm here, of the class elsewhere.
        self.sequential = self.algorithm in _ONE_BY_ONE  # type: ignore[misc]
        self._space: dict[str, BaseDistribution]
        if self.algorithm in _BY_ROW:
            self._space = {"row": IntDistribution(0, MAX_ROWS)}
            rng = generator(self.seed, "optuna", self.algorithm, "children")
            self._breeder = Breeder(problem, self.portfolio, self.seen, rng)
        else:
            self._box = _box_of(problem, self.algorithm)
            self._space = _distributions(self._box)
        self._rows: dict[int, NDArray[Any]] = {}
        self._first: list[NDArray[Any]] = []
        self._children: list[int] = []
        self._trials: list[Any] = []
        self._batch = np.empty((0, problem.n_var), dtype=self.seen.dtype)
        self._shared = False
        self._parents: tuple[int, ...] = ()
        with quietly():
            self._study = optuna.create_study(
                directions=["minimize"] * problem.n_obj, sampler=self._make_sampler()
            )

    def share(self, storage: Any, name: str, label: str) -> Any:
        """Search in a study that other processes search too; return that study.

        Parameters
        ----------
        storage
            As :func:`mohsearch.engines.optuna_storage.open_storage` returns it.
        name
            Name of the study there; it is made if it is not there.
        label
            Tells this process from all others: each draws numbers of its own.
        """
        self._shared = True
        if self.algorithm in _BY_ROW:
            rng = generator(self.seed, "optuna", self.algorithm, "children", label)
            self._breeder = Breeder(self.problem, self.portfolio, self.seen, rng)
        with quietly():
            self._study = optuna.create_study(
                storage=storage,
                study_name=name,
                directions=["minimize"] * self.problem.n_obj,
                sampler=self._make_sampler(label),
                load_if_exists=True,
            )
        return self._study

    def rows_of(self, trials: Sequence[Any]) -> NDArray[Any]:
        """Return the genomes of trials of a shared study, shape (n, n_var), drawn now."""
        if self.algorithm in _BY_ROW and not self._rows:
            self._first = list(self._breeder.first(self.population_size))
        rows = np.empty((len(trials), self.problem.n_var), dtype=self.seen.dtype)
        with quietly(), _single_thread() if self.algorithm == "gp" else nullcontext():
            for place, trial in enumerate(trials):
                known = trial.user_attrs.get(GENOME)
                values = [_drawn(trial, name, kind) for name, kind in self._space.items()]
                if known is not None:  # another process had begun it
                    rows[place] = known
                elif self.algorithm in _BY_ROW:
                    rows[place] = self._row(values[0])
                else:
                    rows[place] = self._box.genomes(np.array([values]))[0]
        return rows

    def _make_sampler(self, *label: str) -> Any:
        # a quasi-random sequence is one that all processes share
        label = () if self.algorithm == "qmc" else label
        seed = int(generator(self.seed, "optuna", self.algorithm, *label).integers(2**32))
        samplers = optuna.samplers
        if self.algorithm == "tpe":
            return samplers.TPESampler(seed=seed)
        if self.algorithm == "gp":
            require("torch", "gp")
            require("greenlet", "gp")
            return samplers.GPSampler(seed=seed, deterministic_objective=True)
        if self.algorithm == "random":
            return samplers.RandomSampler(seed=seed)
        if self.algorithm == "qmc":
            return samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)
        arguments: dict[str, Any] = {
            "seed": seed,
            "population_size": self.population_size,
            "child_generation_strategy": self._child,
        }
        if self.algorithm == "nsgaiii":
            directions = reference_directions(self.problem.n_obj, self.population_size)
            return samplers.NSGAIIISampler(reference_points=directions, **arguments)
        return samplers.NSGAIISampler(**arguments)

    def ask(self, k: int) -> NDArray[Any]:
        """Return the rows of ``k`` new trials, of one where every evaluation counts."""
        fresh = k == self.population_size
        if self.sequential:
            k = 1
        self._children = []
        if self.algorithm in _BY_ROW and not self._rows:
            self._first = list(self._breeder.first(k))
            k = len(self._first)
        with quietly(), _single_thread() if self.algorithm == "gp" else nullcontext():
            self._trials = [self._study.ask(dict(self._space)) for _ in range(k)]
        rows = self._asked_rows()
        self._batch = rows if fresh else np.concatenate([self._batch, rows])
        return rows

    def _asked_rows(self) -> NDArray[Any]:
        if not self._trials:
            return np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
        if self.algorithm in _BY_ROW:
            return np.stack([self._row(trial.params["row"]) for trial in self._trials])
        Z = [[trial.params[name] for name in self._space] for trial in self._trials]
        return np.asarray(self._box.genomes(np.array(Z)))

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Report the values of the trials last asked for."""
        with quietly():
            for trial, values, limits in zip(self._trials, F.tolist(), G.tolist(), strict=True):
                for number, excess in enumerate(limits):
                    trial.set_constraint(f"g{number}", excess)
                self._study.tell(trial, values)

    def population(self) -> NDArray[Any]:
        """Return what was asked for in this generation."""
        return self._batch

    def _row(self, number: int) -> NDArray[Any]:
        if number not in self._rows:
            # Optuna draws the numbers of its first generation; they get our first samples. Where
            # these were fewer than a population it draws more; a small space has no more to give.
            if not self._first:
                self._first = list(self._breeder.first(1)) or [next(iter(self._rows.values()))]
            self._rows[number] = self._first.pop(0)
        return self._rows[number]

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
        if self._shared and (key := tuple(trial.number for trial in parents)) != self._parents:
            self._parents, self._children = key, []
        if not self._children:
            if self._shared:
                genomes = [trial.user_attrs[GENOME] for trial in parents]
                X = np.array(genomes, dtype=self.seen.dtype)
            else:
                X = np.stack([self._rows[trial.params["row"]] for trial in parents])
            F = np.array([trial.values for trial in parents], dtype=np.float64)
            over = [sum(max(g, 0.0) for g in trial.constraints.values()) for trial in parents]
            order, rank, crowding = survivors(F, np.array(over, dtype=np.float64), len(F))
            if self.algorithm == "nsgaiii":
                rank, crowding = np.zeros_like(rank), np.zeros_like(crowding)
            bred = self._breeder.next(X[order], rank, crowding, self.population_size)
            self._children = self._store(bred if len(bred) else X)
            if self._shared:  # others breed too, and no one uses all children
                self._breeder.rng.shuffle(self._children)
        return {"row": self._children.pop(0)}


def _box_of(problem: Any, algorithm: str) -> Any:
    """Return the independent variables of a problem, or refuse it."""
    box = problem.box()
    if box is None:
        raise InputError(
            f"optuna algorithm {algorithm!r} varies genes independently, and the genes of this "
            f"problem depend on each other; able: {', '.join(sorted(_BY_ROW))}"
        )
    return box


def _distributions(box: Any) -> dict[str, BaseDistribution]:
    bounds = zip(box.names, box.kinds, box.lower.tolist(), box.upper.tolist(), strict=True)
    return {
        name: IntDistribution(int(low), int(high))
        if kind in _WHOLE_NUMBERS
        else FloatDistribution(float(low), float(high))
        for name, kind, low, high in bounds
    }


class _single_thread:
    """Context in which torch uses one thread.

    Its matrices are small here, and threads that wait for each other on a busy machine cost fifty
    times the work.
    """

    def __enter__(self) -> None:
        import torch

        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: Any) -> None:
        import torch

        torch.set_num_threads(self._threads)


def _drawn(trial: Any, name: str, kind: BaseDistribution) -> Any:
    if isinstance(kind, IntDistribution):
        return trial.suggest_int(name, kind.low, kind.high)
    assert isinstance(kind, FloatDistribution)
    return trial.suggest_float(name, kind.low, kind.high)


class quietly(warnings.catch_warnings):
    """Context without Optuna's notes on experimental arguments and on new studies."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "Heartbeat of storage is supposed")  # we send our own
        self._level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def __exit__(self, *details: Any) -> None:
        optuna.logging.set_verbosity(self._level)
        super().__exit__(*details)
