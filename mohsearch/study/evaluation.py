"""Evaluating genomes elsewhere: in local processes or on a Dask cluster, in chunks.

Results do not depend on where: a genome has the same values on every machine, and they come back in
the order in which they were asked for. :mod:`mohsearch.study.evaluation_process` says what happens
to genomes whose evaluation raises, dies or outlasts its limit.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.study.evaluation_process import Outcome, Recipe, RowEvaluator
from mohsearch.study.failures import EvaluationFailed, Metrics

CHUNKS_PER_WORKER = 4


class Workers(ABC):
    """Workers that evaluate chunks of genomes; subclasses start them."""

    def __init__(self, recipe: Recipe, count: int) -> None:
        self.recipe = recipe
        self.count = count

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
        size = max(1, -(-len(rows) // (self.count * CHUNKS_PER_WORKER)))
        waiting = [np.arange(i, min(i + size, len(rows))) for i in range(0, len(rows), size)]
        active: dict[Future[Outcome], NDArray[np.intp]] = {}
        found: dict[str, NDArray[np.float64]] = {}
        failures: dict[int, str] = {}
        try:
            while waiting or active:
                while waiting and len(active) < 2 * self.count:
                    places = waiting.pop(0)
                    active[self.submit(rows[places])] = places
                for future in self.wait(set(active)):
                    places = active.pop(future)
                    outcome = future.result()
                    for name, column in outcome.metrics.items():
                        found.setdefault(name, np.full(len(rows), np.nan))[places] = column
                    failures |= {int(places[i]): reason for i, reason in outcome.failures}
        finally:
            for future in active:
                future.cancel()
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
