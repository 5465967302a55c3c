"""Two cost models on the same designs: pairs of runs that evaluated the same genomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.labels import field_value
from mohsearch.analysis.results import History
from mohsearch.core.errors import InputError

Floats = NDArray[np.float64]

SAME = ("chips", "hop_bytes")
"""Metrics that no cost model changes: they tell whether two runs drew the same designs."""


@dataclass(frozen=True)
class Pair:
    """One objective of the same designs under two cost models.

    Attributes
    ----------
    name
        Portfolio and seed that drew the designs.
    first, second
        Labels of the two problems.
    x, y
        Values, each of shape (designs,).
    pearson
        Their correlation.
    """

    name: str
    first: str
    second: str
    x: Floats
    y: Floats
    pearson: float


def matched_pairs(histories: Sequence[History]) -> list[Pair]:
    """Return the pairs of runs that differ in their problem entry alone.

    Raises
    ------
    InputError
        If there is no such pair, or two runs did not evaluate the same designs.
    """
    groups: dict[tuple[str, ...], list[History]] = {}
    for history in histories:
        attrs = history.front.attrs
        key = [field_value(attrs, f) for f in ("workload", "engine", "portfolio", "seed")]
        groups.setdefault(tuple(key), []).append(history)
    pairs = [_pair(key, group) for key, group in groups.items() if len(group) == 2]
    if not pairs:
        raise InputError("no two runs differ in their problem entry alone")
    return pairs


def _pair(key: Sequence[str], group: Sequence[History]) -> Pair:
    one, two = group
    names = [field_value(history.front.attrs, "problem") for history in group]
    metric = one.front.objectives[0]
    same = len(one.values[metric]) == len(two.values[metric]) and all(
        np.array_equal(one.values[name], two.values[name]) for name in SAME if name in one.values
    )
    if not same:
        raise InputError(f"runs {one.front.run} and {two.front.run} evaluated different designs")
    x, y = one.values[metric], two.values[metric]
    return Pair(f"{key[2]}, {key[3]}", names[0], names[1], x, y, float(np.corrcoef(x, y)[0, 1]))
