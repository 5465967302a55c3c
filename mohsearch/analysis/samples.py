"""Best result against samples: the tables of searches that pay for every evaluation.

The shape of Tables 2 and 3 of Xie et al. (MLSys 2022): improvement over a named baseline after so
many samples, and samples until an improvement is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import Metric
from mohsearch.analysis.labels import field_value, label, varying_fields
from mohsearch.analysis.results import History
from mohsearch.core.errors import InputError, UnknownNameError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SampleCurve:
    """Best feasible value of one run's first objective after each generation.

    Attributes
    ----------
    contender, workload, seed
        What ran, on what.
    samples
        int64, shape (generations,): evaluations spent.
    best
        float64, shape (generations,): natural units, NaN until something is feasible.
    metric
        The objective.
    bound
        Proven best value, NaN where none is known.
    baselines
        Value of the objective of each named heuristic.
    """

    contender: str
    workload: str
    seed: int
    samples: NDArray[np.int64]
    best: Floats
    metric: Metric
    bound: float
    baselines: Mapping[str, float]


def sample_curves(histories: Sequence[History]) -> tuple[SampleCurve, ...]:
    """Return one curve per run; contenders are what differs beside workload and seed.

    A contender's seed counts where it has every workload that any run has: means over different
    workloads say nothing.

    Raises
    ------
    InputError
        If runs have different first objectives, or no contender has a seed with every workload.
    """
    fronts = [history.front for history in histories]
    fields = tuple(f for f in varying_fields(fronts) if f != "workload") or ("engine",)
    objectives = {front.objectives[0] for front in fronts}
    if len(objectives) > 1:
        raise InputError(f"runs optimise different objectives: {', '.join(sorted(objectives))}")
    return _with_every_workload([_curve(history, fields) for history in histories])


def _with_every_workload(curves: Sequence[SampleCurve]) -> tuple[SampleCurve, ...]:
    workloads = {curve.workload for curve in curves}
    held_by: dict[tuple[str, int], set[str]] = {}
    for curve in curves:
        held_by.setdefault((curve.contender, curve.seed), set()).add(curve.workload)
    whole = {key for key, names in held_by.items() if names == workloads}
    if not whole:
        names = ", ".join(sorted(workloads))
        raise InputError(f"no contender has a seed with every workload: {names}")
    return tuple(curve for curve in curves if (curve.contender, curve.seed) in whole)


def _curve(history: History, fields: Sequence[str]) -> SampleCurve:
    front = history.front
    metric = front.metric(front.objectives[0])
    values = np.array(history.values[metric.name], dtype=np.float64)
    for name in front.attrs.get("constraints") or ():
        values[history.values[name] > 0] = np.nan
    losses = np.where(np.isnan(values), np.inf, values * metric.sign)
    best = np.minimum.accumulate(losses)[history.distinct - 1]
    certificate: Mapping[str, Any] = front.attrs.get("certificate") or {}
    baselines = certificate.get(f"baselines_{metric.name}") or {}
    return SampleCurve(
        contender=label(front.attrs, fields),
        workload=field_value(front.attrs, "workload"),
        seed=int(front.attrs.get("seed", 0)),
        samples=history.evaluations,
        best=np.where(np.isinf(best), np.nan, best * metric.sign),
        metric=metric,
        bound=float(front.ideal_point.get(metric.name, np.nan)),
        baselines={str(k): float(v) for k, v in baselines.items()},
    )


def common_baselines(curves: Sequence[SampleCurve]) -> list[str]:
    """Return the names of the heuristics that every run states."""
    first = list(curves[0].baselines) if curves else []
    return [name for name in first if all(name in curve.baselines for curve in curves)]


def improvements(
    curves: Sequence[SampleCurve], baseline: str, grid: Sequence[int] | NDArray[np.int64]
) -> dict[str, Floats]:
    """Return how many times better than a heuristic each contender is after so many samples.

    Per contender an array (seeds, len(grid)): the geometric mean over workloads, NaN where some
    workload has no feasible result yet. A run that ended keeps its last value.

    Raises
    ------
    UnknownNameError
        If a run does not state that heuristic.
    """
    known = common_baselines(curves)
    if baseline not in known:
        raise UnknownNameError("baseline", baseline, known)
    groups: dict[str, dict[int, list[Floats]]] = {}
    for curve in curves:
        ratio = _ratio(curve, held(curve, grid), curve.baselines[baseline])
        groups.setdefault(curve.contender, {}).setdefault(curve.seed, []).append(ratio)
    return {
        contender: np.stack([np.exp(np.mean(np.log(rows), axis=0)) for rows in seeds.values()])
        for contender, seeds in groups.items()
    }


def _ratio(curve: SampleCurve, values: Floats, reference: float) -> Floats:
    return reference / values if curve.metric.sense == "min" else values / reference


def held(curve: SampleCurve, grid: Sequence[int] | NDArray[np.int64]) -> Floats:
    """Return the best value after each number of samples; NaN before the first generation."""
    rows = np.searchsorted(curve.samples, np.asarray(grid), side="right") - 1
    return np.where(rows < 0, np.nan, curve.best[np.maximum(rows, 0)])


def samples_until(
    curves: Sequence[SampleCurve], baseline: str, thresholds: Sequence[float]
) -> dict[str, list[int | None]]:
    """Return after how many samples the mean improvement over seeds reaches each threshold.

    None where it never does.
    """
    grid = np.unique(np.concatenate([curve.samples for curve in curves]))
    found: dict[str, list[int | None]] = {}
    for contender, rows in improvements(curves, baseline, grid).items():
        mean = rows.mean(axis=0)
        reached = [np.flatnonzero(mean >= threshold) for threshold in thresholds]
        found[contender] = [int(grid[r[0]]) if len(r) else None for r in reached]
    return found


def sample_table(
    curves: Sequence[SampleCurve], at: Sequence[int], thresholds: Sequence[float] = ()
) -> list[dict[str, Any]]:
    """Return one row per contender, best first.

    Keys: ``contender``, ``seeds``; with one workload ``<objective>@<samples>`` and ``sd@<samples>``
    (mean and standard deviation over seeds) and ``gap`` (mean at the end over the proven bound,
    less one); ``<baseline>@<samples>`` and its ``sd`` (times better, geometric mean over
    workloads); and ``<baseline>>=<threshold>`` (samples until then).
    """
    baselines = common_baselines(curves)
    single = len({curve.workload for curve in curves}) == 1
    rows: dict[str, dict[str, Any]] = {}
    for curve in curves:
        rows.setdefault(curve.contender, {"contender": curve.contender})
    for name, row in rows.items():
        mine = [curve for curve in curves if curve.contender == name]
        row["seeds"] = len({curve.seed for curve in mine})
        values = np.stack([held(curve, at) for curve in mine])
        if single:
            for j, count in enumerate(at):
                row[f"{mine[0].metric.name}@{count}"] = float(values[:, j].mean())
                row[f"sd@{count}"] = float(values[:, j].std(ddof=1)) if len(values) > 1 else 0.0
            row["gap"] = float(values[:, -1].mean() / mine[0].bound - 1.0)
    for baseline in baselines:
        for name, ratios in improvements(curves, baseline, at).items():
            for j, count in enumerate(at):
                rows[name][f"{baseline}@{count}"] = float(ratios[:, j].mean())
            spread = float(ratios[:, -1].std(ddof=1)) if len(ratios) > 1 else 0.0
            rows[name][f"{baseline} sd"] = spread
        if thresholds:
            for name, counts in samples_until(curves, baseline, thresholds).items():
                for threshold, reached in zip(thresholds, counts, strict=True):
                    rows[name][f"{baseline}>={threshold:g}"] = reached
    return sorted(rows.values(), key=lambda row: _order(row, baselines, at))


def _order(row: Mapping[str, Any], baselines: Sequence[str], at: Sequence[int]) -> float:
    value = float(row[f"{baselines[0]}@{at[-1]}"]) if baselines else float(row.get("gap", 0.0))
    return np.inf if np.isnan(value) else (-value if baselines else value)
