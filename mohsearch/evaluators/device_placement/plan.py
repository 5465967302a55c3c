"""What a given plan costs, written out directly from the definitions (PHAZE, B.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.problem import (
    ExpertPlan,
    Floats,
    LayerCosts,
    Placement,
    PlacementProblem,
    Stage,
)


def _stage(
    problem: PlacementProblem,
    costs: LayerCosts,
    layers: Sequence[int],
    from_end: int,
    kept_batches: int,
    tensor: int,
) -> Stage:
    """Return load and memory of one stage, ``from_end`` places from the end of the pipeline."""
    inside = set(layers)
    edges = list(
        zip(
            problem.sources.tolist(),
            problem.targets.tolist(),
            costs.edge_bytes.tolist(),
            strict=True,
        )
    )
    speed = problem.bandwidth_bytes_per_s
    ready: dict[int, float] = {}
    for v in sorted(inside):
        arrivals = [
            ready[u] + costs.forward_s[u] if u in inside else size / speed
            for u, w, size in edges
            if w == v
        ]
        ready[v] = max(arrivals, default=0.0)
    forth = _run(ready, costs.forward_s)
    again = problem.recompute and from_end > 1
    work = math.fsum(costs.forward_s[v] for v in inside)
    begin = work if again and problem.overlap_recompute else 0.0
    ready = {}
    for v in sorted(inside, reverse=True):
        arrivals = [
            ready[w] + costs.backward_s[w] if w in inside else size / speed
            for u, w, size in edges
            if u == v
        ]
        ready[v] = max([begin, *arrivals])
    back = _run(ready, costs.backward_s)
    extra = work if again and not problem.overlap_recompute else 0.0
    activations = sum(costs.activation_bytes[v] for v in inside)
    kept = activations
    if problem.recompute:
        kept = sum(size for u, w, size in edges if w in inside and u not in inside)
        kept += problem.input_bytes if 0 in inside else 0.0
    state = sum(costs.state_bytes[v] for v in inside)
    return Stage(
        layers=tuple(problem.layer_ids[v] for v in sorted(inside)),
        devices=tensor if any(costs.sliced[v] for v in inside) else 1,
        load_s=float(forth + extra + back),
        memory_bytes=float(state + activations + kept_batches * kept),
    )


def _run(ready: dict[int, float], duration: Floats) -> float:
    done = 0.0
    for v in sorted(ready, key=lambda v: (ready[v], v)):
        done = max(done, ready[v]) + duration[v]
    return done


def evaluate_plan(
    problem: PlacementProblem,
    tensor: int,
    data: int,
    stages: Sequence[Sequence[int]],
    *,
    balance_bound_s: float = 0.0,
) -> Placement:
    """Return what a plan costs.

    Parameters
    ----------
    problem
        Network and cluster.
    tensor, data
        Degrees.
    stages
        Positions of the layers of each stage, first stage first; empty stages idle.
    balance_bound_s
        Handed through.

    Raises
    ------
    InfeasibleError
        If the plan needs more devices or memory than there are, or a width without costs.
    """
    if tensor not in problem.costs:
        raise InfeasibleError(f"there are no costs for tensor-parallel width {tensor}")
    costs = problem.costs[tensor]
    batches = -(-problem.microbatches // data)
    results = []
    for index, layers in enumerate(stages):
        from_end = len(stages) - index
        kept = (from_end if problem.schedule == "1F1B" else batches) - 1
        results.append(_stage(problem, costs, layers, from_end, kept, tensor))
        if results[-1].memory_bytes > problem.memory_bytes:
            raise InfeasibleError(
                f"stage {index} needs {results[-1].memory_bytes:.6g} bytes of memory, "
                f"a device has {problem.memory_bytes:.6g}"
            )
    used = data * sum(stage.devices for stage in results)
    if used > problem.devices:
        raise InfeasibleError(f"needs {used} devices, there are {problem.devices}")
    weights = math.fsum(costs.weight_bytes[v] for v in stages[0])
    sync = weights * float(problem.sync_s_per_byte(tensor, np.array([data]))[0])
    slowest = max(stage.load_s for stage in results)
    time = slowest * (batches + len(stages) - 1) + sync
    return Placement(
        stages=tuple(results),
        data_parallel=data,
        tensor_parallel=tensor,
        time_per_batch_s=time,
        bound_s=time,
        balance_bound_s=balance_bound_s,
    )


def expert_stages(problem: PlacementProblem, expert: ExpertPlan) -> list[list[int]]:
    """Return equal stages over the first ``expert.layers`` layers; the last takes what is left."""
    size = -(-expert.layers // expert.pipeline)
    stages = [
        list(range(k * size, min((k + 1) * size, expert.layers))) for k in range(expert.pipeline)
    ]
    stages[-1].extend(range(expert.layers, problem.layers))
    return stages


def balance_bound_s(
    problem: PlacementProblem, tensor: int, costs: LayerCosts, virtual: int = 1
) -> float:
    """Return a bound on the time per batch that needs no search.

    Stages are taken as perfectly balanced, but no stage is below the slowest layer; transfers,
    synchronisation, recomputation and memory are left out. With ``virtual`` chunks a device the
    pipeline fills in that fraction of the time.
    """
    work = costs.forward_s + costs.backward_s
    narrow = tensor if costs.sliced.all() else 1
    degrees, batches = problem.replica_choices
    best = math.inf
    for stages in range(1, min(problem.layers, problem.devices // narrow) + 1):
        c = np.searchsorted(degrees, problem.devices // (stages * narrow), side="right") - 1
        if c >= 0:
            load = max(float(work.max()), float(work.sum()) / stages)
            best = min(best, load * (float(batches[c]) + (stages - 1) / virtual))
    return best
