"""Evaluating genomes elsewhere: in local processes or on a Dask cluster, in chunks.

Results do not depend on where: a genome has the same values on every machine, and they come back in
the order in which they were asked for. A chunk whose worker dies, raises or outlasts its limit is
tried again and then halved, until the genomes that cannot be evaluated stand alone.
"""

from __future__ import annotations

import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import MohsearchError
from mohsearch.core.processes import follow_parent
from mohsearch.problems.base import SearchProblem
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import ProblemKey, Study

Metrics = dict[str, NDArray[np.float64]]
CHUNKS_PER_WORKER = 4
TRIES = 2
"""How often a chunk is tried as a whole: a worker may die for reasons of its own."""


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to build the problem that it evaluates.

    ``digest`` is that of the problem here; a worker whose problem differs refuses to work.
    """

    study: Study
    key: ProblemKey
    cache_dir: Path | None
    digest: str


class EvaluationFailed(MohsearchError):
    """Genomes that no worker could evaluate, each with its reason."""

    exit_code = 1

    def __init__(self, failures: Sequence[tuple[NDArray[Any], str]]) -> None:
        self.failures = tuple(failures)
        genome, reason = self.failures[0]
        text = np.array2string(genome, threshold=32, max_line_width=10**6)
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        super().__init__(f"genome {text} cannot be evaluated: {reason}{more}")


class Workers(ABC):
    """Workers that evaluate chunks of genomes.

    Subclasses start them (:meth:`submit`) and replace those that died (:meth:`renew`).
    """

    def __init__(self, recipe: Recipe, count: int) -> None:
        self.recipe = recipe
        self.count = count

    @abstractmethod
    def submit(self, rows: NDArray[Any]) -> Future[Any]:
        """Start to evaluate some rows; the result is what :func:`evaluate_chunk` returns."""

    @abstractmethod
    def renew(self) -> bool:
        """Replace dead workers.

        Returns whether everything that was submitted before is lost.
        """

    @abstractmethod
    def close(self) -> None:
        """End the workers that were started here."""

    def metrics(self, rows: NDArray[Any]) -> Metrics:
        """Evaluate genomes of shape (n, n_var); every metric of shape (n,).

        Raises
        ------
        EvaluationFailed
            With each genome that no worker could evaluate, and why.
        """
        size = max(1, -(-len(rows) // (self.count * CHUNKS_PER_WORKER)))
        chunks = [np.arange(i, min(i + size, len(rows))) for i in range(0, len(rows), size)]
        work = _Work([_Chunk(places) for places in chunks])
        while work.waiting or work.active:
            while (chunk := work.next(2 * self.count)) is not None:
                work.active[self.submit(rows[chunk.places])] = chunk
            self._collect(work)
        if work.failures:
            raise EvaluationFailed([(rows[place], why) for place, why in sorted(work.failures)])
        return _joined(work.found, len(rows))

    def _collect(self, work: _Work) -> None:
        """Wait for results; replace workers that died, and put their work back."""
        done, _ = wait(work.active, return_when=FIRST_COMPLETED)
        died = any(_died(future) for future in done)
        everything_lost = self.renew() if died else False
        for future in list(work.active):
            if future in done and not _died(future):
                work.settle(work.active.pop(future), future)
            elif future in done or everything_lost:
                chunk = work.active.pop(future)
                if chunk.alone:
                    work.failed(chunk, self._death)
                else:  # one of several that were under way: alone, it will show
                    chunk.alone = True
                    work.waiting.insert(0, chunk)

    @property
    def _death(self) -> str:
        limit = self.recipe.study.spec.evaluation.limit_s
        late = "" if limit is None else f", or longer than its limit of {limit:g} s"
        return f"its worker died (killed, out of memory{late})"


@dataclass
class _Chunk:
    """Positions of some genomes, how often they were tried together, and whether alone."""

    places: NDArray[np.intp]
    tries: int = 1
    alone: bool = False


class _Work:
    """The chunks of one call: waiting, under way, found and failed."""

    def __init__(self, waiting: list[_Chunk]) -> None:
        self.waiting = waiting
        self.active: dict[Future[Any], _Chunk] = {}
        self.found: list[tuple[NDArray[np.intp], Metrics]] = []
        self.failures: list[tuple[int, str]] = []

    def next(self, most: int) -> _Chunk | None:
        """Return the chunk to start now; one under suspicion runs alone."""
        if not self.waiting or len(self.active) >= most:
            return None
        if self.active and (self.waiting[0].alone or any(c.alone for c in self.active.values())):
            return None
        return self.waiting.pop(0)

    def settle(self, chunk: _Chunk, future: Future[Any]) -> None:
        """Take the result of a chunk, or the reason why it has none."""
        error = future.exception()
        if isinstance(error, MohsearchError):
            raise error
        result, reason = (None, f"{type(error).__name__}: {error}") if error else future.result()
        if result is not None:
            self.found.append((chunk.places, result))
        else:
            self.failed(chunk, reason)

    def failed(self, chunk: _Chunk, reason: str) -> None:
        """Try a chunk once more, then its halves; give a genome up that stands alone."""
        places, alone = chunk.places, chunk.alone
        if chunk.tries < TRIES:
            self.waiting.insert(0, _Chunk(places, chunk.tries + 1, alone))
        elif len(places) == 1:
            self.failures.append((int(places[0]), reason))
        else:  # each half has been tried already, within the whole
            middle = len(places) // 2
            halves = (places[:middle], places[middle:])
            self.waiting[:0] = [_Chunk(half, TRIES, alone) for half in halves]


def _died(future: Future[Any]) -> bool:
    error = future.exception() if future.done() and not future.cancelled() else None
    return isinstance(error, BrokenProcessPool) or type(error).__name__ == "KilledWorker"


def _joined(found: Sequence[tuple[NDArray[np.intp], Metrics]], count: int) -> Metrics:
    names = found[0][1] if found else {}
    joined = {name: np.empty(count) for name in names}
    for places, values in found:
        for name, column in joined.items():
            column[places] = values[name]
    return joined


class LocalWorkers(Workers):
    """Processes on this machine."""

    def __init__(self, recipe: Recipe, count: int) -> None:
        super().__init__(recipe, count)
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.count, context, follow_parent)

    def submit(self, rows: NDArray[Any]) -> Future[Any]:
        """Give some rows to the next free process."""
        try:
            return self._pool.submit(evaluate_chunk, self.recipe, rows)
        except BrokenProcessPool as error:
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken

    def renew(self) -> bool:
        """Start a new pool; a process pool is of no use once one of its processes died."""
        self.close()
        self._pool = self._start()
        return True

    def close(self) -> None:
        """Kill the processes: what they hold is not wanted any more."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


WORST = 1e30
"""Stands for the metrics of a genome that cannot be evaluated: dominated by all that can."""


def going_on(
    evaluate: Callable[[NDArray[Any]], Metrics],
    problem: SearchProblem,
    record: Callable[[NDArray[Any], str], None],
) -> Callable[[NDArray[Any]], Metrics]:
    """Return an evaluation that gives genomes up instead of raising.

    Parameters
    ----------
    evaluate
        As :meth:`Workers.metrics` or a problem's own; where it raises, genome by genome.
    record
        Called with each genome given up, and why. Its metrics are the worst there can be
        (:data:`WORST`), its constraints violated.
    """
    worst = {m.name: WORST if m.sense == "min" else -WORST for m in problem.card.metrics}
    worst |= {m.name: WORST for m in problem.card.constraints}

    def one(row: NDArray[Any]) -> Metrics:
        result, reason = attempt(evaluate, row)
        if result is None:
            record(row[0], reason)
            return {name: np.array([value]) for name, value in worst.items()}
        return result

    def many(rows: NDArray[Any]) -> Metrics:
        result, _ = attempt(evaluate, rows)
        if result is not None:
            return result
        parts = [one(rows[i : i + 1]) for i in range(len(rows))]
        return {name: np.concatenate([part[name] for part in parts]) for name in worst}

    return many


def attempt(
    evaluate: Callable[[NDArray[Any]], Metrics], rows: NDArray[Any]
) -> tuple[Metrics | None, str]:
    """Return the metrics of some genomes, or why there are none."""
    try:
        metrics = evaluate(rows)
    except EvaluationFailed as error:
        return None, error.failures[0][1]
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    for name, values in metrics.items():
        bad = np.asarray(values)[~np.isfinite(values)]
        if len(bad):
            return None, f"metric {name!r} is {bad[0]}"
    return metrics, ""


# What follows runs in the worker processes.

_built: dict[str, SearchProblem] = {}


def evaluate_chunk(recipe: Recipe, rows: NDArray[Any]) -> tuple[Metrics | None, str]:
    """Evaluate some genomes; return their metrics, or why that failed.

    The problem is built at the first call and kept.

    Raises
    ------
    MohsearchError
        If the problem cannot be built here, or is another one than that of the study.
    """
    problem = _built.get(recipe.digest)
    if problem is None:
        problem = build_problem(recipe.study, recipe.key, recipe.cache_dir)
        if problem.digest() != recipe.digest:
            raise MohsearchError(
                "a worker's problem differs from the study's: its mohsearch, cards or workloads "
                "are of another version"
            )
        _built.clear()
        _built[recipe.digest] = problem
    limit_s = recipe.study.spec.evaluation.limit_s
    if limit_s is None:
        return attempt(problem.metrics, rows)
    # nothing catches this signal: it ends the process, whatever compiled code is running
    signal.setitimer(signal.ITIMER_REAL, limit_s * len(rows))
    try:
        return attempt(problem.metrics, rows)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
