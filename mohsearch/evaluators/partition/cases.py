"""Small partitioning cases with whole-number loads and sizes, as exact references use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from mohsearch.core.cards import Card, validate
from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.chip_package import MAX_CHIPS
from mohsearch.evaluators.partition.enumeration import count_partitions
from mohsearch.workloads.op_graph import PartitionGraph

Amount = Annotated[float, Field(ge=0, le=1e15)]


class PartitionCase(Card, extra="ignore"):
    """Ops with a load and a size each, edges, chips and what a chip holds.

    Published answers (``valid_counts``, ``opt_max_load`` and the like) may stand beside; they are
    not read.
    """

    id: str
    n: Annotated[int, Field(ge=1, le=64)]
    chips: Annotated[int, Field(ge=1, le=MAX_CHIPS)]
    edges: tuple[tuple[int, int], ...] = ()
    latency: tuple[Amount, ...]
    size: tuple[Amount, ...] | None = None
    chip_capacity: Amount | None = None

    @model_validator(mode="after")
    def _columns_agree(self) -> PartitionCase:
        for name, column in (("latency", self.latency), ("size", self.size)):
            if column is not None and len(column) != self.n:
                raise ValueError(f"{name} must have n = {self.n} numbers, has {len(column)}")
        return self


def are_cases(data: Any) -> bool:
    """Whether parsed JSON holds cases rather than a graph."""
    first = data[0] if isinstance(data, list) and data else data
    return isinstance(first, dict) and "latency" in first


def count_cases(
    data: Any, path: Path, chips: int | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return rows, and the document by case id, of the cases of a file.

    Raises
    ------
    InputError
        If a case is wrong, two have the same id, or one has too many assignments to list.
    """
    rows: list[dict[str, Any]] = []
    document: dict[str, Any] = {}
    for i, entry in enumerate(data if isinstance(data, list) else [data]):
        where = f"{path}: case {i + 1}"
        case = validate(PartitionCase, entry, source=where)
        if case.id in document:
            raise InputError(f"an earlier case has the id {case.id!r}", source=where, field="id")
        result = _count(case, chips or case.chips, where)
        document[case.id] = result
        flat = {k: v for k, v in result.items() if k not in ("valid_counts", "labels")}
        rows.append({"case": case.id, **result["valid_counts"], **flat})
    return rows, document


def _count(case: PartitionCase, chips: int, where: str) -> dict[str, Any]:
    graph = PartitionGraph.from_columns(
        case.id,
        ["op"] * case.n,
        flops=[0.0] * case.n,
        out_bytes=[0.0] * case.n,
        edges=list(case.edges),
        origin=where,
    )
    place = graph.file_index
    load = np.array(case.latency)[place]
    size = None if case.size is None else np.array(case.size)[place]
    capacity = np.inf if case.chip_capacity is None else case.chip_capacity
    try:
        counts = count_partitions(graph, chips, load, size, capacity)
    except InputError as error:
        raise InputError(error.message, source=where) from None
    labels = np.empty(case.n, np.int64)
    labels[place] = counts.best_labels
    return {
        "chips": chips,
        "total_assignments": counts.total,
        "valid_counts": {
            "eq2": counts.forward,
            "eq2+3": counts.no_skip,
            "eq2+3+4": counts.valid,
            "+mem": counts.fitting,
        },
        "opt_max_load": counts.best_load,
        "n_optimal": counts.n_best,
        "opt_max_load_with_memory": counts.best_fitting_load,
        "labels": labels.tolist(),
    }
