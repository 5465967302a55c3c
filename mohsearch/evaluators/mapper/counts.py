"""Access counts of a loop nest on a hierarchy of storage levels.

The counting rules are those of Timeloop's model (Parashar et al., ISPASS 2019), in closed form:
instead of walking the nest, each loop's displacement of the data it touches is worked out once and
weighted by how often that loop advances.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import Any, Literal

from mohsearch.core.errors import InputError
from mohsearch.evaluators.mapper.notation import Loop, Mapping
from mohsearch.workloads.layer import LayerShape

MAX_ENUMERATED = 2**20
"""Most index combinations of one fan-out that are tried one by one."""

Coordinate = tuple[tuple[str, int], ...]
"""A data coordinate: sum of coefficient times index, as (dimension, coefficient) pairs."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a loop nest.

    Attributes
    ----------
    name
        Name, as mappings print it.
    coordinates
        How each of its coordinates follows from the loop indices.
    written
        Whether the nest accumulates into it (an output) or only reads it.
    """

    name: str
    coordinates: tuple[Coordinate, ...]
    written: bool = False

    def footprint(self, bounds: Map[str, int]) -> int:
        """Return the elements that loops of these bounds touch (rule 1)."""
        return prod(self.extents(bounds))

    def extents(self, bounds: Map[str, int]) -> tuple[int, ...]:
        """Return the extent along each coordinate of what loops of these bounds touch."""
        return tuple(
            1 + sum(coefficient * (bounds.get(dim, 1) - 1) for dim, coefficient in coordinate)
            for coordinate in self.coordinates
        )


@dataclass(frozen=True, slots=True)
class CountRules:
    """How to count where models differ.

    Attributes
    ----------
    halos
        ``timeloop`` credits the overlap between neighbouring tiles only in runs of equal steps
        along one coordinate; ``exact`` credits the true overlap at every step; ``innermost``
        credits the innermost loop alone, in which all steps are equal. Timeloop judges each loop by
        its first two iterations and so takes some turns of outer loops for equal steps that are
        none; ``innermost`` never counts less than ``exact``.
    zero_fill
        Whether a level pays a write for the first, all-zero tile of each output it accumulates.
    """

    halos: Literal["timeloop", "exact", "innermost"] = "timeloop"
    zero_fill: bool = True


TIMELOOP_RULES = CountRules()


@dataclass(frozen=True, slots=True)
class AccessCount:
    """Accesses of one tensor at one level, in words per instance.

    Attributes
    ----------
    tile
        Words held at a time.
    partition
        Words the instance is ever responsible for.
    reads, fills, updates
        Words read towards the inside, written from the outside, and written from the inside.
    """

    tile: int
    partition: int
    reads: int
    fills: int
    updates: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one tensor sends through the fan-out below one instance of a level.

    Attributes
    ----------
    words
        Different words: operands sent inwards, or results sent outwards.
    multicast
        Instances that receive each operand word, or whose results are summed on the way (mean).
    """

    words: int
    multicast: float


@dataclass(frozen=True)
class NestCounts:
    """Access counts of a mapping.

    Attributes
    ----------
    mapping
        What was counted.
    accesses
        By level index, then tensor name; only levels that keep the tensor.
    transfers
        By level index, then tensor name: traffic below each level, bypassed ones included.
    """

    mapping: Mapping
    accesses: tuple[Map[str, AccessCount], ...]
    transfers: tuple[Map[str, Transfer], ...]

    @cached_property
    def instances(self) -> tuple[int, ...]:
        """Instances of each level at work."""
        return self.mapping.instances()

    @property
    def compute_cycles(self) -> int:
        """Cycles of the multiply-accumulate units."""
        return self.mapping.compute_cycles

    @property
    def macs(self) -> int:
        """Multiply-accumulates, padding included."""
        return self.mapping.compute_cycles * self.mapping.macs_used

    def used_words(self, level: int) -> int:
        """Return the capacity one instance of a level needs: the tiles of all tensors it keeps."""
        return sum(count.tile for count in self.accesses[level].values())


def layer_tensors(layer: LayerShape) -> tuple[Tensor, ...]:
    """Return W, I and O of a layer as tensors over its eight loops.

    Examples
    --------
    >>> [t.footprint(dict(K=8, C=4, R=3, S=3, P=5, Q=5)) for t in layer_tensors(LayerShape())]
    [288, 196, 200]
    """
    rows = (("P", layer.stride_h), ("R", layer.dilation_h))
    columns = (("Q", layer.stride_w), ("S", layer.dilation_w))

    def plain(dims: str) -> tuple[Coordinate, ...]:
        return tuple(((dim, 1),) for dim in dims)

    return (
        Tensor("W", plain("GKCRS")),
        Tensor("I", (*plain("NGC"), rows, columns)),
        Tensor("O", plain("NGKPQ"), written=True),
    )


def count_accesses(
    mapping: Mapping, tensors: Sequence[Tensor], rules: CountRules = TIMELOOP_RULES
) -> NestCounts:
    """Count the accesses of every tensor at every level that keeps it.

    Parameters
    ----------
    mapping
        The loop nest, outermost level first. Its bounds define the problem: a padded dimension is
        counted with its padding.
    tensors
        What the nest touches.
    rules
        Choices where models differ.

    Raises
    ------
    ValueError
        If a tensor is kept at no level.
    InputError
        If a fan-out is too large to count (:data:`MAX_ENUMERATED`).

    Examples
    --------
    ResNet-50's first convolution, output rows and columns in 4 by 4 blocks from memory:

    >>> from mohsearch.evaluators.mapper.notation import parse_mapping
    >>> nest = parse_mapping("DRAM[IOW] P4 Q4 | Glb[IO] P28 Q28 | Pe[W] K64 C3 R7 S7")
    >>> layer = LayerShape(K=64, C=3, P=112, Q=112, R=7, S=7, stride_h=2, stride_w=2)
    >>> counts = count_accesses(nest, layer_tensors(layer))
    >>> counts.accesses[1]["I"].tile, counts.accesses[0]["I"].reads
    (11163, 167628)
    """
    nest = _Nest(mapping)
    per_tensor = [_count_tensor(nest, tensor, rules) for tensor in tensors]
    depth = range(len(mapping.levels))
    names = [tensor.name for tensor in tensors]

    def by_level(part: int) -> tuple[dict[str, Any], ...]:
        found = [(name, counts[part]) for name, counts in zip(names, per_tensor, strict=True)]
        return tuple({name: at[level] for name, at in found if level in at} for level in depth)

    return NestCounts(mapping, by_level(0), by_level(1))


class _Nest:
    """The bounds inside each position of a mapping."""

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        depth = len(mapping.levels)
        self.below_spatial: list[dict[str, int]] = [{} for _ in range(depth + 1)]
        """By level: bounds inside the level's spatial loops; the last entry is unused."""
        self.below_temporal: list[dict[str, int]] = [{} for _ in range(depth + 1)]
        """By level: bounds of its spatial loops and everything inside."""
        self.tile: list[dict[str, int]] = [{} for _ in range(depth + 1)]
        """By level: bounds of all its loops; the entry past the last level is one MAC."""
        for index in reversed(range(depth)):
            level = mapping.levels[index]
            self.below_spatial[index] = self.tile[index + 1]
            self.below_temporal[index] = _extended(self.tile[index + 1], level.spatial)
            self.tile[index] = _extended(self.below_temporal[index], level.temporal)

    def steps_outside(self, level: int) -> list[tuple[Loop, int]]:
        """Return the loops over time outside ``level``, outermost first, each with its step.

        The step is the number of indices of its dimension that one iteration advances; loops with
        bound 1 are left out.
        """
        steps: list[tuple[Loop, int]] = []
        for index in range(level):
            steps += _with_steps(self.mapping.levels[index].temporal, self.below_temporal[index])
        return steps


def _extended(bounds: Map[str, int], loops: Sequence[Loop]) -> dict[str, int]:
    result = dict(bounds)
    for loop in loops:
        result[loop.dim] = result.get(loop.dim, 1) * loop.bound
    return result


def _with_steps(loops: Sequence[Loop], inside: Map[str, int]) -> list[tuple[Loop, int]]:
    """Pair each loop of one level with its step, leaving out loops with bound 1."""
    bounds = dict(inside)
    result = []
    for loop in reversed(loops):
        step = bounds.get(loop.dim, 1)
        if loop.bound > 1:
            result.append((loop, step))
        bounds[loop.dim] = step * loop.bound
    return result[::-1]


def _count_tensor(
    nest: _Nest, tensor: Tensor, rules: CountRules
) -> tuple[dict[int, AccessCount], dict[int, Transfer]]:
    """Return the accesses and transfers of one tensor by level index."""
    levels = nest.mapping.levels
    keepers = [i for i, level in enumerate(levels) if tensor.name in level.keeps]
    if not keepers:
        raise ValueError(f"no level keeps {tensor.name}")
    accesses: dict[int, AccessCount] = {}
    transfers: dict[int, Transfer] = {}
    partition = tensor.footprint(nest.tile[0])
    fills = 0
    for parent, child in pairwise([*keepers, len(levels)]):
        innermost = child == len(levels)
        received = nest.mapping.compute_cycles if innermost else _fills(nest, tensor, child, rules)
        served = received
        for level in reversed(range(parent, child)):
            distinct = _distinct_positions(nest, tensor, level)
            served *= distinct
            transfers[level] = Transfer(served, levels[level].fanout / distinct)
        tile = tensor.footprint(nest.tile[parent])
        if tensor.written:
            charged = fills if rules.zero_fill else max(fills - partition, 0)
            count = AccessCount(tile, partition, served - partition, charged, served)
        else:
            count = AccessCount(tile, partition, served, fills, 0)
        accesses[parent] = count
        partition = _share(nest, tensor, partition, parent, child)
        fills = received
    return accesses, transfers


def _share(nest: _Nest, tensor: Tensor, partition: int, parent: int, child: int) -> int:
    """Return the part of a parent's partition that one child is responsible for (rule 7)."""
    for level in range(parent, child):
        together = tensor.footprint(nest.below_temporal[level])
        partition = partition * tensor.footprint(nest.tile[level + 1]) // together
    return partition


def _fills(nest: _Nest, tensor: Tensor, level: int, rules: CountRules) -> int:
    """Return the words that one instance of a level receives over the whole nest (rule 3)."""
    extents = tensor.extents(nest.tile[level])
    steps = nest.steps_outside(level)
    moves = [
        tuple(
            sum(coefficient * step for dim, coefficient in coordinate if dim == loop.dim)
            for coordinate in tensor.coordinates
        )
        for loop, step in steps
    ]
    exact = rules.halos == "exact"
    tile = prod(extents)
    total = tile
    rewound = [0] * len(extents)
    repeated: list[int] | None = None
    advances = prod(loop.bound for loop, _ in steps)
    for (loop, _), move in zip(reversed(steps), reversed(moves), strict=True):
        advances //= loop.bound
        shift = [m - r for m, r in zip(move, rewound, strict=True)]
        repeated = shift if repeated is None else repeated
        if exact:
            new = tile - prod(max(e - abs(s), 0) for s, e in zip(shift, extents, strict=True))
        elif rules.halos == "innermost" and any(rewound):
            new = tile
        else:
            new = _slid_words(shift, extents, tile) if shift == repeated else tile
        total += advances * (loop.bound - 1) * new
        seen = loop.bound - 1 if exact else 1
        rewound = [r + m * seen for r, m in zip(rewound, move, strict=True)]
    return total


def _slid_words(shift: Sequence[int], extents: Sequence[int], tile: int) -> int:
    """Return the words of a tile that are new after a step along at most one coordinate."""
    moved = [(abs(step), extent) for step, extent in zip(shift, extents, strict=True) if step != 0]
    if not moved:
        return 0
    if len(moved) != 1 or moved[0][0] >= moved[0][1]:
        return tile
    step, extent = moved[0]
    return tile // extent * step


def _distinct_positions(nest: _Nest, tensor: Tensor, level: int) -> int:
    """Return how many different tiles the instances below one instance hold (rules 4 and 8)."""
    loops = _with_steps(nest.mapping.levels[level].spatial, nest.below_spatial[level])
    return _distinct(tensor.coordinates, loops) if loops else 1


def _distinct(coordinates: Sequence[Coordinate], loops: Sequence[tuple[Loop, int]]) -> int:
    """Return the number of different coordinate tuples over the indices of ``loops``."""
    used = {loop.dim for loop, _ in loops}
    count = 1
    for group in _connected(coordinates, used):
        inside = [
            (loop, step) for loop, step in loops if any(loop.dim == d for c in group for d, _ in c)
        ]
        if len(inside) == 1:
            count *= inside[0][0].bound
            continue
        sums = _distinct_sums(group[0], inside) if len(group) == 1 else None
        if sums is not None:
            count *= sums
            continue
        if (size := prod(loop.bound for loop, _ in inside)) > MAX_ENUMERATED:
            raise InputError(
                f"a fan-out of {size} over loops that address the same coordinate is too large"
                f" to count (at most {MAX_ENUMERATED})"
            )
        count *= len(
            {
                tuple(
                    sum(
                        coefficient * step * index
                        for (loop, step), index in zip(inside, indices, strict=True)
                        for dim, coefficient in coordinate
                        if dim == loop.dim
                    )
                    for coordinate in group
                )
                for indices in product(*(range(loop.bound) for loop, _ in inside))
            }
        )
    return count


def _distinct_sums(coordinate: Coordinate, loops: Sequence[tuple[Loop, int]]) -> int | None:
    """Return the number of different values of one coordinate, None where only trying tells.

    Sums of multiples are told apart as long as each further stride either continues the evenly
    spaced values so far without a gap, or (the last one) steps over all of them.
    """
    strides = sorted(
        (sum(coefficient * step for dim, coefficient in coordinate if dim == loop.dim), loop.bound)
        for loop, step in loops
    )
    unit, count = strides[0]
    if unit < 1:
        return None
    for index, (stride, bound) in enumerate(strides[1:], start=2):
        if stride % unit == 0 and stride // unit <= count:
            count += (bound - 1) * (stride // unit)
        elif stride > (count - 1) * unit and index == len(strides):
            count *= bound
        else:
            return None
    return count


def _connected(coordinates: Sequence[Coordinate], used: set[str]) -> list[list[Coordinate]]:
    """Group the coordinates that share one of the ``used`` dimensions."""
    groups: list[tuple[set[str], list[Coordinate]]] = []
    for coordinate in coordinates:
        dims = {dim for dim, coefficient in coordinate if coefficient} & used
        if not dims:
            continue
        members = [coordinate]
        for group in [g for g in groups if g[0] & dims]:
            groups.remove(group)
            dims |= group[0]
            members = group[1] + members
        groups.append((dims, members))
    return [members for _, members in groups]
