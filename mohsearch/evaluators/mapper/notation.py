"""Loop-nest mappings: levels of loops over time and space, and their one-line text form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from mohsearch.core.errors import InputError

_LEVEL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\[([^\]]*)\]\s*(.*?)\s*")
_LOOP = re.compile(r"([A-Za-z_]+?)(\d+)([XY]?)")


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: a dimension, its number of iterations, and the axis of a spatial one."""

    dim: str
    bound: int
    axis: str = ""

    def __str__(self) -> str:
        return f"{self.dim}{self.bound}{self.axis}"


@dataclass(frozen=True, slots=True)
class MappingLevel:
    """Loops at one storage level.

    Attributes
    ----------
    name
        The level's name.
    keeps
        Names of the tensors it holds; all others bypass it.
    temporal
        Loops over time, outermost first.
    spatial
        Loops over the instances below, outermost first; they are inside the temporal ones.
    """

    name: str
    keeps: tuple[str, ...]
    temporal: tuple[Loop, ...] = ()
    spatial: tuple[Loop, ...] = ()

    @property
    def fanout(self) -> int:
        """Instances below one instance of this level."""
        return prod(loop.bound for loop in self.spatial)

    def mesh(self, axis: str) -> int:
        """Product of the spatial bounds along ``X`` or ``Y``; loops without an axis count as X."""
        return prod(loop.bound for loop in self.spatial if (loop.axis or "X") == axis)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A loop nest on a hierarchy of storage levels, outermost level first.

    Examples
    --------
    >>> text = "DRAM[IOW] Q11 | Glb[IOW] P5 // K64 | Local[IOW] S11 R11 // C3Y Q5X"
    >>> mapping = parse_mapping(text)
    >>> mapping.bounds()
    {'Q': 55, 'P': 5, 'K': 64, 'S': 11, 'R': 11, 'C': 3}
    >>> mapping.compute_cycles, mapping.macs_used
    (6655, 960)
    >>> format_mapping(mapping) == text
    True
    """

    levels: tuple[MappingLevel, ...]

    def bounds(self) -> dict[str, int]:
        """Return the product of all loops of each dimension that has one."""
        result: dict[str, int] = {}
        for level in self.levels:
            for loop in (*level.temporal, *level.spatial):
                result[loop.dim] = result.get(loop.dim, 1) * loop.bound
        return result

    @property
    def compute_cycles(self) -> int:
        """Product of all bounds over time (rule 2)."""
        return prod(loop.bound for level in self.levels for loop in level.temporal)

    @property
    def macs_used(self) -> int:
        """Multiply-accumulate units at work: the product of all spatial bounds."""
        return prod(level.fanout for level in self.levels)

    def instances(self) -> tuple[int, ...]:
        """Return the instances of each level that are at work."""
        counts, count = [], 1
        for level in self.levels:
            counts.append(count)
            count *= level.fanout
        return tuple(counts)


def parse_mapping(text: str, *, source: str | None = None, field: str | None = None) -> Mapping:
    """Read a mapping: levels outermost first, split by ``|``.

    A level is ``NAME[TENSORS] loops over time // loops over space``; a loop is a dimension, a bound
    and, for a spatial one, ``X`` or ``Y``. Tensors are single letters. What follows ``#`` is a
    comment.

    Raises
    ------
    InputError
        If the text is no mapping; the message quotes the part that is wrong.
    """
    levels = []
    for part in text.partition("#")[0].split("|"):
        match = _LEVEL.fullmatch(part)
        if match is None:
            message = f"no mapping level: {part.strip()!r} (NAME[TENSORS] loops // spatial loops)"
            raise InputError(message, source=source, field=field)
        name, keeps, loops = match.groups()
        temporal, _, spatial = loops.partition("//")
        levels.append(
            MappingLevel(
                name,
                tuple(keeps.replace(",", "").replace(" ", "")),
                _parse_loops(temporal, False, source, field),
                _parse_loops(spatial, True, source, field),
            )
        )
    return Mapping(tuple(levels))


def _parse_loops(
    text: str, spatial: bool, source: str | None, field: str | None
) -> tuple[Loop, ...]:
    loops = []
    for word in text.split():
        match = _LOOP.fullmatch(word)
        if match is None or int(match[2]) < 1 or (match[3] and not spatial):
            kind = "spatial loop, such as K4X" if spatial else "loop over time, such as K4"
            raise InputError(f"{word!r} is no {kind}", source=source, field=field)
        loops.append(Loop(match[1], int(match[2]), match[3]))
    return tuple(loops)


def format_mapping(mapping: Mapping, *, unit_loops: bool = False) -> str:
    """Write a mapping as one line; loops with bound 1 are left out unless asked for."""

    def words(loops: Iterable[Loop]) -> list[str]:
        return [str(loop) for loop in loops if unit_loops or loop.bound > 1]

    parts = []
    for level in mapping.levels:
        spatial = words(level.spatial)
        pieces = [f"{level.name}[{''.join(level.keeps)}]", *words(level.temporal)]
        parts.append(" ".join([*pieces, *(["//", *spatial] if spatial else [])]))
    return " | ".join(parts)
