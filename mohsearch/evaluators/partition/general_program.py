"""Partitions that need not be chains, by dynamic programming over downsets and their chips.

Chips are filled one after the other, so that the ops on the first k are a downset. What the rest of
a partition can still do follows from the downset, from which of its ops that are still to be read
share a chip, and from which of these chips lead to which: equation (4) of Xie et al. says that the
chips that feed a new one directly must not lead to each other. Forgetting the chips leaves a
relaxation over the downsets alone, and with it a bound.

A tensor is charged to its chip once, though each chip that reads it costs a transfer: the value of
the program is a lower bound, and a partition it finds is evaluated anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mohsearch.evaluators.partition.costs import Labels, evaluate_partitions
from mohsearch.evaluators.partition.downsets import list_downsets
from mohsearch.evaluators.partition.reachability import closures
from mohsearch.evaluators.partition.task import PartitionTask

MAX_DOWNSETS = 4_000
MAX_STATES = 60_000
"""States after which the complete search is given up."""

BELOW = 1.0 - 1e-9
"""What is looked for is better than what is known by this factor."""


@dataclass(frozen=True)
class GeneralSolution:
    """What is known about all partitions of a graph.

    Attributes
    ----------
    labels
        Valid partitions (K, n) better than what was known before, each with more chips than the one
        before it and of a lower interval; K may be 0.
    interval_s
        Interval of the last one, worked out from the labels; infinite without one.
    bound_s
        No valid partition is below; at most what was known before.
    """

    labels: Labels
    interval_s: float
    bound_s: float


class _Step(NamedTuple):
    """One more chip: the downset it leads to, its load, what it reads, and what is left to read.

    ``reads`` has a bit for each op of the old frontier; ``kept`` names the place in the old
    frontier of each op of the new one, -1 for those on the new chip.
    """

    to: int
    load: float
    reads: int
    kept: tuple[int, ...]


class _State(NamedTuple):
    """A downset, the chip of each op that is still to be read, and the chips that lead to each.

    Chips are numbered as they appear; ``before`` has a bit for each of them.
    """

    at: int
    chips: tuple[int, ...]
    before: tuple[int, ...]


def _members(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class _Program:
    """The downsets of a graph as integers of bits, and the steps between them."""

    def __init__(self, task: PartitionTask, limit: int, ceiling_s: float) -> None:
        graph = task.graph
        self.task = task
        self.ceiling = ceiling_s * BELOW
        sets = list_downsets(task, limit)
        self.sets = [int.from_bytes(row.tobytes(), "little") for row in sets]
        after, before = closures(graph)
        self.after = [int.from_bytes(row.tobytes(), "little") for row in after]
        self.before = [int.from_bytes(row.tobytes(), "little") for row in before]
        size_s = graph.edge_bytes / task.package.link.bandwidth_bytes_per_s
        self.readers = [
            list(
                zip(
                    graph.edge_dst[graph.succ_starts[u] : graph.succ_starts[u + 1]].tolist(),
                    size_s[graph.succ_starts[u] : graph.succ_starts[u + 1]].tolist(),
                    strict=True,
                )
            )
            for u in range(task.n)
        ]
        self.read_by = [sum(1 << v for v in {v for v, _ in row}) for row in self.readers]
        held = np.unpackbits(sets.view(np.uint8), axis=1, bitorder="little")[:, : task.n]
        self.time = held @ task.time_s
        self.frontier = [[u for u in _members(s) if self.read_by[u] & ~s] for s in self.sets]
        self._steps: dict[int, list[_Step]] = {}

    def steps(self, i: int) -> list[_Step]:
        """Return the chips that may follow downset ``i`` within the ceiling."""
        if i not in self._steps:
            ends = np.flatnonzero(self.time[i + 1 :] < self.time[i] + self.ceiling) + i + 1
            made = (self._step(i, j) for j in ends.tolist() if not self.sets[i] & ~self.sets[j])
            self._steps[i] = [step for step in made if step is not None]
        return self._steps[i]

    def _step(self, i: int, j: int) -> _Step | None:
        now, then = self.sets[i], self.sets[j]
        mine = then & ~now
        load = float(self.time[j] - self.time[i])
        reads = 0
        for place, u in enumerate(self.frontier[i]):
            later = self.read_by[u] & ~then
            if (
                later
                and self.after[u] & mine
                and any(self.before[v] & mine for v in _members(later))
            ):
                return None  # the tensor of u jumps over a chip between u and a reader
            if self.read_by[u] & mine:
                load += max(size for v, size in self.readers[u] if mine >> v & 1)
                reads |= 1 << place
        if load >= self.ceiling:
            return None
        for u in self.frontier[j]:
            if mine >> u & 1:
                load += max(size for v, size in self.readers[u] if not then >> v & 1)
        if load >= self.ceiling:
            return None
        places = {u: place for place, u in enumerate(self.frontier[i])}
        return _Step(j, load, reads, tuple(places.get(u, -1) for u in self.frontier[j]))

    def _feeds(self, ops: int, readers: int) -> bool:
        return any(self.before[v] & ops for v in _members(readers))


def _follow(state: _State, step: _Step) -> _State | None:
    """Return the state after a step, None where chips that feed the new one lead to each other."""
    feeding = 0
    for place in _members(step.reads):
        feeding |= 1 << state.chips[place]
    leading = feeding
    for chip in _members(feeding):
        if state.before[chip] & feeding:
            return None
        leading |= state.before[chip]
    new = len(state.before)
    number: dict[int, int] = {}
    chips = []
    for place in step.kept:
        old = new if place < 0 else state.chips[place]
        chips.append(number.setdefault(old, len(number)))
    before = []
    for old in number:
        bits = leading if old == new else state.before[old]
        before.append(
            sum(1 << number[other] for other in number if other < new and bits >> other & 1)
        )
    return _State(step.to, tuple(chips), tuple(before))


def _relax(state: _State, step: _Step) -> _State | None:
    """Return the downset after a step alone."""
    return _State(step.to, (), ())


class _Found(NamedTuple):
    """Least load of the busiest chip, the downsets on the way to each better end, and a proof."""

    value: float
    paths: list[tuple[int, ...]]
    complete: bool


def _search(program: _Program, relaxed: bool, width: int = 0) -> _Found:
    """Return the least load of the busiest chip below the ceiling, for rising numbers of chips.

    ``width`` bounds the states of each downset that are kept of each number of chips (0: all); the
    result is a proof only where ``complete``. Without anything below the ceiling there is no path.
    """
    follow = _relax if relaxed else _follow
    last = len(program.sets) - 1
    best, complete = program.ceiling, True
    ends: dict[int, _State] = {}
    layer: dict[_State, tuple[float, _State | None]] = {_State(0, (), ()): (0.0, None)}
    layers = [layer]
    seen: dict[_State, float] = {}
    for _ in range(program.task.chips):
        new: dict[_State, tuple[float, _State | None]] = {}
        for state, (value, _from) in layer.items():
            if value >= best:
                continue
            for step in program.steps(state.at):
                worst = max(value, step.load)
                if worst >= best:
                    continue
                after = follow(state, step)
                if after is None or worst >= seen.get(after, np.inf):
                    continue
                seen[after] = worst
                new[after] = (worst, state)
                if step.to == last:
                    best = worst
                    ends[len(layers)] = after
        layers.append(new)
        layer = _narrow(new, width) if width else new
        complete = complete and len(layer) == len(new)
        if len(seen) > MAX_STATES and not relaxed:
            complete = False
            break
    return _Found(best, [_path(layers, *end) for end in ends.items()], complete)


def _narrow(
    layer: dict[_State, tuple[float, _State | None]], width: int
) -> dict[_State, tuple[float, _State | None]]:
    """Return the states of least value, at most ``width`` of each downset."""
    kept: dict[_State, tuple[float, _State | None]] = {}
    count: dict[int, int] = {}
    for state in sorted(layer, key=lambda entry: (layer[entry][0], entry)):
        if count.get(state.at, 0) < width:
            kept[state] = layer[state]
            count[state.at] = count.get(state.at, 0) + 1
    return kept


def _path(
    layers: list[dict[_State, tuple[float, _State | None]]], number: int, state: _State
) -> tuple[int, ...]:
    path: list[int] = []
    at: _State | None = state
    while at is not None:
        path.append(at.at)
        at = layers[number][at][1]
        number -= 1
    return tuple(path[::-1])


def solve_general(
    task: PartitionTask, known_s: float, limit: int = MAX_DOWNSETS
) -> GeneralSolution:
    """Return a better partition than one of interval ``known_s``, if there is one, and a bound.

    Parameters
    ----------
    task
        Graph, package and chips.
    known_s
        Interval of a known partition, such as the best chain: only what is below is looked at.
    limit
        Most downsets to work with.

    Returns
    -------
    GeneralSolution
        ``bound_s`` equals the smaller of ``known_s`` and ``interval_s`` where that is proven best.

    Raises
    ------
    InfeasibleError
        If the graph has more than ``limit`` downsets.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("timm_dla34"), chips=36)
    >>> found = solve_general(task, known_s=215.8e-6)  # the best chain
    >>> round(found.interval_s * 1e6, 1), round(found.bound_s * 1e6, 1)
    (154.4, 154.4)
    """
    program = _Program(task, limit, known_s)
    relaxed = _search(program, relaxed=True)
    nothing = np.empty((0, task.n), np.int16)
    best = GeneralSolution(nothing, np.inf, known_s if not relaxed.paths else relaxed.value)
    if not relaxed.paths:
        return best
    for width in (1, 0):
        found = _search(program, relaxed=False, width=width)
        best = _better(program, found, known_s, best)
        if found.complete or min(best.interval_s, known_s) <= best.bound_s / BELOW:
            break
    return best


def _better(
    program: _Program, found: _Found, known_s: float, best: GeneralSolution
) -> GeneralSolution:
    """Return what is known after one more search."""
    bound = best.bound_s
    if found.complete:
        bound = min(found.value if found.paths else known_s, known_s)
    if not found.paths:
        return GeneralSolution(best.labels, best.interval_s, bound)
    labels = np.stack([_labels(program, path) for path in found.paths])
    intervals = evaluate_partitions(program.task, labels)["interval_s"]
    least = np.minimum.accumulate(np.append(known_s, intervals))
    kept = intervals < least[:-1]
    if not kept.any() or intervals[kept][-1] >= best.interval_s:
        return GeneralSolution(best.labels, best.interval_s, bound)
    return GeneralSolution(labels[kept], float(intervals[kept][-1]), bound)


def _labels(program: _Program, path: tuple[int, ...]) -> Labels:
    labels = np.zeros(program.task.n, np.int16)
    for chip, (i, j) in enumerate(pairwise(path)):
        labels[list(_members(program.sets[j] & ~program.sets[i]))] = chip
    return labels
