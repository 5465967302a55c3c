"""Traffic of tiles, and the bounds by which the exact tiling leaves most of them untried.

The model is that of :mod:`~mohsearch.evaluators.crossflow.exact_tiling`.
"""

from __future__ import annotations

import math

import numpy as np

from mohsearch.evaluators.crossflow.compiled import entry, inner
from mohsearch.evaluators.crossflow.layout import FloatArray
from mohsearch.evaluators.crossflow.random_tiling import (
    FLOW_ACTIVATION,
    FLOW_BEST,
    FLOW_NONE,
    FLOW_OUTPUT,
    FLOW_WEIGHT,
)  # fmt: skip

MAX_SIZES = 400
"""Most candidate sizes of a dimension."""
TIE = 1e-6
"""Among L2 tiles with the same bound, those that leave more slack are tried first."""


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
def largest(sizes: FloatArray, count: int, a: float, b: float, room: float, cap: float) -> int:
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
def moved(
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
def floors(
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
def with_above(
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
def _index(sizes: FloatArray, count: int, value: float) -> int:
    """Return how many sizes are at most ``value``."""
    low, high = 0, count
    while low < high:
        mid = (low + high) // 2
        if sizes[mid] <= value:
            low = mid + 1
        else:
            high = mid
    return low


@inner
def registers(
    m: float, k: float, n: float, lm: float, lk: float, ln: float, room: FloatArray,
    rate: FloatArray, late: FloatArray, sizes: FloatArray, counts: np.ndarray,
    scratch: FloatArray,
) -> tuple[float, int]:  # fmt: skip
    """Return the time of the best register tile inside an L1 tile, and which row holds it."""
    floors(
        m, k, n, room[0], sizes[0], _index(sizes[0], counts[0], lm), sizes[1],
        _index(sizes[1], counts[1], lk), sizes[2], _index(sizes[2], counts[2], ln), scratch,
    )  # fmt: skip
    q, which = with_above(
        scratch, m * k, k * n, m * n, math.ceil(m / lm), math.ceil(k / lk), math.ceil(n / ln)
    )
    return q / rate[1] + late[1], which


@inner
def grow(
    a: float, b: float, c: float, am: float, bm: float, cm: float, room: float, sizes: FloatArray,
    counts: np.ndarray,
) -> tuple[float, float, float]:  # fmt: skip
    """Enlarge a tile inside the tile above as far as the room goes (k first)."""
    h = largest(sizes[1], counts[1], a, c, room, bm)
    if h >= 0 and sizes[1, h] > b:
        b = sizes[1, h]
    h = largest(sizes[2], counts[2], a, b, room, cm)
    if h >= 0 and sizes[2, h] > c:
        c = sizes[2, h]
    h = largest(sizes[0], counts[0], b, c, room, am)
    if h >= 0 and sizes[0, h] > a:
        a = sizes[0, h]
    return a, b, c


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
def bound_all(
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
            far = moved(mk, kn, mn, cm, ck, cn, 1.0, 1.0, 1.0) * per3 + late3
            q = min(
                with_c[i, h] + mn * (2.0 * ck - 1.0), with_a[i, j] - mn + mk * cn,
                with_b[h, j] - mn + kn * cm,
            )  # fmt: skip
            mid = q * per2 + late2
            bounds[i, j] = max(floor, far, mid)
            ranks[i, j] = bounds[i, j] + TIE * (far + mid)


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
def fronts_of(
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
            near = with_above(floors0, mk, kn, mn, cm, ck, cn)[0] / rate[1] + late[1]
            passes = mn * (2.0 * ck - 1.0)
            lengths[0] = _keep(fronts[0], lengths[0], mk * cn + kn * cm, near)
            lengths[1] = _keep(fronts[1], lengths[1], kn * cm + passes, near)
            lengths[2] = _keep(fronts[2], lengths[2], mk * cn + passes, near)


@inner
def inner_bound(
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
