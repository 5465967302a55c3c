"""Moves on partitions: ops over a chip boundary, chips merged and split. All keep rows valid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Labels = NDArray[np.int64]

_INNER: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
inner = njit(**_INNER)

MOST_MOVED = 16
"""Most ops that one boundary shift moves."""


def shift_boundaries(space: Any, partitions: Labels, rng: np.random.Generator) -> None:
    """Move some ops of one chip to a neighbour, in place, in every partition.

    The chip is the one with the most work or, as often, any. Ops move to the later neighbour when
    nothing after them is left behind, to the earlier one likewise; up to 16 of them. Rows that do
    not stay valid (edges may span more than one chip) are projected.
    """
    graph = space.task.graph
    _shift(
        graph.succ_starts,
        graph.edge_dst,
        graph.pred_starts,
        graph.edge_src[graph.pred_edges],
        space.task.time_s,
        partitions,
        space.chips,
        rng,
    )
    _revalidate(space, partitions)


def merge_or_split(space: Any, partitions: Labels, rng: np.random.Generator) -> None:
    """Use one chip less or one more, in place, in every partition.

    Half the rows lose a chip: two neighbours are merged. The others gain one where there is room:
    the chip with the most work is cut in two along the program order.
    """
    time = np.asarray(space.task.time_s)
    for row in partitions:
        used = int(row.max()) + 1
        if used > 1 and (used >= space.chips or rng.random() < 0.5):
            row[row > int(rng.integers(used - 1))] -= 1
        elif used < space.chips:
            chip = int(np.argmax(np.bincount(row, weights=time, minlength=used)))
            members = np.flatnonzero(row == chip)
            if len(members) > 1:
                at = int(np.searchsorted(np.cumsum(time[members]), time[members].sum() / 2))
                cut = min(max(at, 1), len(members) - 1)
                row[row > chip] += 1
                row[members[cut:]] += 1
    _revalidate(space, partitions)


def _revalidate(space: Any, partitions: Labels) -> None:
    broken = ~space.valid(partitions)
    if broken.any():
        partitions[broken] = space.project(partitions[broken].astype(np.float64))


@inner
def _busiest_or_any(y, time, work, rng):  # type: ignore[no-untyped-def]
    """Return a chip, the number of chips in use, and the ops on that chip."""
    used = 0
    work[:] = 0.0
    for v in range(len(y)):
        work[y[v]] += time[v]
        used = max(used, y[v] + 1)
    chip = int(rng.random() * used)
    if rng.random() < 0.5:
        chip = int(np.argmax(work))
    ops = 0
    for c in y:
        ops += c == chip
    return chip, used, ops


@inner
def _may_go(v, chip, later, y, outof, after, into, before):  # type: ignore[no-untyped-def]
    """Tell whether no op of the chip stands between ``v`` and where it goes."""
    if later:
        for e in range(outof[v], outof[v + 1]):
            if y[after[e]] <= chip:
                return False
    else:
        for e in range(into[v], into[v + 1]):
            if y[before[e]] >= chip:
                return False
    return True


@njit(cache=True, nogil=True)
def _shift(outof, after, into, before, time, Y, chips, rng):  # type: ignore[no-untyped-def]
    n = Y.shape[1]
    work = np.empty(chips)
    for y in Y:
        chip, used, ops = _busiest_or_any(y, time, work, rng)
        later = rng.random() < 0.5
        if used < 2:
            continue
        if chip == 0 or chip == used - 1:
            later = chip == 0
        wanted = 1 + int(rng.random() * rng.random() * MOST_MOVED)
        wanted = min(wanted, ops - 1)  # no chip is emptied
        for step in range(n):
            v = n - 1 - step if later else step
            if wanted == 0:
                break
            if y[v] != chip or not _may_go(v, chip, later, y, outof, after, into, before):
                continue
            if rng.random() < 0.8:
                y[v] += 1 if later else -1
                wanted -= 1
