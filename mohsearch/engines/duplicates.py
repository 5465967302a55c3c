"""Recognising genomes already seen: by a digest of their row bytes."""

from __future__ import annotations

import hashlib
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.population import Population

KEY_BYTES = 16


def _first_word(key: bytes | bytearray) -> int:
    return int.from_bytes(key[:8], "little")


def genome_dtype(lower: NDArray[Any], upper: NDArray[Any], vtype: Any = int) -> np.dtype[Any]:
    """Return the smallest dtype that holds every gene: a signed integer, or float64.

    Examples
    --------
    >>> genome_dtype(np.array([-1, 0]), np.array([15, 300]))
    dtype('int16')
    >>> genome_dtype(np.array([0.0]), np.array([1.0]), float)
    dtype('float64')
    """
    if vtype is not int and not (isinstance(vtype, type) and issubclass(vtype, np.integer)):
        return np.dtype(np.float64)
    low, high = int(np.min(lower)), int(np.max(upper))
    for name in ("int8", "int16", "int32"):
        info = np.iinfo(name)
        if info.min < low and high <= info.max:
            return np.dtype(name)
    return np.dtype(np.int64)


def as_genomes(X: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return ``X`` as a C-contiguous array of ``dtype``.

    Raises
    ------
    ValueError
        If a value does not survive the conversion (a fraction in an integer genome, or a value
        out of range).
    """
    X = np.asarray(X)
    if X.dtype == dtype:
        return np.ascontiguousarray(X)
    with np.errstate(invalid="ignore"):
        rows = np.ascontiguousarray(X, dtype=dtype)
    if not np.array_equal(rows, X):
        raise ValueError(f"genomes do not fit {dtype.name}: a variation operator left the bounds")
    return rows


class GenomeIndex:
    """Genomes in the order they were first seen, by a 128-bit digest of their row.

    A hash table with open addressing, some 30 bytes a genome: a dictionary takes five times that.

    Parameters
    ----------
    dtype
        The dtype in which rows are compared.

    Examples
    --------
    >>> index = GenomeIndex(np.dtype("int16"))
    >>> [index.add(key) for key in index.keys(np.array([[1, 2], [3, 4], [1, 2]]))]
    [0, 1, 0]
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._count = 0
        self._keys = bytearray()
        self._resize(1024)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) >= 0

    def _resize(self, size: int) -> None:
        """Make a table of ``size`` slots, a power of two, and put every genome into it."""
        self._mask = size - 1
        self._slots = array("i", [-1]) * size
        for number in range(self._count):
            self._slots[self._free(self._keys[number * KEY_BYTES : (number + 1) * KEY_BYTES])] = (
                number
            )

    def _free(self, key: bytes | bytearray) -> int:
        """Return the slot for a key that is not in the table."""
        slot = _first_word(key) & self._mask
        while self._slots[slot] >= 0:
            slot = (slot + 1) & self._mask
        return slot

    def keys(self, X: NDArray[Any]) -> list[bytes]:
        """Return the digest of each row of ``X``."""
        rows = as_genomes(np.atleast_2d(X), self.dtype)
        return [hashlib.blake2b(row, digest_size=KEY_BYTES).digest() for row in rows]

    def get(self, key: bytes) -> int:
        """Return the number of a genome, or -1."""
        slots, keys, mask = self._slots, self._keys, self._mask
        slot = _first_word(key) & mask
        while (number := slots[slot]) >= 0:
            if keys[number * KEY_BYTES : (number + 1) * KEY_BYTES] == key:
                return number
            slot = (slot + 1) & mask
        return -1

    def add(self, key: bytes) -> int:
        """Return the number of a genome, giving it the next one if it is new."""
        number = self.get(key)
        if number >= 0:
            return number
        if 2 * self._count > self._mask:
            self._resize(2 * len(self._slots))
        number = self._count
        self._slots[self._free(key)] = number
        self._keys += key
        self._count += 1
        return number


class SeenElimination(DuplicateElimination):  # type: ignore[misc]  # pymoo ships no types
    """Drops individuals whose genome was evaluated before or stands earlier in the same batch.

    A pymoo ``eliminate_duplicates`` strategy in linear time. Without an index it compares with the
    populations pymoo hands in, as pymoo's own strategies do, so that it serves plain
    ``pymoo.minimize`` as well.

    Parameters
    ----------
    index
        Genomes seen in the whole search; ``None`` looks at pymoo's populations only.
    """

    def __init__(self, index: GenomeIndex | None = None) -> None:
        super().__init__()
        self.index = index
        self._batch: set[bytes] = set()

    def start_batch(self) -> None:
        """Forget the individuals accepted since the last call (they are in the index by now)."""
        self._batch.clear()

    def new_rows(self, X: NDArray[Any]) -> list[int]:
        """Return the positions of rows that are new, and accept them into the batch.

        Needs an index.
        """
        index, taken = self.index, self._batch
        assert index is not None
        kept: list[int] = []
        for position, key in enumerate(index.keys(X)):
            if key not in taken and key not in index:
                taken.add(key)
                kept.append(position)
        return kept

    def do(self, pop: Any, *args: Any, return_indices: bool = False, to_itself: bool = True) -> Any:
        """Return the individuals of ``pop`` that are new (see pymoo's ``DuplicateElimination``)."""
        taken = self._batch if self.index is not None else _rows_of(args)
        keep: list[int] = []
        if len(pop):
            keys = self.index.keys(pop.get("X")) if self.index else _row_bytes(pop.get("X"))
            for position, key in enumerate(keys):
                if key in taken or (self.index is not None and key in self.index):
                    continue
                if to_itself:
                    taken.add(key)
                keep.append(position)
        kept = pop[keep] if len(pop) else pop
        if not return_indices:
            return kept
        dropped = sorted(set(range(len(pop))) - set(keep))
        return kept, keep, dropped


def _row_bytes(X: NDArray[Any]) -> list[bytes]:
    rows = np.ascontiguousarray(X)
    return [row.tobytes() for row in rows]


def _rows_of(populations: tuple[Any, ...]) -> set[bytes]:
    taken: set[bytes] = set()
    for population in populations:
        if isinstance(population, Population) and len(population):
            taken.update(_row_bytes(population.get("X")))
    return taken
