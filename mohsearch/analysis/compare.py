"""Which contender wins: hypervolumes over seeds, shares dominated, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import Front, common_objectives
from mohsearch.analysis.indicators import (
    Box,
    common_box,
    dominated_share,
    epsilon_additive,
    hypervolume,
    igd_plus,
    nondominated,
)
from mohsearch.analysis.labels import FIELDS, contender_fields, label, varying_fields


@dataclass(frozen=True)
class Standing:
    """One contender in one case.

    Attributes
    ----------
    case, contender
        Names; the case is empty when there is only one.
    rank
        1 is the largest median hypervolume; equal medians share a rank.
    hypervolumes
        One per run, in the order of ``runs``: shares of the case's box.
    igd_plus, epsilon
        Medians over runs against the non-dominated points of all runs of the case.
    dominated
        Median over all pairs of runs of the share of this contender's solutions that the other
        contender Pareto-dominates, by the other contender's name.
    runs
        Names of the runs.
    """

    case: str
    contender: str
    rank: int
    hypervolumes: tuple[float, ...]
    igd_plus: float
    epsilon: float
    dominated: dict[str, float]
    runs: tuple[str, ...]

    def quartiles(self) -> tuple[float, float, float]:
        """Return first quartile, median and third quartile of the hypervolumes."""
        low, middle, high = np.quantile(self.hypervolumes, [0.25, 0.5, 0.75])
        return float(low), float(middle), float(high)


@dataclass(frozen=True)
class Comparison:
    """Standings of all cases, best first within each.

    Attributes
    ----------
    fields
        What tells contenders apart.
    objectives
        Metrics compared on.
    boxes
        Normalisation and reference point, by case.
    standings
        By case in order of name, then by rank.
    """

    fields: tuple[str, ...]
    objectives: tuple[str, ...]
    boxes: dict[str, Box]
    standings: tuple[Standing, ...]

    def records(self) -> list[dict[str, object]]:
        """Return flat records, one per standing, for a table or CSV."""
        rows: list[dict[str, object]] = []
        for standing in self.standings:
            low, middle, high = standing.quartiles()
            row: dict[str, object] = {
                "case": standing.case,
                "contender": standing.contender,
                "rank": standing.rank,
                "runs": len(standing.runs),
                "hypervolume_median": middle,
                "hypervolume_q1": low,
                "hypervolume_q3": high,
                "igd_plus_median": standing.igd_plus,
                "epsilon_additive_median": standing.epsilon,
            }
            row |= {f"dominated_by {name}": v for name, v in standing.dominated.items()}
            rows.append(row)
        return rows


def compare(
    fronts: Sequence[Front], by: str | None = None, objectives: Sequence[str] | None = None
) -> Comparison:
    """Compare the fronts of a study's runs.

    Runs that differ only in the seed are repetitions of one contender. Runs are only compared
    within a case: with ``by="engine"``, runs of the same problem, portfolio and workload.

    Parameters
    ----------
    fronts
        At least one front.
    by
        What tells contenders apart (default: all that varies but the workload).
    objectives
        Metrics to compare on (default: all objectives of all runs).

    Raises
    ------
    UnknownNameError
        If ``by`` or an objective is unknown.
    """
    fields = contender_fields(fronts, by)
    case_fields = [f for f in FIELDS if f in varying_fields(fronts) and f not in fields]
    names = tuple(objectives or common_objectives(fronts))
    cases: dict[str, list[Front]] = {}
    for front in fronts:
        cases.setdefault(label(front.attrs, case_fields), []).append(front)
    boxes: dict[str, Box] = {}
    standings: list[Standing] = []
    for case in sorted(cases):
        groups: dict[str, list[Front]] = {}
        for front in cases[case]:
            groups.setdefault(label(front.attrs, fields), []).append(front)
        box, part = _standings(case, groups, names)
        boxes[case] = box
        standings += part
    return Comparison(fields, names, boxes, tuple(standings))


def _standings(
    case: str, groups: dict[str, list[Front]], objectives: tuple[str, ...]
) -> tuple[Box, list[Standing]]:
    losses = {name: [f.losses(objectives) for f in group] for name, group in groups.items()}
    everything = [points for group in losses.values() for points in group]
    box = common_box(everything)
    target = np.concatenate(everything)
    target = target[np.isfinite(target).all(axis=1)]
    target = target[nondominated(target)]
    volumes = {
        name: tuple(hypervolume(points, box).value for points in group)
        for name, group in losses.items()
    }
    medians = {name: float(np.median(values)) for name, values in volumes.items()}
    ordered = sorted(groups, key=lambda name: (-medians[name], name))
    return box, [
        Standing(
            case=case,
            contender=name,
            rank=1 + sum(other > medians[name] for other in medians.values()),
            hypervolumes=volumes[name],
            igd_plus=float(np.median([igd_plus(p, target, box) for p in losses[name]])),
            epsilon=float(np.median([epsilon_additive(p, target, box) for p in losses[name]])),
            dominated={
                other: _median_share(losses[other], losses[name])
                for other in ordered
                if other != name
            },
            runs=tuple(front.run for front in groups[name]),
        )
        for name in ordered
    ]


def _median_share(
    winners: Sequence[NDArray[np.float64]], losers: Sequence[NDArray[np.float64]]
) -> float:
    return float(np.median([dominated_share(a, b) for a in winners for b in losers]))
