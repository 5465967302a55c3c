"""GEMM time by exact tiling: the best of all power-of-two and divisor tiles at three levels.

Model of an m x k by k x n product. Each of L2, L1 and registers holds one tile of A, B and C at
once (all three count). At each level one operand is stationary; the other two are read again for
every tile of the dimension they do not have:

====== =============== =============== =========================
level  stationary C    stationary A    stationary B
====== =============== =============== =========================
A      m k N_n         m k N'_n        m k N_n
B      k n N_m         k n N_m         k n N'_m
C      m n (2 N'_k -1) m n (2 N_k - 1) m n (2 N_k - 1)
====== =============== =============== =========================

with N the number of tiles along a dimension at this level and N' at the level above (1 above L2).
Partial sums are written and read back once for every pass but the first. Time is the largest of
compute time and each level's traffic over its bandwidth (plus its latency); the tiles are chosen to
make it smallest. A larger tile never costs more at its own level nor below, so that for two sizes
only the largest third one needs a look, and adding capacity or bandwidth never adds time.

Source: DeepFlow paper, sections 6.1 to 6.3 (hierarchical roofline, equation 5).
"""

from __future__ import annotations

import math

import numpy as np

from mohsearch.evaluators.crossflow.compiled import inner, outlined
from mohsearch.evaluators.crossflow.layout import (
    K_FLOPS,
    K_FLOW,
    K_LEVEL,
    K_WIDTH1,
    K_WIDTH2,
    L_BANDWIDTH,
    L_LATENCY,
    L_SHARE,
    LEVEL_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.tile_bounds import (
    MAX_SIZES,
    TIE,
    bound_all,
    floors,
    fronts_of,
    grow,
    inner_bound,
    largest,
    moved,
    register_traffic,
    registers,
    tile_sizes,
    with_above,
)  # fmt: skip

_CACHED = 40000
_FRONT = 256
"""Largest number of L1 tiles whose register times are remembered."""
_BELOW = 1.0 - 1e-14
"""A tile must beat the best by more than rounding to be worth a look."""

# Result row of one product.
(
    G_TIME, G_COMPUTE, G_Q0, G_Q1, G_Q2, G_Q3, G_T2, G_T2K, G_T2N, G_T1, G_T1K, G_T1N, G_T0, G_T0K,
    G_T0N, G_FLOPS,
) = range(16)  # fmt: skip
GEMM_COLUMNS = 16
"""Seconds without launch overhead; seconds of compute; bytes L0..L3; (m, k, n) tiles L2, L1, L0."""


@inner
def best_tiles(
    chip: FloatArray, m: float, k: float, n: float, precision: float, sizes: FloatArray,
    counts: np.ndarray, out: FloatArray,
) -> None:  # fmt: skip
    """Fill ``out`` (``GEMM_COLUMNS``) with the best time and tiles; infinite if none fits.

    ``sizes`` is (3, MAX_SIZES) with the candidate sizes of m, k and n, ``counts`` how many.
    """
    out[:] = 0.0
    out[G_TIME] = math.inf
    rate = np.empty(4)
    late = np.empty(4)
    room = np.empty(3)
    for level in range(4):
        c = K_LEVEL + level * LEVEL_FIELDS
        rate[level] = chip[c + L_BANDWIDTH] / precision
        late[level] = chip[c + L_LATENCY]
        if level < 3:
            room[level] = chip[c + L_SHARE] / precision
        if rate[level] <= 0.0:
            return
    if chip[K_FLOPS] <= 0.0 or min(room[0], room[1], room[2]) < 3.0:
        return
    # A tile lies inside the tile above, so that it fits there as well.
    room[1] = min(room[1], room[2])
    room[0] = min(room[0], room[1])
    near = register_traffic(m, k, n, int(chip[K_FLOW]), chip[K_WIDTH1], chip[K_WIDTH2])
    out[G_FLOPS] = 2.0 * m * k * n
    out[G_COMPUTE] = out[G_FLOPS] / chip[K_FLOPS]
    out[G_Q0] = near * precision
    floor = max(out[G_COMPUTE], near / rate[0] + late[0])
    _search(m, k, n, room, rate, late, floor, sizes, counts, out)
    for column in range(G_Q1, G_Q3 + 1):
        out[column] *= precision


@inner
def _search(
    m: float, k: float, n: float, room: FloatArray, rate: FloatArray, late: FloatArray,
    floor: float, sizes: FloatArray, counts: np.ndarray, out: FloatArray,
) -> None:  # fmt: skip
    """Find the best tiles by branch and bound over the L2 tile.

    What the lower levels cost without nesting bounds an L2 tile from below; the bound is usually
    attained by the first tiles tried, and the rest are pruned.
    """
    mk, kn, mn = m * k, k * n, m * n
    ms, ks, ns = sizes[0], sizes[1], sizes[2]
    floors0 = np.empty((3, 4))
    inside = np.empty((3, 4))
    floors(m, k, n, room[0], ms, counts[0], ks, counts[1], ns, counts[2], floors0)
    near, _ = with_above(floors0, mk, kn, mn, 1.0, 1.0, 1.0)
    floor = max(floor, near / rate[1] + late[1])
    bounds = np.full((counts[0], counts[1]), math.inf)
    ranks = np.full((counts[0], counts[1]), math.inf)
    bound_all(
        m, k, n, room[2], 1.0 / rate[2], late[2], 1.0 / rate[3], late[3], floor, sizes, counts,
        room[1], bounds, ranks,
    )  # fmt: skip
    flat, order = bounds.reshape(-1), ranks.reshape(-1)
    best = math.inf
    least = -1.0
    cache = np.empty((0, 0, 0))
    fronts = np.empty((3, _FRONT, 2))
    lengths = np.zeros(3, dtype=np.int64)
    while True:
        at = int(np.argmin(order))
        if order[at] >= best * (1.0 + 2.0 * TIE) or order[at] == math.inf:
            return
        bound = flat[at]
        order[at] = math.inf
        if bound >= best * _BELOW:
            continue
        i, j = at // counts[1], at % counts[1]
        h = largest(ns, counts[2], ms[i], ks[j], room[2], n)
        time, done = _under(
            m, k, n, i, j, h, room, rate, late, floor, best, sizes, counts, inside, out
        )
        if done:
            best = min(best, time)
            continue
        if least < 0.0:
            fronts_of(
                m, k, n, room, rate, late, sizes, counts, floors0, fronts, lengths
            )  # fmt: skip
            depth = counts[2] if counts[0] * counts[1] * counts[2] <= _CACHED else 1
            cache = np.full((counts[0], counts[1], depth), -1.0)
            least, best = _below(
                m, k, n, room, rate, late, floor, best, sizes, counts, floors0, cache, out
            )
        if least >= best * _BELOW:
            return
        cm, ck, cn = math.ceil(m / ms[i]), math.ceil(k / ks[j]), math.ceil(n / ns[h])
        shift = (mn * (2.0 * ck - 1.0), mk * cn, kn * cm)
        inner = inner_bound(fronts, lengths, shift, rate[2], late[2])
        if max(bound, time, inner) >= best * _BELOW:
            continue
        best = _middle(
            m, k, n, ms[i], ks[j], ns[h], room, rate, late, max(bound, time, least), best, floor,
            sizes, counts, floors0, cache, out,
        )  # fmt: skip
        if best <= least:
            return


@inner
def _below(
    m: float, k: float, n: float, room: FloatArray, rate: FloatArray, late: FloatArray,
    floor: float, best: float, sizes: FloatArray, counts: np.ndarray, floors0: FloatArray,
    cache: FloatArray, out: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    """Return what the inner levels take at least, whatever the L2 tile, and the lowered best.

    The L1 and register tiles that attain the least are tried in every L2 tile.
    """
    mk, kn, mn = m * k, k * n, m * n
    scratch = np.empty((3, 4))
    least = math.inf
    lm = lk = ln = rm = rk = rn = 0.0
    for i in range(counts[0]):
        for j in range(counts[1]):
            a, b = sizes[0, i], sizes[1, j]
            h = largest(sizes[2], counts[2], a, b, room[1], n)
            if h < 0:
                break
            c = sizes[2, h]
            cm, ck, cn = math.ceil(m / a), math.ceil(k / b), math.ceil(n / c)
            mid = moved(mk, kn, mn, cm, ck, cn, 1.0, 1.0, 1.0) / rate[2] + late[2]
            q, _ = with_above(floors0, mk, kn, mn, cm, ck, cn)
            if max(mid, q / rate[1] + late[1]) >= least:
                continue
            near, which = registers(m, k, n, a, b, c, room, rate, late, sizes, counts, scratch)
            cache[i, j, h if cache.shape[2] > 1 else 0] = near
            if max(mid, near) < least:
                least = max(mid, near)
                lm, lk, ln = a, b, c
                rm, rk, rn = scratch[which, 1], scratch[which, 2], scratch[which, 3]
    if lm == 0.0:
        return least, best
    cm, ck, cn = math.ceil(m / lm), math.ceil(k / lk), math.ceil(n / ln)
    q, _ = with_above(floors0, mk, kn, mn, cm, ck, cn)
    near = moved(
        mk, kn, mn, math.ceil(m / rm), math.ceil(k / rk), math.ceil(n / rn), cm, ck, cn
    ) / rate[1] + late[1]  # fmt: skip
    for i in range(counts[0]):
        for j in range(counts[1]):
            a, b = sizes[0, i], sizes[1, j]
            if a < lm or b < lk:
                continue
            h = largest(sizes[2], counts[2], a, b, room[2], n)
            if h < 0 or sizes[2, h] < ln:
                continue
            c2m, c2k, c2n = math.ceil(m / a), math.ceil(k / b), math.ceil(n / sizes[2, h])
            far = moved(mk, kn, mn, c2m, c2k, c2n, 1.0, 1.0, 1.0) / rate[3] + late[3]
            mid = moved(mk, kn, mn, cm, ck, cn, c2m, c2k, c2n) / rate[2] + late[2]
            time = max(floor, far, mid, near)
            if time < best:
                best = time
                _record(
                    m, k, n, a, b, sizes[2, h], lm, lk, ln, rm, rk, rn, rate, late, floor, out
                )  # fmt: skip
    return least, best


@inner
def _under(
    m: float, k: float, n: float, i: int, j: int, h: int, room: FloatArray, rate: FloatArray,
    late: FloatArray, floor: float, best: float, sizes: FloatArray, counts: np.ndarray,
    inside: FloatArray, out: FloatArray,
) -> tuple[float, bool]:  # fmt: skip
    """Try the best L1 tile of one L2 tile as if registers did not matter.

    Return its time and True if that settles this L2 tile (registers indeed do not matter, or the
    tile cannot beat ``best``), or a bound of it and False.
    """
    mk, kn, mn = m * k, k * n, m * n
    tm, tk, tn = sizes[0, i], sizes[1, j], sizes[2, h]
    cm, ck, cn = math.ceil(m / tm), math.ceil(k / tk), math.ceil(n / tn)
    far = moved(mk, kn, mn, cm, ck, cn, 1.0, 1.0, 1.0) / rate[3] + late[3]
    floors(m, k, n, room[1], sizes[0], i + 1, sizes[1], j + 1, sizes[2], h + 1, inside)
    q, stationary = with_above(inside, mk, kn, mn, cm, ck, cn)
    time = max(floor, far, q / rate[2] + late[2])
    if time >= best:
        return time, True
    t = inside[stationary]
    lm, lk, ln = grow(t[1], t[2], t[3], tm, tk, tn, room[1], sizes, counts)
    near, which = registers(m, k, n, lm, lk, ln, room, rate, late, sizes, counts, inside)
    if near > time:
        return time, False
    u = inside[which]
    _record(m, k, n, tm, tk, tn, lm, lk, ln, u[1], u[2], u[3], rate, late, floor, out)
    return time, True


@inner
def _record(
    m: float, k: float, n: float, tm: float, tk: float, tn: float, lm: float, lk: float, ln: float,
    rm: float, rk: float, rn: float, rate: FloatArray, late: FloatArray, floor: float,
    out: FloatArray,
) -> None:  # fmt: skip
    """Write traffic (in numbers), tiles and time of one choice of tiles."""
    mk, kn, mn = m * k, k * n, m * n
    c2m, c2k, c2n = math.ceil(m / tm), math.ceil(k / tk), math.ceil(n / tn)
    c1m, c1k, c1n = math.ceil(m / lm), math.ceil(k / lk), math.ceil(n / ln)
    c0m, c0k, c0n = math.ceil(m / rm), math.ceil(k / rk), math.ceil(n / rn)
    out[G_Q3] = moved(mk, kn, mn, c2m, c2k, c2n, 1.0, 1.0, 1.0)
    out[G_Q2] = moved(mk, kn, mn, c1m, c1k, c1n, c2m, c2k, c2n)
    out[G_Q1] = moved(mk, kn, mn, c0m, c0k, c0n, c1m, c1k, c1n)
    out[G_T2], out[G_T2K], out[G_T2N] = tm, tk, tn
    out[G_T1], out[G_T1K], out[G_T1N] = lm, lk, ln
    out[G_T0], out[G_T0K], out[G_T0N] = rm, rk, rn
    time = floor
    for level in range(1, 4):
        time = max(time, out[G_Q0 + level] / rate[level] + late[level])
    out[G_TIME] = time


@inner
def _middle(
    m: float, k: float, n: float, tm: float, tk: float, tn: float, room: FloatArray,
    rate: FloatArray, late: FloatArray, bound: float, best: float, floor: float,
    sizes: FloatArray, counts: np.ndarray, floors0: FloatArray, cache: FloatArray,
    out: FloatArray,
) -> float:  # fmt: skip
    """Lower ``best`` over the L1 and register tiles inside one L2 tile; none beats ``bound``."""
    mk, kn, mn = m * k, k * n, m * n
    c2m, c2k, c2n = math.ceil(m / tm), math.ceil(k / tk), math.ceil(n / tn)
    far = moved(mk, kn, mn, c2m, c2k, c2n, 1.0, 1.0, 1.0) / rate[3] + late[3]
    so_far = max(floor, far)
    scratch = np.empty((3, 4))
    for i in range(counts[0]):
        a = sizes[0, i]
        if a > tm:
            break
        for j in range(counts[1]):
            b = sizes[1, j]
            if b > tk:
                break
            h = largest(sizes[2], counts[2], a, b, room[1], tn)
            if h < 0:
                break
            c = sizes[2, h]
            cm, ck, cn = math.ceil(m / a), math.ceil(k / b), math.ceil(n / c)
            mid = moved(mk, kn, mn, cm, ck, cn, c2m, c2k, c2n) / rate[2] + late[2]
            q, _ = with_above(floors0, mk, kn, mn, cm, ck, cn)
            near = q / rate[1] + late[1]
            time = max(so_far, mid)
            if max(time, near) >= best:
                continue
            # The register time of an L1 tile does not depend on the L2 tile around it.
            if cache.shape[2] > 1:
                slot = h
            else:
                slot = 0 if h == largest(sizes[2], counts[2], a, b, room[1], n) else -1
            if slot >= 0 and max(time, cache[i, j, slot]) >= best:
                continue
            near, which = registers(m, k, n, a, b, c, room, rate, late, sizes, counts, scratch)
            if slot >= 0:
                cache[i, j, slot] = near
            time = max(time, near)
            if time < best:
                best = time
                u = scratch[which]
                _record(m, k, n, tm, tk, tn, a, b, c, u[1], u[2], u[3], rate, late, floor, out)
            if best <= bound:
                return best
    return best


@outlined("float64(float64[::1], float64, float64, float64, float64, float64[::1])")
def exact_gemm(
    chip: FloatArray, m: float, k: float, n: float, precision: float, out: FloatArray
) -> float:
    """Fill ``out`` for one product and return its time; see :func:`best_tiles`."""
    sizes = np.empty((3, MAX_SIZES))
    counts = np.empty(3, dtype=np.int64)
    counts[0] = tile_sizes(m, sizes[0])
    counts[1] = tile_sizes(k, sizes[1])
    counts[2] = tile_sizes(n, sizes[2])
    best_tiles(chip, m, k, n, precision, sizes, counts, out)
    return out[G_TIME]  # type: ignore[no-any-return]
