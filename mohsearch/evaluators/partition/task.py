"""A partitioning task: a graph, the package it shall run on, and the chips it may use."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.chip_package import (
    MAX_CHIPS,
    ChipPackage,
    load_chip_package,
)
from mohsearch.workloads.op_graph import Floats, PartitionGraph


class PartitionTask:
    """A graph on a package.

    Parameters
    ----------
    graph
        The graph; its sizes are scaled to the package's precision.
    package
        The package (default: ``mcm36``).
    chips
        Chips that may be used, 1 to 64 (default: those of the package).
    time_s
        Time of each op (n,), where it does not follow from the chip.

    Raises
    ------
    InputError
        If ``chips`` is out of range.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("tv_resnet18"), chips=8)
    >>> task.n, task.chips, round(float(task.time_s.sum()) * 1e6)
    (68, 8, 973)
    """

    def __init__(
        self,
        graph: PartitionGraph,
        package: ChipPackage | None = None,
        chips: int | None = None,
        *,
        time_s: Floats | None = None,
    ) -> None:
        self.package = package or load_chip_package()
        self.chips = self.package.chips if chips is None else int(chips)
        if not 1 <= self.chips <= MAX_CHIPS:
            raise InputError(f"chips must be 1 to {MAX_CHIPS}, got {self.chips}", field="chips")
        self.graph = graph.at_precision(self.package.chip.element_bytes)
        self._given_time_s = time_s

    @property
    def n(self) -> int:
        """Number of ops."""
        return self.graph.n

    @cached_property
    def time_s(self) -> Floats:
        """Time of each op alone (n,): the larger of arithmetic and SRAM traffic, and overhead."""
        if self._given_time_s is not None:
            return np.asarray(self._given_time_s, dtype=np.float64)
        chip = self.package.chip
        time_s = np.maximum(
            self.graph.flops / chip.peak_ops_per_s,
            self.touched_bytes / chip.sram_bandwidth_bytes_per_s,
        ) + np.float64(chip.op_overhead_s)
        if not time_s.any():
            raise InputError(
                f"no op of {self.graph.name} takes any time: give ops work or bytes, or the chip "
                "an op_overhead_s"
            )
        return np.asarray(time_s)

    @cached_property
    def touched_bytes(self) -> Floats:
        """SRAM bytes read and written by each op (n,): inputs, weights, output."""
        return self.graph.in_bytes + self.graph.out_bytes + self.graph.resident_bytes

    @cached_property
    def share_before(self) -> Floats:
        """Share of all work done before the middle of each op, ops in order of number (n,)."""
        total = float(self.time_s.sum())
        if total <= 0.0:
            return (np.arange(self.n) + 0.5) / self.n
        return np.asarray((np.cumsum(self.time_s) - 0.5 * self.time_s) / total)

    @cached_property
    def transfer_bytes(self) -> Floats:
        """Largest number of bytes any consumer reads of each op (n,); 0 without consumers."""
        largest = np.zeros(self.n)
        np.maximum.at(largest, self.graph.edge_src, self.graph.edge_bytes)
        return largest

    @cached_property
    def cost_usd(self) -> Floats:
        """Cost of a package with 0 to ``chips`` chips (chips + 1,)."""
        costs = [self.package.cost_usd(k) for k in range(1, self.chips + 1)]
        return np.array([0.0, *costs])

    @cached_property
    def op_energy_j(self) -> float:
        """Energy of all operations of one sample, wherever they run."""
        return float(self.graph.flops.sum() * self.package.chip.energy_j_per_op)

    def digest(self) -> str:
        """Return a digest of graph, package and chips."""
        package = self.package.model_dump(exclude={"title", "source"})
        return content_digest([self.graph.digest(), package, self.chips, self.time_s.tolist()])
