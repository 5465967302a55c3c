"""Evaluator ``design``: a design of any problem, as a front exports it, evaluated anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from mohsearch.core.cards import Card, read_json, read_yaml, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.report import EvaluationReport
from mohsearch.problems import PROBLEMS

ROUNDING = 1e-9
"""Relative difference of two values of a metric that counts as none."""


class DesignCard(Card):
    """One design: a genome of a problem on a workload."""

    problem: str = Field(description="Name of the problem.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the problem.")
    workload: str = Field(description="Workload by name, or by path from this file's folder.")
    objectives: tuple[str, ...] | None = Field(default=None, description="Metrics optimised.")
    genome: tuple[float, ...] = Field(min_length=1, description="Decision variables.")
    metrics: dict[str, float] = Field(
        default_factory=dict, description="What the search found, to compare with."
    )
    source: str = Field(default="", description="Run and solution it comes from.")
    design: dict[str, Any] = Field(
        default_factory=dict, description="The genome in the field's words; not read."
    )


def design_card(attrs: Mapping[str, Any], genome: Any, **rest: Any) -> dict[str, Any]:
    """Return a design as plain data that :func:`evaluate` accepts.

    Parameters
    ----------
    attrs
        Attributes of the run: problem, options, workload, objectives.
    genome
        Shape (n_var,).
    rest
        Other fields of :class:`DesignCard`.
    """
    row = np.asarray(genome)
    whole = row.dtype.kind in "iu"
    return {
        "problem": str(attrs["problem"]),
        "options": dict(attrs.get("options") or {}),
        "workload": str(attrs["workload"]),
        "objectives": list(attrs["objectives"]),
        "genome": [int(v) if whole else float(v) for v in row],
        **rest,
    }


def evaluate(path: Path) -> EvaluationReport:
    """Evaluate one design again: its problem is built, its genome decoded and measured.

    Parameters
    ----------
    path
        A YAML or JSON file as ``mohsearch front export --solution N --as yaml`` writes it: problem,
        options, workload and genome, and the metrics to compare with.

    Returns
    -------
    EvaluationReport
        Every metric with its unit, and how far it is from what the file says the search found; the
        summary says how many metrics differ by more than :data:`ROUNDING`, and which most.

    Raises
    ------
    InputError
        If a name is wrong or the genome does not fit the problem.
    """
    data = read_json(path) if path.suffix.lower() == ".json" else read_yaml(path)
    card = validate(DesignCard, data, source=path)
    problem = PROBLEMS.load(card.problem, source=str(path), field="problem")(
        card.options,
        _located(card.workload, path),
        objectives=card.objectives,
        catalog=Catalog.around(path),
    )
    X = np.array([card.genome])
    if X.shape[1] != problem.n_var:
        raise InputError(
            f"has {X.shape[1]} genes; {card.problem} on {card.workload} has {problem.n_var}",
            source=path,
            field="genome",
        )
    _check_range(X[0], problem.xl, problem.xu, path)
    if problem.vtype is int or np.issubdtype(np.dtype(problem.vtype), np.integer):
        X = _whole(X, path)
    try:
        values = {name: float(column[0]) for name, column in problem.metrics(X).items()}
    except ValueError as error:
        raise InputError(str(error), source=path, field="genome") from error
    for name in card.metrics.keys() - values.keys():
        raise UnknownNameError("metric", name, list(values), source=str(path), field="metrics")
    units = {m.name: m.unit for m in (*problem.card.metrics, *problem.card.constraints)}
    rows = [
        {"metric": name, "unit": units.get(name, "1"), "value": value}
        | _against(value, card.metrics.get(name))
        for name, value in values.items()
    ]
    document = {
        "problem": card.problem,
        "workload": card.workload,
        "metrics": values,
        "expected": dict(card.metrics),
        "design": problem.decode(X[0]),
    }
    return EvaluationReport(tuple(rows), {"cases": [document]}, "json", _agreement(rows))


def _located(workload: str, path: Path) -> str:
    """Return a workload's name as it is, a relative path from the file's folder."""
    beside = path.parent / workload
    return str(beside) if Path(workload).suffix and beside.is_file() else workload


def _check_range(row: Any, least: Any, most: Any, path: Path) -> None:
    for index, (value, low, high) in enumerate(zip(row, least, most, strict=True)):
        if not low <= value <= high:
            raise InputError(
                f"{value} is outside {low} to {high}", source=path, field=f"genome[{index}]"
            )


def _whole(X: Any, path: Path) -> Any:
    rows = X.astype(np.int64)
    if not np.array_equal(rows, X):
        message = "holds fractions; its genes are whole numbers"
        raise InputError(message, source=path, field="genome")
    return rows


def _agreement(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return how many of the metrics are those of the file; nothing where it names none."""
    far = {
        str(row["metric"]): abs(row["relative_difference"])
        for row in rows
        if "relative_difference" in row
    }
    if not far:
        return ()
    row: dict[str, Any] = {
        "compared": len(far),
        "different": sum(d > ROUNDING for d in far.values()),
    }
    if row["different"]:
        row |= {"most": (most := max(far, key=far.__getitem__)), "relative_difference": far[most]}
    return (row,)


def _against(value: float, expected: float | None) -> dict[str, float]:
    if expected is None:
        return {}
    scale = abs(expected) or abs(value) or 1.0  # any value is wholly different from zero
    return {"expected": expected, "relative_difference": (value - expected) / scale}
