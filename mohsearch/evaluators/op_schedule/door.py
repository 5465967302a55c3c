"""Evaluator ``op-schedule``: the shortest schedule of a layer's operators on one accelerator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mohsearch.evaluators.op_schedule.files import NamedInstance, read_instances
from mohsearch.evaluators.op_schedule.instance import ScheduleInstance
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, ScheduleResult, solve
from mohsearch.evaluators.report import EvaluationReport


def evaluate(path: Path) -> EvaluationReport:
    """Schedule the operators of every layer of a JSON file on its cores.

    Parameters
    ----------
    path
        JSON: one case, a list, or an object with a list ``cases``. A case has ``num_tc``,
        ``num_vc``, ``ops`` (``type`` tensor, vector or fused, or TC, VC, TCandVC; ``lat`` on one
        core and ``lat_intra`` on all, or ``latency`` and ``intra_op_latency``), ``edges`` and
        optionally ``time_limit_s`` (default 10). Edges name the operators' ``id``, or their place.

    Returns
    -------
    EvaluationReport
        By case: ``makespan``, ``lower_bound``, ``status`` (``optimal``, or ``feasible`` with its
        ``gap``), ``start``, ``intra`` (1: on all cores), ``cores`` (tensor, vector), ``serial``,
        ``blocks`` and ``seconds``; times in the unit of the file.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    document: dict[str, Any] = {}
    rows = []
    cases = list(read_instances(path))
    solve(ScheduleInstance.build([0, 1, 1], [4, 3, 3], [3, 2, 2], [], 1, 1))  # loads compiled code
    for case in cases:
        result = solve(case.instance, ScheduleOptions(time_limit_s=case.time_limit_s))
        document[case.name] = written = _written(case, result)
        rows.append(
            {
                "id": case.name,
                **{
                    key: " ".join(map(str, value)) if isinstance(value, list) else value
                    for key, value in written.items()
                    if key not in {"cores", "blocks"}
                },
            }
        )
    return EvaluationReport(rows=tuple(rows), document=document, natural_format="json")


def _written(case: NamedInstance, result: ScheduleResult) -> dict[str, Any]:
    return {
        "makespan": case.unscaled(result.makespan),
        "lower_bound": case.unscaled(result.bound),
        "status": "optimal" if result.is_optimal else "feasible",
        "gap": result.gap,
        "start": [case.unscaled(moment) for moment in result.schedule.start],
        "intra": [int(flag) for flag in result.schedule.intra],
        "cores": [list(pair) for pair in result.cores],
        "serial": case.unscaled(result.serial),
        "blocks": list(result.blocks),
        "seconds": result.seconds,
    }
