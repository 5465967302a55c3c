"""Evaluator ``chip-partition``: the best known partition of a graph over the chips of a package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.core.cards import read_json
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.cases import are_cases, count_cases
from mohsearch.evaluators.partition.costs import describe_partition
from mohsearch.evaluators.partition.solve import BestPartition, best_partition
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.report import EvaluationReport
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import graph_from_json, read_graph


def evaluate(
    path: Path, *, chips: int | None = None, dims: Mapping[str, int] | None = None
) -> EvaluationReport:
    """Partition a graph over the chips of the package ``mcm36``, or count the partitions of cases.

    Parameters
    ----------
    path
        A graph: columnar JSON (``ops``, ``node_op``, ``node_out``, ``node_flops``, ``edge_src``,
        ``edge_dst``, optionally ``param_bytes``, ``node_params``, ``edge_bytes``, ``float_bytes``),
        the same gzipped, or ONNX. Or cases: one or a list of objects with ``id``, ``n``, ``chips``,
        ``edges``, ``latency`` and optionally ``size`` and ``chip_capacity``, whose partitions are
        all listed.
    chips
        Chips that may be used (default: 36, or those of the case).
    dims
        Sizes of an ONNX file's symbolic dimensions.

    Returns
    -------
    EvaluationReport
        A graph: interval, bound, gap, status and what binds; the document has the chip of each op,
        all metrics, and the load of each chip and link. Cases: numbers of valid assignments after
        each constraint, and the optima.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    data = read_json(path) if path.suffix == ".json" and not dims else None
    if are_cases(data):
        rows, document = count_cases(data, path, chips)
        return EvaluationReport(tuple(rows), document, "json")
    graph = read_graph(path, dims) if data is None else graph_from_json(data, origin=path)
    task = PartitionTask(graph, chips=chips)
    best = best_partition(task)
    row, result = _result(task, graph, best)
    return EvaluationReport((row,), {graph.name: result}, "json")


def _result(
    task: PartitionTask, graph: PartitionGraph, best: BestPartition
) -> tuple[dict[str, Any], dict[str, Any]]:
    bounds = interval_bounds(task)
    details = describe_partition(task, best.labels)
    binding = details["binding"]
    labels = np.empty(graph.n, np.int64)
    labels[graph.file_index] = best.labels
    row = {
        "graph": graph.name,
        "ops": graph.n,
        "edges": graph.n_edges,
        "chips": task.chips,
        "chips_used": int(best.labels.max()) + 1,
        "interval_s": best.interval_s,
        "bound_s": best.bound_s,
        "gap": best.gap,
        "chain_bound_s": best.chain_bound_s,
        "status": best.status,
        "method": best.method,
        "bound_by": bounds.limiting if best.bound_s <= bounds.bound_s else "transfers",
        "binding": f"{binding['what']} {binding['number']}, mostly {binding['mostly']}",
        "peak_memory_bytes": details["metrics"]["peak_memory_bytes"],
        "fits": details["metrics"]["memory_excess_bytes"] <= 0,
        "seconds": best.seconds,
    }
    result = {**row, **details, "labels": labels.tolist()}
    result["bounds"] = {"balance_s": bounds.balance_s, "skip_s": bounds.skip_s}
    return row, result
