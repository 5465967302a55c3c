"""Operators of one layer, their dependencies, and the cores they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

TENSOR, VECTOR, FUSED = range(3)
KINDS = ("tensor", "vector", "fused")

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class ScheduleInstance:
    """One layer on one accelerator (PHAZE, section 4).

    An operator runs either on one core of its kind (a fused one on a tensor core and the vector
    core paired with it), or on all cores at once and then nothing else runs.

    Attributes
    ----------
    kinds
        :data:`TENSOR`, :data:`VECTOR` or :data:`FUSED`, shape (ops,).
    alone
        Latency on one core, shape (ops,), in any unit that makes all latencies integers.
    spread
        Latency on all cores, shape (ops,).
    edges
        Pairs (before, after).
    tensor_cores, vector_cores
        How many there are; the first min(tensor, vector) of each are paired.
    """

    kinds: Integers
    alone: Integers
    spread: Integers
    edges: tuple[tuple[int, int], ...]
    tensor_cores: int
    vector_cores: int

    @classmethod
    def build(
        cls,
        kinds: Sequence[int],
        alone: Sequence[int],
        spread: Sequence[int],
        edges: Iterable[tuple[int, int]],
        tensor_cores: int,
        vector_cores: int,
    ) -> ScheduleInstance:
        """Make an instance from plain sequences.

        Examples
        --------
        >>> pair = ScheduleInstance.build([TENSOR, VECTOR], [4, 3], [2, 3], [], 1, 1)
        >>> pair.serial
        5
        """
        return cls(
            np.array(kinds, dtype=np.int64),
            np.array(alone, dtype=np.int64),
            np.array(spread, dtype=np.int64),
            tuple((int(a), int(b)) for a, b in edges),
            tensor_cores,
            vector_cores,
        )

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def shortest(self) -> Integers:
        """The shorter of the two latencies, shape (ops,)."""
        return np.minimum(self.alone, self.spread)

    @property
    def serial(self) -> int:
        """Makespan of running one operator after another."""
        return int(self.shortest.sum())

    @cached_property
    def before(self) -> Flags:
        """``before[i, j]``: there is a path from i to j, shape (ops, ops).

        Raises
        ------
        ValueError
            If the edges form a circle.
        """
        n = len(self)
        reach = np.zeros((n, n), dtype=np.bool_)
        for i in reversed(self.order):
            for j in self._after[i]:
                reach[i, j] = True
                reach[i] |= reach[j]
        return reach

    @cached_property
    def order(self) -> tuple[int, ...]:
        """A topological order.

        Raises
        ------
        ValueError
            If the edges form a circle.
        """
        waiting = [0] * len(self)
        for _, j in self.edges:
            waiting[j] += 1
        ready = [i for i in range(len(self) - 1, -1, -1) if waiting[i] == 0]
        result = []
        while ready:
            i = ready.pop()
            result.append(i)
            for j in self._after[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)
        if len(result) < len(self):
            raise ValueError("the operators form a circle")
        return tuple(result)

    @cached_property
    def _after(self) -> list[list[int]]:
        after: list[list[int]] = [[] for _ in range(len(self))]
        for i, j in self.edges:
            after[i].append(j)
        return after

    @cached_property
    def pairs(self) -> int:
        """Number of tensor cores that are paired with a vector core."""
        return min(self.tensor_cores, self.vector_cores)

    def part(self, ops: Sequence[int]) -> ScheduleInstance:
        """Return the instance of some operators, with all orders among them."""
        index = np.asarray(ops, dtype=np.int64)
        inner = self.before[np.ix_(index, index)]
        edges = tuple((int(i), int(j)) for i, j in zip(*np.nonzero(inner), strict=True))
        return ScheduleInstance(
            self.kinds[index],
            self.alone[index],
            self.spread[index],
            edges,
            self.tensor_cores,
            self.vector_cores,
        )

    def reversed(self) -> ScheduleInstance:
        """Return the instance with all orders turned round; its optimum is the same."""
        return ScheduleInstance(
            self.kinds,
            self.alone,
            self.spread,
            tuple((j, i) for i, j in self.edges),
            self.tensor_cores,
            self.vector_cores,
        )


@dataclass(frozen=True)
class Schedule:
    """When every operator starts, and whether it takes all cores."""

    start: tuple[int, ...]
    intra: tuple[bool, ...]

    def makespan(self, instance: ScheduleInstance) -> int:
        """Return when the last operator ends."""
        lengths = np.where(self.intra, instance.spread, instance.alone)
        return int((np.array(self.start) + lengths).max(initial=0))


def serial_schedule(instance: ScheduleInstance) -> Schedule:
    """Return the schedule that runs one operator after another, each in its faster mode."""
    start = [0] * len(instance)
    now = 0
    for i in instance.order:
        start[i] = now
        now += int(instance.shortest[i])
    intra = instance.spread < instance.alone
    return Schedule(tuple(start), tuple(bool(flag) for flag in intra))
