"""Attainment surfaces: what a share of the runs reaches, in the units of the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import Front, common_objectives
from mohsearch.analysis.labels import label, varying_fields
from mohsearch.core.errors import InputError

LEVELS = (25.0, 50.0, 75.0)
"""Percentages of runs whose attainment is worked out where none are asked for."""


@dataclass(frozen=True)
class Attainment:
    """Surfaces of one contender.

    Attributes
    ----------
    contender
        What the runs are repetitions of.
    runs
        How many there are.
    objectives
        Metrics, two or three.
    surfaces
        By percentage: the best points that at least this share of the runs weakly dominate, shape
        (points, objectives), natural signs and units.
    """

    contender: str
    runs: int
    objectives: tuple[str, ...]
    surfaces: dict[float, NDArray[np.float64]]

    def records(self) -> list[dict[str, object]]:
        """Return flat records, one per point, for CSV."""
        return [
            {"contender": self.contender, "runs": self.runs, "percent_of_runs": level}
            | dict(zip(self.objectives, map(float, point), strict=True))
            for level, points in self.surfaces.items()
            for point in points
        ]


def attainment(
    fronts: Sequence[Front],
    objectives: Sequence[str] | None = None,
    levels: Sequence[float] = LEVELS,
    by: str | None = None,
) -> tuple[Attainment, ...]:
    """Return the empirical attainment surfaces of each contender over its runs.

    Source: Grunert da Fonseca, Fonseca and Hall 2001; algorithm Fonseca et al. 2011, by moocore.

    Parameters
    ----------
    objectives
        Two or three metrics (default: the objectives).
    levels
        Percentages of runs, above 0 up to 100. With 100 every run attains the surface.
    by
        What tells contenders apart (default: all that varies but the seed).

    Raises
    ------
    InputError
        If there are not two or three objectives.
    """
    names = tuple(objectives or common_objectives(fronts))
    if len(names) not in (2, 3):
        raise InputError(
            f"attainment surfaces take two or three metrics, got {len(names)}: {', '.join(names)}"
        )
    fields = (by,) if by else varying_fields(fronts)
    groups: dict[str, list[Front]] = {}
    for front in fronts:
        groups.setdefault(label(front.attrs, fields), []).append(front)
    return tuple(_surfaces(name, group, names, levels) for name, group in groups.items())


def _surfaces(
    name: str, group: Sequence[Front], objectives: tuple[str, ...], levels: Sequence[float]
) -> Attainment:
    import moocore

    losses = [front.losses(objectives) for front in group]
    sets = np.repeat(np.arange(len(losses)), [len(part) for part in losses])
    points = np.concatenate(losses)
    usable = np.isfinite(points).all(axis=1)
    signs = np.array([group[0].metric(n).sign for n in objectives])
    surfaces = {}
    # The algorithm gives one surface for every number of runs, as a percentage of them.
    found = moocore.eaf(points[usable], sets[usable])
    counts = np.round(found[:, -1] * len(np.unique(sets[usable])) / 100.0)
    for level in levels:
        needed = max(1, int(np.ceil(level * len(group) / 100.0 - 1e-9)))
        surfaces[float(level)] = found[counts == needed, :-1] * signs
    return Attainment(name, len(group), objectives, surfaces)
