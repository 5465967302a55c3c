"""Evaluating genomes elsewhere: in local processes or on a Dask cluster, in chunks.

Results do not depend on where: a genome has the same values on every machine, and they come back in
the order in which they were asked for. :mod:`mohsearch.study.evaluation_process` says what happens
to genomes whose evaluation raises, dies or outlasts its limit.
"""

from __future__ import annotations

import math
import queue
from abc import ABC, abstractmethod
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.study.evaluation_process import Outcome, Recipe, RowEvaluator
from mohsearch.study.failures import EvaluationFailed, Metrics

CHUNKS_PER_WORKER = 4
"""Most chunks of a generation for each worker, where nothing asks for smaller ones."""

CHUNK_S = 2.0
"""A chunk that takes longer is divided, so that workers that are done early take some of it over.

Models evaluate many genomes in little more time than one, and a chunk has costs of its own, so that
chunks are as large as can be where they take less.
"""

LIMIT_SHARE = 0.25
"""Under a limit per genome, a whole chunk is to take this share of it at most."""


def chunk_rows(
    rows: int, workers: int, row_s: float | None, limit_s: float | None, careful: bool = False
) -> int:
    """Return how many genomes are sent at a time.

    One chunk a worker, or as many as keep a chunk's time below :data:`CHUNK_S`, at most
    :data:`CHUNKS_PER_WORKER`; as many as it takes to stay far from a limit. Never changes a result.

    Parameters
    ----------
    rows
        Genomes to evaluate.
    row_s
        Seconds of a worker per genome, as measured before; None if nothing was.
    limit_s
        Most seconds a genome may take, None without a limit.
    careful
        Whether genomes failed before: a chunk that fails is evaluated again, genome by genome.

    Examples
    --------
    >>> chunk_rows(1000, 2, None, None)
    500
    >>> chunk_rows(1000, 2, 0.01, None)
    167
    """
    share = -(-rows // workers)
    if careful or (row_s is None and limit_s is not None):
        parts = CHUNKS_PER_WORKER
    else:
        share_s = share * (row_s or 0.0)
        parts = min(math.ceil(share_s / CHUNK_S), CHUNKS_PER_WORKER)
        if limit_s is not None:
            parts = max(parts, math.ceil(min(share_s / LIMIT_SHARE / limit_s, float(share))))
    return max(1, -(-share // max(1, parts)))


class Workers(ABC):
    """Workers that evaluate chunks of genomes; subclasses start them."""

    def __init__(self, recipe: Recipe, count: int) -> None:
        self.recipe = recipe
        self.count = count
        self._row_s: float | None = None
        self._careful = False

    def count_now(self) -> int:
        """Return how many chunks can be evaluated at the same time now, at least 1."""
        return self.count

    @abstractmethod
    def submit(self, rows: NDArray[Any]) -> Future[Outcome]:
        """Start to evaluate some rows."""

    @abstractmethod
    def close(self) -> None:
        """End the workers that were started here."""

    def wait(self, futures: set[Future[Outcome]]) -> set[Future[Outcome]]:
        """Wait until at least one is done; return those that are."""
        return wait(futures, return_when=FIRST_COMPLETED).done

    def metrics(self, rows: NDArray[Any]) -> Metrics:
        """Evaluate genomes of shape (n, n_var); every metric of shape (n,).

        Raises
        ------
        EvaluationFailed
            With each genome that no worker could evaluate, and why.
        WorkersLost
            If there are no workers that can evaluate anything.
        """
        count = self.count_now()
        limit_s = self.recipe.study.spec.evaluation.limit_s
        size = chunk_rows(len(rows), count, self._row_s, limit_s, self._careful)
        waiting = [np.arange(i, min(i + size, len(rows))) for i in range(0, len(rows), size)]
        active: dict[Future[Outcome], NDArray[np.intp]] = {}
        found: dict[str, NDArray[np.float64]] = {}
        failures: dict[int, str] = {}
        timed: list[tuple[int, float]] = []
        try:
            while waiting or active:
                while waiting and len(active) < 2 * count:
                    places = waiting.pop(0)
                    active[self.submit(rows[places])] = places
                for future in self.wait(set(active)):
                    places = active.pop(future)
                    outcome = future.result()
                    for name, column in outcome.metrics.items():
                        found.setdefault(name, np.full(len(rows), np.nan))[places] = column
                    failures |= {int(places[i]): reason for i, reason in outcome.failures}
                    if outcome.seconds is not None:
                        timed.append((len(places), outcome.seconds))
        finally:
            for future in active:
                future.cancel()
        if timed:
            self._row_s = sum(s for _, s in timed) / sum(n for n, _ in timed)
        self._careful = bool(failures)
        if failures:
            failed = sorted(failures)
            raise EvaluationFailed([(rows[i], failures[i]) for i in failed], failed, found)
        return found


class LocalWorkers(Workers):
    """Processes on this machine, each driven by a thread."""

    def __init__(self, recipe: Recipe, count: int) -> None:
        super().__init__(recipe, count)
        self._evaluators = [RowEvaluator(recipe) for _ in range(count)]
        self._idle: queue.SimpleQueue[RowEvaluator] = queue.SimpleQueue()
        for evaluator in self._evaluators:
            self._idle.put(evaluator)
        self._threads = ThreadPoolExecutor(count, "evaluation")

    def submit(self, rows: NDArray[Any]) -> Future[Outcome]:
        """Give some rows to the next free process."""
        return self._threads.submit(self._evaluate, rows)

    def _evaluate(self, rows: NDArray[Any]) -> Outcome:
        evaluator = self._idle.get()
        try:
            return evaluator.evaluate(rows)
        finally:
            self._idle.put(evaluator)

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the processes that live now."""
        return tuple(e.pid for e in self._evaluators if e.pid is not None)

    def close(self) -> None:
        """Kill the processes: what they hold is not wanted any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for evaluator in self._evaluators:
            evaluator.close()
