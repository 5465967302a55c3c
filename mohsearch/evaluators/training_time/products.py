"""Seconds of matrix products and element-wise passes on a GPU, for whole arrays at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.training_time.cards import TrainingConstants

Floats = NDArray[np.float64]

TILES = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.9),
    (128, 64, 0.72),
    (64, 128, 0.72),
    (64, 64, 0.495),
)
"""Rows, columns, and rate relative to the largest: smaller tiles re-use less of what they load."""
SPLITS = (1, 2, 4, 8, 16)
"""Along the reduction dimension, when the output alone has too few tiles for the device."""
ELEMENT_BYTES = 2.0


@dataclass(frozen=True)
class DeviceRates:
    """Rates of the device of each row, shape (rows,)."""

    tensor_flop_per_s: Floats
    """Sustained in a full tile of a long product."""
    multiprocessors: Floats
    memory_bytes_per_s: Floats
    """Achieved, not of the data sheet."""


def product_seconds(
    batch: Floats,
    m: Floats,
    n: Floats,
    k: Floats,
    rates: DeviceRates,
    constants: TrainingConstants,
    *,
    in_memory: bool = True,
) -> Floats:
    """Return the time of ``batch`` products (m x k)(k x n), shape (rows,), seconds.

    The output is cut into tiles, which the multiprocessors work off in waves; the last wave is
    paid in full. The fastest tile and split of the reduction is taken, as a library's heuristic
    would, and never less than the time to move operands and result once (unless a fused kernel
    keeps them on the chip: ``in_memory=False``).

    Examples
    --------
    >>> import numpy as np
    >>> from mohsearch.evaluators.training_time.cards import load_constants
    >>> rates = DeviceRates(np.array(3.12e14), np.array(108.0), np.array(1.6e12))
    >>> one = np.array(1.0)
    >>> seconds = product_seconds(one, 4096 * one, 4096 * one, 4096 * one, rates, load_constants())
    >>> bool(2 * 4096**3 / 3.12e14 < seconds < 4 * 4096**3 / 3.12e14)
    True
    """
    tiles = np.array(TILES)
    splits = np.array(SPLITS, dtype=np.float64)
    rows, columns, rate = (tiles[:, i, None] for i in range(3))  # (tiles, splits, rows)
    shape = (len(TILES), len(SPLITS), *np.broadcast(batch, m, n, k).shape)
    extra = (1,) * (len(shape) - 2)
    rows, columns, rate = (part.reshape(-1, 1, *extra) for part in (rows, columns, rate))
    split = splits.reshape(1, -1, *extra)
    count = batch * np.ceil(m / rows) * np.ceil(n / columns)
    waves = np.ceil(count * split / rates.multiprocessors)
    depth = np.ceil(k / split / 32) * 32 + constants.fill_k
    per_processor = rates.tensor_flop_per_s / rates.multiprocessors
    tile = 2 * rows * columns * depth / (per_processor * rate)
    partial = np.where(split > 1, (8 * split + ELEMENT_BYTES) * batch * m * n, 0.0)
    compute = np.min(waves * tile + partial / rates.memory_bytes_per_s, axis=(0, 1))
    if not in_memory:
        return np.asarray(compute)
    moved = ELEMENT_BYTES * batch * (m * k + k * n + m * n)
    return np.asarray(np.maximum(compute, moved / rates.memory_bytes_per_s))
