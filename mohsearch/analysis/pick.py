"""Choosing from a front: budgets, weights, trade-offs (pymoo's decision-making methods)."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import Front, Metric, knee
from mohsearch.analysis.quantities import UNIT_OF_SUFFIX, scale_for
from mohsearch.core.errors import InputError, UnknownNameError

Method = Literal["pseudo-weights", "compromise"]
METHODS: tuple[Method, ...] = ("pseudo-weights", "compromise")

_PREFIXES = {"f": -15, "p": -12, "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12}
_PREFIXED_SUFFIXES = {"s": "_s", "j": "_j", "w": "_w", "hz": "_hz"}
_NO_WEIGHT = 1e-6
"""Stands for a weight of zero where a method divides by weights."""


def metric_and_factor(front: Front, name: str) -> tuple[Metric, float]:
    """Return the metric that a name with any unit stands for, and the factor to its own unit.

    ``latency_ms`` stands for ``latency_s`` in thousandths; ``latency`` and the metric's own name
    stand for it as it is.

    Raises
    ------
    UnknownNameError
        If no metric of the front is meant.
    """
    for metric in front.metrics:
        if metric.name == name or _stem(metric.name) == name:
            return metric, 1.0
    found = re.fullmatch(r"(.+)_([fpnumkMGT]?)(s|j|J|w|W|hz|Hz)", name)
    if found is not None:
        stem, prefix, unit = found.groups()
        wanted = stem + _PREFIXED_SUFFIXES[unit.lower()]
        for metric in front.metrics:
            if metric.name == wanted:
                return metric, 10.0 ** _PREFIXES[prefix]
    known = [m.name for m in front.metrics]
    raise UnknownNameError("metric", name, known, source=f"run {front.run}")


def _stem(name: str) -> str:
    for suffix in UNIT_OF_SUFFIX:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return name


def within(front: Front, budgets: Mapping[str, float]) -> NDArray[np.intp]:
    """Return the solutions that keep all budgets.

    A budget is the most of a minimised metric, the least of a maximised one.

    Raises
    ------
    UnknownNameError
        If a budget names no metric.
    InputError
        If no solution keeps them, with the best that there is.
    """
    kept = np.ones(len(front), dtype=bool)
    for name, limit in budgets.items():
        metric, factor = metric_and_factor(front, name)
        mine = front.values[metric.name] * metric.sign <= limit * factor * metric.sign
        if not (kept & mine).any():
            losses = np.where(kept, front.values[metric.name] * metric.sign, np.inf)
            best = float(losses.min() * metric.sign) if len(losses) else float("nan")
            scale = scale_for([best, limit * factor], metric.unit)
            side = "most" if metric.sign > 0 else "least"
            word = "least" if metric.sign > 0 else "most"
            others = " that keeps the budgets before it" if not kept.all() else ""
            raise InputError(
                f"no solution has {metric.name} of at {side} {scale.quantity(limit * factor)}; "
                f"the {word} of any{others} is {scale.quantity(best)}",
                source=f"run {front.run}",
            )
        kept &= mine
    return np.flatnonzero(kept)


def by_weights(
    front: Front,
    weights: Mapping[str, float],
    method: Method = "pseudo-weights",
    among: NDArray[np.intp] | None = None,
) -> int:
    """Return the solution that fits the weights of the objectives best.

    Parameters
    ----------
    weights
        Importance of objectives, any scale; those not named have none.
    method
        ``pseudo-weights``: the solution whose relative nearness to the best of each objective comes
        closest to the weights (Deb 2001, p. 203). ``compromise``: the least weighted distance to
        the ideal, by the achievement function (Wierzbicki 1982). Both by pymoo, on objectives
        scaled to the range of the solutions at hand.
    among
        Solutions to choose from (default: all).

    Raises
    ------
    InputError
        If a weight is negative or all are zero, or a name is no objective.
    """
    rows = np.arange(len(front)) if among is None else among
    wanted = _weight_vector(front, weights)
    scaled, varying = _scaled(front.losses()[rows])
    if not wanted[varying].sum():
        return int(rows[0])
    mine = wanted[varying] / wanted[varying].sum()
    if method == "pseudo-weights":
        return int(rows[int(_method("mcdm.pseudo_weights", "PseudoWeights")(mine).do(scaled))])
    values = _method("decomposition.asf", "ASF")().do(scaled, 1.0 / np.maximum(mine, _NO_WEIGHT))
    return int(rows[int(np.argmin(np.ravel(values)))])


def _method(module: str, name: str) -> Any:
    """Return a method of pymoo, whose modules import a deprecated name of scipy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(importlib.import_module(f"pymoo.{module}"), name)


def _scaled(losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the losses that vary, scaled to [0, 1], and which they are."""
    low, extent = losses.min(axis=0), np.ptp(losses, axis=0)
    varying: NDArray[np.bool_] = extent > 0
    return (losses - low)[:, varying] / extent[varying], varying


def _weight_vector(front: Front, weights: Mapping[str, float]) -> NDArray[np.float64]:
    vector = np.zeros(len(front.objectives))
    for name, weight in weights.items():
        metric, _ = metric_and_factor(front, name)
        if metric.name not in front.objectives:
            raise UnknownNameError("objective", metric.name, front.objectives)
        if not weight >= 0:
            raise InputError(f"the weight of {name} must not be negative, got {weight:g}")
        vector[front.objectives.index(metric.name)] = weight
    if not vector.sum() > 0:
        raise InputError("at least one weight must be above zero")
    return vector


def knee_among(front: Front, among: NDArray[np.intp] | None = None) -> int:
    """Return the knee of some solutions (see :func:`mohsearch.analysis.fronts.knee`)."""
    rows = np.arange(len(front)) if among is None else among
    return int(rows[knee(front.losses()[rows])])


def high_trade_offs(front: Front, among: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the solutions that lose much of one objective for any gain in another.

    Source: Rachmawati and Srinivasan 2009, by pymoo, on scaled objectives. Empty where none stands
    out, or where there are fewer than five solutions.
    """
    rows = np.arange(len(front)) if among is None else among
    losses, _ = _scaled(front.losses()[rows])
    if len(rows) < 5 or losses.shape[1] < 2:
        return np.zeros(0, dtype=np.intp)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # pymoo changes the filters of warnings for good, and divides by zero
        found = _method("mcdm.high_tradeoff", "HighTradeoffPoints")().do(losses)
    if found is None:
        return np.zeros(0, dtype=np.intp)
    return np.asarray(rows[np.atleast_1d(np.asarray(found, dtype=np.intp))])
