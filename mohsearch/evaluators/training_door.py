"""Evaluator ``training``: iteration time and memory of training runs on real clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.evaluators.report import EvaluationReport
from mohsearch.evaluators.training_time.cases import RECOMPUTE
from mohsearch.evaluators.training_time.predict import TrainingPrediction, predict_training
from mohsearch.evaluators.training_time.reading import TrainingCases, read_training_cases


def evaluate(path: Path) -> EvaluationReport:
    """Predict iteration seconds and memory of training runs on real clusters.

    Parameters
    ----------
    path
        CSV with one run per row: ``hidden``, ``layers``, ``heads`` (or ``model``: a name or a
        configuration file), ``gbs`` (``global_batch``); optionally ``seq`` (2048), ``vocab``
        (51200), ``ffn_mult`` (4) or ``ffn``, ``kv_heads``, ``gated_mlp``, ``untied_head``
        (no), ``tp`` (1), ``pp`` (1), ``dp`` or ``gpus``,
        ``mbs`` (default: the fastest of 1, 2, 4, 8 that fits),
        ``vp_interleave`` (1), ``recompute`` (none, selective, full; default full),
        ``sequence_parallel`` (no), ``schedule`` (1f1b or gpipe), ``overlap_dp`` (no),
        ``overlap_tp`` (whether ``sequence_parallel`` is stated), ``attention`` (fused, or flash),
        ``sharding`` (none, optimizer, full_shard), ``cluster`` or ``gpu``,
        ``inter_node_gbps_per_node``, ``gpus_per_node``; ``measured_iter_s`` or
        ``measured_iter_ms``, ``set`` (accuracy is
        summed up by it), ``peer_s`` (another tool's prediction). Other columns are left aside.

    Returns
    -------
    EvaluationReport
        The rows with ``predicted_s``, ``memory_bytes``, ``fits`` and their parts; the summary has
        mean and greatest error where a measured time is there.

    Raises
    ------
    InputError
        Naming row and column of what is wrong.
    """
    cases = read_training_cases(path)
    prediction = predict_training(cases.runs, cases.clusters)
    chosen = fastest_that_fits(cases, prediction)
    rows = [_row(cases, prediction, number, k) for number, k in enumerate(chosen.tolist())]
    return EvaluationReport(
        rows=tuple(rows),
        document={"cases": rows, "summary": (summary := _summary(cases, rows))},
        natural_format="csv",
        summary=tuple(summary),
    )


def fastest_that_fits(
    cases: TrainingCases, prediction: TrainingPrediction
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the candidate of each row: the fastest that fits, else the one that needs least."""
    memory = prediction.memory.total_bytes
    cost = np.where(prediction.fits, prediction.iteration_s, 1e12 + memory)
    order = np.lexsort((cost, cases.row))
    _, first = np.unique(cases.row[order], return_index=True)
    return order[first]


def _row(
    cases: TrainingCases, prediction: TrainingPrediction, number: int, k: int
) -> dict[str, Any]:
    runs = cases.runs
    measured = float(cases.measured_s[number])
    predicted = float(prediction.iteration_s[k])
    row: dict[str, Any] = {
        "id": cases.ids[number],
        "cluster": cases.clusters[k].card.name,
        "microbatch": int(runs.microbatch[k]),
        "recompute": RECOMPUTE[int(runs.recompute[k])],
        "predicted_s": predicted,
        **prediction.parts(k),
        "working_bytes": float(prediction.memory.working_bytes[k]),
        "fits": bool(prediction.fits[k]),
    }
    if np.isfinite(cases.measured_s).any():
        known = np.isfinite(measured)
        row["measured_s"] = measured if known else None
        row["error"] = predicted / measured - 1 if known else None
    return row


def _summary(cases: TrainingCases, rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the accuracy by set of runs (by cluster where no set is named), and over all rows."""
    rows_of: dict[str, list[int]] = {}
    for number, group in enumerate(cases.groups):
        if np.isfinite(cases.measured_s[number]):
            rows_of.setdefault(group, []).append(number)
    if len(rows_of) > 1:
        rows_of["all"] = sorted(k for members in rows_of.values() for k in members)
    return [_accuracy(cases, rows, name, np.array(members)) for name, members in rows_of.items()]


def _accuracy(
    cases: TrainingCases,
    rows: list[dict[str, Any]],
    name: str,
    members: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> dict[str, Any]:
    errors = np.array([rows[k]["error"] for k in members])
    accuracy = {
        "set": name,
        "measured_rows": len(errors),
        "mean_error": float(np.abs(errors).mean()),
        "median_error": float(np.median(np.abs(errors))),
        "max_error": float(np.abs(errors).max()),
        "mean_signed_error": float(errors.mean()),
    }
    if np.isfinite(cases.peer_s).any():
        peer = np.abs(cases.peer_s[members] / cases.measured_s[members] - 1)
        known = np.isfinite(peer).all()
        accuracy["peer_mean_error"] = float(peer.mean()) if known else None
        accuracy["peer_max_error"] = float(peer.max()) if known else None
    return accuracy
