"""Placement of a parallelism strategy on packages and links: every order, any size, six topologies.

A placement numbers the shards in one of the 24 orders of (kp1, kp2, dp, lp), fills packages in that
order, and routes every ring (chain for pipelines) of every dimension over the links. The busiest
link between packages and inside one say how far these links are shared. Source: DeepFlow paper,
section 5.2; the authors' own layouts are among the candidates where they exist.

Topologies inside a package, and between packages: ``chain``, ``ring``, ``mesh``, ``torus`` (routed
X then Y) and ``switch`` or ``fat-tree`` (no shared link but a device's own; the tree is taken to be
non-blocking). The ports of a device serve four neighbours in a grid, two in a line, and together
as one towards a switch. Between packages in a line or grid the devices of a package's edge have
one port each to the same row of the next package (half of one in a grid, which has twice the
neighbours); towards a switch every device has its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Literal, get_args

import numpy as np

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.crossflow.compiled import entry, inner
from mohsearch.evaluators.crossflow.dpe import DIMENSIONS, Sizes, authors_layouts
from mohsearch.evaluators.crossflow.layout import FloatArray

Topology = Literal["mesh", "torus", "ring", "chain", "switch", "fat-tree"]
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
ORDERS: tuple[tuple[int, ...], ...] = tuple(permutations(range(4)))
"""The 24 orders of the dimensions kp1, kp2, dp, lp (0 to 3), innermost first."""
_MESH, _TORUS, _RING, _CHAIN, _SWITCH = range(5)
_CODES = {"mesh": 0, "torus": 1, "ring": 2, "chain": 3, "switch": 4, "fat-tree": 4}
_NEAR_PORTS = {_MESH: 1.0, _TORUS: 1.0, _RING: 2.0, _CHAIN: 2.0, _SWITCH: 4.0}


@dataclass(frozen=True)
class Sharing:
    """How a placement shares the links.

    Attributes
    ----------
    order
        Index into ``ORDERS``.
    inter_derate, intra_derate
        Messages on the busiest link between packages, and inside one, over the ports that the
        link has; 0 where there is none.
    crosses
        Which of kp1, kp2, dp, lp leave a package.
    hops_intra, hops_inter
        Mean number of links that a message of each dimension crosses.
    """

    order: int
    inter_derate: float
    intra_derate: float
    crosses: tuple[bool, ...]
    hops_intra: tuple[float, ...]
    hops_inter: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Dimensions from the innermost to the outermost."""
        return tuple(DIMENSIONS[i] for i in ORDERS[self.order])

    def never_slower(self, other: Sharing) -> bool:
        """Tell whether every link share is at least as good as in another placement."""
        return (
            self.inter_derate <= other.inter_derate
            and self.intra_derate <= other.intra_derate
            and all(a <= b for a, b in zip(self.crosses, other.crosses, strict=True))
        )


@inner
def _line(load: FloatArray, base: int, step: int, a: int, b: int, size: int, wraps: bool) -> int:
    """Load the links of a walk from a to b; link i joins i and i + 1. Return how many."""
    hops = abs(b - a)
    if wraps and size > 2 and 2 * hops > size:
        hops = size - hops
        forward = b < a
    else:
        forward = b > a
    at = a
    for _ in range(hops):
        link = at if forward else (at - 1) % size
        load[base + link * step] += 1.0
        at = (at + 1) % size if forward else (at - 1) % size
    return hops


@inner
def _walk(load: FloatArray, base: int, kind: int, count: int, a: int, b: int) -> int:
    """Load the links from station a to b of one level of ``count`` stations; return how many."""
    if a == b:
        return 0
    if kind == _SWITCH:
        load[base + a] += 1.0
        load[base + count + b] += 1.0
        return 1
    if kind in (_RING, _CHAIN):
        return _line(load, base, 1, a, b, count, kind == _RING)  # type: ignore[no-any-return]
    side = math.ceil(math.sqrt(count))
    wide = math.ceil(count / side)
    x, y, u, v = a // side, a % side, b // side, b % side
    hops = _line(load, base + y, side, x, u, wide, kind == _TORUS)
    return hops + _line(load, base + wide * side + u * side, 1, y, v, side, kind == _TORUS)  # type: ignore[no-any-return]


@inner
def _stride(kind: int, count: int) -> int:
    """Return how many links a level of ``count`` stations may have."""
    side = math.ceil(math.sqrt(count))
    return 2 * max(count, side * math.ceil(count / side))


@inner
def _leave(
    near: FloatArray, stride: int, kind: int, count: int, p: int, a: int, q: int, b: int
) -> tuple[int, int]:  # fmt: skip
    """Load the links from station a of package p to its edge, and in package q > p to station b.

    Return how many links, and the row at which the packages are left and entered.
    """
    if kind == _SWITCH:
        near[p * stride + a] += 1.0
        near[q * stride + count + b] += 1.0
        return 2, 0
    side = math.ceil(math.sqrt(count))
    if kind in (_MESH, _TORUS) and side * side == count:
        row = b % side
        hops = _walk(near, p * stride, kind, count, a, (side - 1) * side + row)
        return hops + _walk(near, q * stride, kind, count, row, b), row
    hops = _walk(near, p * stride, kind, count, a, count - 1)
    return hops + _walk(near, q * stride, kind, count, 0, b), 0


@inner
def _between(
    far: FloatArray, base: int, kind: int, packages: int, p: int, q: int, through: bool
) -> int:  # fmt: skip
    """Load the links from package p to q; without ``through`` only the first one."""
    if through:
        return _walk(far, base, kind, packages, p, q)  # type: ignore[no-any-return]
    far[base + p] += 1.0
    return 1


@entry
def link_loads(
    sizes: np.ndarray, device: np.ndarray, nodes: int, packages: int, near_kind: int,
    far_kind: int, through: bool, out: FloatArray,
) -> None:  # fmt: skip
    """Fill the busiest loads, and per dimension: leaves a package, mean hops inside and between.

    ``device[s]`` is package * nodes + station of shard s, lp fastest. Row of ``out``: inter load,
    intra load, 4 flags, 4 mean hops inside, 4 between.
    """
    stride = _stride(near_kind, nodes)
    near = np.zeros(packages * stride)
    own = far_kind == _SWITCH
    stations = packages * nodes if own else packages
    side = math.ceil(math.sqrt(nodes))
    apart = _stride(far_kind, stations)
    far = np.zeros(apart * side)
    shards = device.size
    out[:] = 0.0
    gap = 1
    for back in range(4):
        dim = 3 - back
        size = sizes[dim]
        edges = 0
        for s in range(shards):
            digit = (s // gap) % size
            wrapped = dim != 3 and size > 2
            if size == 1 or (digit == size - 1 and not wrapped):
                continue
            t = s + gap if digit < size - 1 else s - gap * (size - 1)
            a, b = device[s], device[t]
            p, q = a // nodes, b // nodes
            edges += 1
            if p == q:
                out[6 + dim] += _walk(near, p * stride, near_kind, nodes, a % nodes, b % nodes)
                continue
            out[2 + dim] = 1.0
            if own:
                out[10 + dim] += _walk(far, 0, _SWITCH, stations, a, b)
                continue
            if p > q:
                a, b, p, q = b, a, q, p
            hops, row = _leave(near, stride, near_kind, nodes, p, a % nodes, q, b % nodes)
            out[6 + dim] += hops
            out[10 + dim] += _between(far, row * apart, far_kind, packages, p, q, through)
        if edges > 0:
            out[6 + dim] /= edges
            out[10 + dim] /= edges
        gap *= size
    out[0] = far.max()
    out[1] = near.max()


@entry
def _fill(
    sizes: np.ndarray, order: np.ndarray, winding: bool, snake: bool, nodes: int,
    device: np.ndarray,
) -> None:  # fmt: skip
    """Seat the shards in an order, the innermost dimension fastest.

    With ``winding`` each dimension runs back and forth so that neighbours stay neighbours, with
    ``snake`` the stations of a grid are visited that way.
    """
    gaps = np.ones(4, dtype=np.int64)
    for dim in range(2, -1, -1):
        gaps[dim] = gaps[dim + 1] * sizes[dim + 1]
    side = math.ceil(math.sqrt(nodes))
    digits = np.zeros(4, dtype=np.int64)
    for i in range(device.size):
        rest = i
        for at in range(4):
            digits[at] = rest % sizes[order[at]]
            rest //= sizes[order[at]]
        shard = flips = 0
        for at in range(3, -1, -1):
            dim, digit = order[at], digits[at]
            place = sizes[dim] - 1 - digit if winding and flips % 2 == 1 else digit
            shard += place * gaps[dim]
            flips += digit
        package, station = i // nodes, i % nodes
        if snake:
            x, y = station // side, station % side
            if x % 2 == 1 and (x + 1) * side <= nodes:
                station = x * side + side - 1 - y
        device[shard] = package * nodes + station


@entry
def _all_orders(
    sizes: np.ndarray, orders: np.ndarray, nodes: int, packages: int, near_kind: int,
    far_kind: int, through: bool, out: FloatArray,
) -> None:  # fmt: skip
    """Fill one row per order, winding and way through a grid."""
    device = np.empty(sizes.prod(), dtype=np.int64)
    for i in range(orders.shape[0]):
        for way in range(4):
            _fill(sizes, orders[i], way % 2 == 1, way >= 2, nodes, device)
            link_loads(
                sizes, device, nodes, packages, near_kind, far_kind, through, out[4 * i + way]
            )


def _sharing(order: int, row: FloatArray, near: int, far: int, nodes: int) -> Sharing:
    ports = 0.5 if far in (_MESH, _TORUS) else 1.0
    side = math.isqrt(nodes)
    if far != _SWITCH and (near not in (_MESH, _TORUS) or side * side != nodes):
        ports *= max(1, side)
    return Sharing(
        order, float(row[0]) / ports, float(row[1]) / _NEAR_PORTS[near],
        tuple(bool(x) for x in row[2:6]), tuple(row[6:10].tolist()), tuple(row[10:14].tolist()),
    )  # fmt: skip


def _topology(name: str, field: str) -> int:
    if name not in _CODES:
        raise InputError(f"{name!r} is no topology: one of {', '.join(TOPOLOGIES)}", field=field)
    return _CODES[name]


@lru_cache(maxsize=8192)
def placements(
    sizes: Sizes, nodes_per_package: int, inter: str = "chain", intra: str = "mesh",
    through: bool = True,
) -> tuple[Sharing, ...]:  # fmt: skip
    """Return what every order shares, several ways per order; the authors' layouts included.

    Parameters
    ----------
    sizes
        kp1, kp2, dp, lp; any numbers.
    nodes_per_package
        Devices in a package.
    inter, intra
        Topology between packages and inside one.
    through
        A message between packages loads the links of the packages on its way, too; the authors
        count the first link only.

    Raises
    ------
    InputError
        If a topology is unknown.

    Examples
    --------
    >>> len({s.order for s in placements((2, 3, 4, 1), 4)})
    24
    """
    near, far = _topology(intra, "intra"), _topology(inter, "inter")
    packages = math.ceil(math.prod(sizes) / nodes_per_package)
    rows = np.zeros((4 * len(ORDERS), 14))
    counts = np.array(sizes, dtype=np.int64)
    _all_orders(
        counts, np.array(ORDERS, dtype=np.int64), nodes_per_package, packages, near, far, through,
        rows,
    )  # fmt: skip
    found = [_sharing(i // 4, row, near, far, nodes_per_package) for i, row in enumerate(rows)]
    try:
        layouts = authors_layouts(sizes, nodes_per_package) if intra in ("mesh", "torus") else []
    except InfeasibleError:
        layouts = []
    row = np.zeros(14)
    side = math.isqrt(nodes_per_package)
    for layout in layouts:
        device = np.empty(math.prod(sizes), dtype=np.int64)
        # A layout may have seats left over.
        for index, (i, j, k, m) in enumerate(np.ndindex(*sizes)):
            package, x, y = layout.device_of[i, j, k, m]
            device[index] = package * nodes_per_package + x * side + y
        link_loads(counts, device, nodes_per_package, packages, near, far, through, row)
        order = ORDERS.index(tuple(DIMENSIONS.index(name) for name in layout.order))
        found.append(_sharing(order, row, near, far, nodes_per_package))
    return tuple(found)


@lru_cache(maxsize=65536)
def candidates(
    sizes: Sizes, nodes_per_package: int, inter: str, intra: str, order: int = -1
) -> tuple[Sharing, ...]:
    """Return the placements of one order (-1: of all) that no other of them makes needless."""
    every = placements(sizes, nodes_per_package, inter, intra)
    mine = [s for s in every if order in (-1, s.order)]
    kept: list[Sharing] = []
    for s in sorted(mine, key=lambda s: (s.inter_derate, s.intra_derate, sum(s.crosses))):
        if not any(k.never_slower(s) for k in kept):
            kept.append(s)
    return tuple(kept)


def best_placement(
    sizes: Sizes, nodes_per_package: int, inter: str = "chain", intra: str = "mesh",
    inter_over_intra: float = 10.0,
) -> Sharing:  # fmt: skip
    """Return the order whose busiest link costs least, over all orders.

    ``inter_over_intra`` is how much slower a link between packages is than one inside.

    Examples
    --------
    >>> best_placement((3, 1, 5, 1), 4, "switch", "ring").crosses[2]
    True
    """
    return min(
        candidates(sizes, nodes_per_package, inter, intra),
        key=lambda s: (max(s.inter_derate * inter_over_intra, s.intra_derate), s.intra_derate),
    )
