"""Worker processes: they never outlive the process that started them, nor run its script again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any


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
