"""What no partition can beat."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from mohsearch.evaluators.partition.costs import Fidelity, HardwareModel
from mohsearch.evaluators.partition.reachability import EdgeRelations, relate_edges
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph import Floats

_relations: weakref.WeakKeyDictionary[PartitionTask, EdgeRelations] = weakref.WeakKeyDictionary()


def relations_of(task: PartitionTask) -> EdgeRelations:
    """Return the relations of a task's edges, weighted by op times; worked out once."""
    if task not in _relations:
        _relations[task] = relate_edges(task.graph, task.time_s)
    return _relations[task]


@dataclass(frozen=True)
class IntervalBounds:
    """Lower bounds on the interval.

    Attributes
    ----------
    balance_s
        All work evenly over all chips, or the longest op.
    skip_s
        Half the work on the paths of the worst edge: equation (4) puts it on two chips.
    """

    balance_s: float
    skip_s: float

    @property
    def bound_s(self) -> float:
        """The larger of both."""
        return max(self.balance_s, self.skip_s)

    @property
    def limiting(self) -> str:
        """``balance`` or ``C3``: what sets the bound."""
        return "balance" if self.balance_s >= self.skip_s else "C3"


def interval_bounds(task: PartitionTask) -> IntervalBounds:
    """Return what no valid partition's interval can be below, in the analytic model.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> bounds = interval_bounds(PartitionTask(load_graph("own_unet"), chips=36))
    >>> bounds.limiting, round(bounds.skip_s / bounds.balance_s, 1)
    ('C3', 4.1)
    """
    return _interval_bounds(task, task.time_s, relations_of(task).path_weight)


def _interval_bounds(task: PartitionTask, time_s: Floats, path_s: Floats) -> IntervalBounds:
    balance = max(float(time_s.sum()) / task.chips, float(time_s.max()))
    if task.chips == 1 or not len(path_s):
        return IntervalBounds(balance, 0.0)
    return IntervalBounds(balance, float(path_s.max()) / 2.0)


def critical_path_s(task: PartitionTask, time_s: Floats) -> float:
    """Return the time of the longest path through the graph."""
    finish = np.zeros(task.n)
    for v in range(task.n):
        before = task.graph.predecessors(v)
        finish[v] = (finish[before].max() if len(before) else 0.0) + time_s[v]
    return float(finish.max())


def metric_bounds(
    task: PartitionTask, fidelity: Fidelity = "analytic", *, hardware: HardwareModel | None = None
) -> dict[str, float]:
    """Return a value of each metric that no valid partition is below.

    Intervals as in :func:`interval_bounds`; latency: the longest path, and an even share of the
    work; memory: the weights and output of the largest op, and an even share of all weights.
    """
    model = hardware or HardwareModel()
    settings: dict[str, Any] = {"time": task.time_s, "stage": 0.0, "memory": 1.0}
    path_s = relations_of(task).path_weight
    if fidelity == "hardware":
        times = model.op_times_s(task)
        saved = np.zeros(task.n)
        np.add.at(saved, task.graph.edge_dst, model.fused_s(task, times))
        least = np.maximum(times - saved, 0.0)
        settings = {"time": least, "stage": model.stage_s, "memory": model.fragmentation}
        path_s = relate_edges(task.graph, least).path_weight
    time_s = settings["time"]
    interval = _interval_bounds(task, time_s, path_s).bound_s + settings["stage"]
    busy = float(time_s.sum()) + settings["stage"]
    memory = max(
        float((task.graph.resident_bytes + task.graph.out_bytes).max()),
        task.graph.used_weight_bytes / task.chips,
    )
    return {
        "interval_s": interval,
        "latency_s": critical_path_s(task, time_s) + settings["stage"],
        "energy_j": task.op_energy_j + task.package.chip.idle_power_w * busy,
        "hop_bytes": 0.0,
        "chips": 1.0,
        "cost_usd": float(task.cost_usd[1]),
        "peak_memory_bytes": settings["memory"] * memory,
    }
