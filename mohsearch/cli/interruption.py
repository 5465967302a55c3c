"""Ending a long command on request: Ctrl-C, or the SIGTERM of `timeout` and of schedulers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143
GRACE_S = 20.0
"""How long a command may take to end by itself: compiled code cannot be interrupted."""

_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; what handles Ctrl-C handles this."""


def exit_code_of(interruption: KeyboardInterrupt) -> int:
    """Return the exit code: 128 and the number of the signal, as shells count."""
    return TERMINATED if isinstance(interruption, Terminated) else INTERRUPTED


@contextmanager
def ends_on_request(
    last_words: Callable[[int], None], *, grace_s: float | None = None
) -> Iterator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does; end the process if the block does not end.

    The first SIGTERM raises :class:`Terminated` in the block; further ones (`timeout` sends two)
    are ignored, so that they do not disturb the tidying up. If the block is still running
    ``grace_s`` after a signal, the processes that it started are killed, ``last_words`` is called
    with the exit code, and the process ends with it. Outside the main thread nothing is changed.

    Parameters
    ----------
    last_words
        Tells the user how to go on.
    grace_s
        Seconds (default: :data:`GRACE_S`).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_: int, __: FrameType | None) -> None:
        # ignored to the very end: Python puts its own handlers away before it leaves
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        with _watched(last_words, GRACE_S if grace_s is None else grace_s):
            yield
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, previous)


@contextmanager
def _watched(last_words: Callable[[int], None], grace_s: float) -> Iterator[None]:
    """End the process from another thread if the block outlasts a signal by the grace."""
    import multiprocessing

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    ended = threading.Event()

    def watch() -> None:
        while number := os.read(reader, 1):
            code = _CODES.get(signal.Signals(number[0]))
            if code is not None and not ended.wait(grace_s):
                for child in multiprocessing.active_children():
                    child.kill()
                last_words(code)
                os._exit(code)

    # unlike Python's handlers, this pipe is written to at once, whatever the main thread does
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)
