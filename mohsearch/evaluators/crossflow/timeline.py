"""Event-driven simulation of a training step: which kernel and transfer runs when.

The graph has, per time step, an embedding node, a node per layer and a softmax node; edges carry
what one hands to the next. A device runs one kernel at a time, a link one transfer, first come,
first served. Source: DeepFlow paper, section 6.5 and figure 5.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.crossflow.compiled import inner, outlined
from mohsearch.evaluators.crossflow.layout import FloatArray
from mohsearch.evaluators.crossflow.lstm import (
    C_B,
    C_F,
    E_B,
    E_F,
    R_C,
    R_E,
    R_S,
    S_B,
    S_F,
    T_B,
    T_F,
)  # fmt: skip

IntArray = NDArray[np.int64]
FREE = -1
"""Resource of an edge that stays on a device: takes no time and holds nothing."""
_ZERO = -1


class StepGraph(NamedTuple):
    """One direction of a training step as arrays.

    ``first[i]:first[i + 1]`` are the positions of task i's successors in ``successors``;
    ``resource`` is a device (0..devices-1), a link (devices + link) or ``FREE``; ``kind`` is the
    index of the task's duration or -1 for none.
    """

    first: IntArray
    successors: IntArray
    predecessors: IntArray
    resource: IntArray
    kind: IntArray
    root: int
    devices: int


class _Builder:
    def __init__(self) -> None:
        self.resource: list[int] = []
        self.kind: list[int] = []
        self.after: list[list[int]] = []

    def task(self, resource: int, kind: int) -> int:
        self.resource.append(resource)
        self.kind.append(kind)
        self.after.append([])
        return len(self.after) - 1

    def edge(self, source: int, target: int, resource: int = FREE, kind: int = _ZERO) -> None:
        middle = self.task(resource, kind)
        self.after[source].append(middle)
        self.after[middle].append(target)

    def graph(self, root: int, devices: int) -> StepGraph:
        first = np.zeros(len(self.after) + 1, dtype=np.int64)
        first[1:] = np.cumsum([len(a) for a in self.after])
        successors = np.array([t for a in self.after for t in a], dtype=np.int64)
        predecessors = np.bincount(successors, minlength=len(self.after)).astype(np.int64)
        return StepGraph(
            first, successors, predecessors, np.array(self.resource, dtype=np.int64),
            np.array(self.kind, dtype=np.int64), root, devices,
        )  # fmt: skip


def _stage(layer: int, per_device: int, stages: int) -> int:
    return 0 if stages == 1 else layer // per_device + 1


def _layers_per_device(layers: int, stages: int) -> int:
    return math.ceil(layers / (stages - 2 if stages > 2 else stages))


@lru_cache(maxsize=256)
def forward_graph(steps: int, layers: int, stages: int) -> StepGraph:
    """Return the forward graph of ``steps`` time steps and ``layers`` layers on ``stages``."""
    build = _Builder()
    per = _layers_per_device(layers, stages)
    link = stages  # links follow the devices
    embed = [build.task(0, E_F) for _ in range(steps)]
    cell = [
        [build.task(_stage(i, per, stages), C_F) for _ in range(steps)] for i in range(layers)
    ]  # fmt: skip
    soft = [build.task(stages - 1, S_F) for _ in range(steps)]
    for i in range(layers):
        for t in range(steps - 1):
            build.edge(cell[i][t], cell[i][t + 1])
    for t in range(steps):
        build.edge(embed[t], cell[0][t], FREE if stages == 1 else link, T_F)
        last = FREE if stages == 1 else link + stages - 2
        build.edge(cell[layers - 1][t], soft[t], last, T_F)
    for i in range(layers - 1):
        crosses = stages > 1 and (i + 1) % per == 0
        for t in range(steps):
            resource = link + (i + 1) // per if crosses else FREE
            build.edge(cell[i][t], cell[i + 1][t], resource, T_F if crosses else _ZERO)
    for i in range(1, layers):
        if i % per:
            for t in range(steps - 1):
                build.edge(cell[i][t], cell[i - 1][t + 1])
    for t in range(steps - 1):
        build.edge(embed[t], embed[t + 1])
    return build.graph(embed[0], stages)


@lru_cache(maxsize=256)
def backward_graph(steps: int, layers: int, stages: int) -> StepGraph:
    """Return the backward graph with the weight updates after the first time step's gradients."""
    build = _Builder()
    per = _layers_per_device(layers, stages)
    link = stages
    embed = [build.task(0, E_B) for _ in range(steps)]
    cell = [
        [build.task(_stage(i, per, stages), C_B) for _ in range(steps)] for i in range(layers)
    ]  # fmt: skip
    soft = [build.task(stages - 1, S_B) for _ in range(steps)]
    update_e = build.task(link + stages - 1, R_E)
    update_c = [
        build.task(link + (0 if stages == 1 else i // per + stages), R_C) for i in range(layers)
    ]
    update_s = build.task(link + 2 * stages - 2, R_S)
    for i in range(layers):
        for t in range(steps - 1, 0, -1):
            build.edge(cell[i][t], cell[i][t - 1])
    for t in range(steps):
        build.edge(cell[0][t], embed[t], FREE if stages == 1 else link, T_F)
        last = FREE if stages == 1 else link + stages - 2
        build.edge(soft[t], cell[layers - 1][t], last, T_F)
    for i in range(layers - 1, 0, -1):
        crosses = stages > 1 and i % per == 0
        for t in range(steps):
            resource = link + i // per if crosses else FREE
            build.edge(cell[i][t], cell[i - 1][t], resource, T_B if crosses else _ZERO)
    for i in range(layers - 1):
        if (i + 1) % per:
            for t in range(1, steps):
                build.edge(cell[i][t], cell[i + 1][t - 1])
    for t in range(1, steps):
        build.edge(soft[t], soft[t - 1])
    build.after[soft[0]].append(update_s)
    build.after[embed[0]].append(update_e)
    for i in range(layers):
        build.after[cell[i][0]].append(update_c[i])
    return build.graph(soft[steps - 1], stages)


@inner
def _push(
    when: FloatArray, what: IntArray, order: IntArray, size: int, time: float, count: int, task: int
) -> None:
    at = size
    while at > 0:
        up = (at - 1) // 2
        if when[up] < time or (when[up] == time and order[up] < count):
            break
        when[at], what[at], order[at] = when[up], what[up], order[up]
        at = up
    when[at], what[at], order[at] = time, task, count


@inner
def _pop(when: FloatArray, what: IntArray, order: IntArray, size: int) -> None:
    """Remove the root of a heap of ``size`` entries."""
    size -= 1
    time, task, count = when[size], what[size], order[size]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            when[right] < when[down] or (when[right] == when[down] and order[right] < order[down])
        ):
            down = right
        if time < when[down] or (time == when[down] and count < order[down]):
            break
        when[at], what[at], order[at] = when[down], what[down], order[down]
        at = down
    when[at], what[at], order[at] = time, task, count


@outlined(
    "float64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64,"
    " float64[::1], boolean, float64[::1])"
)
def run(
    first: IntArray, successors: IntArray, predecessors: IntArray, resource: IntArray,
    kind: IntArray, root: int, devices: int, durations: FloatArray, links_kept: bool,
    finish: FloatArray,
) -> float:  # fmt: skip
    """Simulate one graph; return its end and fill ``finish`` per task.

    With ``links_kept`` False the end of any edge that stays on a device releases the last link,
    as the authors' program does.
    """
    tasks = resource.size
    waiting = predecessors.copy()
    busy = np.zeros(3 * devices, dtype=np.int64)
    last_link = 3 * devices - 2
    when, order = np.empty(tasks + 1), np.empty(tasks + 1, dtype=np.int64)
    what = np.empty(tasks + 1, dtype=np.int64)
    ready = np.empty(tasks, dtype=np.int64)
    for i in range(tasks):
        finish[i] = -1.0
    queued = 0
    size = count = 1
    when[0], what[0], order[0] = durations[kind[root]], root, 0
    busy[resource[root]] = 1
    time = 0.0
    while size > 0:
        time, task = when[0], what[0]
        _pop(when, what, order, size)
        size -= 1
        finish[task] = time
        for at in range(first[task], first[task + 1]):
            child = successors[at]
            waiting[child] -= 1
            if waiting[child] == 0:
                ready[queued] = child
                queued += 1
        if resource[task] >= 0:
            busy[resource[task]] = 0
        elif not links_kept:
            busy[last_link] = 0
        kept = 0
        for i in range(queued):
            task = ready[i]
            if resource[task] >= 0 and busy[resource[task]] == 1:
                ready[kept] = task
                kept += 1
                continue
            if resource[task] >= 0:
                busy[resource[task]] = 1
            length = durations[kind[task]] if kind[task] >= 0 else 0.0
            _push(when, what, order, size, time + length, count, task)
            size += 1
            count += 1
        queued = kept
    return time


def simulate(graph: StepGraph, durations: FloatArray, *, links_kept: bool = True) -> float:
    """Return the end of one graph in the unit of ``durations`` (``lstm.DURATIONS``).

    Examples
    --------
    >>> simulate(forward_graph(4, 2, 1), np.array([2.0, 2, 5, 3, 5, 2, 2, 3, 5, 10, 5]))
    44.0
    """
    finish = np.empty(graph.resource.size)
    return float(run(*graph, np.asarray(durations, dtype=np.float64), links_kept, finish))
