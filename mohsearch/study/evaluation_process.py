"""Evaluating genomes in a process that may die, hang or be ended without harm to its owner.

The owner (:class:`RowEvaluator`) sits in the program itself or in a worker of a cluster. It talks
to the process over a socket, ends it when a genome outlasts its limit, and starts another. Whoever
kills the owner ends the process too: its end of the socket closes.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import MohsearchError
from mohsearch.problems.base import SearchProblem
from mohsearch.study.failures import Metrics, WorkersLost, attempt
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import ProblemKey, Study

TRIES = 2
"""How often a genome is tried alone before it is given up: a process may die for other reasons."""

WARM_UP_S = 60.0
"""Added to the limit of a process's first evaluation: compiled code is loaded or made then."""

_CODE = (
    "import pickle, sys; sys.path[:] = pickle.loads(bytes.fromhex(sys.argv[2])); "
    "from mohsearch.study.evaluation_process import serve; serve(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to build the problem that it evaluates.

    ``digest`` is that of the problem here; a worker whose problem differs refuses to work.
    """

    study: Study
    key: ProblemKey
    cache_dir: Path | None
    digest: str


@dataclass(frozen=True)
class Outcome:
    """What became of some genomes.

    Attributes
    ----------
    metrics
        Every metric, shape (n,); NaN where a genome failed. Empty if all failed.
    failures
        Position and reason of each genome that failed.
    seconds
        How long they took all at once, None where they went one by one or code was loaded first.
    """

    metrics: Metrics
    failures: tuple[tuple[int, str], ...] = ()
    seconds: float | None = None


class _Died(Exception):
    """The process ended by itself."""


class _Late(Exception):
    """The process took longer than its limit and was ended."""


class RowEvaluator:
    """Evaluates genomes in a process of its own, and replaces that when it dies.

    Parameters
    ----------
    recipe
        The problem, and the limit per genome in its study (``evaluation.limit_s``).
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._limit_s = recipe.study.spec.evaluation.limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._warm = False
        self._sound: NDArray[Any] | None = None
        self._singly = False
        self._closed = False
        self._failed_starts = 0
        self.started = 0

    @property
    def pid(self) -> int | None:
        """The process id of the process, None where there is none now."""
        return None if self._process is None else self._process.pid

    def evaluate(self, rows: NDArray[Any]) -> Outcome:
        """Evaluate genomes of shape (n, n_var).

        All at once first. Where that fails, each on its own, so that those at fault are known and
        all others keep their values. Under a limit, genomes go one by one from then on.

        Raises
        ------
        WorkersLost
            If the problem cannot be built there, or is another one than that of the study.
        """
        if len(rows) > 1 and not self._singly:
            warm, began = self._warm, time.perf_counter()
            metrics = self._together(rows)
            if metrics is not None:
                return Outcome(metrics, seconds=time.perf_counter() - began if warm else None)
        found: list[Metrics | None] = []
        failures: list[tuple[int, str]] = []
        for place in range(len(rows)):
            metrics, reason = self._alone(rows[place : place + 1])
            found.append(metrics)
            if metrics is None:
                failures.append((place, reason))
        return Outcome(_joined(found), tuple(failures))

    def close(self) -> None:
        """End the process; an evaluation under way in another thread raises."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _together(self, rows: NDArray[Any]) -> Metrics | None:
        for _ in range(TRIES):
            try:
                metrics, _reason = self._ask(rows)
            except _Died:
                continue
            except _Late:
                self._singly = True
                return None
            return metrics
        return None

    def _alone(self, row: NDArray[Any]) -> tuple[Metrics | None, str]:
        reason = ""
        for _ in range(TRIES):
            try:
                metrics, reason = self._ask(row)
            except _Died:
                reason = "its worker died (killed, or out of memory)"
                continue
            except _Late:
                reason = f"it took longer than its limit of {self._limit_s:g} s"
                continue
            if metrics is not None:
                return metrics, ""
        return None, f"{reason} ({TRIES} tries)" if TRIES > 1 else reason

    def _ask(self, rows: NDArray[Any]) -> tuple[Metrics | None, str]:
        """Send rows and wait for what comes back."""
        connection = self._running()
        limit = self._limit_s
        if limit is not None and not self._warm:
            limit += WARM_UP_S
        metrics, reason = self._exchange(connection, rows, limit)
        if metrics is not None:
            self._warm = True
            if self._sound is None:
                self._sound = np.array(rows[:1])
        return metrics, reason

    def _running(self) -> Connection:
        """Return the connection to the process, started if need be, with its problem built."""
        if self._closed:
            raise RuntimeError("the workers were ended")
        if self._connection is None:
            self._start()
            connection = self._connection
            assert connection is not None
            refusal = self._exchange(connection, self._recipe, None)
            if refusal is not None:
                self._end()
                raise WorkersLost(refusal)
            self._failed_starts = 0
            if self._sound is not None and self._limit_s is not None:
                # known to end: after it, limits count from the first second
                self._exchange(connection, self._sound, None)
                self._warm = True
        return self._connection

    def _exchange(self, connection: Connection, message: Any, limit_s: float | None) -> Any:
        try:
            connection.send_bytes(pickle.dumps(message, protocol=5))
            if not connection.poll(limit_s):
                self._end()
                raise _Late
            return pickle.loads(connection.recv_bytes())  # noqa: S301  # our own child
        except (EOFError, OSError) as error:
            self._end()
            if self._closed:
                raise RuntimeError("the workers were ended") from error
            if self._recipe is message:
                self._failed_starts += 1
            raise _Died from error

    def _start(self) -> None:
        if self._failed_starts >= TRIES:
            raise WorkersLost("a worker's process dies before it has built the problem")
        here, there = Pipe(duplex=True)
        path = pickle.dumps(list(sys.path)).hex()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, str(there.fileno()), path],
            stdin=subprocess.DEVNULL,
            pass_fds=(there.fileno(),),
        )
        there.close()
        self._connection = here
        self._warm = False
        self.started += 1

    def _end(self) -> None:
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()


def _joined(parts: list[Metrics | None]) -> Metrics:
    names = next((list(part) for part in parts if part is not None), [])
    lost = np.array([np.nan])
    return {
        name: np.concatenate([lost if part is None else part[name] for part in parts])
        for name in names
    }


# What follows runs in the process.


def serve(descriptor: int) -> None:
    """Build a problem and evaluate what comes over a socket, until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    problem: SearchProblem | None = None
    answer: Any
    while True:
        message = messages.get()
        if isinstance(message, Recipe):
            problem, answer = _built(message)
        else:
            assert problem is not None
            answer = attempt(problem.metrics, message)
        connection.send_bytes(pickle.dumps(answer, protocol=5))


def _receive(connection: Connection, messages: Any) -> None:
    while True:
        try:
            messages.put(pickle.loads(connection.recv_bytes()))  # noqa: S301  # our own parent
        except (EOFError, OSError):
            os._exit(0)  # whoever started this process has ended, or wants it to


def _built(recipe: Recipe) -> tuple[SearchProblem | None, str | None]:
    """Return the problem, or why this process refuses to work."""
    try:
        problem = build_problem(recipe.study, recipe.key, recipe.cache_dir, workers=1)
    except Exception as error:
        text = (
            str(error) if isinstance(error, MohsearchError) else f"{type(error).__name__}: {error}"
        )
        return None, f"a worker cannot build the problem: {text}"
    if problem.digest() != recipe.digest:
        return None, (
            "a worker's problem differs from the study's: its mohsearch, cards or workloads are of "
            "another version"
        )
    return problem, None
