"""Counting all partitions of small graphs: the oracle of everything else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.costs import Labels
from mohsearch.evaluators.partition.validity import SKIPPED, TRIANGLE, broken_constraints
from mohsearch.workloads.op_graph import Floats, PartitionGraph

MAX_FORWARD = 4_000_000
"""Most assignments in forward order that are listed."""


@dataclass(frozen=True)
class PartitionCounts:
    """Numbers of assignments that obey the constraints, one after the other.

    Attributes
    ----------
    total
        All assignments.
    forward, no_skip, valid
        Those that obey equation (2); (2) and (3); (2), (3) and (4).
    fitting
        Valid ones whose chips hold the sizes of their ops.
    best_load, n_best
        Least largest load of a valid assignment, and how many have it.
    best_fitting_load
        The same among those that fit; None without one.
    best_labels
        The first best assignment (n,), a fitting one where there is one.
    """

    total: int
    forward: int
    no_skip: int
    valid: int
    fitting: int
    best_load: float
    n_best: int
    best_fitting_load: float | None
    best_labels: Labels


def forward_assignments(graph: PartitionGraph, chips: int) -> Labels:
    """Return all assignments (S, n) in which no data flows backwards (equation 2).

    Raises
    ------
    InputError
        If there are more than four million.
    """
    rows = np.zeros((1, graph.n), np.int16)
    for op in range(graph.n):
        before = graph.predecessors(op)
        least = rows[:, before].max(axis=1) if len(before) else np.zeros(len(rows), np.int16)
        choices = chips - least.astype(np.int64)
        if int(choices.sum()) > MAX_FORWARD:
            raise InputError(
                f"more than {MAX_FORWARD} assignments of {graph.n} ops to {chips} chips: too many "
                "to list"
            )
        rows = np.repeat(rows, choices, axis=0)
        start = np.repeat(np.cumsum(choices) - choices, choices)
        rows[:, op] = np.repeat(least, choices) + (np.arange(len(rows)) - start)
    return rows


def chip_sums(labels: Labels, values: Floats, chips: int) -> Floats:
    """Return the sums of ``values`` (n,) on each chip, (S, chips)."""
    sums = np.zeros((len(labels), chips))
    for chip in range(chips):
        sums[:, chip] = (labels == chip) @ values
    return sums


def count_partitions(
    graph: PartitionGraph,
    chips: int,
    load: ArrayLike,
    size: ArrayLike | None = None,
    capacity: float = np.inf,
) -> PartitionCounts:
    """List all assignments, and count and rank those that obey the constraints.

    Parameters
    ----------
    graph, chips
        The ops and the chips.
    load
        Load of each op (n,); the largest sum on a chip is what is minimised.
    size, capacity
        Memory of each op (n,), and of a chip.

    Examples
    --------
    >>> graph = PartitionGraph.from_columns(
    ...     "v", ["a"] * 3, flops=[1] * 3, out_bytes=[1] * 3, edges=[(0, 1), (1, 2), (0, 2)]
    ... )
    >>> counts = count_partitions(graph, 3, [2, 1, 1])
    >>> counts.total, counts.forward, counts.no_skip, counts.valid, counts.best_load
    (27, 10, 4, 3, 2.0)
    """
    work = np.asarray(load, dtype=np.float64)
    sizes = np.zeros(graph.n) if size is None else np.asarray(size, dtype=np.float64)
    rows = forward_assignments(graph, chips)
    verdicts = broken_constraints(graph, rows, chips)
    skipped, triangle = (verdicts == SKIPPED).sum(), (verdicts == TRIANGLE).sum()
    valid = rows[verdicts == 0]
    loads = chip_sums(valid, work, chips).max(axis=1)
    fits = chip_sums(valid, sizes, chips).max(axis=1) <= capacity
    best = float(loads.min())
    fitting = loads[fits]
    ranked = np.where(fits, loads, np.inf) if fits.any() else loads
    return PartitionCounts(
        total=chips**graph.n,
        forward=len(rows),
        no_skip=int(len(rows) - skipped),
        valid=int(len(rows) - skipped - triangle),
        fitting=int(fits.sum()),
        best_load=best,
        n_best=int((loads == best).sum()),
        best_fitting_load=float(fitting.min()) if len(fitting) else None,
        best_labels=valid[int(ranked.argmin())],
    )
