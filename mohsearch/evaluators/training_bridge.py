"""From training layers and accelerators to operator schedules and device placements.

All costs of a workload are computed at once for all accelerators; schedules and placements then
take what they need by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.device_placement.problem import LayerCosts, PlacementProblem
from mohsearch.evaluators.op_cost import OpCosts, bound_ops, cost_ops, signature
from mohsearch.evaluators.op_cost_options import WORD_BYTES, CostOptions
from mohsearch.evaluators.op_schedule.instance import FUSED, TENSOR, VECTOR, ScheduleInstance
from mohsearch.evaluators.training_architecture import Architectures
from mohsearch.workloads.training import TrainingWorkload
from mohsearch.workloads.training_fusion import fuse
from mohsearch.workloads.training_ops import TrainingGraph, TrainingOp

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Pass = Literal["forward", "backward", "update"]
PASSES: tuple[Pass, ...] = ("forward", "backward", "update")

_KINDS = {"tensor": TENSOR, "vector": VECTOR, "collective": VECTOR, "fused": FUSED}


@dataclass(frozen=True)
class WorkloadCosts:
    """Costs of all ops of a workload on many accelerators.

    Attributes
    ----------
    workload, architectures, options
        What was costed.
    graphs
        Fused graphs, by layer kind and pass.
    rows
        For every op of each graph its row in ``costs``.
    costs
        Of the distinct ops, shape (distinct ops, accelerators).
    """

    workload: TrainingWorkload
    architectures: Architectures
    options: CostOptions
    graphs: Mapping[tuple[int, Pass], TrainingGraph]
    rows: Mapping[tuple[int, Pass], Integers]
    costs: OpCosts
    distinct_ops: tuple[TrainingOp, ...]

    @classmethod
    def build(
        cls,
        workload: TrainingWorkload,
        architectures: Architectures,
        options: CostOptions | None = None,
        *,
        fused: bool = True,
    ) -> WorkloadCosts:
        """Cost a workload on accelerators; ``fused`` lets followers of an op run with it.

        Examples
        --------
        >>> from mohsearch.evaluators.training_architecture import feasible_architectures
        >>> from mohsearch.workloads.hf_config import load_model
        >>> from mohsearch.workloads.training import build_training
        >>> workload = build_training(load_model("bert-base"))
        >>> costs = WorkloadCosts.build(workload, feasible_architectures().take(np.arange(3)))
        >>> instance = costs.instance(1, "forward", 0)
        >>> instance.serial == costs.serial(1, "forward")[0]
        np.True_
        """
        chosen = options or CostOptions()
        graphs: dict[tuple[int, Pass], TrainingGraph] = {}
        for number, layer in enumerate(workload.layers):
            for name in PASSES:
                graph = layer.graphs[name]
                graphs[number, name] = fuse(graph) if fused else graph
        place: dict[object, int] = {}
        distinct: list[TrainingOp] = []
        rows: dict[tuple[int, Pass], Integers] = {}
        for key, graph in graphs.items():
            found = []
            for op in graph.ops:
                mark = signature(op)
                if mark not in place:
                    place[mark] = len(distinct)
                    distinct.append(op)
                found.append(place[mark])
            rows[key] = np.array(found, dtype=np.int64)
        costs = cost_ops(distinct, architectures, chosen)
        return cls(workload, architectures, chosen, graphs, rows, costs, tuple(distinct))

    def instance(self, layer: int, which: Pass, architecture: int) -> ScheduleInstance:
        """Return the operator-schedule problem of a layer on one accelerator, in cycles."""
        graph, rows = self.graphs[layer, which], self.rows[layer, which]
        return ScheduleInstance(
            np.array([_KINDS[op.engine] for op in graph.ops], dtype=np.int64),
            self.costs.alone_cycles[rows, architecture],
            self.costs.spread_cycles[rows, architecture],
            graph.edges,
            int(self.architectures.tensor_cores[architecture]),
            int(self.architectures.vector_cores[architecture]),
        )

    def distinct_instances(self, layer: int, which: Pass) -> tuple[Integers, Integers]:
        """Return the first accelerator of each distinct schedule problem, and each one's number.

        Accelerators with the same latencies and the same numbers of cores (up to the number of ops,
        beyond which more cores do not matter) have the same schedules.
        """
        rows = np.unique(self.rows[layer, which])
        limit = max(1, len(self.graphs[layer, which]))
        columns = np.concatenate(
            [
                self.costs.alone_cycles[rows],
                self.costs.spread_cycles[rows],
                np.minimum(self.architectures.tensor_cores, limit)[None],
                np.minimum(self.architectures.vector_cores, limit)[None],
            ]
        )
        _, first, back = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        return first.astype(np.int64), back.reshape(-1).astype(np.int64)

    def critical_path(self, layer: int, which: Pass) -> Integers:
        """Return the longest path in cycles, each op in its faster way, shape (accelerators,)."""
        return np.asarray(self._longest(layer, which, self.costs.shortest), dtype=np.int64)

    def serial(self, layer: int, which: Pass) -> Integers:
        """Return the cycles of one op after another, an upper bound, shape (accelerators,)."""
        rows = self.rows[layer, which]
        return np.asarray(self.costs.shortest[rows].sum(axis=0), dtype=np.int64)

    def lower_bound(self, layer: int, which: Pass) -> Integers:
        """Return cycles that no schedule undercuts, shape (accelerators,).

        The largest of the critical path, the work of each kind of core shared out evenly, and the
        memory traffic over the whole bandwidth where that holds (:meth:`memory_cycles`).
        """
        rows = self.rows[layer, which]
        if not len(rows):
            return np.zeros(len(self.architectures), dtype=np.int64)
        kinds = np.array([_KINDS[op.engine] for op in self.graphs[layer, which].ops])
        alone, spread = self.costs.alone_cycles[rows], self.costs.spread_cycles[rows]
        bound = self.critical_path(layer, which).astype(np.float64)
        for skipped, cores in (
            (VECTOR, self.architectures.tensor_cores),
            (TENSOR, self.architectures.vector_cores),
        ):
            mine = kinds != skipped
            work = np.minimum(alone[mine] / cores, spread[mine]).sum(axis=0)
            bound = np.maximum(bound, work)
        return np.ceil(np.maximum(bound, self.memory_cycles(layer, which))).astype(np.int64)

    def memory_cycles(self, layer: int, which: Pass) -> Floats:
        """Return the cycles of all memory traffic over the whole bandwidth, 0 where it is no bound.

        Every operand is moved once; where vector ops are costed without memory, theirs is left out.
        Ops on single cores each have a share of the bandwidth (``CostOptions.sharing``): where more
        of them can run at once than share it, together they exceed it, and traffic bounds nothing.
        """
        rows = self.rows[layer, which]
        cores = self.architectures.tensor_cores + self.architectures.vector_cores
        at_once = np.minimum(most_at_once(self.graphs[layer, which]), cores)
        counted = rows
        if not self.options.vector_memory:
            ops = self.graphs[layer, which].ops
            tensor = [op.engine in {"tensor", "fused"} for op in ops]
            counted = rows[np.array(tensor, dtype=bool)]
        words = self.compulsory_words[counted].sum()
        rate = self.options.memory_words_per_cycle
        return np.where(at_once <= self.options.sharing, words / rate, 0.0)

    @cached_property
    def compulsory_words(self) -> Floats:
        """Words that each distinct op moves at least: its operands once, shape (distinct ops,)."""
        words = []
        for op in self.distinct_ops:
            moved = (op.read_bytes + op.write_bytes) / WORD_BYTES
            operands = op.batch * (op.m * op.k + op.k * op.n + op.m * op.n)
            words.append(max(moved, operands))
        return np.array(words, dtype=np.float64)

    def cheap_bound(self, layer: int, which: Pass) -> Floats:
        """Return a critical path over roofline bounds, for pruning without any tiling search."""
        bounds = bound_ops(self.distinct_ops, self.architectures, self.options)
        return np.asarray(self._longest(layer, which, bounds), dtype=np.float64)

    def energy_j(self, layer: int, which: Pass) -> Floats:
        """Return the dynamic energy of a layer's pass, ops on all cores, shape (accelerators,)."""
        rows = self.rows[layer, which]
        return np.asarray(self.costs.spread_energy_j[rows].sum(axis=0), dtype=np.float64)

    def seconds(self, cycles: NDArray[Any]) -> Floats:
        """Return cycles as seconds."""
        return np.asarray(cycles / self.options.frequency_hz, dtype=np.float64)

    def _longest(self, layer: int, which: Pass, latency: NDArray[Any]) -> NDArray[Any]:
        graph, rows = self.graphs[layer, which], self.rows[layer, which]
        ends = np.zeros((len(graph), latency.shape[1]), dtype=latency.dtype)
        for number, before in enumerate(graph.predecessors):
            start = ends[list(before)].max(axis=0) if before else 0
            ends[number] = start + latency[rows[number]]
        return np.asarray(ends.max(axis=0, initial=0))


def most_at_once(graph: TrainingGraph) -> int:
    """Return how many ops can run at once: the largest set of which none waits for another.

    Source: Dilworth's theorem, through a largest matching of the transitive closure.

    Examples
    --------
    >>> from mohsearch.workloads.hf_config import load_model
    >>> from mohsearch.workloads.training import build_training
    >>> most_at_once(build_training(load_model("llama2-7b")).layers[1].forward)  # query, key, value
    3
    """
    before = nx.DiGraph(graph.edges)
    before.add_nodes_from(range(len(graph)))
    sides = nx.Graph((("from", i), ("to", j)) for i, j in nx.transitive_closure_dag(before).edges)
    sides.add_nodes_from(("from", i) for i in range(len(graph)))
    matching = nx.bipartite.hopcroft_karp_matching(sides, [("from", i) for i in range(len(graph))])
    return len(graph) - len(matching) // 2


def layer_costs(
    workload: TrainingWorkload, forward_s: Sequence[float], backward_s: Sequence[float]
) -> LayerCosts:
    """Return the costs of all layers for a placement, from the latency of each kind of layer.

    Parameters
    ----------
    workload
        With activations kept (``recompute="none"``) where the placement itself recomputes. With a
        recomputing workload the activations are what it keeps; what stands in memory besides,
        while one layer is made again, is ``activation_bytes - stash_bytes`` of that layer.
    forward_s, backward_s
        Latency of one microbatch, of each kind in ``workload.layers``.
    """
    kinds = workload.layers
    chain = np.array(workload.chain)

    def spread(values: Sequence[float]) -> Floats:
        return np.asarray(np.array(values)[chain], dtype=np.float64)

    return LayerCosts(
        forward_s=spread(forward_s),
        backward_s=spread(backward_s),
        weight_bytes=spread([kind.weight_bytes for kind in kinds]),
        state_bytes=spread([kind.state_bytes for kind in kinds]),
        activation_bytes=spread([kind.stash_bytes for kind in kinds]),
        sliced=np.full(len(chain), workload.tensor_parallel > 1),
        edge_bytes=spread([kind.boundary_bytes for kind in kinds])[:-1],
    )


def placement_problem(
    parts: Sequence[tuple[TrainingWorkload, Sequence[float], Sequence[float]]],
    *,
    devices: int,
    memory_bytes: float,
    bandwidth_bytes_per_s: float,
    batch: int,
    **options: Any,
) -> PlacementProblem:
    """Return the placement problem of a model on a cluster.

    Parameters
    ----------
    parts
        One for each tensor-parallel width: the workload, and the forward and backward latency in
        seconds of each kind of layer.
    devices, memory_bytes, bandwidth_bytes_per_s
        The cluster.
    batch
        Samples of a batch; microbatches are rounded up.
    options
        Further fields of :class:`PlacementProblem` (``recompute``, ``schedule``, ...).

    Raises
    ------
    ValueError
        If there is no part, two have the same width, or their microbatches or layers differ.
    """
    if not parts:
        raise ValueError("a placement needs at least one tensor-parallel width")
    first = parts[0][0]
    widths = [workload.tensor_parallel for workload, _, _ in parts]
    if len(set(widths)) < len(widths):
        raise ValueError(f"a width is given twice: {widths}")
    for workload, _, _ in parts:
        if (workload.chain, workload.microbatch) != (first.chain, first.microbatch):
            raise ValueError("the widths differ in layers or microbatch")
    layers = len(first.chain)
    costs = {
        workload.tensor_parallel: layer_costs(workload, forward, backward)
        for workload, forward, backward in parts
    }
    return PlacementProblem(
        layer_ids=tuple(range(layers)),
        sources=np.arange(layers - 1),
        targets=np.arange(1, layers),
        costs=costs,
        devices=devices,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        microbatches=-(-batch // first.microbatch),
        **options,
    )
