"""Latency and energy of a model's layers on many accelerators: bounds for all, schedules on demand.

For every tensor-parallel width a model's layers (first, inner, last) are cut, their operators
costed and their schedules bounded for all accelerators at once; the schedule of a single
accelerator is solved only where the bounds leave more than a tolerance open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.layer_schedules import (
    LayerGraph,
    LayerSchedule,
    ScheduleBounds,
    bound_schedules,
    schedule_layer,
)
from mohsearch.evaluators.op_cost import bound_ops
from mohsearch.evaluators.op_cost_options import WORD_BYTES, CostOptions
from mohsearch.evaluators.op_schedule.instance import FUSED, TENSOR, VECTOR
from mohsearch.evaluators.training_architecture import Architectures
from mohsearch.evaluators.training_bridge import WorkloadCosts
from mohsearch.evaluators.uniform_placement import INNER, UniformChain
from mohsearch.workloads.hf_config import ModelConfig
from mohsearch.workloads.training import TrainingWorkload, build_training
from mohsearch.workloads.training_fusion import fuse
from mohsearch.workloads.training_ops import TrainingOp

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PASSES = ("forward", "backward")
KINDS = {"tensor": TENSOR, "vector": VECTOR, "collective": VECTOR, "fused": FUSED}
STRICT_SHARING = 32
"""In no layer can more operators run at once than this, so that on single cores, each with this
share of a bandwidth, they never exceed it together."""


@dataclass(frozen=True, eq=False)
class TrainingModel:
    """A model and how it is trained.

    Attributes
    ----------
    config
        The model.
    widths
        Tensor-parallel widths to choose from, ascending.
    cost
        How operators are costed.
    sequence
        Tokens per sample; the model's by default.
    precision, optimizer, sequence_parallel, weight_gradients
        As :func:`mohsearch.workloads.training.build_training` takes them.
    schedule_width
        Effort of a schedule: states kept on a level.
    schedule_gap
        Share of a makespan that bounds may leave open before a schedule is searched.
    schedule_nodes
        Effort of local search and bound by phases for what the search leaves open; -1: none.
    """

    config: ModelConfig
    widths: tuple[int, ...]
    cost: CostOptions = field(default_factory=lambda: CostOptions(sharing=STRICT_SHARING))
    sequence: int | None = None
    precision: str = "mixed"
    optimizer: str = "adam"
    sequence_parallel: bool = False
    weight_gradients: bool = True
    schedule_width: int = 512
    schedule_gap: float = 0.0
    schedule_nodes: int = -1

    @lru_cache(maxsize=256)  # noqa: B019  # few models, each alive as long as its search
    def workload(self, microbatch: int, width: int, recompute: str = "none") -> TrainingWorkload:
        """Return the layers of one slice."""
        return build_training(
            self.config,
            microbatch=microbatch,
            tensor_parallel=width,
            sequence_parallel=self.sequence_parallel and width > 1,
            recompute=recompute,  # type: ignore[arg-type]
            sequence_length=self.sequence,
            precision=self.precision,
            optimizer=self.optimizer,  # type: ignore[arg-type]
            weight_gradients=self.weight_gradients,
        )

    @lru_cache(maxsize=256)  # noqa: B019
    def chain(self, microbatch: int, recompute: str) -> UniformChain:
        """Return the layers' bytes for placements; what is synchronised is the gradients.

        Under selective recomputation a stage keeps what its layers keep; what one layer holds
        beyond that while it is repeated is left to :meth:`transient_bytes`.

        Raises
        ------
        InputError
            If the model is no chain of a first layer, equal inner ones and a last.
        """
        mode = "selective" if recompute == "selective" else "none"
        parts = [self.workload(microbatch, width, mode) for width in self.widths]
        first = parts[0]
        if len(first.layers) != 3:
            names = ", ".join(layer.name for layer in first.layers)
            raise InputError(
                f"{self.config.name} has layers of more than three kinds ({names}); this search "
                "places models of one stack"
            )

        def table(name: str) -> Floats:
            return np.array([[getattr(x, name) for x in part.layers] for part in parts], float)

        return UniformChain(
            inner=first.layers[INNER].count,
            widths=np.array(self.widths),
            weight_bytes=table("gradient_bytes"),
            state_bytes=table("state_bytes"),
            activation_bytes=table("stash_bytes"),
            boundary_bytes=table("boundary_bytes")[:, INNER],
        )

    def transient_bytes(self, microbatch: int, recompute: str) -> float:
        """Return what a layer holds beyond its stash while it is repeated selectively."""
        if recompute != "selective":
            return 0.0
        inner = self.workload(microbatch, self.widths[0], "selective").layers[INNER]
        return float(inner.activation_bytes - inner.stash_bytes)

    @cached_property
    def flops_per_sample(self) -> float:
        """Matrix-product operations of a sample's forward and backward pass, nothing repeated."""
        return float(build_training(self.config, sequence_length=self.sequence).flops)


class LayerTimes(NamedTuple):
    """Latency and energy of the three kinds of layers, each of shape (count, 3).

    Columns are first, inner and last layer; energies are those of one slice and microbatch.
    """

    forward_s: Floats
    backward_s: Floats
    forward_j: Floats
    backward_j: Floats


class UpdateCosts(NamedTuple):
    """Optimizer's step by byte of gradients, each of shape (count,)."""

    seconds: Floats
    energy_j: Floats


@dataclass(frozen=True)
class LayerPass:
    """One pass over one kind of layer on all accelerators of a table."""

    graph: LayerGraph
    ops: tuple[TrainingOp, ...]
    alone: Integers
    spread: Integers
    alone_j: Floats
    spread_j: Floats
    bounds: ScheduleBounds


class SliceTimes:
    """One slice of a model on a set of accelerators.

    Parameters
    ----------
    model
        What is trained.
    architectures
        Accelerators, ``count`` of them.
    microbatch, width, recompute
        The slice; recomputation ``none`` or ``selective``.
    """

    def __init__(
        self,
        model: TrainingModel,
        architectures: Architectures,
        microbatch: int,
        width: int,
        recompute: str = "none",
    ) -> None:
        self.model = model
        self.architectures = architectures
        self.workload = model.workload(microbatch, width, recompute)
        costs = WorkloadCosts.build(self.workload, architectures, model.cost)
        self._hertz = model.cost.frequency_hz
        self._passes = {
            (layer, name): self._bounded(costs, layer, name)
            for layer in range(len(self.workload.layers))
            for name in PASSES
        }
        self.update = self._update(costs)

    def _bounded(self, costs: WorkloadCosts, layer: int, name: Any) -> LayerPass:
        graph, rows = costs.graphs[layer, name], costs.rows[layer, name]
        kinds = np.array([KINDS[op.engine] for op in graph.ops], dtype=np.int64)
        shape = _shape(tuple(kinds.tolist()), tuple(graph.edges))
        alone, spread = costs.costs.alone_cycles[rows], costs.costs.spread_cycles[rows]
        arch = self.architectures
        bounds = bound_schedules(shape, alone, spread, arch.tensor_cores, arch.vector_cores)
        energies = costs.costs.alone_energy_j[rows], costs.costs.spread_energy_j[rows]
        return LayerPass(shape, tuple(graph.ops), alone, spread, *energies, bounds)

    def _update(self, costs: WorkloadCosts) -> UpdateCosts:
        inner = costs.workload.layers[INNER]
        rows = costs.rows[INNER, "update"]
        size = max(1, inner.gradient_bytes)
        cycles = costs.costs.spread_cycles[rows].sum(axis=0)
        energy = costs.costs.spread_energy_j[rows].sum(axis=0)
        return UpdateCosts(cycles / self._hertz / size, energy / size)

    def lower(self) -> LayerTimes:
        """Return latencies and energies that no schedule undercuts."""
        return self._gather(
            lambda part: (
                part.bounds.makespan_lower,
                np.minimum(part.alone_j, part.spread_j).sum(axis=0),
            )
        )

    def serial(self) -> LayerTimes:
        """Return latencies and energies of one op after the other."""
        return self._gather(
            lambda part: (
                part.bounds.serial,
                np.where(part.spread < part.alone, part.spread_j, part.alone_j).sum(axis=0),
            )
        )

    def _gather(self, values: Any) -> LayerTimes:
        columns: list[Floats] = []
        for which in (0, 1):
            for name in PASSES:
                parts = [values(self._passes[layer, name])[which] for layer in range(3)]
                columns.append(np.stack(parts, axis=1).astype(np.float64))
        seconds = [column / self._hertz for column in columns[:2]]
        return LayerTimes(*seconds, *columns[2:])

    def solve(self, index: int) -> tuple[LayerTimes, Floats]:
        """Return the best schedules found on one accelerator, rows of shape (1, 3), and bounds.

        The second value holds proven lower bounds in seconds, shape (2, 3): forward and backward.
        """
        times = np.empty((2, 3))
        energy = np.empty((2, 3))
        bounds = np.empty((2, 3))
        for p, name in enumerate(PASSES):
            for layer in range(3):
                part = self._passes[layer, name]
                found = self._schedule(part, index)
                intra = np.array(found.intra, dtype=np.bool_)
                times[p, layer] = found.makespan
                bounds[p, layer] = found.bound
                energy[p, layer] = np.where(
                    intra, part.spread_j[:, index], part.alone_j[:, index]
                ).sum()
        times /= self._hertz
        return LayerTimes(*times[:, None], *energy[:, None]), bounds / self._hertz

    def _schedule(self, part: LayerPass, index: int) -> _Solved:
        alone, spread = part.alone[:, index], part.spread[:, index]
        low = int(part.bounds.makespan_lower[index])
        high = int(part.bounds.serial[index])
        if high - low <= self.model.schedule_gap * high:
            return _Solved(tuple((spread < alone).tolist()), high, low)
        arch = self.architectures
        ops = len(part.graph)
        return _solved(
            part.graph,
            alone.tobytes(),
            spread.tobytes(),
            min(int(arch.tensor_cores[index]), ops),
            min(int(arch.vector_cores[index]), ops),
            self.model.schedule_width,
            self.model.schedule_nodes,
        )

    def describe(self, index: int, layer: int, name: str) -> tuple[LayerPass, LayerSchedule]:
        """Return a pass over a kind of layer and its full schedule on one accelerator."""
        part = self._passes[layer, name]
        arch = self.architectures
        ops = len(part.graph)
        found = schedule_layer(
            part.graph,
            part.alone[:, index],
            part.spread[:, index],
            min(int(arch.tensor_cores[index]), ops),
            min(int(arch.vector_cores[index]), ops),
            width=self.model.schedule_width,
            phase_nodes=self.model.schedule_nodes,
        )
        return part, found


def roofline_times(
    model: TrainingModel, architectures: Architectures, microbatch: int, width: int, recompute: str
) -> LayerTimes:
    """Return latencies and energies no accelerator undercuts, without searching any tiling.

    A pass takes no less than its longest path of operators, each at the roofline of all cores; than
    its products on all multipliers; and, where operators share bandwidth strictly, than its memory
    traffic. The energy is that of the multiplications and additions.
    """
    workload = model.workload(microbatch, width, recompute)
    options, technology = model.cost, model.cost.technology
    elements = architectures.tensor_cores * architectures.width * architectures.depth
    count = len(architectures)
    seconds, joules = np.empty((2, count, 3)), np.empty((2, count, 3))
    for number, layer in enumerate(workload.layers):
        for p, name in enumerate(PASSES):
            graph = fuse(layer.graphs[name])
            bounds = bound_ops(graph.ops, architectures, options)
            ends = np.zeros((len(graph.ops), count))
            for k, before in enumerate(graph.predecessors):
                start = ends[list(before)].max(axis=0) if before else 0.0
                ends[k] = start + bounds[k]
            macs = sum(op.macs for op in graph.ops)
            cycles = np.maximum(ends.max(axis=0, initial=0.0), macs / elements)
            if options.sharing >= STRICT_SHARING and options.vector_memory:
                words = sum(_least_words(op) for op in graph.ops)
                cycles = np.maximum(cycles, words / options.memory_words_per_cycle)
            seconds[p, :, number] = cycles / options.frequency_hz
            joules[p, :, number] = macs * (technology.multiply_pj + technology.add_pj) * 1e-12
    return LayerTimes(*seconds, *joules)


def _least_words(op: TrainingOp) -> float:
    """Return the words that an op moves to and from the memory at least."""
    if op.engine == "vector":
        return (op.read_bytes + op.write_bytes) / WORD_BYTES
    if op.engine == "collective":
        return 0.0
    operands = op.batch * (op.m * op.k + op.k * op.n)
    return float(operands + (op.engine == "tensor") * op.batch * op.m * op.n)


class _Solved(NamedTuple):
    intra: tuple[bool, ...]
    makespan: int
    bound: int


@lru_cache(maxsize=1024)
def _shape(kinds: Sequence[int], edges: tuple[tuple[int, int], ...]) -> LayerGraph:
    """Return one object per structure, so that it is analysed once."""
    return LayerGraph(np.array(kinds, dtype=np.int64), edges)


@lru_cache(maxsize=200_000)
def _solved(
    graph: LayerGraph, alone: bytes, spread: bytes, tensor: int, vector: int, width: int, nodes: int
) -> _Solved:
    found = schedule_layer(
        graph,
        np.frombuffer(alone, dtype=np.int64),
        np.frombuffer(spread, dtype=np.int64),
        tensor,
        vector,
        width=width,
        phase_nodes=nodes,
    )
    return _Solved(found.schedule.intra, found.makespan, found.bound)
