"""Device placement: parallel shards onto packages and links, and how many share a link.

The four parallel dimensions (kp1, kp2, dp, lp) are nested in some order onto a grid of devices;
neighbours along a dimension talk in rings (chains for pipelines). How many of these logical edges
use one physical link derates that link. Source: DeepFlow paper, section 5.2.

:func:`authors_layouts` places like the authors' program: powers of two, square packages in a
chain. :mod:`~mohsearch.evaluators.crossflow.placement` tries every order on any topology and size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

from mohsearch.core.errors import InfeasibleError

DIMENSIONS = ("kp1", "kp2", "dp", "lp")
Sizes = tuple[int, int, int, int]
Device = tuple[int, int, int]
"""(package, x, y)."""
Link = tuple[object, ...]


@dataclass(frozen=True)
class Placement:
    """Where every shard stands and what that costs the links.

    Attributes
    ----------
    order
        Dimensions from the innermost to the outermost.
    inter_derate, intra_derate
        Most logical edges on one link between packages, and inside one.
    crosses
        Which of kp1, kp2, dp, lp leave a package.
    device_of
        Shard (kp1, kp2, dp, lp) to (package, x, y).
    """

    order: tuple[str, ...]
    inter_derate: int
    intra_derate: int
    crosses: tuple[bool, bool, bool, bool]
    device_of: dict[Sizes, Device]


@dataclass(frozen=True)
class _Area:
    """Part of the packages: from (x, y) by (width, height), on consecutive packages."""

    x: int
    y: int
    width: int
    height: int
    packages: range


class _Grid:
    """Fills square packages with shard numbers, one dimension at a time."""

    def __init__(self, sizes: Sizes, side: int, packages: int) -> None:
        self.sizes = sizes
        self.side = side
        self.at: dict[Device, list[int]] = {
            (p, x, y): [-1] * 4 for p in range(packages) for x in range(side) for y in range(side)
        }

    def place(self, order: tuple[int, ...], area: _Area) -> None:
        """Nest the dimensions of ``order`` (innermost first) into an area."""
        if not order:
            return
        inner, outer, rest = self.sizes[order[0]], order[-1], order[:-1]
        if len(order) == 1:
            if inner <= area.height:
                self._run(outer, (), area, _rows(area, self._ends(area), 1, 1))
            else:
                self._run(outer, (), area, _snake_columns(area, self._ends(area)))
            return
        middle = math.prod(self.sizes[i] for i in order[1:-1])
        if inner > area.height:
            width, height, walk = (inner // area.height) * middle, area.height, _columns
        elif middle <= area.width:
            width, height, walk = middle, inner, _snake_rows
        else:
            width, height, walk = area.width, inner * (middle // area.width), _rows
        if len(order) == 2 and inner <= area.height:
            width, height, walk = 1, inner, _snake_rows
        if width > area.width or height > area.height:
            self._over_packages(outer, rest, area)
            return
        self._run(outer, rest, area, walk(area, self._ends(area), width, height))

    def _ends(self, area: _Area) -> tuple[int, int]:
        if len(area.packages) == 1:
            return area.x + area.width, area.y + area.height
        return self.side, self.side

    def _run(
        self, dim: int, rest: tuple[int, ...], area: _Area,
        blocks: Callable[[int], Iterator[tuple[_Area, _Area]]],
    ) -> None:  # fmt: skip
        index, package = 0, area.packages[0]
        while index < self.sizes[dim]:
            for covered, inside in blocks(package):
                for x in range(covered.x, covered.x + covered.width):
                    for y in range(covered.y, covered.y + covered.height):
                        self.at[package, x, y][dim] = index
                index += 1
                self.place(rest, inside)
            package += 1

    def _over_packages(self, dim: int, rest: tuple[int, ...], area: _Area) -> None:
        step, left = divmod(len(area.packages), self.sizes[dim])
        if step == 0 or left:
            raise InfeasibleError("the dimensions do not nest into these packages")
        for index in range(self.sizes[dim]):
            part = area.packages[index * step : (index + 1) * step]
            for p in part:
                for x, y in product(range(self.side), repeat=2):
                    self.at[p, x, y][dim] = index
            self.place(rest, _Area(area.x, area.y, area.width, area.height, part))


Blocks = Callable[[int], Iterator[tuple[_Area, _Area]]]


def _rows(area: _Area, ends: tuple[int, int], width: int, height: int) -> Blocks:
    def blocks(package: int) -> Iterator[tuple[_Area, _Area]]:
        one = range(package, package + 1)
        for y in range(area.y, ends[1], height):
            yield (
                _Area(area.x, y, ends[0] - area.x, height, one),
                _Area(area.x, y, width, height, one),
            )

    return blocks


def _columns(area: _Area, ends: tuple[int, int], width: int, height: int) -> Blocks:
    def blocks(package: int) -> Iterator[tuple[_Area, _Area]]:
        one = range(package, package + 1)
        for x in range(area.x, ends[0], width):
            yield (
                _Area(x, area.y, width, ends[1] - area.y, one),
                _Area(x, area.y, width, height, one),
            )

    return blocks


def _snake_rows(area: _Area, ends: tuple[int, int], width: int, height: int) -> Blocks:
    def blocks(package: int) -> Iterator[tuple[_Area, _Area]]:
        one = range(package, package + 1)
        for row, y in enumerate(range(area.y, ends[1], height)):
            starts = list(range(area.x, ends[0], width))
            for x in starts if row % 2 == 0 else reversed(starts):
                block = _Area(x, y, width, height, one)
                yield block, block

    return blocks


def _snake_columns(area: _Area, ends: tuple[int, int]) -> Blocks:
    def blocks(package: int) -> Iterator[tuple[_Area, _Area]]:
        one = range(package, package + 1)
        for column, x in enumerate(range(area.x, ends[0])):
            rows = list(range(area.y, ends[1]))
            for y in rows if column % 2 == 0 else reversed(rows):
                block = _Area(x, y, 1, 1, one)
                yield block, block

    return blocks


def _shards(sizes: Sizes) -> Iterator[Sizes]:
    a, b, c, d = (range(s) for s in sizes)
    return product(a, b, c, d)


def logical_edges(sizes: Sizes) -> Iterator[tuple[int, Sizes, Sizes]]:
    """Yield (dimension, from, to) of every ring edge (wrapped above size 2) and chain edge."""
    for dim, size in enumerate(sizes):
        last = size if dim != 3 and size > 2 else size - 1
        for shard in _shards(sizes):
            if shard[dim] < last:
                after = list(shard)
                after[dim] = (shard[dim] + 1) % size
                yield dim, shard, (after[0], after[1], after[2], after[3])


def _authors_route(a: Device, b: Device, side: int) -> Iterator[Link]:
    """Yield the links of the authors' X-Y route (edges going down are named by their upper end)."""
    (p, x, y), (q, u, v) = a, b
    if p == q:
        if x > u:
            x, y, u, v = u, v, x, y
        yield from (("x", p, i, y) for i in range(x, u))
        yield from _authors_column(p, u, y, v)
        return
    if p < q:
        yield from (("x", p, i, y) for i in range(x, side - 1))
        yield from _authors_column(p, side - 1, y, v)
        yield ("cross", p, v)
        yield from (("x", q, i, v) for i in range(u))
        return
    yield from (("x", q, i, v) for i in range(u, side - 1))
    yield from _authors_column(p, side - 1, v, y)
    yield ("cross", q, y)
    yield from (("x", p, i, y) for i in range(x))


def _authors_column(p: int, x: int, y: int, v: int) -> Iterator[Link]:
    yield from (("y", p, x, j) for j in (range(y, v) if y < v else range(y, v, -1)))


def authors_layouts(sizes: Sizes, nodes_per_package: int) -> list[Placement]:
    """Return the authors' layouts: one per order of the sizes that differ.

    Raises
    ------
    InfeasibleError
        If packages are not square or the sizes do not nest (as for most non-powers of two).

    Examples
    --------
    >>> [(p.order, p.intra_derate) for p in authors_layouts((4, 4, 1, 1), 16)]
    [(('kp1', 'kp2', 'dp', 'lp'), 2)]
    """
    side = math.isqrt(nodes_per_package)
    if side * side != nodes_per_package:
        raise InfeasibleError(f"a package of {nodes_per_package} nodes is not square")
    packages = math.ceil(math.prod(sizes) / nodes_per_package)
    many = [i for i in range(4) if sizes[i] != 1]
    ones = [i for i in range(4) if sizes[i] == 1]
    orders: dict[tuple[int, ...], tuple[int, ...]] = {}
    for chosen in permutations(many):
        order = (*chosen, *ones)
        orders.setdefault(tuple(sizes[i] for i in order), order)
    return [_authors_layout(sizes, side, packages, order) for order in orders.values()]


def _authors_layout(sizes: Sizes, side: int, packages: int, order: tuple[int, ...]) -> Placement:
    grid = _Grid(sizes, side, packages)
    try:
        grid.place(order, _Area(0, 0, side, side, range(packages)))
    except KeyError:
        raise InfeasibleError("the dimensions do not nest into these packages") from None
    device_of: dict[Sizes, Device] = {}
    for device, s in grid.at.items():
        device_of[s[0], s[1], s[2], s[3]] = device
    if any(shard not in device_of for shard in product(*(range(s) for s in sizes))):
        raise InfeasibleError("the dimensions do not nest into these packages")
    return _measured(sizes, order, device_of, lambda a, b: _authors_route(a, b, side), ("cross",))


def _measured(
    sizes: Sizes, order: tuple[int, ...], device_of: dict[Sizes, Device],
    route: Callable[[Device, Device], Iterator[Link]], between: tuple[str, ...],
) -> Placement:  # fmt: skip
    """Count the logical edges per link."""
    load: Counter[Link] = Counter()
    crosses = [False] * 4
    for dim, a, b in logical_edges(sizes):
        start, end = device_of[a], device_of[b]
        load.update(route(start, end))
        crosses[dim] |= start[0] != end[0]
    inter = max((n for link, n in load.items() if link[0] in between), default=0)
    intra = max((n for link, n in load.items() if link[0] not in between), default=0)
    return Placement(
        tuple(DIMENSIONS[i] for i in order), inter, intra,
        (crosses[0], crosses[1], crosses[2], crosses[3]), device_of,
    )  # fmt: skip
