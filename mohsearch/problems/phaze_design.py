"""How a model trains on an accelerator in the field's words: plan, stages, schedules, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.plan import evaluate_plan
from mohsearch.evaluators.device_placement.problem import LayerCosts
from mohsearch.evaluators.op_schedule.check import assign_cores
from mohsearch.evaluators.training_architecture import Architectures
from mohsearch.evaluators.training_search import Setting, Training, TrainingSearch
from mohsearch.evaluators.training_times import PASSES, LayerTimes, SliceTimes
from mohsearch.evaluators.uniform_placement import stage_sizes


def describe_architecture(machines: Architectures) -> dict[str, Any]:
    """Return the first of some accelerators in numbers."""
    one = {
        "tensor_cores": int(machines.tensor_cores[0]),
        "vector_cores": int(machines.vector_cores[0]),
        "width": int(machines.width[0]),
        "depth": int(machines.depth[0]),
        "global_buffer_mib": int(machines.global_buffer_mib[0]),
    }
    return one | {
        "tensor_buffer_kib": int(machines.tensor_buffer_kib[0]),
        "vector_buffer_kib": int(machines.vector_buffer_kib[0]),
        "global_buffer_words_per_cycle": float(machines.global_buffer_words_per_cycle[0]),
        "multipliers": one["tensor_cores"] * one["width"] * one["depth"],
    }


def describe_training(
    search: TrainingSearch, machines: Architectures, settings: Sequence[Setting]
) -> dict[str, Any]:
    """Return how a model trains on one accelerator in the fastest of the settings.

    Parameters
    ----------
    search
        The model on its cluster.
    machines
        One accelerator.
    settings
        To choose from.
    """
    found = search.evaluate(machines, settings)
    setting = settings[int(found.setting[0])]
    name = search.model.config.name
    if not np.isfinite(found.time_s[0]):
        return {"model": name, "placed": False}
    plans = found.plans
    widths = search.model.widths if search.expert is None else (search.expert.tensor,)
    w = int(plans.width[0])
    part = search.slices(machines, setting)[w]
    times, _ = part.solve(0)
    stages = _stages(search, setting, found, times, w)
    batch = search.cluster.batch
    return {
        "model": name,
        "placed": True,
        "microbatch": setting.microbatch,
        "recompute": setting.recompute,
        "pipeline": len(stages),
        "data": int(plans.replicas[0]),
        "tensor": int(widths[w]),
        "iteration_s": float(found.time_s[0]),
        "bound_s": float(found.bound_s[0]),
        "throughput_samples_per_s": batch / float(found.time_s[0]),
        "energy_j": float(found.energy_j[0]),
        "stages": stages,
        "layers": _layers(search, setting, part, widths[w]),
    }


def _stages(
    search: TrainingSearch, setting: Setting, found: Training, times: LayerTimes, w: int
) -> list[dict[str, Any]]:
    """Return the stages with loads and memory, checked against the plan's own evaluation."""
    plans = found.plans
    data, memory = int(plans.replicas[0]), search.memory_bytes(setting)
    narrow = search.chain(setting, w)
    tensor = int(narrow.widths[0])
    if search.expert is None:
        shape = [int(plans[k][0]) for k in (2, 4, 5, 6)]
        sizes = stage_sizes(narrow, 0, memory, setting.recompute == "full", shape)
    else:
        sizes = search.expert_sizes(narrow.inner)
    ends = np.cumsum(sizes) + 1
    ends[-1] += 1
    cut = [list(range(a, b)) for a, b in zip([0, *ends[:-1]], ends.tolist(), strict=True)]
    problem = search.placement_problem(narrow, times, 0, setting)
    try:
        plan = evaluate_plan(problem, tensor, data, cut)
    except InfeasibleError as error:  # the two evaluations of one plan must agree
        raise RuntimeError(f"the plan found does not run: {error}") from error
    step = float(found.time_s[0]) - plan.time_per_batch_s
    if step < -1e-9 * plan.time_per_batch_s:
        raise RuntimeError(f"the plan takes {plan.time_per_batch_s}, not {found.time_s[0]}")
    kept = len(plan.stages)
    return [
        {
            "inner_layers": size,
            "layers": len(stage.layers),
            "devices": stage.devices * data,
            "forward_s": _forward_s(problem.costs[tensor], layers),
            "load_s": stage.load_s,
            "memory_bytes": stage.memory_bytes,
            "state_bytes": float(problem.costs[tensor].state_bytes[layers].sum()),
            "activation_bytes": float(problem.costs[tensor].activation_bytes[layers].sum()),
            "kept_microbatches": kept - 1 - k,
        }
        for k, (size, stage, layers) in enumerate(zip(sizes, plan.stages, cut, strict=True))
    ]


def _forward_s(costs: LayerCosts, layers: Sequence[int]) -> float:
    """Return the forward time of a stage with its incoming transfer left out."""
    return float(costs.forward_s[list(layers)].sum())


def _layers(
    search: TrainingSearch, setting: Setting, part: SliceTimes, width: int
) -> list[dict[str, Any]]:
    """Return every kind of layer with the schedules of its passes."""
    workload = part.workload
    described = []
    for number, layer in enumerate(workload.layers):
        passes = {name: _schedule(part, number, name) for name in PASSES}
        described.append(
            {
                "name": layer.name,
                "count": layer.count,
                "parameters": layer.parameters,
                **passes,
            }
        )
    return described


def _schedule(part: SliceTimes, layer: int, name: str) -> dict[str, Any]:
    """Return a schedule in seconds, with the cores every operator takes."""
    one, found = part.describe(0, layer, name)
    arch = part.architectures
    hertz = part.model.cost.frequency_hz
    alone, spread = one.alone[:, 0], one.spread[:, 0]
    instance = one.graph.instance(
        alone, spread, int(arch.tensor_cores[0]), int(arch.vector_cores[0])
    )
    cores = assign_cores(instance, found.schedule) or [(None, None)] * len(one.ops)
    ops = []
    for k, op in enumerate(one.ops):
        start, all_cores = found.schedule.start[k], found.schedule.intra[k]
        length = int(spread[k] if all_cores else alone[k])
        ops.append(
            {
                "name": op.name,
                "engine": op.engine,
                "start_s": start / hertz,
                "end_s": (start + length) / hertz,
                "all_cores": bool(all_cores),
                "tensor_core": cores[k][0],
                "vector_core": cores[k][1],
            }
        )
    serial = int(np.minimum(alone, spread).sum())
    return {
        "makespan_s": found.makespan / hertz,
        "bound_s": found.bound / hertz,
        "serial_s": serial / hertz,
        "ops": ops,
    }
