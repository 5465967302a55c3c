"""Interleaved 1F1B: several chunks of layers on every device.

Source: Narayanan et al., SC21, section 2.2.2. Device ``j`` of ``s`` holds the chunks ``j``,
``j+s``, ... of ``s v`` consecutive chunks. A batch takes ``load (m + (s-1)/v)``, where ``load`` is
what the busiest device spends on a microbatch; transfers are paid once per chunk. The schedule
needs microbatches in multiples of the stages. Chunks are chosen so that the longest is as short as
possible, which is exact for each chunk but not for the sum on a device: the time is an upper bound
of the optimum, and a lower bound comes with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.kernels import place_stages
from mohsearch.evaluators.device_placement.plan import balance_bound_s
from mohsearch.evaluators.device_placement.problem import (
    Floats,
    Integers,
    LayerCosts,
    Placement,
    PlacementProblem,
    Stage,
)
from mohsearch.evaluators.device_placement.stages import StagePairs, StageTable, stage_table


def in_flight(stages: int, virtual: int, device: int, microbatches: int) -> int:
    """Return how many chunks with their activations a device holds at most.

    Those of the forward passes it makes before its first backward pass, in the order of
    Megatron-LM.

    Examples
    --------
    >>> [in_flight(4, 2, device, 8) for device in range(4)]
    [11, 9, 7, 5]
    """
    everything = microbatches * virtual
    if microbatches == stages:
        return everything
    return min(2 * (stages - device - 1) + (virtual - 1) * stages + 1, everything)


@dataclass(frozen=True)
class _Folded:
    """A partition into chunks, folded onto the devices of one pipeline."""

    pairs: tuple[int, ...]
    """Stage number in the tables of each chunk, first chunk first."""
    loads: Floats
    """By device, seconds per microbatch."""


def place_interleaved(problem: PlacementProblem, pairs: StagePairs) -> Placement:
    """Return the best interleaved plan found, and a bound on all of them.

    Raises
    ------
    InfeasibleError
        If the layers branch, are sliced only in part, or the schedule is GPipe.
    """
    _check(problem)
    best = Placement((), 0, 0, math.inf, math.inf, math.inf)
    bound = math.inf
    folds = [v for v in problem.virtual_stages if v > 1]
    for tensor, costs in sorted(problem.costs.items()):
        bound = min([bound, *(balance_bound_s(problem, tensor, costs, v) for v in folds)])
        table = stage_table(problem, costs, pairs)
        for virtual in folds:
            plan = _best_fold(problem, tensor, costs, pairs, table, virtual)
            if plan is not None and plan.time_per_batch_s < best.time_per_batch_s:
                best = plan
    return Placement(
        best.stages,
        best.data_parallel,
        best.tensor_parallel,
        best.time_per_batch_s,
        bound,
        bound,
        best.virtual_stages,
    )


def _check(problem: PlacementProblem) -> None:
    if not problem.is_chain:
        raise InfeasibleError("virtual stages need a chain of layers; this network branches")
    if problem.schedule != "1F1B":
        raise InfeasibleError("virtual stages need the 1F1B schedule")
    for tensor, costs in problem.costs.items():
        if tensor > 1 and not costs.sliced.all():
            raise InfeasibleError(
                f"virtual stages need all layers sliced; at width {tensor} some are not"
            )


def _best_fold(
    problem: PlacementProblem,
    tensor: int,
    costs: LayerCosts,
    pairs: StagePairs,
    table: StageTable,
    virtual: int,
) -> Placement | None:
    """Return the fastest plan with so many chunks a device, over stages and replicas."""
    most = min(problem.layers // virtual, problem.devices // tensor)
    if most < 2:
        return None
    everywhere = np.full(len(pairs.whole), most * virtual, dtype=np.int64)
    shared = (table.last_load, table.inner_load, everywhere, table.wide)
    chunks = most * virtual
    tables = place_stages(pairs.whole, pairs.part, *shared, False, pairs.sets, chunks)
    degrees = np.arange(1, min(problem.devices, problem.microbatches) + 1)
    degrees = degrees[problem.microbatches % degrees == 0]
    sync = problem.sync_s_per_byte(tensor, degrees)
    best: Placement | None = None
    for stages in range(2, most + 1):
        folded = _fold(pairs, table, tables[:, :, 0], stages, virtual)
        if folded is None:
            continue
        weights = float(sum(table.weights[pair] for pair in folded.pairs[::stages]))
        for degree, per_byte in zip(degrees.tolist(), sync.tolist(), strict=True):
            batches = problem.microbatches // degree
            if stages * tensor * degree > problem.devices or batches % stages:
                continue
            time = float(folded.loads.max()) * (batches + (stages - 1) / virtual)
            time += per_byte * weights
            if best is not None and time >= best.time_per_batch_s:
                continue
            placed = _stages(problem, pairs, table, folded, stages, virtual, batches, tensor)
            if max(stage.memory_bytes for stage in placed) <= problem.memory_bytes:
                best = Placement(placed, degree, tensor, time, 0.0, 0.0, virtual)
    return best


def _fold(
    pairs: StagePairs, table: StageTable, best: Floats, stages: int, virtual: int
) -> _Folded | None:
    """Return chunks whose longest is shortest, or nothing where there are too few layers."""
    left, slowest = pairs.sets - 1, best[pairs.sets - 1, stages * virtual]
    if not math.isfinite(slowest):
        return None
    chosen = []
    for count in range(stages * virtual, 0, -1):
        low, high = np.searchsorted(pairs.whole, [left, left + 1])
        load = (table.last_load if count == 1 else table.inner_load)[low:high]
        rest = best[pairs.part[low:high], count - 1]
        fitting = np.flatnonzero(np.maximum(load, rest) <= slowest)
        pick = fitting[np.argmin(np.abs(load[fitting] - load[fitting].mean()))]
        chosen.append(low + int(pick))
        left = int(pairs.part[chosen[-1]])
    loads = np.array([table.inner_load[pair] for pair in chosen])
    loads[-1] = table.last_load[chosen[-1]]
    return _Folded(tuple(chosen), loads.reshape(virtual, stages).sum(axis=0))


def _stages(
    problem: PlacementProblem,
    pairs: StagePairs,
    table: StageTable,
    folded: _Folded,
    stages: int,
    virtual: int,
    batches: int,
    tensor: int,
) -> tuple[Stage, ...]:
    """Return the devices of one pipeline; every chunk in flight counts as the largest."""
    result = []
    for device in range(stages):
        chunks: Integers = np.array(folded.pairs[device::stages])
        layers = [problem.layer_ids[v] for pair in chunks for v in pairs.layers_of(int(pair))]
        kept = (in_flight(stages, virtual, device, batches) - 1) * table.kept[chunks].max()
        memory = table.state[chunks].sum() + table.activations[chunks].max() + kept
        result.append(Stage(tuple(layers), tensor, float(folded.loads[device]), float(memory)))
    return tuple(result)
