"""The door to Dask: a cluster of any size evaluates chunks of genomes.

The machines need the same mohsearch and the files that the study names under the same paths. How
the cluster is started is Dask's affair: by hand (``dask scheduler``, ``dask worker``), under SLURM
(dask-jobqueue) or on Kubernetes (dask-kubernetes); docs/robustness.md shows each.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.study.evaluation import Recipe, Workers, evaluate_chunk

CONNECT_S = 20.0
DEATHS = 2
"""A chunk is handed to another worker this often when its worker dies."""


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
    """The workers of a Dask cluster."""

    def __init__(self, recipe: Recipe, count: int, *, address: str | None) -> None:
        distributed = require("distributed", "dask")
        dask = require("dask", "dask")
        # a worker that comes back asks for nothing that was computed before it went
        dask.config.set({"distributed.scheduler.allowed-failures": DEATHS})
        self._cluster: Any = None
        if address is None:
            self._cluster = distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None
            )
        try:
            self._client = distributed.Client(
                self._cluster or address, timeout=CONNECT_S, set_as_default=False
            )
        except OSError as error:
            raise InputError(f"no Dask scheduler answers at {address}") from error
        threads = sum(self._client.nthreads().values())
        super().__init__(recipe, max(1, threads))
        self._tasks: dict[Future[Any], Any] = {}

    def submit(self, rows: NDArray[Any]) -> Future[Any]:
        """Give some rows to the cluster."""
        task = self._client.submit(evaluate_chunk, self.recipe, np.array(rows), pure=False)
        future: Future[Any] = Future()
        self._tasks[future] = task
        task.add_done_callback(lambda done: self._settle(future, done))
        return future

    def _settle(self, future: Future[Any], task: Any) -> None:
        self._tasks.pop(future, None)
        if future.done():
            return
        if task.status == "finished":
            future.set_result(task.result())
        elif task.status == "error":
            future.set_exception(task.exception())
        else:
            future.set_exception(RuntimeError(f"the cluster gave it up ({task.status})"))

    def renew(self) -> bool:
        """Do nothing: Dask replaces dead workers itself, and hands their work to others."""
        return False

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
