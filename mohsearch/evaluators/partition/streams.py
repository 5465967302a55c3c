"""Random numbers inside compiled code: one stream a row, so that no row depends on its batch.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); rows are seeded from the generator handed in.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0


def row_seeds(rng: np.random.Generator, rows: int) -> NDArray[np.uint64]:
    """Return one seed a row (rows,)."""
    return rng.integers(0, 2**64 - 1, size=rows, dtype=np.uint64, endpoint=True)


@njit(cache=True, inline="always")
def uniform(state):  # type: ignore[no-untyped-def]
    """Return a number in [0, 1) and move ``state`` (1,)."""
    state[0] += _STEP
    z = state[0]
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    z = z ^ (z >> _S31)
    return np.float64(z >> _S11) * _UNIT


@njit(cache=True)
def shuffle(order, state):  # type: ignore[no-untyped-def]
    """Shuffle an array in place."""
    for i in range(len(order) - 1, 0, -1):
        j = int(uniform(state) * (i + 1))
        order[i], order[j] = order[j], order[i]


@njit(cache=True)
def take_order(order, orders, row, state):  # type: ignore[no-untyped-def]
    """Write the order that places a row: one of ``orders``, a random one where there are none."""
    if len(orders):
        order[:] = orders[row % len(orders)]
        return
    for i in range(len(order)):
        order[i] = i
    shuffle(order, state)
