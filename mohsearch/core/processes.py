"""Worker processes that never outlive the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def follow_parent() -> None:
    """Make this worker process end with its parent, however that one ends.

    Call it first thing in a worker, as the initializer of a process pool: an interruption from the
    keyboard is then the parent's affair, and a killed parent leaves nothing running behind.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
