"""The one driver: it owns evaluation, the archive, the ledger, replay and the end of a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import MohsearchError
from mohsearch.engines.archive import Archive
from mohsearch.engines.convergence import Convergence, largest_finite_crowding
from mohsearch.engines.engine import Engine, FloatArray, IntArray, Searchable

StopReason = Literal["budget", "converged", "exhausted"]


@dataclass(frozen=True)
class Budget:
    """How long a search may run: ``population`` x ``generations`` evaluations.

    Every genome that an engine asks for counts, also one whose values are known already.
    """

    population: int
    generations: int
    convergence: Convergence | None = None

    @property
    def evaluations(self) -> int:
        """The largest number of evaluations."""
        return self.population * self.generations


@dataclass(frozen=True)
class Generation:
    """One generation as it stands after its evaluation.

    Attributes
    ----------
    number
        From 0.
    replayed
        Whether its values were taken from a record instead of computed.
    evaluations
        Genomes asked for since the start of the search.
    distinct
        Distinct genomes evaluated since the start: the length of the archive.
    population
        Archive numbers of the population after this generation.
    largest_crowding
        Largest finite crowding distance of the population's non-dominated set, NaN where none.
    wall_s, cpu_s
        Seconds since the start of the search, earlier sessions of a resumed one included.
    """

    number: int
    replayed: bool
    evaluations: int
    distinct: int
    population: IntArray
    largest_crowding: float
    wall_s: float
    cpu_s: float


class Rows(Protocol):
    """What slices of rows can be taken from: an array, or one that is read as needed."""

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Return some consecutive rows."""


@dataclass(frozen=True)
class Recorded:
    """What an interrupted search left: complete generations and the genomes they evaluated.

    Attributes
    ----------
    genomes
        Shape (n, n_var), in the order of evaluation; slices of it are asked for in turn.
    metrics
        Every metric and constraint, each of shape (n,), likewise.
    evaluations, distinct
        Ledger of each complete generation.
    wall_s, cpu_s
        Seconds until the last of them.
    """

    genomes: Rows
    metrics: Mapping[str, Rows]
    evaluations: IntArray
    distinct: IntArray
    wall_s: float
    cpu_s: float


class EvaluationError(MohsearchError):
    """A genome could not be evaluated, or has a value that is no number."""

    exit_code = 1


class ReplayError(MohsearchError):
    """A recorded search does not repeat: the program or its libraries differ from then."""


class Search:
    """One search: an engine on a problem under a budget.

    Parameters
    ----------
    problem
        What is searched.
    engine
        Must have been built with ``seen=archive.index``.
    archive
        Empty archive of this search.
    budget
        When to stop at the latest.

    Attributes
    ----------
    evaluate
        Returns the metrics of genomes; the problem's own unless it is replaced.
    stopped
        Why the search ended: its budget is spent, it converged, or the engine had nothing left to
        ask. ``None`` while it runs.
    """

    def __init__(
        self, problem: Searchable, engine: Engine, archive: Archive, budget: Budget
    ) -> None:
        self.problem = problem
        self.engine = engine
        self.archive = archive
        self.budget = budget
        self.stopped: StopReason | None = None
        self._recorded: Recorded | None = None
        self.evaluate: Callable[[NDArray[Any]], Mapping[str, FloatArray]] = problem.metrics
        self._known_rows: dict[bytes, int] = {}
        self._known_metrics: Mapping[str, FloatArray] = {}

    def reuse(self, genomes: NDArray[Any], metrics: Mapping[str, FloatArray]) -> None:
        """Take values that are known from elsewhere: these genomes are not evaluated again.

        Parameters
        ----------
        genomes
            Shape (n, n_var).
        metrics
            Every metric and constraint, each of shape (n,).
        """
        self._known_rows = dict(
            zip(self.archive.index.keys(genomes), range(len(genomes)), strict=True)
        )
        self._known_metrics = metrics

    def generations(self, recorded: Recorded | None = None) -> Iterator[Generation]:
        """Run the search, one generation at a time.

        Parameters
        ----------
        recorded
            Generations of an earlier session of the same search. They are repeated without
            evaluating anything, which puts the engine into the state it had; what follows is what
            would have followed then.

        Raises
        ------
        ReplayError
            If the engine asks for other genomes than the record holds.
        EvaluationError
            If a value is not a number.
        """
        self._recorded = recorded
        known = 0 if recorded is None else len(recorded.evaluations)
        wall_before, cpu_before = (recorded.wall_s, recorded.cpu_s) if recorded else (0.0, 0.0)
        wall, cpu = time.perf_counter(), time.process_time()
        evaluations = 0
        crowding: list[float] = []
        for number in range(self.budget.generations):
            replayed = number < known
            if number == known:
                wall, cpu = time.perf_counter(), time.process_time()
            asked = self._generation(number if replayed else None)
            if not asked:
                self.stopped = "exhausted"
                return
            evaluations += asked
            population = self.archive.ids(self.archive.index.keys(self.engine.population()))
            front = self.archive.front_of(population)
            crowding.append(largest_finite_crowding(self.archive.objectives(front)))
            yield Generation(
                number=number,
                replayed=replayed,
                evaluations=evaluations,
                distinct=len(self.archive),
                population=population,
                largest_crowding=crowding[-1],
                wall_s=wall_before + (0.0 if replayed else time.perf_counter() - wall),
                cpu_s=cpu_before + (0.0 if replayed else time.process_time() - cpu),
            )
            criterion = self.budget.convergence
            if criterion is not None and criterion.reached(crowding):
                self.stopped = "converged"
                return
        self.stopped = "budget"

    def _generation(self, replayed_generation: int | None) -> int:
        """Ask, evaluate and tell one generation; return the genomes asked for.

        A sequential engine is asked again until the generation is full.
        """
        asked = 0
        while asked < self.budget.population:
            X = self.engine.ask(self.budget.population - asked)
            if not len(X):
                break
            self._evaluate(X, replayed_generation)
            asked += len(X)
            if not self.engine.sequential:
                break
        return asked

    def _evaluate(self, X: NDArray[Any], replayed_generation: int | None) -> None:
        """Get the values of ``X`` into the archive and tell the engine."""
        keys = self.archive.index.keys(X)
        fresh = self.archive.unseen(keys)
        if fresh:
            rows = X[fresh]
            if replayed_generation is None:
                metrics = self._known_or_computed(rows, [keys[i] for i in fresh])
            else:
                metrics = self._replay(rows, replayed_generation)
            self.archive.append(rows, metrics, [keys[i] for i in fresh])
        ids = self.archive.ids(keys)
        self.engine.tell(X, self.archive.objectives(ids), self.archive.constraints(ids))

    def _known_or_computed(
        self, rows: NDArray[Any], keys: Sequence[bytes]
    ) -> dict[str, FloatArray]:
        """Return values, computing those only that :meth:`reuse` did not bring."""
        if not self._known_rows:
            return self._compute(rows)
        found = np.array([self._known_rows.get(key, -1) for key in keys], dtype=np.int64)
        left = np.flatnonzero(found < 0)
        computed = self._compute(rows[left]) if len(left) else {}
        metrics = {}
        for name in self.archive.metric_names:
            column = np.asarray(self._known_metrics[name])[found]
            if len(left):
                column[left] = computed[name]
            metrics[name] = column
        return metrics

    def _compute(self, rows: NDArray[Any]) -> dict[str, FloatArray]:
        values = self.evaluate(rows)
        metrics: dict[str, FloatArray] = {}
        for name in self.archive.metric_names:
            column = np.asarray(values[name], dtype=np.float64)
            if column.shape != (len(rows),):
                raise EvaluationError(
                    f"metric {name!r} has shape {column.shape} for {len(rows)} genomes"
                )
            bad = np.flatnonzero(~np.isfinite(column))
            if len(bad):
                genome = np.array2string(rows[bad[0]], threshold=32, max_line_width=10**6)
                raise EvaluationError(f"metric {name!r} is {column[bad[0]]} for genome {genome}")
            metrics[name] = column
        return metrics

    def _replay(self, rows: NDArray[Any], generation: int) -> dict[str, FloatArray]:
        recorded = self._recorded
        assert recorded is not None
        start, stop = len(self.archive), len(self.archive) + len(rows)
        same = stop <= recorded.distinct[generation] and np.array_equal(
            recorded.genomes[start:stop], rows
        )
        if not same:
            raise ReplayError(
                f"generation {generation} does not repeat as recorded: the program or a library "
                "differs from the one that wrote it; start the study anew in another folder"
            )
        return {name: column[start:stop] for name, column in recorded.metrics.items()}
