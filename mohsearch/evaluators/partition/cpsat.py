"""Exact partitions of small graphs by constraint programming; see also :mod:`.cpsat_process`.

Times are rounded down to whole picoseconds, so that the solver's bound holds for the true costs.
What it returns is judged by its labels alone: validity and interval are worked out anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from mohsearch.core.errors import InfeasibleError, InputError, MissingExtraError
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.costs import as_labels
from mohsearch.evaluators.partition.solve import BestPartition, Status, certify
from mohsearch.evaluators.partition.task import PartitionTask

TICK_S = 1e-12
MOST_TICKS = 2.0**60
"""Sums of ticks stay in the solver's 64-bit integers."""

GRACE_S = 60.0
"""Time for building the model and starting the process, beyond the solver's limit."""


def solve_cpsat(
    task: PartitionTask,
    hint: ArrayLike | None = None,
    *,
    time_limit_s: float = 60.0,
    model: Literal["general", "chain"] = "general",
    workers: int = 1,
    seed: int = 0,
) -> BestPartition:
    """Return the best partition that CP-SAT finds, by analytic interval.

    Parameters
    ----------
    task
        Graph, package and chips.
    hint
        A partition to start from (n,).
    time_limit_s
        Wall time of the solver.
    model
        ``general``: equations (2) to (4) in full; ``chain``: each edge reaches the next chip at
        most, which is much smaller.
    workers, seed
        Threads and seed of the solver.

    Returns
    -------
    BestPartition
        ``optimal`` where the general model is solved to its end, ``chain-optimal`` for the other.

    Raises
    ------
    InputError
        If the model is unknown, or all ops and transfers together take more than about 13 days.
    InfeasibleError
        If the solver finds nothing in its time, or its answer contradicts our own evaluation.
    MissingExtraError
        If OR-tools is not installed (extra ``cpsat``).
    """
    if model not in ("general", "chain"):
        raise InputError(f"unknown model {model!r}; available: general, chain")
    request = _request(task, model == "chain")
    request |= {
        "hint": None if hint is None else as_labels(task, hint)[0].tolist(),
        "time_limit_s": time_limit_s,
        "workers": workers,
        "seed": seed,
    }
    answer = _ask(request, time_limit_s + GRACE_S)
    if answer["labels"] is None:
        raise InfeasibleError(f"CP-SAT found no partition within {time_limit_s:g} s")
    proven = answer["status"] == "OPTIMAL"
    bound_s = answer["bound"] * TICK_S
    status: Status = "feasible"
    if proven:
        status = "optimal" if model == "general" else "chain-optimal"
    best = certify(
        task,
        np.array(answer["labels"], np.int16),
        status,
        f"CP-SAT {model}",
        answer["seconds"],
        bound_s if model == "general" else 0.0,
        0.0 if model == "general" else bound_s,
    )
    slack = (task.n + 4 * task.graph.n_edges) * TICK_S
    if abs(best.interval_s - answer["objective"] * TICK_S) > slack:
        raise InfeasibleError(
            f"CP-SAT counts {answer['objective'] * TICK_S:g} s for a partition of "
            f"{best.interval_s:g} s: the two models differ"
        )
    return best


def _request(task: PartitionTask, chain: bool) -> dict[str, Any]:
    graph = task.graph
    per_byte = 1.0 / task.package.link.bandwidth_bytes_per_s / TICK_S
    longest = float(task.time_s.sum()) / TICK_S + 4.0 * float(graph.edge_bytes.sum()) * per_byte
    if not longest < MOST_TICKS:
        problem = f"all ops and transfers of {graph.name} take {longest * TICK_S:.3g} s"
        raise InputError(f"{problem}: too long for whole picoseconds in CP-SAT's integers")
    moved = np.floor(graph.edge_bytes * per_byte).astype(np.int64).tolist()
    ends = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), moved, moved, strict=True)
    bound = 0 if chain else int(interval_bounds(task).bound_s / TICK_S * (1 - 1e-6))
    return {
        "ops": task.n,
        "chips": task.chips,
        "ticks": np.floor(task.time_s / TICK_S).astype(np.int64).tolist(),
        "edges": [list(edge) for edge in ends],
        "bound": bound,
        "chain": chain,
    }


def _ask(request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "mohsearch.evaluators.partition.cpsat_process"]
    try:
        run = subprocess.run(
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InfeasibleError(f"CP-SAT did not answer within {timeout_s:g} s") from None
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfeasibleError(f"CP-SAT failed: {last}")
    answer: dict[str, Any] = json.loads(run.stdout)
    if answer["status"] == "MISSING":
        raise MissingExtraError("ortools", "cpsat")
    return answer
