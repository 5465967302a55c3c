"""The door to Dask: a cluster of any size evaluates chunks of genomes.

The machines need the same mohsearch and the files that the study names under the same paths. How
the cluster is started is Dask's affair: by hand (``dask scheduler``, ``dask worker``), under SLURM
(dask-jobqueue) or on Kubernetes (dask-kubernetes); docs/robustness.md shows each.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.study.evaluation import Workers
from mohsearch.study.evaluation_process import TRIES, Outcome, Recipe, RowEvaluator
from mohsearch.study.failures import WorkersLost

CONNECT_S = 20.0
NO_WORKER_S = 120.0
"""How long to wait for a worker to come (back) to a cluster that has none."""

LOOK_S = 5.0


def scheduler_of(executor: str) -> str | None:
    """Return the address in ``dask://HOST:PORT``, None for ``dask`` (a cluster on this machine).

    Raises
    ------
    InputError
        If the text is neither.

    Examples
    --------
    >>> scheduler_of("dask://10.0.0.1:8786")
    'tcp://10.0.0.1:8786'
    """
    if executor == "dask":
        return None
    scheme, separator, place = executor.partition("://")
    host, colon, port = place.rpartition(":")
    if scheme != "dask" or not separator or not host or not colon or not port.isdigit():
        raise InputError(
            f"{executor!r} is no executor; there are: runs, evaluations, dask, dask://HOST:PORT"
        )
    return f"tcp://{host}:{port}"


class DaskWorkers(Workers):
    """The workers of a Dask cluster.

    A worker lends its thread and its machine; genomes are evaluated in a process beside it, so that
    one that dies or outlasts its limit costs the worker nothing.

    Parameters
    ----------
    count
        Workers of the cluster that is started here.
    address
        Scheduler of a cluster that runs; None starts one on this machine, reachable from this
        machine only and without dashboard.

    Raises
    ------
    InputError
        If no scheduler answers.
    """

    def __init__(self, recipe: Recipe, count: int, *, address: str | None) -> None:
        distributed = require("distributed", "dask")
        self._cluster: Any = None
        if address is None:
            self._cluster = distributed.LocalCluster(
                host="127.0.0.1",
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",  # status pages: None is a fixed port
                scheduler_kwargs={"dashboard": False},
            )
        try:
            self._client = distributed.Client(
                self._cluster or address, timeout=CONNECT_S, set_as_default=False
            )
        except OSError as error:
            raise InputError(f"no Dask scheduler answers at {address}") from error
        super().__init__(recipe, max(1, sum(self._client.nthreads().values())))
        self._recipe_bytes = pickle.dumps(recipe, protocol=5)
        self._idle_since: float | None = None

    def count_now(self) -> int:
        """Return the threads of all workers there are now: workers come and go."""
        if self._client.status == "running":
            self.count = max(1, sum(self._client.nthreads().values()))
        return self.count

    def submit(self, rows: NDArray[Any]) -> Future[Outcome]:
        """Give some rows to the cluster."""
        future: Future[Outcome] = Future()
        self._send(np.ascontiguousarray(rows), future, 1)
        return future

    def _send(self, rows: NDArray[Any], future: Future[Outcome], tries: int) -> None:
        task = self._client.submit(evaluate_rows, self._recipe_bytes, rows, pure=False)
        future.task = task  # type: ignore[attr-defined]  # Dask drops work that nobody refers to
        task.add_done_callback(lambda done: self._settle(done, rows, future, tries))

    def _settle(self, task: Any, rows: NDArray[Any], future: Future[Outcome], tries: int) -> None:
        """Hand a result over; send the rows again where the cluster lost them."""
        if future.cancelled() or future.done():
            return
        if task.status == "finished":
            future.set_result(task.result())
            return
        error = task.exception() if task.status == "error" else None
        lost = error is None or type(error).__name__ == "KilledWorker"
        if lost and tries < TRIES and self._client.status == "running":
            self._send(rows, future, tries + 1)
        elif lost:
            why = "its workers died" if error is not None else f"its task is {task.status}"
            future.set_exception(WorkersLost(f"the Dask cluster lost an evaluation: {why}"))
        else:
            future.set_exception(error)

    def wait(self, futures: set[Future[Outcome]]) -> set[Future[Outcome]]:
        """Wait as everyone does, but not for a cluster without workers or scheduler.

        Raises
        ------
        WorkersLost
            If the cluster has had no worker for :data:`NO_WORKER_S`.
        """
        while not (done := wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED).done):
            if self._client.status == "running" and self._client.nthreads():
                self._idle_since = None
                continue
            now = time.monotonic()
            self._idle_since = now if self._idle_since is None else self._idle_since
            if now - self._idle_since > NO_WORKER_S:
                raise WorkersLost(f"the Dask cluster has had no worker for {NO_WORKER_S:g} s")
        self._idle_since = None
        return done

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        if self._cluster is None and self._client.status == "running":
            self._client.run(end_processes, on_error="ignore")
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


# What follows runs in the workers of the cluster.

_idle: dict[str, list[RowEvaluator]] = {}
_guard = threading.Lock()


def evaluate_rows(recipe_bytes: bytes, rows: NDArray[Any]) -> Outcome:
    """Evaluate genomes in a process beside this worker; one for each of its threads."""
    key = hashlib.blake2b(recipe_bytes, digest_size=16).hexdigest()
    with _guard:
        free = _idle.setdefault(key, [])
        evaluator = free.pop() if free else None
    if evaluator is None:
        evaluator = RowEvaluator(pickle.loads(recipe_bytes))  # noqa: S301  # ours
    try:
        return evaluator.evaluate(rows)
    finally:
        with _guard:
            _idle.setdefault(key, []).append(evaluator)


def end_processes() -> None:
    """End the processes beside this worker that have nothing to do."""
    with _guard:
        idle = [evaluator for group in _idle.values() for evaluator in group]
        _idle.clear()
    for evaluator in idle:
        evaluator.close()
