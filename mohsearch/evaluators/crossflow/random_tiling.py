"""GEMM time by the DeepFlow authors' random tiling (``compat: deepflow``).

Per memory level a fixed number of tiles is drawn with seed 1; every combination of the three
levels' tiles is tried in one or two loop orders. The drawing is replayed from tables, so that a
point needs no generator. Source: the authors' program at 566c192; DeepFlow paper, section 6.2.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.crossflow.compiled import inner, outlined
from mohsearch.evaluators.crossflow.layout import (
    K_FLOPS,
    K_LEVEL,
    K_WIDTH1,
    L_BANDWIDTH,
    L_LATENCY,
    L_SHARE,
    LEVEL_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.reasons import NO_REGISTERS, OK, TOO_FEW_TILES

IntArray = NDArray[np.int64]

MAX_POWER = 64
MAX_DRAWS = 4096

FLOW_NONE, FLOW_WEIGHT, FLOW_ACTIVATION, FLOW_OUTPUT, FLOW_BEST = range(5)


@lru_cache(maxsize=1)
def drawn_exponents() -> NDArray[np.int8]:
    """Return (MAX_POWER, MAX_DRAWS, 2): the pairs drawn below each power with seed 1."""
    table = np.zeros((MAX_POWER, MAX_DRAWS, 2), dtype=np.int8)
    for power in range(1, MAX_POWER):
        # The legacy generator is what the reference cases were made with; it is local and seeded.
        legacy = np.random.RandomState(1)
        table[power] = legacy.randint(0, power, (MAX_DRAWS, 2))
    return table


@inner
def draw_tiles(elements: float, level: int, count: int, draws: np.ndarray, out: FloatArray) -> int:
    """Fill ``out[:count]`` with the authors' candidate tiles of one level; return a reason."""
    if elements < 1.0:
        return NO_REGISTERS + level
    power = math.floor(math.log2(elements))
    if power < 1:
        return TOO_FEW_TILES
    square = float(
        math.ceil(2.0 ** math.floor(math.log(math.sqrt(elements / 2.0)) / math.log(2.0)))
    )
    out[0, 0] = out[0, 1] = out[0, 2] = square
    out[1, 0], out[1, 1], out[1, 2] = square // 2, square, square * 2
    found = 2
    for i in range(draws.shape[1]):
        if found >= count:
            return OK
        a = 2.0 ** draws[power, i, 0]
        b = 2.0 ** draws[power, i, 1]
        z = math.floor((elements - a * b) / (a + b if level <= 1 else b))
        if z <= 0:
            continue
        z = 2.0 ** math.floor(math.log2(z))
        known = False
        for j in range(found):
            if out[j, 0] == a and out[j, 1] == b and out[j, 2] == z:
                known = True
                break
        if not known:
            out[found, 0], out[found, 1], out[found, 2] = a, b, z
            found += 1
    return OK if found >= count else TOO_FEW_TILES


@inner
def draw_all(
    chip: FloatArray, precision: float, count: int, draws: np.ndarray, tiles: FloatArray
) -> int:
    """Fill ``tiles[level, :count]`` for registers, L1 and L2; return a reason."""
    for level in range(3):
        elements = chip[K_LEVEL + level * LEVEL_FIELDS + L_SHARE] / precision
        reason = draw_tiles(elements, level, count, draws, tiles[level])
        if reason != OK:
            return reason  # type: ignore[no-any-return]
    return OK


@inner
def _clip(
    d: tuple[float, float, float], t: FloatArray, wide: bool, gap: bool
) -> tuple[float, float, float]:
    """Clip a tile to the dimensions; ``gap`` hands what is saved to the dimension left free."""
    t1, t2, t3 = t[0], t[1], t[2]
    size = t1 * t2 + t1 * t3 + t2 * t3
    short1 = t1 > d[0]
    short2 = t2 > d[1]
    short3 = t3 > d[2]
    t1, t2, t3 = min(t1, d[0]), min(t2, d[1]), min(t3, d[2])
    if not gap:
        return t1, t2, t3
    if not short3 and (short1 or short2):
        t3 = min(d[2], math.floor((size - t1 * t2) / (t2 if wide else t1 + t2)))
    elif not short1 and (short2 or short3):
        t1 = min(d[0], math.floor((size - t3 * t2) / (t2 if wide else t3 + t2)))
    elif not short2 and (short1 and short3):
        rest = size if wide else size - t3 * t1
        t2 = min(d[1], math.floor(rest / (t1 + t3)))
    return t1, t2, t3


@inner
def _traffic(
    d: tuple[float, float, float], t: tuple[float, float, float], level: int, repeats: float
) -> tuple[float, float]:
    """Return (elements moved, visits of the tile) for one level."""
    again1 = again2 = again3 = 1.0
    visits = repeats
    if t[0] > 0.0 and t[1] > 0.0 and t[2] > 0.0:
        c1 = math.ceil(d[0] / t[0])
        c2 = math.ceil(d[1] / t[1])
        c3 = math.ceil(d[2] / t[2])
        again1, again2 = c3, c1
        again3 = 1.0 if level > 1 else c2
        visits = repeats * (c1 * c2 * c3)
    moved = repeats * (d[0] * d[1] * again1 + d[1] * d[2] * again2 + d[0] * d[2] * again3)
    return moved, visits


@inner
def level_time(chip: FloatArray, level: int, flops: float, size: float) -> float:
    """Return the authors' roofline time of one level: either memory or compute, never both."""
    k = K_LEVEL + level * LEVEL_FIELDS
    rate, peak = chip[k + L_BANDWIDTH], chip[K_FLOPS]
    intensity = 0.0 if size == 0.0 else flops / size
    bend = math.inf if rate == 0.0 else peak / rate
    if intensity < bend:
        return (math.inf if rate == 0.0 or size == 0.0 else size / rate) + chip[k + L_LATENCY]  # type: ignore[no-any-return]
    return math.inf if peak == 0.0 else flops / peak


@inner
def resolve_flow(flow: int, m: float, k: float, n: float) -> int:
    """Return the dataflow that "best" picks for a product: by its largest dimension."""
    if flow != FLOW_BEST:
        return flow
    if m >= max(k, n):
        return FLOW_WEIGHT
    if k >= max(m, n):
        return FLOW_OUTPUT
    return FLOW_ACTIVATION


@inner
def loop_orders(flow: int, m: float, k: float, n: float, out: FloatArray) -> int:
    """Write the permuted triples that a dataflow tries; return how many."""
    if flow == FLOW_NONE:
        dims = (m, k, n)
        count = 0
        for a in range(3):
            for b in range(3):
                if a != b:
                    out[count, 0], out[count, 1], out[count, 2] = dims[a], dims[b], dims[3 - a - b]
                    count += 1
        return count
    if flow == FLOW_WEIGHT:
        x, y, z = k, n, m
    elif flow == FLOW_ACTIVATION:
        x, y, z = m, k, n
    else:
        x, y, z = m, n, k
    out[0, 0], out[0, 1], out[0, 2] = x, y, z
    out[1, 0], out[1, 1], out[1, 2] = y, x, z
    return 2 if x != y else 1


@inner
def _best_of_order(
    chip: FloatArray, tiles: FloatArray, count: int, dims: FloatArray, flow: int,
    precision: float, gap: bool, best: float, chosen: FloatArray,
) -> float:  # fmt: skip
    """Lower ``best`` over all tile combinations of one loop order, pruned level by level."""
    d = (dims[0], dims[1], dims[2])
    flops = d[0] * d[2] * (d[1] + d[1] - 1.0)
    width = chip[K_WIDTH1]
    reuse = 1.0
    if flow == FLOW_WEIGHT:
        reuse = math.ceil(d[0] / width)
    elif flow == FLOW_ACTIVATION:
        reuse = math.ceil(d[2] / width)
    elif flow == FLOW_OUTPUT:
        reuse = math.ceil(d[1] / width)
    near = flops * ((2.0 * reuse + 1.0) / (2.0 * reuse)) * 1.0 / width * precision
    floor = level_time(chip, 0, flops, near)
    if floor >= best:
        return best
    for i in range(count):
        t = _clip(d, tiles[2, i], True, gap)
        moved, visits2 = _traffic(d, t, 3, 1.0)
        time2 = max(floor, level_time(chip, 3, flops, moved * precision))
        if time2 >= best:
            continue
        d2 = (t[0] or d[0], t[1] or d[1], t[2] or d[2])
        for j in range(count):
            t = _clip(d2, tiles[1, j], True, gap)
            moved, visits1 = _traffic(d2, t, 2, visits2)
            time1 = max(time2, level_time(chip, 2, flops, moved * precision))
            if time1 >= best:
                continue
            d1 = (t[0] or d2[0], t[1] or d2[1], t[2] or d2[2])
            for h in range(count):
                t = _clip(d1, tiles[0, h], False, gap)
                moved, _ = _traffic(d1, t, 1, visits1)
                time = max(time1, level_time(chip, 1, flops, moved * precision))
                if time < best:
                    best = time
                    chosen[0], chosen[1], chosen[2] = dims[0], dims[1], dims[2]
                    chosen[3], chosen[4], chosen[5] = h, j, i
    return best


@outlined(
    "float64(float64[::1], float64[:, :, ::1], int64, float64, float64, float64, int64, float64,"
    " float64, boolean, float64[::1])"
)
def gemm_time(
    chip: FloatArray, tiles: FloatArray, count: int, m: float, k: float, n: float, flow: int,
    precision: float, overhead: float, gap: bool, chosen: FloatArray,
) -> float:  # fmt: skip
    """Return the time of one product; ``flow`` must be resolved.

    ``chosen`` receives the permuted dimensions and the indices of the L0, L1 and L2 tile.
    """
    orders = np.empty((6, 3))
    tried = loop_orders(flow, m, k, n, orders)
    best = math.inf
    for i in range(tried):
        best = _best_of_order(
            chip, tiles, count, orders[i], flow, precision, gap, best, chosen
        )  # fmt: skip
    return best + overhead
