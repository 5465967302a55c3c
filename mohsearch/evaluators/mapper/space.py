"""The admissible mapping space of one layer on one architecture, as arrays for the kernels.

A mapping is a spatial choice (how far each dimension is unrolled below each level), a temporal
factorisation (how the rest of each bound is split over the levels) and a loop order per level.
Dimensions are counted in indices of :data:`mohsearch.workloads.layer.DIMS`. The rest of a bound
that the levels outside have left over is held as an index into the bound's sorted divisors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InfeasibleError
from mohsearch.hardware.architecture import Architecture, Axis
from mohsearch.workloads.layer import DIMS, LayerShape

LARGEST_PRIME = 13
"""Padding makes bounds whose prime factors do not exceed this."""

PAD_ABOVE = 16
"""A bound with a larger prime factor than this is also tried padded."""

DIM = {name: index for index, name in enumerate(DIMS)}


def largest_prime_factor(value: int) -> int:
    """Return the largest prime factor, 1 for 1.

    Examples
    --------
    >>> [largest_prime_factor(n) for n in (1, 8, 255, 367)]
    [1, 2, 17, 367]
    """
    largest, factor = 1, 2
    while factor * factor <= value:
        while value % factor == 0:
            value //= factor
            largest = factor
        factor += 1
    return max(largest, value)


def divisors(value: int) -> list[int]:
    """Return the divisors in rising order.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return small + [value // d for d in reversed(small) if d * d != value]


def exact_fanouts(architecture: Architecture, layer: LayerShape) -> dict[str, int]:
    """Return the product of the wired fan-outs of each dimension that has one."""
    wired: dict[str, int] = {}
    for level in architecture.levels:
        for axis in level.axes(gemm=is_gemm(layer)):
            for dim, factor in axis.exact:
                wired[dim] = wired.get(dim, 1) * factor
    return wired


def is_gemm(layer: LayerShape) -> bool:
    """Tell whether the layer is a matrix product (no rows, columns or filter)."""
    return layer.P == layer.Q == layer.R == layer.S == 1


def padded_layers(
    layer: LayerShape, architecture: Architecture, *, padding: bool = True
) -> list[LayerShape]:
    """Return the layers to execute in the place of ``layer``, the least padded first.

    A dimension with a wired fan-out f below its bound is rounded up to a multiple of f. With
    ``padding``, a dimension whose largest prime factor exceeds 16 is tried both as it is and
    rounded up to the next (multiple of f that is a) number whose prime factors are at most 13.

    Examples
    --------
    >>> from mohsearch.hardware.templates import load_template
    >>> simba = load_template("simba")
    >>> [v.K for v in padded_layers(LayerShape(K=255, C=1024, P=13, Q=13), simba)]
    [256]
    >>> [v.C for v in padded_layers(LayerShape(C=367, K=512), load_template("eyeriss"))]
    [367, 375]
    """
    wired = exact_fanouts(architecture, layer)
    choices: list[list[int]] = []
    for name, bound in zip(DIMS, layer.bounds(), strict=True):
        unit = wired.get(name, 1) if bound > wired.get(name, 1) else 1
        rounded = -(-bound // unit) * unit
        options = [rounded]
        smooth = rounded
        while padding and largest_prime_factor(rounded) > PAD_ABOVE:
            smooth += unit
            if largest_prime_factor(smooth) <= LARGEST_PRIME:
                options.append(smooth)
                break
        choices.append(options)
    executed = [replace(layer, **dict(zip(DIMS, c, strict=True))) for c in product(*choices)]
    return sorted(executed, key=lambda shape: shape.macs)


@dataclass(frozen=True)
class MappingSpace:
    """Everything the kernels need to walk the space of one executed layer.

    ``L`` levels, 8 dimensions, at most ``V`` divisors of a bound.

    Attributes
    ----------
    divisors
        int64, shape (8, V): divisors of each bound, padded with 0.
    whole_bound
        int64, shape (8,): index of the bound itself among its divisors.
    option_start, option_count
        int64, shape (L, 8, V): where the ways to split a remainder at a level stand.
    option_next
        int64: the remainder left to the levels inside, rising.
    chains
        float64, shape (L + 1, 8, V): number of ways to split a remainder over this level and all
        inside it.
    branching
        bool, shape (L, 8): whether the level has a choice in the dimension.
    spatial
        int64, shape (n, L, 8): the spatial choices, most parallel first.
    unrolled
        For each spatial choice, per level the loops ``(axis, dim, factor)`` of one way to lay it
        out on the axes.
    """

    architecture: Architecture
    layer: LayerShape
    divisors: NDArray[np.int64]
    whole_bound: NDArray[np.int64]
    option_start: NDArray[np.int64]
    option_count: NDArray[np.int64]
    option_next: NDArray[np.int64]
    chains: NDArray[np.float64]
    branching: NDArray[np.bool_]
    spatial: NDArray[np.int64]
    unrolled: tuple[tuple[tuple[tuple[str, str, int], ...], ...], ...]

    @property
    def size(self) -> float:
        """Number of spatial choices and temporal factorisations, loop orders not counted."""
        return float(self.sizes().sum())

    def sizes(self) -> NDArray[np.float64]:
        """Return the number of temporal factorisations of each spatial choice."""
        total = np.ones(len(self.spatial))
        parallel = self.spatial.prod(axis=1)
        for d, bound in enumerate(self.layer.bounds()):
            rest = bound // parallel[:, d]
            count = int(self.whole_bound[d]) + 1
            index = np.searchsorted(self.divisors[d, :count], rest)
            total *= self.chains[0, d, index]
        return total


def build_space(layer: LayerShape, architecture: Architecture) -> MappingSpace:
    """Lay out the mapping space of an executed layer (see :func:`padded_layers`).

    Raises
    ------
    InfeasibleError
        If no spatial choice is admissible, naming the level, axis or dimension that forbids it.
    """
    allowed = _temporal_permission(architecture, layer)
    depth = len(architecture.levels)
    tables = [divisors(bound) for bound in layer.bounds()]
    widest = max(len(t) for t in tables)
    values = np.zeros((8, widest), dtype=np.int64)
    for d, table in enumerate(tables):
        values[d, : len(table)] = table
    start = np.zeros((depth, 8, widest), dtype=np.int64)
    count = np.zeros_like(start)
    chains = np.zeros((depth + 1, 8, widest))
    chains[depth, :, 0] = 1.0
    following: list[int] = []
    for level in range(depth - 1, -1, -1):
        for d, table in enumerate(tables):
            for i, value in enumerate(table):
                options = range(i + 1) if allowed[level, d] else (i,)
                kept = [j for j in options if chains[level + 1, d, j] and value % table[j] == 0]
                start[level, d, i], count[level, d, i] = len(following), len(kept)
                chains[level, d, i] = sum(chains[level + 1, d, j] for j in kept)
                following.extend(kept)
    spatial, unrolled = _spatial_choices(architecture, layer, tables, chains)
    return MappingSpace(
        architecture=architecture,
        layer=layer,
        divisors=values,
        whole_bound=np.array([len(t) - 1 for t in tables], dtype=np.int64),
        option_start=start,
        option_count=count,
        option_next=np.array(following, dtype=np.int64),
        chains=chains,
        branching=np.asarray((count > 1).any(axis=2)),
        spatial=spatial,
        unrolled=unrolled,
    )


def _temporal_permission(architecture: Architecture, layer: LayerShape) -> NDArray[np.bool_]:
    """Return which dimensions may be looped over at which level, shape (L, 8)."""
    levels = architecture.levels
    allowed = np.array([[d in level.temporal.dims for d in DIMS] for level in levels])
    for index, level in enumerate(levels):
        for dim in level.temporal.whole:
            allowed[:index, DIM[dim]] = False
        for axis in level.axes(gemm=is_gemm(layer)):
            for dim in axis.whole:
                allowed[: index + 1, DIM[dim]] = False
    return allowed


def _spatial_choices(
    architecture: Architecture,
    layer: LayerShape,
    tables: Sequence[Sequence[int]],
    chains: NDArray[np.float64],
) -> tuple[NDArray[np.int64], tuple[tuple[tuple[tuple[str, str, int], ...], ...], ...]]:
    depth = len(architecture.levels)
    per_level = [_level_choices(architecture, layer, level) for level in range(depth)]
    position = [{value: i for i, value in enumerate(table)} for table in tables]
    found: list[tuple[tuple[int, ...], ...]] = []
    drawn: list[tuple[tuple[tuple[str, str, int], ...], ...]] = []
    stuck: set[int] = set()
    for choice in product(*(list(c.items()) for c in per_level)):
        factors = [c[0] for c in choice]
        total = [prod(f[d] for f in factors) for d in range(8)]
        fits = True
        for d, bound in enumerate(layer.bounds()):
            rest = bound // total[d]
            if bound % total[d] or not chains[0, d, position[d][rest]]:
                stuck.add(d) if bound % total[d] == 0 else None
                fits = False
                break
        if fits and _whole_stays_whole(architecture, layer, factors):
            found.append(tuple(factors))
            drawn.append(tuple(c[1] for c in choice))
    if not found:
        raise InfeasibleError(_why_no_spatial_choice(architecture, layer, stuck))
    array = np.array(found, dtype=np.int64)
    order = np.argsort(-array.prod(axis=(1, 2)), kind="stable")
    return np.ascontiguousarray(array[order]), tuple(drawn[i] for i in order)


def _level_choices(
    architecture: Architecture, layer: LayerShape, index: int
) -> dict[tuple[int, ...], tuple[tuple[str, str, int], ...]]:
    """Return the distinct factors (one per dimension) of a fan-out and one layout of each."""
    choices: dict[tuple[int, ...], tuple[tuple[str, str, int], ...]] = {(1,) * 8: ()}
    for axis in architecture.levels[index].axes(gemm=is_gemm(layer)):
        extended: dict[tuple[int, ...], tuple[tuple[str, str, int], ...]] = {}
        for factors, loops in choices.items():
            for added in _axis_choices(axis, layer, factors):
                joined = list(factors)
                for dim, factor in added:
                    joined[DIM[dim]] *= factor
                drawn = tuple((axis.name, dim, factor) for dim, factor in added if factor > 1)
                extended.setdefault(tuple(joined), loops + drawn)
        choices = extended
    return choices


def _axis_choices(
    axis: Axis, layer: LayerShape, used: Sequence[int]
) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield the admissible factors of one axis as (dim, factor) tuples."""
    if axis.exact:
        yield tuple((dim, min(f, getattr(layer, dim))) for dim, f in axis.exact)
        return

    def extend(
        dims: tuple[str, ...], room: int, chosen: tuple[tuple[str, int], ...]
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        if not dims:
            yield chosen
            return
        for factor in divisors(getattr(layer, dims[0]) // used[DIM[dims[0]]]):
            if factor > room:
                break
            yield from extend(dims[1:], room // factor, (*chosen, (dims[0], factor)))

    yield from extend(axis.dims, axis.limit, ())


def _whole_stays_whole(
    architecture: Architecture, layer: LayerShape, factors: Sequence[Sequence[int]]
) -> bool:
    """Tell whether no fan-out further out has any of a dimension that must stand whole inside."""
    for index, level in enumerate(architecture.levels):
        inner = set(level.temporal.whole)
        for axis in level.axes(gemm=is_gemm(layer)):
            inner |= set(axis.whole)
        for dim in inner:
            if any(factors[outer][DIM[dim]] > 1 for outer in range(index)):
                return False
    return True


def _why_no_spatial_choice(architecture: Architecture, layer: LayerShape, stuck: set[int]) -> str:
    for level in architecture.levels:
        for axis in level.axes(gemm=is_gemm(layer)):
            for dim in axis.whole:
                bound = getattr(layer, dim)
                if bound > axis.limit:
                    return (
                        f"{architecture.name}: {level.name}.fanout {axis.name}: all of {dim} "
                        f"({bound}) must be unrolled, but the axis has {axis.limit} instances"
                    )
    names = ", ".join(DIMS[d] for d in sorted(stuck))
    return (
        f"{architecture.name}: no level may loop over what is left of {names} once the fan-outs "
        "have taken their part; temporal rules and fan-out rules leave it nowhere"
    )
