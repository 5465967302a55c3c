"""Hypervolume against evaluations, per run and over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import common_objectives
from mohsearch.analysis.indicators import Box, common_box, hypervolume, nondominated
from mohsearch.analysis.labels import field_value, label, varying_fields
from mohsearch.analysis.results import History


@dataclass(frozen=True)
class Curve:
    """Hypervolume of everything one run had evaluated so far.

    Attributes
    ----------
    run, contender
        The run and what it is a repetition of.
    evaluations
        int64, shape (generations,).
    hypervolumes
        float64, shape (generations,): shares of ``box``; never decreasing.
    box
        Normalisation and reference point, common to all curves.
    """

    run: str
    contender: str
    evaluations: NDArray[np.int64]
    hypervolumes: NDArray[np.float64]
    box: Box


@dataclass(frozen=True)
class Band:
    """Median and quartiles over the runs of one contender.

    Attributes
    ----------
    evaluations
        int64, shape (points,): all evaluation counts at which some run completed a generation,
        from where every run has a value up to where the first run ends.
    low, median, high
        float64, shape (points,): quartiles of the hypervolume over runs.
    """

    contender: str
    runs: int
    evaluations: NDArray[np.int64]
    low: NDArray[np.float64]
    median: NDArray[np.float64]
    high: NDArray[np.float64]


def _archive(history: History, objectives: Sequence[str]) -> list[NDArray[np.float64]]:
    """Return the non-dominated feasible losses of all evaluated up to each generation."""
    metrics = [history.front.metric(name) for name in objectives]
    losses = np.column_stack([history.values[m.name] * m.sign for m in metrics])
    usable = np.all(np.isfinite(losses), axis=1)
    for name in history.front.attrs.get("constraints") or ():
        usable &= history.values[name] <= 0
    best = np.zeros((0, len(metrics)))
    steps, start = [], 0
    for stop in history.distinct:
        new = losses[start:stop][usable[start:stop]]
        seen = np.unique(np.concatenate([best, new]), axis=0)
        best = seen[nondominated(seen)]
        steps.append(best)
        start = int(stop)
    return steps


def curves(
    histories: Sequence[History],
    by: str | None = None,
    *,
    objectives: Sequence[str] | None = None,
    boxes: Mapping[str, Box] | None = None,
) -> tuple[Curve, ...]:
    """Return one hypervolume curve per run.

    Runs of one workload share a box, which spans the non-dominated points that they all together
    ever evaluated. Curves of different workloads are not comparable.

    Parameters
    ----------
    by
        What tells contenders apart (default: all that varies but the seed).
    objectives
        Metrics to measure on (default: all objectives of all runs).
    boxes
        Box of each run by its name, instead of one for each workload.

    Raises
    ------
    InputError
        If the runs have no metrics in common.
    """
    fronts = [history.front for history in histories]
    names = tuple(objectives or common_objectives(fronts))
    fields = (by,) if by else varying_fields(fronts)
    archives = [_archive(history, names) for history in histories]
    workloads = [field_value(front.attrs, "workload") for front in fronts]
    if boxes is None:
        shared = {
            workload: common_box(
                [s[-1] for s, w in zip(archives, workloads, strict=True) if w == workload]
            )
            for workload in workloads
        }
        boxes = {f.run: shared[w] for f, w in zip(fronts, workloads, strict=True)}
    return tuple(
        Curve(
            run=history.front.run,
            contender=label(history.front.attrs, fields) or label(history.front.attrs, ("engine",)),
            evaluations=history.evaluations.astype(np.int64),
            hypervolumes=np.array([hypervolume(p, boxes[history.front.run]).value for p in steps]),
            box=boxes[history.front.run],
        )
        for history, steps in zip(histories, archives, strict=True)
    )


def bands(runs: Sequence[Curve]) -> tuple[Band, ...]:
    """Return median and quartiles per contender, best final median first.

    Between two generations a run keeps its last value.
    """
    groups: dict[str, list[Curve]] = {}
    for curve in runs:
        groups.setdefault(curve.contender, []).append(curve)
    result = []
    for contender, group in groups.items():
        start = max(int(curve.evaluations[0]) for curve in group)
        stop = min(int(curve.evaluations[-1]) for curve in group)
        grid = np.unique(np.concatenate([curve.evaluations for curve in group]))
        grid = grid[(grid >= start) & (grid <= max(start, stop))]
        table = np.stack([_held(curve, grid) for curve in group])
        low, median, high = np.quantile(table, [0.25, 0.5, 0.75], axis=0)
        result.append(Band(contender, len(group), grid, low, median, high))
    return tuple(sorted(result, key=lambda band: (-float(band.median[-1]), band.contender)))


def _held(curve: Curve, grid: NDArray[np.int64]) -> NDArray[np.float64]:
    rows = np.searchsorted(curve.evaluations, grid, side="right") - 1
    return curve.hypervolumes[rows]
