"""Worker processes: never more than allowed, none outlives its parent or runs its script again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any

_LIMIT: ContextVar[int | None] = ContextVar("most processes that may be started", default=None)


@contextmanager
def process_limit(count: int | None) -> Iterator[None]:
    """Let what is called within start no more than ``count`` processes; None changes nothing.

    It holds for this thread, and within another limit the smaller of both holds.

    Examples
    --------
    >>> with process_limit(1):
    ...     allowed_processes()
    1
    """
    above = _LIMIT.get()
    limits = [limit for limit in (count, above) if limit is not None]
    token = _LIMIT.set(min(limits, default=None))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def allowed_processes() -> int:
    """Return how many processes to start by default: one per usable core, within the limit."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, _LIMIT.get() or cores)


def follow_parent() -> None:
    """Make this worker process end with its parent, however that one ends.

    Call it first thing in a worker, as the initializer of a process pool: an interruption from the
    keyboard is then the parent's affair, and a killed parent leaves nothing running behind.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


class _Worker(SpawnProcess):
    """A fresh process that does not import the main module of its parent."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # the hook of multiprocessing
        with _no_main_module():
            return SpawnProcess._Popen(process_obj)


class _WorkerContext(SpawnContext):
    Process = _Worker


def worker_context() -> SpawnContext:
    """Return the context for process pools: fresh processes that import this package alone.

    A script that calls this package needs no ``if __name__ == "__main__"`` then: an ordinary
    spawned process would run it once more. What is sent to the workers must not be defined in the
    main module.
    """
    return _WorkerContext()


_MAIN = threading.RLock()


@contextmanager
def _no_main_module() -> Iterator[None]:
    with _MAIN:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
