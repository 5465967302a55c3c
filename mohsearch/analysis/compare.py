"""Which contender wins: indicators over seeds, tests with effect sizes, ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import Front, common_objectives, distance_to_ideal
from mohsearch.analysis.indicators import (
    Box,
    common_box,
    dominated_share,
    epsilon_additive,
    hypervolume,
    igd_plus,
    nondominated,
    r2,
    spread,
)
from mohsearch.analysis.labels import case_fields, contender_fields, label
from mohsearch.analysis.statistics import (
    PairTest,
    compare_pairs,
    friedman,
    least_p,
    seeds_needed,
)

Losses = NDArray[np.float64]


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
    igd_plus, epsilon, r2, spread
        Medians over runs; the first two against the non-dominated points of all runs of the case.
        The spread is that of runs with two solutions or more.
    dominated
        Median over all pairs of runs of the share of this contender's solutions that the other
        contender Pareto-dominates, by the other contender's name; NaN where no run has any.
    covered
        The same with equal solutions counted: Zitzler's C-metric.
    over_bound
        By metric with a proven bound: how far the best solution of a run stays above it, relative
        to the bound; median over runs.
    runs
        Names of the runs.
    cpu_s
        Median processor time of a search, without building its problem; NaN where it is not told.
    """

    case: str
    contender: str
    rank: int
    hypervolumes: tuple[float, ...]
    igd_plus: float
    epsilon: float
    r2: float
    spread: float
    dominated: dict[str, float]
    covered: dict[str, float]
    over_bound: dict[str, float]
    runs: tuple[str, ...]
    cpu_s: float

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
        Metrics compared on, by case.
    boxes
        Normalisation and reference point, by case and contender: one for all contenders of a case,
        or one for each where workloads are compared.
    standings
        By case in order of name, then by rank.
    tests
        Hypervolumes of each pair of contenders tested, by case.
    notes
        What to bear in mind, as sentences: too few seeds, different budgets.
    """

    fields: tuple[str, ...]
    objectives: dict[str, tuple[str, ...]]
    boxes: dict[tuple[str, str], Box]
    standings: tuple[Standing, ...]
    tests: dict[str, tuple[PairTest, ...]]
    notes: tuple[str, ...] = ()

    @property
    def cases(self) -> tuple[str, ...]:
        """Names of the cases, in order."""
        return tuple(self.tests)

    @property
    def rule(self) -> str:
        """The reference-point rule of the hypervolumes in words."""
        rule = next(iter(self.boxes.values())).rule
        return rule + "; for each workload by itself" if "workload" in self.fields else rule

    def mean_ranks(self) -> dict[str, float]:
        """Return each contender's rank averaged over the cases that have all, best first."""
        ranks: dict[str, list[int]] = {}
        for standing in self.standings:
            ranks.setdefault(standing.contender, []).append(standing.rank)
        whole = {n: float(np.mean(r)) for n, r in ranks.items() if len(r) == len(self.cases)}
        return dict(sorted(whole.items(), key=lambda item: (item[1], item[0])))

    def friedman_p(self) -> float:
        """Return the Friedman test's p-value of contenders over cases, NaN where there are few."""
        names = list(self.mean_ranks())
        medians = {(s.case, s.contender): s.quartiles()[1] for s in self.standings}
        return friedman([[medians[case, n] for n in names] for case in self.cases])

    def records(self) -> list[dict[str, object]]:
        """Return flat records, one per standing, for a table or CSV.

        All have the same fields in the same order, contenders as they rank; None where there is
        no value: by a contender itself, or by one that its case does not have.
        """
        rows: list[dict[str, object]] = []
        bounded = dict.fromkeys(name for s in self.standings for name in s.over_bound)
        others = {name for s in self.standings for name in s.dominated}
        ranked = [n for n in dict.fromkeys(s.contender for s in self.standings) if n in others]
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
                "r2_median": standing.r2,
                "spread_median": standing.spread,
                "cpu_s_median": standing.cpu_s,
            }
            row |= {f"{n}_over_bound_median": standing.over_bound.get(n) for n in bounded}
            row |= {f"dominated_by {n}": standing.dominated.get(n) for n in ranked}
            row |= {f"covered_by {n}": standing.covered.get(n) for n in ranked}
            box = self.boxes[standing.case, standing.contender]
            row["reference_point"] = " ".join(f"{v:.9g}" for v in box.reference)
            row["hypervolume_rule"] = self.rule
            rows.append(row)
        return rows

    def test_records(self) -> list[dict[str, object]]:
        """Return flat records, one per pair of contenders tested."""
        return [
            {
                "case": case,
                "first": test.first,
                "second": test.second,
                "p": test.p,
                "p_holm": test.p_holm,
                "vargha_delaney_a12": test.a12,
                "cliff_delta": test.cliff_delta,
                "effect": test.size,
                "verdict": self.verdict(test),
            }
            for case, tests in self.tests.items()
            for test in tests
        ]

    def box_of(self, run: str) -> Box:
        """Return the box in which a run's hypervolume was measured."""
        for standing in self.standings:
            if run in standing.runs:
                return self.boxes[standing.case, standing.contender]
        raise KeyError(run)

    def verdict(self, test: PairTest) -> str:
        """Return what can be concluded from the test of a pair.

        A workload is not better than another one: searches on it come nearer to what is known.
        """
        told = test.verdict
        if self.fields == ("workload",) and told.endswith(" is better"):
            return told.removesuffix("is better") + "is reached more nearly"
        return told

    def objectives_in_words(self) -> str:
        """Return the metrics compared on, by case where they differ."""
        each = {case: ", ".join(names) for case, names in self.objectives.items()}
        if len(set(each.values())) == 1:
            return next(iter(each.values()))
        return "; ".join(f"{case}: {names}" for case, names in each.items())


def compare(
    fronts: Sequence[Front], by: str | None = None, objectives: Sequence[str] | None = None
) -> Comparison:
    """Compare the fronts of runs.

    Runs that differ only in the seed are repetitions of one contender. Runs are only compared
    within a case: with ``by="engine"``, runs of the same problem, portfolio and workload. Where
    workloads themselves are the contenders, each has a box of its own in each case, so that a
    hypervolume is the share of what the case's runs on that workload reached together.

    Parameters
    ----------
    fronts
        At least one front.
    by
        What tells contenders apart, one of :data:`mohsearch.analysis.labels.BY` (default: all that
        varies but the workload).
    objectives
        Metrics to compare on (default: all objectives of all runs; of all runs of a case where
        problems with different metrics are different cases).

    Raises
    ------
    UnknownNameError
        If ``by`` or an objective is unknown.
    InputError
        If runs of one case have no metrics in common.
    """
    fields = contender_fields(fronts, by)
    apart = case_fields(fronts, fields)
    cases: dict[str, dict[str, list[Front]]] = {}
    for front in fronts:
        group = cases.setdefault(label(front.attrs, apart), {})
        group.setdefault(label(front.attrs, fields), []).append(front)
    names = _objectives(fronts, cases, objectives)
    boxes: dict[tuple[str, str], Box] = {}
    standings: list[Standing] = []
    tests: dict[str, tuple[PairTest, ...]] = {}
    for case in sorted(cases):
        found: list[Standing] = []
        for part in _parts(cases[case], fields):
            box = common_box([f.losses(names[case]) for g in part.values() for f in g])
            boxes |= {(case, contender): box for contender in part}
            found += _standings(case, part, names[case], box)
        standings += _ranked(found)
        tests[case] = compare_pairs({s.contender: s.hypervolumes for s in found})
    notes = _notes(fields, fronts, standings, tests)
    return Comparison(
        fields, {case: names[case] for case in tests}, boxes, tuple(standings), tests, notes
    )


def _objectives(
    fronts: Sequence[Front],
    cases: Mapping[str, Mapping[str, Sequence[Front]]],
    wanted: Sequence[str] | None,
) -> dict[str, tuple[str, ...]]:
    """Return the metrics to compare on by case: the same in all where all runs have them."""
    if wanted:
        return dict.fromkeys(cases, tuple(wanted))
    together = {name for front in fronts for name in front.objectives}
    if all(together <= set(front.values) for front in fronts):
        return dict.fromkeys(cases, common_objectives(fronts))
    return {
        case: common_objectives([f for group in groups.values() for f in group])
        for case, groups in cases.items()
    }


def _parts(groups: dict[str, list[Front]], fields: Sequence[str]) -> list[dict[str, list[Front]]]:
    """Return the contenders of a case in parts that share a box: each workload by itself."""
    if "workload" in fields:
        return [{name: group} for name, group in groups.items()]
    return [groups]


def _ranked(standings: list[Standing]) -> list[Standing]:
    medians = [s.quartiles()[1] for s in standings]
    ranks = [1 + sum(other > mine for other in medians) for mine in medians]
    ranked = [replace(s, rank=rank) for s, rank in zip(standings, ranks, strict=True)]
    return sorted(ranked, key=lambda s: (s.rank, s.contender))


def _standings(
    case: str, groups: dict[str, list[Front]], objectives: tuple[str, ...], box: Box
) -> list[Standing]:
    losses = {name: [f.losses(objectives) for f in group] for name, group in groups.items()}
    target = np.concatenate([points for group in losses.values() for points in group])
    target = target[np.isfinite(target).all(axis=1)]
    target = target[nondominated(target)]
    rows = []
    for name, group in groups.items():
        mine = losses[name]
        others = {other: points for other, points in losses.items() if other != name}
        rows.append(
            Standing(
                case=case,
                contender=name,
                rank=0,
                hypervolumes=tuple(hypervolume(points, box).value for points in mine),
                igd_plus=float(np.median([igd_plus(p, target, box) for p in mine])),
                epsilon=float(np.median([epsilon_additive(p, target, box) for p in mine])),
                r2=float(np.median([r2(p, box) for p in mine])),
                spread=_median_known([spread(p, box) for p in mine]),
                dominated={n: _median_share(p, mine) for n, p in others.items()},
                covered={n: _median_share(p, mine, weakly=True) for n, p in others.items()},
                over_bound=_over_bound(group),
                runs=tuple(front.run for front in group),
                cpu_s=float(np.median([_cpu_seconds(front) for front in group])),
            )
        )
    return _ranked(rows)


def _cpu_seconds(front: Front) -> float:
    """Return the processor time of a run's search, NaN where it is not told."""
    origin = front.attrs.get("provenance")
    told = origin.get("cpu_s") if isinstance(origin, Mapping) else None
    return float("nan") if told is None else float(told)


def _median_share(
    winners: Sequence[Losses], losers: Sequence[Losses], *, weakly: bool = False
) -> float:
    shares = [dominated_share(a, b, weakly=weakly) for a in winners for b in losers]
    return _median_known(shares)


def _median_known(values: Sequence[float]) -> float:
    """Return the median without NaN; NaN where nothing else is left."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else float("nan")


def _over_bound(group: Sequence[Front]) -> dict[str, float]:
    nearest: dict[str, list[float]] = {}
    for front in group:
        for name, distances in distance_to_ideal(front).items():
            if len(distances) and np.isfinite(distances).any():
                nearest.setdefault(name, []).append(float(np.nanmin(distances)))
    return {name: float(np.median(values)) for name, values in nearest.items()}


def _notes(
    fields: Sequence[str],
    fronts: Sequence[Front],
    standings: Sequence[Standing],
    tests: dict[str, tuple[PairTest, ...]],
) -> tuple[str, ...]:
    notes = []
    most = max((len(found) for found in tests.values()), default=0)
    fewest = min(len(s.runs) for s in standings)
    if most and any(t.verdict == "too few seeds" for found in tests.values() for t in found):
        least = min(1.0, least_p(fewest, fewest) * most)
        pairs = f"{most} pair{'' if most == 1 else 's'}"
        notes.append(
            f"too few seeds to conclude: with {fewest} a contender, no test of {pairs} can give "
            f"less than p = {least:.2g} after Holm's correction; {seeds_needed(most)} are needed"
        )
    spent = sorted({int(e) for f in fronts if (e := f.attrs.get("evaluations")) is not None})
    if len(spent) > 1:
        notes.append(
            f"runs took between {spent[0]:,} and {spent[-1]:,} evaluations: compare their curves"
        )
    if without := sum(not len(front) for front in fronts):
        notes.append(
            f"{without} of {len(fronts)} runs found no solution that keeps the constraints: "
            "hypervolume 0"
        )
    if "workload" in fields and any(len(s.runs) == 1 for s in standings):
        notes.append(
            "a workload with one run is measured by that run alone: its hypervolume tells the "
            "shape of a front, not how far the search came"
        )
    states = {str(f.attrs.get("status", "complete")) for f in fronts}
    if states - {"complete"}:
        notes.append(f"some runs are not complete: {', '.join(sorted(states - {'complete'}))}")
    return tuple(notes)
