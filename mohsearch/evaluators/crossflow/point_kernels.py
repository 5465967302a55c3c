"""The kernels of one design: what each does, moves and is bound by."""

from __future__ import annotations

from typing import Any

import numpy as np

from mohsearch.evaluators.crossflow.design_points import (
    DesignPoints,
    PointMetrics,
    PointOptions,
    strategy_of,
)
from mohsearch.evaluators.crossflow.evaluate import (
    Lstm,
    Workload,
    evaluate_logged,
    option_row,
    shared_row,
)
from mohsearch.evaluators.crossflow.kernels import (
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
    K_LEVEL,
    L_BANDWIDTH,
    L_LATENCY,
    LEVEL_FIELDS,
    LEVELS,
    FloatArray,
)
from mohsearch.evaluators.crossflow.lstm import DURATIONS
from mohsearch.evaluators.crossflow.placement import candidates

KINDS = ("gemm", "element-wise", "collective", "exchange")


def kernel_records(
    points: DesignPoints, found: PointMetrics, index: int, workload: Workload, options: PointOptions
) -> list[dict[str, Any]]:
    """Return the kernels of one of the points, as one device runs them; none if it cannot run.

    Parameters
    ----------
    points, found
        Designs and their metrics.
    index
        Which of them.

    Returns
    -------
    list of dict
        ``part`` and ``kind`` of the kernel; ``m``, ``k``, ``n`` of a product; ``time_s``, ``flop``,
        ``dram_bytes``, ``link_bytes``; ``flop_per_dram_byte`` and ``flop_per_s`` where it computes;
        ``bound``: what takes the time (``compute``, a memory level or ``network``).
    """
    if not np.isfinite(found.time_s[index]):
        return []
    plan = strategy_of(np.atleast_2d(points.strategy)[index])
    sizes = (plan.kp1, plan.kp2, plan.dp, plan.lp)
    if options.place is not None:
        places = [options.place]
    else:
        order = int(found.mapping[index])
        sharings = candidates(sizes, options.nodes_per_package, options.inter, options.intra, order)
        places = [shared_row(plan.devices, options.nodes_per_package, s) for s in sharings]
    technology = points.technology[0 if points.which is None else int(points.which[index])]
    row = option_row(
        options.model,
        precision_bytes=options.precision_bytes,
        launch_overhead_s=options.launch_overhead_s,
    )
    tried = [
        evaluate_logged(
            technology.row, points.allocation[index], workload, plan, place=place, options=row,
            overrides=technology.overrides,
        )
        for place in places
    ]  # fmt: skip
    best = min(tried, key=lambda found: float(found.time_s[0]))
    assert best.log is not None  # asked for
    named = isinstance(workload, Lstm)
    return [_record(kernel, best.chips[0], named) for kernel in best.log]


def _record(row: FloatArray, chip: FloatArray, named: bool) -> dict[str, Any]:
    kind, number = int(row[R_KIND]), int(row[R_NAME])
    flop, time, far = float(row[R_FLOPS]), float(row[R_TIME]), float(row[R_BYTES0 + 3])
    record: dict[str, Any] = {
        "part": DURATIONS[number] if named else f"op {number}",
        "kind": KINDS[kind],
        "time_s": time,
        "flop": flop,
        "dram_bytes": far,
        "link_bytes": float(row[R_SENT]),
        "bound": "network",
    }
    if kind == KIND_GEMM:
        record |= {"m": float(row[R_M]), "k": float(row[R_K]), "n": float(row[R_N])}
    if kind in (KIND_GEMM, KIND_PASS):
        record["bound"] = _bound(row, chip)
        if far > 0.0 and flop > 0.0:
            record |= {"flop_per_dram_byte": flop / far, "flop_per_s": flop / time}
    return record


def _bound(row: FloatArray, chip: FloatArray) -> str:
    slowest, bound = float(row[R_COMPUTE]), "compute"
    for i, level in enumerate(LEVELS):
        at, size = K_LEVEL + i * LEVEL_FIELDS, float(row[R_BYTES0 + i])
        if size > 0.0:
            seconds = float(size / chip[at + L_BANDWIDTH] + chip[at + L_LATENCY])
            if seconds > slowest:
                slowest, bound = seconds, level
    return bound
