"""Rows that would not fit in memory for ever: the newest are held, older ones stand in a file."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.engines.engine import IntArray

WINDOW_BYTES = 2**22
"""At least so much stays in memory once rows are moved to the file, at most twice as much."""


class SpooledRows:
    """A growing matrix, of which a bounded part is in memory.

    The file has no name, so that nothing is left of it however the process ends.

    Parameters
    ----------
    width
        Columns.
    dtype
        Of every value.
    capacity
        Rows to make room for; more are taken too.
    scratch
        Folder of the file, which exists; without one all rows stay in memory.

    Examples
    --------
    >>> rows = SpooledRows(2, np.dtype("int8"))
    >>> rows.append(np.array([[1, 2], [3, 4]]))
    >>> rows.take(np.array([1, 0, 1])).tolist()
    [[3, 4], [1, 2], [3, 4]]
    """

    def __init__(
        self, width: int, dtype: np.dtype[Any], capacity: int = 256, scratch: Path | None = None
    ) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._row_bytes = width * self._dtype.itemsize
        self._scratch = scratch
        self._window = max(256, WINDOW_BYTES // max(1, self._row_bytes))
        if scratch is not None:
            capacity = min(capacity, 2 * self._window)
        self._held = np.empty((max(1, capacity), width), dtype=self._dtype)
        self._first = 0
        self._count = 0
        self._file = -1

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory(self) -> bool:
        """Whether no row was moved to the file."""
        return self._first == 0

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows, shape (n, width).

        Raises
        ------
        OSError
            If the file cannot be written (a full disk); the rows held before are kept.
        """
        held = self._count - self._first
        if self._scratch is not None and held + len(rows) > 2 * self._window:
            self._spill(held)
            held = self._count - self._first
        if held + len(rows) > len(self._held):
            size = 2 * len(self._held)
            if self._scratch is not None:
                size = min(size, 2 * self._window)
            grown = np.empty((max(held + len(rows), size), self._width), dtype=self._dtype)
            grown[:held] = self._held[:held]
            self._held = grown
        self._held[held : held + len(rows)] = rows
        self._count += len(rows)

    def take(self, ids: IntArray | slice) -> NDArray[Any]:
        """Return rows by number: a view for a slice of held rows, else a copy, (n, width)."""
        if isinstance(ids, slice):
            start, stop, step = ids.indices(self._count)
            if step != 1:
                return self.take(np.arange(start, stop, step))
            if start >= self._first:
                return self._held[start - self._first : max(start, stop) - self._first]
            middle = min(stop, self._first)
            old = self._read(start, middle - start)
            return old if stop <= middle else np.concatenate([old, self._held[: stop - middle]])
        ids = np.asarray(ids, dtype=np.int64)
        if self._first == 0:
            return self._held[: self._count][ids]
        found = np.empty((*ids.shape, self._width), dtype=self._dtype)
        ids = np.where(ids < 0, ids + self._count, ids)
        recent = ids >= self._first
        found[recent] = self._held[ids[recent] - self._first]
        old, inverse = np.unique(ids[~recent], return_inverse=True)
        rows = np.empty((len(old), self._width), dtype=self._dtype)
        for place, number in enumerate(old.tolist()):
            rows[place] = self._read(number, 1)[0]
        found[~recent] = rows[inverse]
        return found

    def _spill(self, held: int) -> None:
        """Move all but the newest window of rows to the file."""
        moved = max(0, held - self._window)
        if self._file < 0:
            with tempfile.TemporaryFile(dir=self._scratch) as nameless:
                self._file = os.dup(nameless.fileno())
            weakref.finalize(self, os.close, self._file)
        block = memoryview(self._held[:moved].tobytes())
        start = self._first * self._row_bytes
        while block:
            written = os.pwrite(self._file, block, start)
            block, start = block[written:], start + written
        self._held[: held - moved] = self._held[moved:held].copy()
        self._first += moved

    def _read(self, start: int, count: int) -> NDArray[Any]:
        size, place = count * self._row_bytes, start * self._row_bytes
        content = os.pread(self._file, size, place)
        while len(content) < size:  # the system reads at most 2 GiB at once
            more = os.pread(self._file, size - len(content), place + len(content))
            if not more:
                raise OSError(f"scratch file ends at row {start}")
            content += more
        return np.frombuffer(content, dtype=self._dtype).reshape(count, self._width)
