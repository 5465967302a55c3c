"""Evaluator ``crossflow``: time breakdown and roofline of one configuration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import CrossflowConfig
from mohsearch.evaluators.crossflow.evaluate import (
    Gemm,
    Lstm,
    Points,
    Strategy,
    config_plan,
    evaluate_config,
    gemm_of,
)
from mohsearch.evaluators.crossflow.kernels import (
    KIND_COLLECTIVE,
    KIND_GEMM,
    KIND_PASS,
    R_BYTES0,
    R_COMPUTE,
    R_FLOPS,
    R_K,
    R_KIND,
    R_M,
    R_N,
    R_NAME,
    R_SENT,
    R_TIME,
)
from mohsearch.evaluators.crossflow.layout import (
    K_FLOPS,
    K_LEVEL,
    L_BANDWIDTH,
    L_LATENCY,
    LEVEL_FIELDS,
    LEVELS,
    FloatArray,
    chip_record,
)
from mohsearch.evaluators.crossflow.lstm import DURATIONS
from mohsearch.evaluators.crossflow.reading import load_config
from mohsearch.evaluators.crossflow.reasons import REASONS
from mohsearch.evaluators.report import EvaluationReport

_KINDS = ("gemm", "element-wise", "collective", "exchange")


def evaluate(path: Path) -> EvaluationReport:
    """Time breakdown of one CrossFlow configuration: kernels, levels and the roofline.

    Parameters
    ----------
    path
        YAML configuration: sections ``model_param``, ``sw_param``, ``tech_param``,
        ``area_breakdown``, ``power_breakdown``, ``perimeter_breakdown``, ``system_hierarchy``,
        ``scheduling_param`` of the DeepFlow program, or ``system: V100`` (a system card) with
        whatever differs; ``gemm: {m, k, n, strategy}`` for products instead of the language
        model; ``strategy: RC-2-4-d8-p1`` (its devices are ``num_workers`` of
        ``system_hierarchy`` at most; a product is split by RC or CR only);
        ``compat: deepflow`` for the authors' choices.

    Returns
    -------
    EvaluationReport
        One row per kernel with seconds, flop, bytes per level, what bounds it and its place on
        the roofline; the summary has the whole run and the chip.

    Raises
    ------
    InputError
        If the file is not a valid configuration; ``field`` says where.
    """
    config = load_config(path)
    rows: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    document: dict[str, Any] = {"runs": []}
    for name, workload, strategy in _workloads(config, path):
        plan = strategy.row if strategy is not None else config_plan(config)
        _check_devices(config, plan, path)
        points = evaluate_config(config, workload, plan=plan)
        kernels = [{"run": name, **_kernel(row, points.chips[0]), **({})} for row in _log(points)]
        rows += kernels
        run = _run(name, points)
        runs.append(run)
        document["runs"].append(
            {
                **run,
                "kernels": kernels,
                "durations_s": _durations(points),
                "chip": chip_record(points.chips[0]),
            }
        )
    return EvaluationReport(tuple(rows), _plain(document), "json", tuple(_plain(runs)))


def _workloads(
    config: CrossflowConfig, path: Path
) -> list[tuple[str, Lstm | Gemm | None, Strategy | None]]:
    if config.gemm is None:
        return [("lstm", None, None)]
    shapes = config.gemm if isinstance(config.gemm, tuple) else (config.gemm,)
    if not shapes:
        raise InputError("no product given", source=path, field="gemm")
    out: list[tuple[str, Lstm | Gemm | None, Strategy | None]] = []
    for i, shape in enumerate(shapes):
        field = "strategy" if shape.strategy is None else f"gemm[{i}].strategy"
        product, strategy = gemm_of(shape, config.strategy, field=field)
        if strategy.dp * strategy.lp > 1:
            message = f"a product is split by RC or CR, without d and p (got {strategy})"
            raise InputError(message, source=path, field=field)
        out.append((f"gemm{i}:{shape.m}x{shape.k}x{shape.n}", product, strategy))
    return out


def _check_devices(config: CrossflowConfig, plan: FloatArray, path: Path) -> None:
    """Refuse a strategy for more devices than there are; the authors' program does not look."""
    devices, present = int(plan[1] * plan[2] * plan[9] * plan[10]), config.system_hierarchy
    if config.compat == "none" and devices > present.num_workers:
        message = f"the strategy takes {devices} devices, there are {present.num_workers}"
        raise InputError(message, source=path, field="system_hierarchy.num_workers")


def _log(points: Points) -> FloatArray:
    return points.log if points.log is not None else np.zeros((0, 1))


def _kernel(row: FloatArray, chip: FloatArray) -> dict[str, Any]:
    """Return one kernel: sizes, seconds per level, bound, intensity and roofline limit."""
    kind = int(row[R_KIND])
    record: dict[str, Any] = {
        "part": DURATIONS[int(row[R_NAME])],
        "kind": _KINDS[kind],
        "m": row[R_M] if kind == KIND_GEMM else None,
        "k": row[R_K] if kind == KIND_GEMM else None,
        "n": row[R_N] if kind == KIND_GEMM else None,
        "time_s": row[R_TIME],
        "flop": row[R_FLOPS],
        "compute_s": row[R_COMPUTE],
    }
    slowest, bound = row[R_COMPUTE], "compute"
    for i, level in enumerate(LEVELS):
        c = K_LEVEL + i * LEVEL_FIELDS
        size = row[R_BYTES0 + i]
        seconds = size / chip[c + L_BANDWIDTH] + chip[c + L_LATENCY] if size > 0.0 else 0.0
        record[f"{level}_bytes"] = size
        record[f"{level}_s"] = seconds
        if seconds > slowest:
            slowest, bound = seconds, level
    record["link_bytes"] = row[R_SENT]
    record["bound"] = bound if kind in (KIND_GEMM, KIND_PASS) else "network"
    far = row[R_BYTES0 + 3]
    dram = chip[K_LEVEL + 3 * LEVEL_FIELDS + L_BANDWIDTH]
    intensity = row[R_FLOPS] / far if far > 0.0 and kind != KIND_COLLECTIVE else None
    record["flop_per_dram_byte"] = intensity
    record["flop_per_s"] = row[R_FLOPS] / row[R_TIME] if row[R_TIME] > 0.0 else 0.0
    record["roofline_flop_per_s"] = (
        min(chip[K_FLOPS], intensity * dram) if intensity is not None else None
    )
    return record


def _run(name: str, points: Points) -> dict[str, Any]:
    """Return the whole run in one record."""
    return {
        "run": name,
        "time_s": points.time_s[0],
        "forward_s": points.forward_s[0],
        "backward_s": points.backward_s[0],
        "reason": REASONS[int(points.reason[0])],
        "memory_bytes": points.memory_bytes[0],
        "capacity_bytes": points.capacity_bytes[0],
        "energy_j": points.energy_j[0],
        "power_per_device_w": points.power_w[0],
        "bundles": points.bundles[0],
        "flop_per_s": points.chips[0, K_FLOPS],
    }


def _durations(points: Points) -> dict[str, float]:
    return dict(zip(DURATIONS, points.durations_s[0].tolist(), strict=True))


def _plain(value: Any) -> Any:
    """Return plain JSON types: numbers of NumPy become Python's, infinities become null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
