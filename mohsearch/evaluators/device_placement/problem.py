"""What a placement is searched for: layers, their graph, the devices and the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

PipelineSchedule = Literal["1F1B", "GPipe"]
BatchRounding = Literal["up", "divisors"]


@dataclass(frozen=True)
class LayerCosts:
    """Costs of all layers when each is cut into ``t`` tensor-parallel slices; one slice's figures.

    Attributes
    ----------
    forward_s, backward_s
        Latency of one microbatch, shape (layers,).
    weight_bytes
        Weights, shape (layers,).
    state_bytes
        Weights, gradients and optimizer state together, shape (layers,).
    activation_bytes
        All intermediate outputs of one microbatch, shape (layers,).
    sliced
        Whether the layer really runs on ``t`` devices (else on one), shape (layers,).
    edge_bytes
        What one microbatch sends over each edge of the layer graph, shape (edges,).
    """

    forward_s: Floats
    backward_s: Floats
    weight_bytes: Floats
    state_bytes: Floats
    activation_bytes: Floats
    sliced: Flags
    edge_bytes: Floats


@dataclass(frozen=True)
class ExpertPlan:
    """A plan given by hand: equal stages, and the two other degrees."""

    pipeline: int
    tensor: int
    data: int
    layers: int


@dataclass(frozen=True)
class NetworkLevel:
    """One level of a hierarchical network: a node, a rack, the cluster.

    Attributes
    ----------
    devices
        How many consecutive devices one group of this level holds.
    bandwidth_bytes_per_s
        What one device gets towards another group of the next smaller level.
    """

    devices: int
    bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class PlacementProblem:
    """One network on one cluster.

    Attributes
    ----------
    layer_ids
        Names of the layers in a topological order; the arrays below follow it.
    sources, targets
        Edges of the layer graph as positions in ``layer_ids``; every source is before its target.
    costs
        By tensor-parallel width.
    devices
        How many accelerators there are (K).
    memory_bytes
        What one accelerator holds.
    bandwidth_bytes_per_s
        Of every link, and of the gradient synchronisation; with ``levels``, that of the level in
        which a plan is looked at.
    microbatches
        How many microbatches make the batch (B).
    recompute
        Keep only a stage's inputs and repeat its forward pass, instead of keeping all activations.
    schedule
        Besides the microbatch it works on, a stage keeps s-1 others under ``1F1B`` (s: its place
        from the end), and all others that the pipeline processes under ``GPipe``.
    rounding
        Replicas d need not divide the batch and the number of microbatches is rounded ``up``, or d
        is one of its ``divisors``.
    overlap_recompute
        Transfers to a stage's successors run while it repeats its forward pass.
    input_bytes
        What the network's input takes when it is kept for recomputation.
    sync_factor
        Gradient synchronisation takes ``factor * (d-1)/d * weights / bandwidth``; a ring
        all-reduce has 2, the paper's equation 18 has 4.
    levels
        Levels of the network, smallest first; none is one flat network. The slices of a stage
        stand side by side, then its replicas, then the stages. A pipeline's transfers run at the
        bandwidth of the smallest level that holds the whole plan (its slowest boundary); gradients
        are summed within the smallest groups first, and between larger ones by shares.
    virtual_stages
        Numbers of chunks of layers per device that are tried (interleaved 1F1B); 1 is one stage per
        device.
    """

    layer_ids: tuple[int, ...]
    sources: Integers
    targets: Integers
    costs: Mapping[int, LayerCosts]
    devices: int
    memory_bytes: float
    bandwidth_bytes_per_s: float
    microbatches: int
    recompute: bool = False
    schedule: PipelineSchedule = "1F1B"
    rounding: BatchRounding = "up"
    overlap_recompute: bool = True
    input_bytes: float = 0.0
    sync_factor: float = 4.0
    expert: ExpertPlan | None = field(default=None, compare=False)
    levels: tuple[NetworkLevel, ...] = ()
    virtual_stages: tuple[int, ...] = (1,)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.layer_ids)

    @cached_property
    def is_chain(self) -> bool:
        """Whether consecutive layers are all joined, so that stages are intervals."""
        joined = set(zip(self.sources.tolist(), self.targets.tolist(), strict=True))
        return all((k, k + 1) in joined for k in range(self.layers - 1))

    @cached_property
    def replica_choices(self) -> tuple[Integers, Floats]:
        """Data-parallel degrees worth trying, and the microbatches each pipeline then processes.

        Of all degrees with the same number of microbatches the smallest is enough: it needs the
        fewest devices and the least synchronisation.
        """
        most = min(self.devices, self.microbatches)
        degrees = np.arange(1, most + 1)
        if self.rounding == "divisors":
            degrees = degrees[self.microbatches % degrees == 0]
        batches = -(-self.microbatches // degrees)
        _, first = np.unique(-batches, return_index=True)
        return degrees[first].astype(np.int64), batches[first].astype(np.float64)

    def at_levels(self) -> list[PlacementProblem]:
        """Return the problem as it looks within one group of each level of the network.

        A plan that fits a smaller level is no slower there, so the fastest plan of all is the
        fastest of these problems.
        """
        if not self.levels:
            return [self]
        result = []
        for level in self.levels:
            most = min(self.devices, level.devices)
            speed = level.bandwidth_bytes_per_s
            result.append(replace(self, devices=most, bandwidth_bytes_per_s=speed))
            if most == self.devices:
                break
        return result

    def sync_s_per_byte(self, tensor: int, degrees: Integers) -> Floats:
        """Return seconds to add up one byte of weights' gradients over each number of replicas.

        Examples
        --------
        Eight replicas, four to a node: 3/4 within the node, then 1/2 of a quarter between two.

        >>> levels = (NetworkLevel(4, 100.0), NetworkLevel(8, 10.0))
        >>> problem = PlacementProblem((0,), None, None, {}, 8, 1, 10.0, 1, levels=levels)
        >>> float(problem.sync_s_per_byte(1, np.array([8]))[0])
        0.08
        """
        if not self.levels:
            share = (degrees - 1) / degrees
            return np.asarray(self.sync_factor * share / self.bandwidth_bytes_per_s)
        seconds = np.zeros(len(degrees))
        left = degrees.astype(np.float64)  # groups whose sums are still to be added
        share = np.ones(len(degrees))
        inside = 1
        for level in self.levels:
            fitting = max(level.devices // max(tensor, inside), 1)
            members = np.minimum(left, fitting)
            seconds += share * (members - 1) / members / level.bandwidth_bytes_per_s
            left, share = np.ceil(left / fitting), share / members
            inside = max(level.devices, tensor)
        return self.sync_factor * seconds

    def without_transfers(self) -> PlacementProblem:
        """Return the same problem in which activations travel in no time."""
        free = {
            t: replace(cost, edge_bytes=np.zeros_like(cost.edge_bytes))
            for t, cost in self.costs.items()
        }
        return replace(self, costs=free)


@dataclass(frozen=True)
class Stage:
    """One pipeline stage of a plan."""

    layers: tuple[int, ...]
    devices: int
    load_s: float
    memory_bytes: float


@dataclass(frozen=True)
class Placement:
    """A plan, with what it costs.

    Attributes
    ----------
    stages
        First stage first; empty when nothing fits.
    data_parallel, tensor_parallel
        Degrees; 0 when nothing fits.
    time_per_batch_s
        Infinite when nothing fits.
    bound_s
        No plan is faster than this. Without virtual stages the search is exhaustive, so it equals
        the time; with them it may be lower, for chunks are balanced one by one.
    balance_bound_s
        A bound found without search: perfectly balanced stages, no transfer and no memory limit.
    virtual_stages
        Chunks of layers per device; a stage lists the layers of all its chunks.
    """

    stages: tuple[Stage, ...]
    data_parallel: int
    tensor_parallel: int
    time_per_batch_s: float
    bound_s: float
    balance_bound_s: float
    virtual_stages: int = 1

    @property
    def is_feasible(self) -> bool:
        """Whether there is a plan."""
        return bool(self.stages)
