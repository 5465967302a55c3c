"""Evaluator ``chip-check``: whether a partition is valid, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.core.cards import read_json
from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.costs import describe_partition
from mohsearch.evaluators.partition.cut_bound import cut_bounds
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import check_partition
from mohsearch.evaluators.report import EvaluationReport
from mohsearch.workloads.op_graph_files import read_graph


def evaluate(
    path: Path,
    partition: Path,
    *,
    chips: int | None = None,
    dims: Mapping[str, int] | None = None,
) -> EvaluationReport:
    """Check a partition of a graph against the static constraints, and evaluate it.

    Parameters
    ----------
    path
        A graph, as for ``chip-partition``.
    partition
        Second file, JSON: a list with the chip of each op, an object with such a list ``labels``,
        or what ``chip-partition`` wrote.
    chips
        Chips of the package (default: 36).
    dims
        Sizes of an ONNX file's symbolic dimensions.

    Returns
    -------
    EvaluationReport
        Whether the partition is valid, the first constraint that is broken and where; if it is
        valid, its interval, gap to the bound, memory, and in the document every chip and link.

    Raises
    ------
    InputError
        If a file is wrong, or the partition has not one label an op.
    """
    graph = read_graph(path, dims)
    given = _labels(read_json(partition), graph.name, partition)
    if len(given) != graph.n:
        problem = f"has {len(given)} labels, the graph {graph.name} has {graph.n} ops"
        raise InputError(problem, source=partition, field="labels")
    task = PartitionTask(graph, chips=chips)
    labels = np.array([min(max(c, -1), 2**14) for c in given])[graph.file_index]
    verdict = check_partition(graph, labels, task.chips)
    row: dict[str, Any] = {
        "graph": graph.name,
        "chips": task.chips,
        "valid": verdict.valid,
        "broken": verdict.broken,
        "message": verdict.message,
    }
    if not verdict.valid:
        return EvaluationReport((row,), {graph.name: row}, "json")
    details = describe_partition(task, labels)
    metrics = details["metrics"]
    bound = max(interval_bounds(task).bound_s, cut_bounds(task).general_s)
    row |= {
        "chips_used": int(metrics["chips"]),
        "interval_s": metrics["interval_s"],
        "bound_s": bound,
        "gap": metrics["interval_s"] / bound - 1.0,
        "peak_memory_bytes": metrics["peak_memory_bytes"],
        "fits": metrics["memory_excess_bytes"] <= 0,
    }
    return EvaluationReport((row,), {graph.name: {**row, **details, "labels": given}}, "json")


def _labels(data: Any, name: str, source: Path) -> list[int]:
    field = None
    if isinstance(data, dict) and isinstance(data.get(name), dict):
        data = data[name]
        field = name
    if isinstance(data, dict):
        if "labels" not in data:
            raise InputError("has no labels: a list with the chip of each op", source=source)
        data = data["labels"]
        field = "labels" if field is None else f"{field}.labels"
    if not isinstance(data, list):
        raise InputError("must be a list with the chip of each op", source=source, field=field)
    for i, label in enumerate(data):
        if isinstance(label, bool) or not isinstance(label, int):
            where = f"{field or ''}[{i}]"
            raise InputError("must be a chip number", source=source, field=where)
    return data
