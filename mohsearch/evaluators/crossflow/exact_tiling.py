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

from mohsearch.evaluators.crossflow.compiled import entry, inner
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
from mohsearch.evaluators.crossflow.random_tiling import (
    FLOW_ACTIVATION,
    FLOW_BEST,
    FLOW_NONE,
    FLOW_OUTPUT,
    FLOW_WEIGHT,
)  # fmt: skip

MAX_SIZES = 400
_CACHED = 40000
_FRONT = 256
"""Largest number of L1 tiles whose register times are remembered."""
_BELOW = 1.0 - 1e-14
"""A tile must beat the best by more than rounding to be worth a look."""
_TIE = 1e-6
"""Among L2 tiles with the same bound, those that leave more slack are tried first."""

# Result row of one product.
(
    G_TIME, G_COMPUTE, G_Q0, G_Q1, G_Q2, G_Q3, G_T2, G_T2K, G_T2N, G_T1, G_T1K, G_T1N, G_T0, G_T0K,
    G_T0N, G_FLOPS,
) = range(16)  # fmt: skip
GEMM_COLUMNS = 16
"""Seconds without launch overhead; seconds of compute; bytes L0..L3; (m, k, n) tiles L2, L1, L0."""


@entry
def tile_sizes(extent: float, out: FloatArray) -> int:
    """Write the powers of two and divisors up to ``extent``, rising; return how many.

    ``out`` must hold ``MAX_SIZES`` numbers; of more divisors the largest are dropped, ``extent``
    itself never.
    """
    d = int(extent)
    count = 0
    power = 1
    while power < d and count < MAX_SIZES - 2:
        out[count] = power
        count += 1
        power *= 2
    if power != d:
        a = 2
        while a * a <= d:
            if d % a == 0:
                count = _insert(out, count, a)
                count = _insert(out, count, d // a)
            a += 1
    return _insert(out, count, d)  # type: ignore[no-any-return]


@inner
def _insert(out: FloatArray, count: int, value: int) -> int:
    """Insert a size in rising order unless it is there; return the new count."""
    if count >= MAX_SIZES:
        return count
    at = count
    while at > 0 and out[at - 1] > value:
        at -= 1
    if at > 0 and out[at - 1] == value:
        return count
    for i in range(count, at, -1):
        out[i] = out[i - 1]
    out[at] = value
    return count + 1


@inner
def register_traffic(m: float, k: float, n: float, flow: int, w1: float, w2: float) -> float:
    """Return register accesses in numbers (equation 5): N1 N2 + K N1 + K N2 over 2 K N1 N2."""
    flops = 2.0 * m * k * n
    reuse = 1.0
    if flow == FLOW_WEIGHT:
        reuse = math.ceil(m / w1)
    elif flow == FLOW_ACTIVATION:
        reuse = math.ceil(n / w1)
    elif flow == FLOW_OUTPUT:
        reuse = math.ceil(k / w1)
    elif flow == FLOW_BEST:
        reuse = math.ceil(max(m, n, k) / w1)
    elif flow == FLOW_NONE:
        reuse = 1.0
    return flops * (w1 * w2 + reuse * w1 + reuse * w2) / (2.0 * reuse * w1 * w2)


@inner
def _largest(sizes: FloatArray, count: int, a: float, b: float, room: float, cap: float) -> int:
    """Return the index of the largest size c <= cap with ab + (a + b) c <= room, or -1."""
    limit = min((room - a * b) / (a + b), cap)
    low, high = -1, count - 1
    while low < high:
        mid = (low + high + 1) // 2
        if sizes[mid] <= limit:
            low = mid
        else:
            high = mid - 1
    return low


@inner
def _least(
    xs: FloatArray, nx: int, dx: float, wx: float, ys: FloatArray, ny: int, dy: float, wy: float,
    room: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Minimise ``wx ceil(dx/x) + wy ceil(dy/y)`` over sizes with ``x y + x + y <= room``."""
    best, at_x, at_y = math.inf, 0.0, 0.0
    j = ny - 1
    for i in range(nx):
        x = xs[i]
        while j >= 0 and x * ys[j] + x + ys[j] > room:
            j -= 1
        if j < 0:
            break
        value = wx * math.ceil(dx / x) + wy * math.ceil(dy / ys[j])
        if value < best:
            best, at_x, at_y = value, x, ys[j]
    return best, at_x, at_y


@inner
def _moved(
    mk: float, kn: float, mn: float, cm: float, ck: float, cn: float, um: float, uk: float,
    un: float,
) -> float:  # fmt: skip
    """Return the least traffic of a level: counts c of its tiles, u of the tiles above."""
    with_c = mk * cn + kn * cm + mn * (2.0 * uk - 1.0)
    passes = mn * (2.0 * ck - 1.0)
    with_a = mk * un + kn * cm + passes
    with_b = mk * cn + kn * um + passes
    return min(with_c, with_a, with_b)


@inner
def _floors(
    m: float, k: float, n: float, room: float, ms: FloatArray, am: int, ks: FloatArray, ak: int,
    ns: FloatArray, an: int, out: FloatArray,
) -> None:  # fmt: skip
    """Write, for stationary C, A and B, the least tile-dependent traffic and the tile.

    Rows of ``out``: value and (m, k, n) tile sizes. The dimension that does not matter is 1.
    """
    mk, kn, mn = m * k, k * n, m * n
    value, x, y = _least(ns, an, n, mk, ms, am, m, kn, room)
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = value, y, 1.0, x
    value, x, y = _least(ms, am, m, kn, ks, ak, k, 2.0 * mn, room)
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = value - mn, x, y, 1.0
    value, x, y = _least(ns, an, n, mk, ks, ak, k, 2.0 * mn, room)
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = value - mn, 1.0, y, x


@inner
def _with_above(
    floors: FloatArray, mk: float, kn: float, mn: float, um: float, uk: float, un: float
) -> tuple[float, int]:
    """Return the least traffic of a level below given tile counts, and what is stationary."""
    best, which = floors[0, 0] + mn * (2.0 * uk - 1.0), 0
    value = floors[1, 0] + mk * un
    if value < best:
        best, which = value, 1
    value = floors[2, 0] + kn * um
    if value < best:
        best, which = value, 2
    return best, which


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
    _floors(m, k, n, room[0], ms, counts[0], ks, counts[1], ns, counts[2], floors0)
    near, _ = _with_above(floors0, mk, kn, mn, 1.0, 1.0, 1.0)
    floor = max(floor, near / rate[1] + late[1])
    bounds = np.full((counts[0], counts[1]), math.inf)
    ranks = np.full((counts[0], counts[1]), math.inf)
    _bound_all(
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
        if order[at] >= best * (1.0 + 2.0 * _TIE) or order[at] == math.inf:
            return
        bound = flat[at]
        order[at] = math.inf
        if bound >= best * _BELOW:
            continue
        i, j = at // counts[1], at % counts[1]
        h = _largest(ns, counts[2], ms[i], ks[j], room[2], n)
        time, done = _under(
            m, k, n, i, j, h, room, rate, late, floor, best, sizes, counts, inside, out
        )
        if done:
            best = min(best, time)
            continue
        if least < 0.0:
            _fronts(
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
        inner = _inner_bound(fronts, lengths, shift, rate[2], late[2])
        if max(bound, time, inner) >= best * _BELOW:
            continue
        best = _middle(
            m, k, n, ms[i], ks[j], ns[h], room, rate, late, max(bound, time, least), best, floor,
            sizes, counts, floors0, cache, out,
        )  # fmt: skip
        if best <= least:
            return


@inner
def _capped(
    xs: FloatArray, nx: int, dx: float, wx: float, ys: FloatArray, ny: int, dy: float, wy: float,
    room: float, table: FloatArray,
) -> None:  # fmt: skip
    """Fill the least of ``wx ceil(dx/x) + wy ceil(dy/y)`` over sizes up to the i-th and j-th."""
    for j in range(ny):
        y = ys[j]
        cost = wy * math.ceil(dy / y)
        for i in range(nx):
            x = xs[i]
            value = math.inf
            if x * y + x + y <= room:
                value = wx * math.ceil(dx / x) + cost
            if i > 0:
                value = min(value, table[i - 1, j])
            if j > 0:
                value = min(value, table[i, j - 1])
            table[i, j] = value


@inner
def _bound_all(
    m: float, k: float, n: float, room: float, per2: float, late2: float, per3: float,
    late3: float, floor: float, sizes: FloatArray, counts: np.ndarray, room1: float,
    bounds: FloatArray, ranks: FloatArray,
) -> None:  # fmt: skip
    """Fill a bound, and a rank that breaks ties, for every pair of L2 tile sizes of m and k.

    The bound is the time if registers did not matter.
    """
    mk, kn, mn = m * k, k * n, m * n
    ms, ks, ns = sizes[0], sizes[1], sizes[2]
    am, ak, an = counts[0], counts[1], counts[2]
    with_c, with_a, with_b = np.empty((am, an)), np.empty((am, ak)), np.empty((an, ak))
    _capped(ms, am, m, kn, ns, an, n, mk, room1, with_c)
    _capped(ms, am, m, kn, ks, ak, k, 2.0 * mn, room1, with_a)
    _capped(ns, an, n, mk, ks, ak, k, 2.0 * mn, room1, with_b)
    along_k, along_n = np.empty(ak), np.empty(an)
    for j in range(ak):
        along_k[j] = math.ceil(k / ks[j])
    for h in range(an):
        along_n[h] = math.ceil(n / ns[h])
    for i in range(counts[0]):
        a = ms[i]
        cm = math.ceil(m / a)
        h = counts[2] - 1
        for j in range(counts[1]):
            b = ks[j]
            while h >= 0 and a * b + (a + b) * ns[h] > room:
                h -= 1
            if h < 0:
                break
            ck, cn = along_k[j], along_n[h]
            far = _moved(mk, kn, mn, cm, ck, cn, 1.0, 1.0, 1.0) * per3 + late3
            q = min(
                with_c[i, h] + mn * (2.0 * ck - 1.0), with_a[i, j] - mn + mk * cn,
                with_b[h, j] - mn + kn * cm,
            )  # fmt: skip
            mid = q * per2 + late2
            bounds[i, j] = max(floor, far, mid)
            ranks[i, j] = bounds[i, j] + _TIE * (far + mid)


@inner
def _keep(front: FloatArray, count: int, base: float, near: float) -> int:
    """Insert (base, near) into a front that rises in base and falls in near; return its length."""
    at = 0
    while at < count and front[at, 0] <= base:
        at += 1
    if at > 0 and front[at - 1, 1] <= near:
        return count
    end = at
    while end < count and front[end, 1] >= near:
        end += 1
    if end == at:
        if count == front.shape[0]:
            # Full: an entry better than both neighbours keeps the bound a bound.
            front[at - 1 if at > 0 else 0, 1 if at > 0 else 0] = near if at > 0 else base
            return count
        for i in range(count, at, -1):
            front[i, 0], front[i, 1] = front[i - 1, 0], front[i - 1, 1]
        count += 1
    else:
        gone = end - at - 1
        for i in range(end, count):
            front[i - gone, 0], front[i - gone, 1] = front[i, 0], front[i, 1]
        count -= gone
    front[at, 0], front[at, 1] = base, near
    return count


@inner
def _fronts(
    m: float, k: float, n: float, room: FloatArray, rate: FloatArray, late: FloatArray,
    sizes: FloatArray, counts: np.ndarray, floors0: FloatArray, fronts: FloatArray,
    lengths: np.ndarray,
) -> None:  # fmt: skip
    """Fill, for stationary C, A and B, what L1 tiles trade: L2 traffic against L1 time."""
    mk, kn, mn = m * k, k * n, m * n
    lengths[:] = 0
    for i in range(counts[0]):
        a = sizes[0, i]
        cm = float(math.ceil(m / a))
        h = counts[2] - 1
        for j in range(counts[1]):
            b = sizes[1, j]
            while h >= 0 and a * b + (a + b) * sizes[2, h] > room[1]:
                h -= 1
            if h < 0:
                break
            ck, cn = float(math.ceil(k / b)), float(math.ceil(n / sizes[2, h]))
            near = _with_above(floors0, mk, kn, mn, cm, ck, cn)[0] / rate[1] + late[1]
            passes = mn * (2.0 * ck - 1.0)
            lengths[0] = _keep(fronts[0], lengths[0], mk * cn + kn * cm, near)
            lengths[1] = _keep(fronts[1], lengths[1], kn * cm + passes, near)
            lengths[2] = _keep(fronts[2], lengths[2], mk * cn + passes, near)


@inner
def _inner_bound(
    fronts: FloatArray, lengths: np.ndarray, shift: tuple[float, float, float], rate: float,
    late: float,
) -> float:  # fmt: skip
    """Return the least of max(L2 time, L1 time) for given traffic on top of each front."""
    best = math.inf
    for s in range(3):
        for i in range(lengths[s]):
            time = (fronts[s, i, 0] + shift[s]) / rate + late
            if time >= best:
                break
            best = min(best, max(time, fronts[s, i, 1]))
    return best


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
            h = _largest(sizes[2], counts[2], a, b, room[1], n)
            if h < 0:
                break
            c = sizes[2, h]
            cm, ck, cn = math.ceil(m / a), math.ceil(k / b), math.ceil(n / c)
            mid = _moved(mk, kn, mn, cm, ck, cn, 1.0, 1.0, 1.0) / rate[2] + late[2]
            q, _ = _with_above(floors0, mk, kn, mn, cm, ck, cn)
            if max(mid, q / rate[1] + late[1]) >= least:
                continue
            near, which = _registers(m, k, n, a, b, c, room, rate, late, sizes, counts, scratch)
            cache[i, j, h if cache.shape[2] > 1 else 0] = near
            if max(mid, near) < least:
                least = max(mid, near)
                lm, lk, ln = a, b, c
                rm, rk, rn = scratch[which, 1], scratch[which, 2], scratch[which, 3]
    if lm == 0.0:
        return least, best
    cm, ck, cn = math.ceil(m / lm), math.ceil(k / lk), math.ceil(n / ln)
    q, _ = _with_above(floors0, mk, kn, mn, cm, ck, cn)
    near = _moved(
        mk, kn, mn, math.ceil(m / rm), math.ceil(k / rk), math.ceil(n / rn), cm, ck, cn
    ) / rate[1] + late[1]  # fmt: skip
    for i in range(counts[0]):
        for j in range(counts[1]):
            a, b = sizes[0, i], sizes[1, j]
            if a < lm or b < lk:
                continue
            h = _largest(sizes[2], counts[2], a, b, room[2], n)
            if h < 0 or sizes[2, h] < ln:
                continue
            c2m, c2k, c2n = math.ceil(m / a), math.ceil(k / b), math.ceil(n / sizes[2, h])
            far = _moved(mk, kn, mn, c2m, c2k, c2n, 1.0, 1.0, 1.0) / rate[3] + late[3]
            mid = _moved(mk, kn, mn, cm, ck, cn, c2m, c2k, c2n) / rate[2] + late[2]
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
    far = _moved(mk, kn, mn, cm, ck, cn, 1.0, 1.0, 1.0) / rate[3] + late[3]
    _floors(m, k, n, room[1], sizes[0], i + 1, sizes[1], j + 1, sizes[2], h + 1, inside)
    q, stationary = _with_above(inside, mk, kn, mn, cm, ck, cn)
    time = max(floor, far, q / rate[2] + late[2])
    if time >= best:
        return time, True
    t = inside[stationary]
    lm, lk, ln = _grow(t[1], t[2], t[3], tm, tk, tn, room[1], sizes, counts)
    near, which = _registers(m, k, n, lm, lk, ln, room, rate, late, sizes, counts, inside)
    if near > time:
        return time, False
    u = inside[which]
    _record(m, k, n, tm, tk, tn, lm, lk, ln, u[1], u[2], u[3], rate, late, floor, out)
    return time, True


@inner
def _grow(
    a: float, b: float, c: float, am: float, bm: float, cm: float, room: float, sizes: FloatArray,
    counts: np.ndarray,
) -> tuple[float, float, float]:  # fmt: skip
    """Enlarge a tile inside the tile above as far as the room goes (k first)."""
    h = _largest(sizes[1], counts[1], a, c, room, bm)
    if h >= 0 and sizes[1, h] > b:
        b = sizes[1, h]
    h = _largest(sizes[2], counts[2], a, b, room, cm)
    if h >= 0 and sizes[2, h] > c:
        c = sizes[2, h]
    h = _largest(sizes[0], counts[0], b, c, room, am)
    if h >= 0 and sizes[0, h] > a:
        a = sizes[0, h]
    return a, b, c


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
    out[G_Q3] = _moved(mk, kn, mn, c2m, c2k, c2n, 1.0, 1.0, 1.0)
    out[G_Q2] = _moved(mk, kn, mn, c1m, c1k, c1n, c2m, c2k, c2n)
    out[G_Q1] = _moved(mk, kn, mn, c0m, c0k, c0n, c1m, c1k, c1n)
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
    far = _moved(mk, kn, mn, c2m, c2k, c2n, 1.0, 1.0, 1.0) / rate[3] + late[3]
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
            h = _largest(sizes[2], counts[2], a, b, room[1], tn)
            if h < 0:
                break
            c = sizes[2, h]
            cm, ck, cn = math.ceil(m / a), math.ceil(k / b), math.ceil(n / c)
            mid = _moved(mk, kn, mn, cm, ck, cn, c2m, c2k, c2n) / rate[2] + late[2]
            q, _ = _with_above(floors0, mk, kn, mn, cm, ck, cn)
            near = q / rate[1] + late[1]
            time = max(so_far, mid)
            if max(time, near) >= best:
                continue
            # The register time of an L1 tile does not depend on the L2 tile around it.
            if cache.shape[2] > 1:
                slot = h
            else:
                slot = 0 if h == _largest(sizes[2], counts[2], a, b, room[1], n) else -1
            if slot >= 0 and max(time, cache[i, j, slot]) >= best:
                continue
            near, which = _registers(m, k, n, a, b, c, room, rate, late, sizes, counts, scratch)
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


@inner
def _index(sizes: FloatArray, count: int, value: float) -> int:
    """Return how many sizes are at most ``value``."""
    return int(np.searchsorted(sizes[:count], value, side="right"))


@inner
def _registers(
    m: float, k: float, n: float, lm: float, lk: float, ln: float, room: FloatArray,
    rate: FloatArray, late: FloatArray, sizes: FloatArray, counts: np.ndarray,
    scratch: FloatArray,
) -> tuple[float, int]:  # fmt: skip
    """Return the time of the best register tile inside an L1 tile, and which row holds it."""
    _floors(
        m, k, n, room[0], sizes[0], _index(sizes[0], counts[0], lm), sizes[1],
        _index(sizes[1], counts[1], lk), sizes[2], _index(sizes[2], counts[2], ln), scratch,
    )  # fmt: skip
    q, which = _with_above(
        scratch, m * k, k * n, m * n, math.ceil(m / lm), math.ceil(k / lk), math.ceil(n / ln)
    )
    return q / rate[1] + late[1], which


@entry
def exact_gemm(
    chip: FloatArray, m: float, k: float, n: float, precision: float, out: FloatArray
) -> None:
    """Fill ``out`` for one product; see :func:`best_tiles`."""
    sizes = np.empty((3, MAX_SIZES))
    counts = np.empty(3, dtype=np.int64)
    counts[0] = tile_sizes(m, sizes[0])
    counts[1] = tile_sizes(k, sizes[1])
    counts[2] = tile_sizes(n, sizes[2])
    best_tiles(chip, m, k, n, precision, sizes, counts, out)
