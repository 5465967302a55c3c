"""The greedy heuristics a search is measured against: one pass over the program order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.partition.task import PartitionTask

Labels = NDArray[np.int64]

GREEDY = ("first-fit-sram", "equal-parameters", "equal-time")
SRAM_SHARE = 0.8


def greedy_partitions(task: PartitionTask) -> dict[str, Labels]:
    """Return the three greedy partitions by name, each of shape (n_ops,).

    Each walks the ops in program order and closes a chip once it is full, at the next place where
    constraint 3 allows a cut (no edge may jump over a whole chip); the last chip takes the rest.

    ``first-fit-sram``
        full where the next op's weights would exceed 80 % of the memory of a chip;
    ``equal-parameters``
        full at an equal share of the graph's weight bytes, as the Edge TPU compiler's
        ``--num_segments``;
    ``equal-time``
        full at an equal share of the graph's time.
    """
    graph = task.graph
    sizes, total = graph.weight_bytes, graph.used_weight_bytes
    memory = SRAM_SHARE * task.package.chip.sram_bytes
    starts, ids = graph.weight_starts.tolist(), graph.weight_ids.tolist()
    weights = [ids[starts[v] : starts[v + 1]] for v in range(task.n)]
    own_id = [[v] for v in range(task.n)]
    time = np.asarray(task.time_s, dtype=np.float64)
    return {
        "first-fit-sram": _walk(task, weights, sizes, memory, True),
        "equal-parameters": _walk(task, weights, sizes, total / task.chips, False),
        "equal-time": _walk(task, own_id, time, float(time.sum()) / task.chips, False),
    }


def _walk(
    task: PartitionTask,
    items: list[list[int]],
    sizes: NDArray[np.float64],
    capacity: float,
    never_exceed: bool,
) -> Labels:
    """Fill chips in program order with the items that ops bring; an item counts once per chip.

    A chip is full when its next op would exceed the capacity (``never_exceed``), else when the
    capacity is reached.
    """
    graph = task.graph
    furthest = np.arange(task.n)
    np.maximum.at(furthest, graph.edge_src, graph.edge_dst)
    reach = np.maximum.accumulate(furthest)
    labels = np.zeros(task.n, dtype=np.int64)
    chip, start, load = 0, 0, 0.0
    held: set[int] = set()
    for v in range(task.n):
        fresh = set(items[v]) - held
        more = float(sum(sizes[i] for i in fresh))
        full = load + more > capacity if never_exceed else load >= capacity
        legal = start == 0 or reach[start - 1] < v
        if full and legal and v > start and chip < task.chips - 1:
            chip, start, load = chip + 1, v, 0.0
            held, fresh = set(), set(items[v])
            more = float(sum(sizes[i] for i in fresh))
        held |= fresh
        load += more
        labels[v] = chip
    return labels
