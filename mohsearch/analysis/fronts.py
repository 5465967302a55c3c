"""Fronts as tidy records: read from a results tree, sort, choose solutions, measure distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.indicators import Box, common_box, nondominated
from mohsearch.core.errors import InputError, UnknownNameError

Design = Mapping[str, Any]

CHOICES = {
    "fastest": ("latency_s", "min"),
    "least-energy": ("energy_j", "min"),
    "smallest": ("area_mm2", "min"),
}
"""Words for solutions that are best in one metric."""


@dataclass(frozen=True)
class Metric:
    """A metric as the store declares it."""

    name: str
    unit: str
    sense: str
    long_name: str

    @property
    def sign(self) -> float:
        """1 for metrics to minimise, -1 for those to maximise."""
        return -1.0 if self.sense == "max" else 1.0


@dataclass(frozen=True)
class Front:
    """The non-dominated solutions of one run.

    Attributes
    ----------
    run
        The run's name in the store.
    attrs
        The run's attributes (problem, workload, engine, seed, status, ...).
    metrics
        Declarations of all metrics, in the store's order.
    values
        Metric values by name, natural signs and store units, each of shape (solutions,).
    objectives
        Names of the metrics that the run optimised.
    ideal_point
        Proven best values by metric name; empty where there is no proof.
    designs
        One decoded design per solution; empty when they were not read.
    """

    run: str
    attrs: Mapping[str, Any]
    metrics: tuple[Metric, ...]
    values: Mapping[str, NDArray[np.float64]]
    objectives: tuple[str, ...]
    ideal_point: Mapping[str, float] = field(default_factory=dict)
    designs: Sequence[Design] = ()

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def metric(self, name: str) -> Metric:
        """Return the declaration of one metric.

        Raises
        ------
        UnknownNameError
            If the run has no such metric.
        """
        for metric in self.metrics:
            if metric.name == name:
                return metric
        known = [m.name for m in self.metrics]
        raise UnknownNameError("metric", name, known, source=f"run {self.run}")

    def losses(self, objectives: Sequence[str] | None = None) -> NDArray[np.float64]:
        """Return values to be minimised, shape (solutions, objectives)."""
        names = self.objectives if objectives is None else objectives
        columns = [self.values[m.name] * m.sign for m in map(self.metric, names)]
        return np.column_stack(columns) if columns else np.zeros((len(self), 0))

    def box(self) -> Box:
        """Return the normalisation box of this front alone."""
        return common_box([self.losses()])


def common_objectives(fronts: Sequence[Front]) -> tuple[str, ...]:
    """Return the objectives of all fronts together, in order of first appearance.

    A run that optimised fewer objectives can be compared too: the store keeps every metric.

    Raises
    ------
    InputError
        If some front lacks one of the metrics.
    """
    names = tuple(dict.fromkeys(name for front in fronts for name in front.objectives))
    for front in fronts:
        missing = [name for name in names if name not in front.values]
        if missing:
            raise InputError(
                f"has no metric {missing[0]!r}, which another run optimises; "
                "choose runs of one problem",
                source=f"run {front.run}",
            )
    return names


def order(front: Front, by: str | None = None) -> NDArray[np.intp]:
    """Return the solutions' indices sorted by a metric, best first (default: first objective)."""
    metric = front.metric(by or front.objectives[0])
    return np.argsort(front.values[metric.name] * metric.sign, kind="stable")


def knee(losses: NDArray[np.float64]) -> int:
    """Return the index of the knee: where giving up a little of one objective gains much.

    Losses are scaled to [0, 1] over the non-dominated points, and the knee is the point farthest
    below the hyperplane through the ends of the scaled axes, that is the one with the least sum.
    The first such point wins ties.

    Source: Das 1999, On characterizing the "knee" of the Pareto curve.

    Raises
    ------
    InputError
        If no point is finite.

    Examples
    --------
    >>> knee(np.array([[0.0, 1.0], [0.1, 0.1], [1.0, 0.0]]))
    1
    """
    finite = np.isfinite(losses).all(axis=1)
    if not finite.any():
        raise InputError("the front holds no finite solution")
    box = common_box([losses])
    total = box.normalise(losses).sum(axis=1)
    total[~finite] = np.inf
    return int(np.argmin(total))


def extremes(front: Front) -> dict[str, int]:
    """Return the index of the best solution of each objective.

    Among equals the one with the least sum of scaled losses is taken.
    """
    losses = front.losses()
    rest = front.box().normalise(losses).sum(axis=1)
    return {
        name: int(np.lexsort((rest, losses[:, k]))[0]) for k, name in enumerate(front.objectives)
    }


def choose(front: Front, solution: str) -> int:
    """Return the index of the solution that a word, a metric or a number stands for.

    Words: ``knee``, ``fastest``, ``least-energy``, ``smallest``; a metric's name gives its best
    solution; a number is an index into the front.

    Raises
    ------
    InputError
        If there is no such solution, with what can be chosen instead.
    """
    if not len(front):
        raise InputError("the front is empty", source=f"run {front.run}")
    if solution.lstrip("-").isdigit():
        index = int(solution)
        if not 0 <= index < len(front):
            raise InputError(
                f"no solution {index}; the front has solutions 0 to {len(front) - 1}",
                source=f"run {front.run}",
            )
        return index
    if solution == "knee":
        return knee(front.losses())
    name = CHOICES.get(solution, (solution, ""))[0]
    known = [m.name for m in front.metrics]
    if name not in known:
        words = ["knee", *(w for w, (m, _) in CHOICES.items() if m in known), *known]
        raise UnknownNameError("solution", solution, words, source=f"run {front.run}")
    best = extremes(front).get(name)
    return int(order(front, name)[0]) if best is None else best


def spread(losses: NDArray[np.float64], count: int, keep: Sequence[int] = ()) -> list[int]:
    """Return ``count`` indices spread over a front, ``keep`` first among them.

    Farthest-point selection on scaled losses, started from ``keep`` (or the knee): each next
    solution is the one farthest from all chosen so far.
    """
    chosen = list(dict.fromkeys(keep)) or [knee(losses)]
    usable: NDArray[np.bool_] = np.all(np.isfinite(losses), axis=1)
    points = common_box([losses]).normalise(np.where(usable[:, None], losses, 0.0))
    distance = np.full(len(points), np.inf)
    for index in chosen:
        distance = np.minimum(distance, np.linalg.norm(points - points[index], axis=1))
    distance[~usable] = -1.0
    while len(chosen) < min(count, len(points)):
        index = int(np.argmax(distance))
        if distance[index] <= 0:
            break
        chosen.append(index)
        distance = np.minimum(distance, np.linalg.norm(points - points[index], axis=1))
        distance[~usable] = -1.0
    return chosen[:count]


def highlights(front: Front, count: int = 8) -> dict[int, str]:
    """Return the solutions worth showing first and why: extremes, knee, then a spread.

    Keys are indices in the order of the first objective; values such as ``"least energy, knee"``.
    """
    if not len(front):
        return {}
    words = {metric: word for word, (metric, _) in CHOICES.items()}
    reasons: dict[int, list[str]] = {}
    for name, index in extremes(front).items():
        reasons.setdefault(index, []).append(words.get(name, f"best {name}").replace("-", " "))
    losses = front.losses()
    reasons.setdefault(knee(losses), []).append("knee")
    for index in spread(losses, count, keep=list(reasons)):
        reasons.setdefault(index, [])
    ranked = sorted(reasons, key=lambda i: tuple(losses[i]))
    return {index: ", ".join(reasons[index]) for index in ranked}


def distance_to_ideal(front: Front) -> dict[str, NDArray[np.float64]]:
    """Return each solution's distance from the proven bound, by metric with a bound.

    Relative to the bound: 0.25 is a value 25 % worse than the best that is possible. Where the
    bound is 0 the distance is NaN.
    """
    result = {}
    for name, bound in front.ideal_point.items():
        if name not in front.values:
            continue
        gap = (front.values[name] - bound) * front.metric(name).sign
        with np.errstate(divide="ignore", invalid="ignore"):
            result[name] = np.where(bound != 0, gap / abs(bound) + 0.0, np.nan)  # no -0
    return result


def merge(fronts: Sequence[Front], objectives: Sequence[str] | None = None) -> list[Front]:
    """Return the fronts with only those solutions that no solution of another front dominates."""
    names = tuple(objectives or common_objectives(fronts))
    losses = [front.losses(names) for front in fronts]
    best = nondominated(np.concatenate(losses)) if losses else np.zeros(0, dtype=bool)
    parts = np.split(best, np.cumsum([len(part) for part in losses])[:-1])
    return [subset(front, np.flatnonzero(mask)) for front, mask in zip(fronts, parts, strict=True)]


def subset(front: Front, indices: Sequence[int] | NDArray[Any]) -> Front:
    """Return a front that holds only the solutions ``indices``, in that order."""
    rows = np.asarray(indices, dtype=np.intp)
    return Front(
        run=front.run,
        attrs=front.attrs,
        metrics=front.metrics,
        values={name: column[rows] for name, column in front.values.items()},
        objectives=front.objectives,
        ideal_point=front.ideal_point,
        designs=tuple(front.designs[int(i)] for i in rows) if front.designs else (),
    )
