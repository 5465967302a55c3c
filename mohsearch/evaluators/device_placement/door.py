"""Evaluator ``device-placement``: the fastest pipeline, data and tensor parallel plan."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.device_placement.files import read_problems
from mohsearch.evaluators.device_placement.plan import evaluate_plan, expert_stages
from mohsearch.evaluators.device_placement.problem import Placement, PlacementProblem
from mohsearch.evaluators.device_placement.solver import place
from mohsearch.evaluators.report import EvaluationReport


def evaluate(path: Path) -> EvaluationReport:
    """Place the layers of every network of a JSON file on its cluster.

    Parameters
    ----------
    path
        JSON: one problem, a list, or an object with a list ``cases``. A problem is either the input
        of PHAZE's placement solver (``nodes`` and ``edges`` by tensor-parallel width,
        ``maxMemoryPerDevice``, ``maxDevices``, ``bandwidth``, ``mbsInBatch``,
        ``activationRecomputation``, ``optimizerAlgorithm`` SGD, Adam or AdamMixedPrecision,
        optionally ``pipelineSchedule`` 1F1B or GPipe and the expert's ``fixedPP``, ``fixedTMPC``,
        ``fixedDP``), or a chain (``layers`` with ``by_t`` costs and ``out_act``, ``tmp_widths``,
        ``K``, ``B``, ``bandwidth``, ``recompute``, ``input_act``, ``hbm``; replicas divide B). In
        place of ``bandwidth`` either may have ``levels``, smallest group first (``devices``,
        ``bandwidth``), and both may have ``virtualStages``, the numbers of chunks a device to try.

    Returns
    -------
    EvaluationReport
        By case: ``status`` (``optimal`` or ``infeasible``), the plan's ``stages`` (``nodes``,
        ``devicesForStage``, ``load_s``, ``memory_bytes``), degrees, ``finalTimePerBatch``,
        ``bound`` (equal to it: the search is exhaustive; with virtual stages it may be lower, and
        the status ``feasible``), ``balanceBound`` and, where an expert plan is given, its time or
        why it does not run.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    document: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    problems = read_problems(path)
    for name, problem in problems.items():
        try:
            if not rows:
                place(problem)  # loads compiled code, so that seconds are those of search
            result = document[name] = _solve(problem)
        except InfeasibleError as error:
            raise InputError(f"case {name!r}: {error}", source=path) from error
        rows.append({"id": name, **_flat(result)})
    return EvaluationReport(rows=tuple(rows), document=document, natural_format="json")


def _solve(problem: PlacementProblem) -> dict[str, Any]:
    start = time.perf_counter()
    placement = place(problem)
    seconds = time.perf_counter() - start
    result: dict[str, Any] = {
        "status": _status(placement),
        "finalTimePerBatch": _finite(placement.time_per_batch_s),
        "bound": _finite(placement.bound_s),
        "balanceBound": _finite(placement.balance_bound_s),
        "pipelineParallelDegree": len(placement.stages),
        "dataParallelDegree": placement.data_parallel,
        "tensorParallelDegree": placement.tensor_parallel,
        "virtualStages": placement.virtual_stages,
        "devices": placement.data_parallel * sum(s.devices for s in placement.stages),
        "maxLoad": max((s.load_s for s in placement.stages), default=None),
        "stages": _stages(placement),
        "seconds": seconds,
    }
    if not problem.overlap_recompute:
        free = place(problem.without_transfers())
        result["timePerBatchWithoutTransfers"] = _finite(free.time_per_batch_s)
    if problem.expert is not None:
        result.update(_expert(problem))
    return result


def _status(placement: Placement) -> str:
    if not placement.is_feasible:
        return "infeasible"
    return "optimal" if placement.bound_s >= placement.time_per_batch_s else "feasible"


def _stages(placement: Placement) -> list[dict[str, Any]]:
    return [
        {
            "nodes": list(stage.layers),
            "devicesForStage": stage.devices,
            "load_s": stage.load_s,
            "memory_bytes": stage.memory_bytes,
        }
        for stage in placement.stages
    ]


def _expert(problem: PlacementProblem) -> dict[str, Any]:
    expert = problem.expert
    if expert is None:
        return {}
    stages = expert_stages(problem, expert)
    why = ""
    for part in problem.at_levels():  # the smallest level that holds the plan
        try:
            plan = evaluate_plan(part, expert.tensor, expert.data, stages)
        except InfeasibleError as error:
            why = str(error)
        else:
            return {"fixedStrategyTimePerBatch": plan.time_per_batch_s}
    return {"fixedStrategyTimePerBatch": None, "fixedStrategyProblem": why}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _flat(result: dict[str, Any]) -> dict[str, Any]:
    stages = result["stages"]
    row = {
        "status": result["status"],
        "time_per_batch_s": result["finalTimePerBatch"],
        "bound_s": result["bound"],
        "balance_bound_s": result["balanceBound"],
        "pipeline": result["pipelineParallelDegree"],
        "data": result["dataParallelDegree"],
        "tensor": result["tensorParallelDegree"],
        "virtual_stages": result["virtualStages"],
        "devices": result["devices"],
        "layers_by_stage": " ".join(str(len(stage["nodes"])) for stage in stages),
        "memory_bytes_by_stage": " ".join(f"{stage['memory_bytes']:.6g}" for stage in stages),
        "seconds": result["seconds"],
    }
    if "fixedStrategyTimePerBatch" in result:
        row["expert_time_per_batch_s"] = result["fixedStrategyTimePerBatch"]
    return row
