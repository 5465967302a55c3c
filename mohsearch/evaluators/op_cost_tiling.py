"""Exact tiling search of matrix products on an accelerator with several systolic arrays.

The space. A product of ``batch`` (m x k) by (k x n) matrices is cut

* into tiles that stand in the global buffer; a tile's side is the whole side or a power of two from
  :data:`LEAST_TILE` on, and the three loops over tiles may stand in any order;
* over the cores: a power of two along each of batch, m and n, all cores together;
* on a core into folds of the array, outputs, weights or inputs held in it (``os``, ``ws``, ``is``),
  with as many folds' strips kept in the core's buffer as fit.

Its latency is the largest of: the array's cycles (each fold as in SCALE-Sim, tiles one after
another), words between global buffer and cores over that bandwidth, and words to and from memory
over that bandwidth; what several cores read in the same place is sent once. Half of each buffer
holds what is being worked on, the other half what comes next, so the three run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

LEAST_TILE = 32
"""Smallest side of a tile in the global buffer (or the whole side, where that is smaller)."""

MAX_TILES = 4096
_ORDERS = 6

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_INNER: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT) -> FunctionT:
    """Compile a function that only compiled code calls: without the costly door from Python."""
    result: FunctionT = njit(**_INNER)(function)
    return result


entry = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def memory_words(batch: int, m: int, n: int, k: int, tm: int, tn: int, tk: int) -> int:
    """Return the fewest words to and from memory for tiles of (tm, tn, tk), over all loop orders.

    An operand's tile stays while only loops that it does not depend on advance. Partial sums that
    leave are read back.
    """
    cm, cn, ck = -(-m // tm), -(-n // tn), -(-k // tk)
    a, b, c = m * k, k * n, m * n
    least = a * cn + b * cm + c * (2 * ck - 1)
    # innermost loop n: the left operand stays; m: the right one; k: the result.
    # If the innermost loop has one pass, the next one decides, and so on.
    for order in range(_ORDERS):
        outer, middle, inner = _order(order)
        left = _reloads(outer, middle, inner, cm, cn, ck, 1)
        right = _reloads(outer, middle, inner, cm, cn, ck, 0)
        result = _reloads(outer, middle, inner, cm, cn, ck, 2)
        words = a * left + b * right + c * (2 * result - 1)
        least = min(least, words)
    return batch * least


@compiled
def _order(number: int) -> tuple[int, int, int]:
    if number == 0:
        return 0, 1, 2
    if number == 1:
        return 0, 2, 1
    if number == 2:
        return 1, 0, 2
    if number == 3:
        return 1, 2, 0
    if number == 4:
        return 2, 0, 1
    return 2, 1, 0


@compiled
def _reloads(outer: int, middle: int, inner: int, cm: int, cn: int, ck: int, free: int) -> int:
    """Return how often an operand is loaded whole: passes of its free loop outside a needed one."""
    counts = (cm, cn, ck)
    passes = counts[free]
    if inner == free:
        return 1
    if middle == free:
        return passes if counts[inner] > 1 else 1
    if counts[inner] > 1 or counts[middle] > 1:
        return passes
    return 1


@compiled
def _sort(keys: Integers, rows: Integers, count: int) -> None:
    """Sort the first ``count`` keys upwards, and the rows with them.

    By Shell's method: a few hundred entries, and far quicker to compile than NumPy's.
    """
    gap = count // 2
    while gap > 0:
        for start in range(gap, count):
            place = start
            while place >= gap and keys[place - gap] > keys[place]:
                other = place - gap
                keys[place], keys[other] = keys[other], keys[place]
                for column in range(rows.shape[1]):
                    kept = rows[place, column]
                    rows[place, column] = rows[other, column]
                    rows[other, column] = kept
                place = other
        gap //= 2


@compiled
def list_tiles(
    batch: int, m: int, n: int, k: int, at_once: int, room: int, tiles: Integers, words: Integers
) -> int:
    """Write all tiles of which ``at_once`` fit in ``room`` words, fewest memory words first.

    Returns their number. ``tiles`` has shape (MAX_TILES, 3), ``words`` (MAX_TILES,).
    """
    count = 0
    tm = LEAST_TILE
    while True:
        sm = min(tm, m)
        tn = LEAST_TILE
        while True:
            sn = min(tn, n)
            tk = LEAST_TILE
            while True:
                sk = min(tk, k)
                if at_once * (sm * sk + sk * sn + sm * sn) <= room and count < MAX_TILES:
                    tiles[count, 0], tiles[count, 1], tiles[count, 2] = sm, sn, sk
                    words[count] = memory_words(batch, m, n, k, sm, sn, sk)
                    count += 1
                if tk >= k:
                    break
                tk *= 2
            if tn >= n:
                break
            tn *= 2
        if tm >= m:
            break
        tm *= 2
    _sort(words, tiles, count)
    return count


@compiled
def _divided(size: int, parts: int) -> int:
    return (size + parts - 1) // parts


@compiled
def _passes(size: int, tile: int, parts: int, side: int, strip: int) -> int:
    """Return in how many strips of folds one core goes through a side, summed over the tiles."""
    whole = size // tile
    rest = size - whole * tile
    passes = whole * _divided(_divided(_divided(tile, parts), side), strip)
    if rest:
        passes += _divided(_divided(_divided(rest, parts), side), strip)
    return passes


@compiled
def _folds(size: int, tile: int, parts: int, side: int) -> int:
    """Return the folds of one core along a side, summed over the tiles."""
    return _passes(size, tile, parts, side, 1)


@compiled
def _streams(size: int, tile: int, parts: int, fill: int) -> int:
    """Return the cycles of streaming one core's part of a side, summed over the tiles."""
    whole = size // tile
    rest = size - whole * tile
    cycles = whole * (-(-tile // parts) + fill)
    if rest:
        cycles += -(-rest // parts) + fill
    return cycles


@compiled
def array_cycles(
    m: int, n: int, k: int, tm: int, tn: int, tk: int,
    pm: int, pn: int, height: int, width: int, flow: int, filled: int,
) -> int:  # fmt: skip
    """Return the cycles of one core for one product cut into tiles; flow 0 os, 1 ws, 2 is."""
    if flow == 0:
        folds = _folds(m, tm, pm, height) * _folds(n, tn, pn, width)
        return folds * _streams(k, tk, 1, filled * (height + width - 2))
    fill = filled * (2 * height + width - 2)
    if flow == 1:
        folds = _folds(k, tk, 1, height) * _folds(n, tn, pn, width)
        return folds * _streams(m, tm, pm, fill)
    folds = _folds(k, tk, 1, height) * _folds(m, tm, pm, width)
    return folds * _streams(n, tn, pn, fill)


@compiled
def buffer_words(
    m: int, n: int, k: int, tm: int, tn: int, tk: int,
    pm: int, pn: int, height: int, width: int, flow: int, room: int,
) -> tuple[int, int]:  # fmt: skip
    """Return the words between global buffer and cores, and between core buffers and arrays."""
    counts = -(-k // tk)
    again = m * n * (counts - 1)  # partial sums of earlier tiles
    own_m, own_n = -(-tm // pm), -(-tn // pn)
    if flow == 0:
        fm, fn = _folds(m, tm, pm, height), _folds(n, tn, pn, width)
        tiles_m, tiles_n = -(-m // tm), -(-n // tn)
        result = m * n * counts + again
        fed = m * k * fn + k * n * fm + m * n
        best = m * k * fn + k * n * fm
        strip = room // (min(height, own_m) * tk)
        if strip:
            passes = _passes(m, tm, pm, height, strip)
            best = min(best, m * k * tiles_n + k * n * passes)
        strip = room // (min(width, own_n) * tk)
        if strip:
            passes = _passes(n, tn, pn, width, strip)
            best = min(best, k * n * tiles_m + m * k * passes)
        return best + result, fed
    if flow == 1:
        return _held(m, n, k, tm, tn, tk, pm, pn, height, width, room)
    return _held(n, m, k, tn, tm, tk, pn, pm, height, width, room)


@compiled
def _held(
    m: int, n: int, k: int, tm: int, tn: int, tk: int,
    pm: int, pn: int, height: int, width: int, room: int,
) -> tuple[int, int]:  # fmt: skip
    """Return the words where (k x n) folds are held and rows of m stream."""
    tiles_m, tiles_n, tiles_k = -(-m // tm), -(-n // tn), -(-k // tk)
    own_m = -(-tm // pm)
    fk, fn = _folds(k, tk, 1, height), _folds(n, tn, pn, width)
    held = k * n * tiles_m
    stream, sums = m * k * fn, m * n * (2 * fk - 1)
    fed = stream + k * n * tiles_m + sums
    best = stream + sums
    row_k, row_n = min(height, tk), min(width, -(-tn // pn))
    crossing = 2 * tiles_k - 1
    strip = room // (own_m * row_n)  # results of some n folds stay
    if strip:
        best = min(best, stream + m * n * crossing)
    strip = (room - own_m * row_k) // (own_m * row_n)  # and the rows that they need
    if strip > 0:
        passes = _passes(n, tn, pn, width, strip)
        best = min(best, m * k * passes + m * n * crossing)
    if own_m * row_k <= room:  # rows of one k fold stay
        best = min(best, m * k * tiles_n + sums)
    strip = (room - own_m * row_n) // (own_m * row_k)  # rows of some k folds, and results
    if strip > 0:
        passes = _passes(k, tk, 1, height, strip)
        best = min(best, m * k * tiles_n + m * n * (2 * passes - 1))
    return held + best, fed


@compiled
def _rank_splits(
    batch: int, m: int, n: int, k: int, height: int, width: int, cores: int, filled: int,
    splits: Integers, bounds: Integers,
) -> int:  # fmt: skip
    """Write all ways to cut over the cores with each dataflow, fewest array cycles first."""
    count = 0
    pb = 1
    while pb <= cores:
        pm = 1
        while pb * pm <= cores:
            pn = cores // (pb * pm)
            for flow in range(3):
                cycles = array_cycles(m, n, k, m, n, k, pm, pn, height, width, flow, filled)
                splits[count, 0], splits[count, 1] = pb, pm
                splits[count, 2], splits[count, 3] = pn, flow
                bounds[count] = -(-batch // pb) * cycles
                count += 1
            pm *= 2
        if pb >= batch:
            break
        pb *= 2
    _sort(bounds, splits, count)
    return count


@entry
def search_products(
    batch: int, m: int, n: int, k: int, extra_words: int, extra_sent: int,
    rooms: Integers, height: Integers, width: Integers, cores: Integers, buffer: Integers,
    glb: Integers, glb_rate: Floats, memory_rate: Floats, filled: int,
    cycles: Integers, traffic: Integers,
) -> None:  # fmt: skip
    """Find the fastest tiling of one product on many accelerators.

    Parameters
    ----------
    batch, m, n, k
        The product.
    extra_words
        Words of memory traffic besides the operands (of fused followers).
    extra_sent
        The same for the global buffer.
    rooms
        Usable words of the global buffers that occur, shape (sizes,).
    height, width, cores, buffer, glb, glb_rate, memory_rate
        Accelerators: array, cores, usable words of a core's buffer, place in ``rooms``, and words
        per cycle of the global buffer and of the memory, each of shape (accelerators,).
    filled
        1 if folds are filled and drained as in SCALE-Sim, 0 if that costs nothing.
    cycles, traffic
        Written: latency, shape (accelerators,), and words of memory, global buffer and core
        buffers at it, shape (accelerators, 3).
    """
    levels = 1
    while 2 ** (levels - 1) < batch and levels < 13:
        levels += 1
    sizes = len(rooms)
    tiles = np.empty((sizes, levels, MAX_TILES, 3), np.int64)
    words = np.empty((sizes, levels, MAX_TILES), np.int64)
    counts = np.zeros((sizes, levels), np.int64)
    for size in range(sizes):
        for level in range(levels):
            counts[size, level] = list_tiles(
                batch, m, n, k, 2**level, rooms[size], tiles[size, level], words[size, level]
            )
    splits, bounds = np.empty((300, 4), np.int64), np.empty(300, np.int64)
    for place in range(len(height)):
        number = _rank_splits(
            batch, m, n, k, height[place], width[place], cores[place], filled, splits, bounds
        )
        _search_one(
            batch, m, n, k, extra_words, extra_sent, height[place], width[place], buffer[place],
            glb_rate[place], memory_rate[place], filled, splits, bounds, number,
            tiles[glb[place]], words[glb[place]], counts[glb[place]], cycles, traffic, place,
        )  # fmt: skip


@compiled
def _search_one(
    batch: int, m: int, n: int, k: int, extra_words: int, extra_sent: int,
    height: int, width: int, buffer: int, glb_rate: float, memory_rate: float,
    filled: int, splits: Integers, bounds: Integers, number: int,
    tiles: Integers, words: Integers, counts: Integers,
    cycles: Integers, traffic: Integers, place: int,
) -> None:  # fmt: skip
    """Search one accelerator, pruning by array cycles and memory words that cannot be undercut."""
    best = np.inf
    for choice in range(number):
        if bounds[choice] >= best:
            break
        pb, pm, pn, flow = splits[choice]
        level = 0
        while 2**level < pb:
            level += 1
        rounds = -(-batch // pb)
        for t in range(counts[level]):
            moved = words[level, t] + extra_words
            memory = moved / memory_rate
            if max(memory, float(bounds[choice])) >= best:
                break
            tm, tn, tk = tiles[level, t]
            work = rounds * array_cycles(m, n, k, tm, tn, tk, pm, pn, height, width, flow, filled)
            if work >= best:
                continue
            sent, fed = buffer_words(m, n, k, tm, tn, tk, pm, pn, height, width, flow, buffer)
            sent = batch * sent + extra_sent
            value = max(memory, float(work), sent / glb_rate)
            if value < best:
                best = value
                traffic[place, 0] = moved
                traffic[place, 1] = sent
                traffic[place, 2] = batch * fed
    cycles[place] = -1 if np.isinf(best) else int(np.ceil(best))
