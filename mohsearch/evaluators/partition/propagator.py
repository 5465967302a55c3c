"""The constraint solver of Xie et al. step by step: domains that shrink as ops are placed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition import general_kernels as kernels
from mohsearch.evaluators.partition.sampler import network_of
from mohsearch.evaluators.partition.task import PartitionTask


class Propagator:
    """Domains of all ops under equations (2) to (4), with undo.

    The interface that the paper's algorithms use (section 4.2): :meth:`get_domain` asks, and
    :meth:`set_domain` restricts and propagates.

    Parameters
    ----------
    task
        Graph and chips.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> solver = Propagator(PartitionTask(load_graph("own_ae"), chips=3))
    >>> solver.set_domain(8, [2]), solver.get_domain(15), solver.get_domain(0)
    (True, [2], [0])
    >>> solver.set_domain(7, [0]), solver.get_domain(7)
    (False, [1, 2])
    """

    def __init__(self, task: PartitionTask) -> None:
        self.task = task
        self._network = network_of(task)
        self._search = kernels.new_search(task.n, task.chips)
        kernels.reset(self._search, self._network)
        self._marks: list[tuple[int, int, int]] = []

    def get_domain(self, op: int) -> list[int]:
        """Return the chips that an op can still be on.

        Raises
        ------
        InputError
            If there is no such op.
        """
        self._check(op)
        mask = int(self._search.domain[op])
        return [c for c in range(self.task.chips) if mask >> c & 1]

    def set_domain(self, op: int, chips: Iterable[int]) -> bool:
        """Restrict an op to some of its chips; return False, and change nothing, in a dead end.

        Raises
        ------
        InputError
            If there is no such op, or a number is no chip.
        """
        self._check(op)
        mask = 0
        for chip in chips:
            if not 0 <= chip < self.task.chips:
                raise InputError(f"chips are 0 to {self.task.chips - 1}, got {chip}")
            mask |= 1 << chip
        trail, links, top = (int(x) for x in self._search.counters[:3])
        done = kernels.shrink(self._search, op, np.uint64(mask)) and kernels.propagate(
            self._search, self._network
        )
        if not done:
            kernels.undo(self._search, trail, links, top)
            return False
        self._marks.append((trail, links, top))
        return True

    def undo(self) -> None:
        """Take back the last :meth:`set_domain` that succeeded.

        Raises
        ------
        InputError
            If nothing is left to take back.
        """
        if not self._marks:
            raise InputError("nothing to take back")
        kernels.undo(self._search, *self._marks.pop())

    def _check(self, op: int) -> None:
        if not 0 <= op < self.task.n:
            raise InputError(f"ops are 0 to {self.task.n - 1}, got {op}")
