"""Populations of designs: technology, allocation, strategy and mapping per point, all metrics out.

:func:`evaluate_points` groups the points by strategy and mapping order, evaluates each group in
compiled code and adds area, cost and headroom. Where no order is given every point gets the best of
all 24 (placements that another one makes needless are left out beforehand).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.evaluate import (
    CORRECTED,
    Gemm,
    Lstm,
    Model,
    Points,
    Strategy,
    Workload,
    evaluate,
    shared_row,
)
from mohsearch.evaluators.crossflow.layout import (
    CHIP_COLUMNS,
    K_AREA_USED,
    K_PEAK,
    K_POWER_USED,
    FloatArray,
)
from mohsearch.evaluators.crossflow.metrics import (
    Technology,
    device_area_mm2,
    device_cost_usd,
    die_area_mm2,
    technology_of,
)
from mohsearch.evaluators.crossflow.placement import ORDERS, Sharing, candidates

__all__ = [
    "ORDERS",
    "DesignPoints",
    "PointMetrics",
    "PointOptions",
    "Technology",
    "evaluate_points",
    "technology_of",
]
KINDS = ("none", "CR", "RC")


@dataclass(frozen=True)
class DesignPoints:
    """n designs.

    Attributes
    ----------
    technology
        Technologies that occur.
    allocation : (n, ALLOCATION_COLUMNS)
        Budgets and fractions (:mod:`~mohsearch.evaluators.crossflow.layout`).
    which : (n,) int
        Index into ``technology``.
    strategy : (n, 5) int, or (5,)
        Kind (0 none, 1 CR, 2 RC), kp1, kp2, dp, lp.
    mapping : (n,) int
        Index into ``ORDERS``; -1 is the best of all orders.
    """

    technology: tuple[Technology, ...]
    allocation: FloatArray
    which: np.ndarray | None = None
    strategy: np.ndarray | tuple[int, ...] = (0, 1, 1, 1, 1)
    mapping: np.ndarray | None = None


@dataclass(frozen=True)
class PointOptions:
    """What holds for all points.

    Attributes
    ----------
    nodes_per_package, inter, intra
        Devices in a package, topologies between packages and inside one.
    place
        Hierarchy row that replaces the placement.
    """

    nodes_per_package: int = 1
    inter: str = "switch"
    intra: str = "mesh"
    model: Model = CORRECTED
    precision_bytes: float = 2.0
    launch_overhead_s: float = 9e-6
    place: FloatArray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PointMetrics:
    """Metrics of n designs, each (n,).

    Attributes
    ----------
    time_s, throughput_per_s
        One iteration (infinite where there is none); samples or products per second.
    energy_j, power_w, peak_power_w
        Energy of one iteration on all devices, mean power of a device, power of a device with all
        components busy.
    area_mm2, die_area_mm2, used_area_mm2
        Die and memory stacks of a device; its die; what the die's parts take.
    cost_usd, system_cost_usd
        Manufacturing cost of a device and of all devices.
    memory_bytes, capacity_bytes, headroom_bytes
        Main memory needed and present per device, and the difference.
    utilization
        Operations over what all devices could do in the time.
    flop, devices, bundles
    reason : int
        :mod:`~mohsearch.evaluators.crossflow.reasons`.
    mapping : int
        Order used, an index into ``ORDERS``.
    chips : (n, CHIP_COLUMNS)
    """

    time_s: FloatArray
    throughput_per_s: FloatArray
    energy_j: FloatArray
    power_w: FloatArray
    peak_power_w: FloatArray
    area_mm2: FloatArray
    die_area_mm2: FloatArray
    used_area_mm2: FloatArray
    cost_usd: FloatArray
    system_cost_usd: FloatArray
    memory_bytes: FloatArray
    capacity_bytes: FloatArray
    headroom_bytes: FloatArray
    utilization: FloatArray
    flop: FloatArray
    devices: FloatArray
    bundles: FloatArray
    reason: np.ndarray
    mapping: np.ndarray
    chips: FloatArray


def strategy_of(code: np.ndarray) -> Strategy:
    """Return the strategy that a row of five numbers means."""
    kind, kp1, kp2, dp, lp = (int(x) for x in code)
    return Strategy(KINDS[kind] if kp1 * kp2 > 1 else "none", kp1, kp2, dp, lp)


def evaluate_points(
    points: DesignPoints, workload: Workload, options: PointOptions | None = None
) -> PointMetrics:
    """Return the metrics of n designs under one workload.

    Parameters
    ----------
    points
        Designs; rows with the same strategy and order are evaluated together.
    workload
        A product, the LSTM language model, or a step of operations (transformers).

    Raises
    ------
    InputError
        If the arrays of ``points`` do not fit together.

    Examples
    --------
    >>> from mohsearch.evaluators.crossflow.config import allocation_row
    >>> from mohsearch.evaluators.crossflow.reading import config_from
    >>> rows = allocation_row(config_from({"system": "V100"}))[None]
    >>> points = DesignPoints((technology_of("V100"),), rows, strategy=(0, 1, 1, 8, 1))
    >>> found = evaluate_points(points, Lstm(256, 4096, 1, 1024, 4), PointOptions())
    >>> bool(found.power_w[0] < 300), bool(found.area_mm2[0] <= 1230), int(found.devices[0])
    (True, True, 8)
    """
    opt = options or PointOptions()
    alloc = np.atleast_2d(np.ascontiguousarray(points.allocation, dtype=np.float64))
    count = alloc.shape[0]
    which = _whole(points.which, count, 0, "which")
    mapping = _whole(points.mapping, count, -1, "mapping")
    codes = np.array(np.broadcast_to(np.asarray(points.strategy, dtype=np.int64), (count, 5)))
    if count and not (0 <= which.min() and which.max() < len(points.technology)):
        raise InputError("names no technology of the list", field="which")
    rows = np.array([t.row for t in points.technology])[which]
    overrides = np.array([t.overrides for t in points.technology])[which]
    out = _empty(count)
    keys, group = np.unique(np.column_stack([codes, mapping]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    for g, key in enumerate(keys):
        mine = np.flatnonzero(group == g)
        _fill_group(out, mine, key, rows[mine], alloc[mine], overrides[mine], workload, opt)
    _finish(out, rows, which, points, workload, opt)
    return PointMetrics(**out)


def _whole(values: np.ndarray | None, count: int, default: int, name: str) -> np.ndarray:
    if values is None:
        return np.full(count, default, dtype=np.int64)
    array = np.asarray(values, dtype=np.int64)
    if array.shape != (count,):
        raise InputError(f"must have {count} numbers (got shape {array.shape})", field=name)
    return array


def _empty(count: int) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {f.name: np.zeros(count) for f in fields(PointMetrics)}
    out["reason"] = np.zeros(count, dtype=np.int64)
    out["mapping"] = np.full(count, -1, dtype=np.int64)
    out["chips"] = np.zeros((count, CHIP_COLUMNS))
    out["time_s"][:] = np.inf
    return out


def _fill_group(
    out: dict[str, np.ndarray], mine: np.ndarray, key: np.ndarray, rows: FloatArray,
    alloc: FloatArray, overrides: FloatArray, workload: Workload, opt: PointOptions,
) -> None:  # fmt: skip
    """Evaluate the points of one strategy and order on each of its placements; keep the best."""
    plan = strategy_of(key[:5])
    sharings: list[tuple[int, FloatArray]]
    if opt.place is not None:
        sharings = [(-1, opt.place)]
    else:
        sizes = (plan.kp1, plan.kp2, plan.dp, plan.lp)
        found: tuple[Sharing, ...] = candidates(
            sizes, opt.nodes_per_package, opt.inter, opt.intra, int(key[5])
        )
        sharings = [(s.order, shared_row(plan.devices, opt.nodes_per_package, s)) for s in found]
    for order, place in sharings:
        result = evaluate(
            rows, alloc, workload, plan, place=place, model=opt.model, energy=True,
            precision_bytes=opt.precision_bytes, launch_overhead_s=opt.launch_overhead_s,
            overrides=overrides,
        )  # fmt: skip
        better = (result.time_s < out["time_s"][mine]) | (out["mapping"][mine] < 0)
        _take(out, mine[better], result, better, order)
        out["devices"][mine] = plan.devices


def _take(
    out: dict[str, np.ndarray], where: np.ndarray, result: Points, chosen: np.ndarray, order: int
) -> None:
    for name in (
        "time_s", "energy_j", "power_w", "flop", "memory_bytes", "capacity_bytes", "bundles",
        "reason", "chips",
    ):  # fmt: skip
        out[name][where] = getattr(result, name)[chosen]
    out["mapping"][where] = order


def _finish(
    out: dict[str, np.ndarray], rows: FloatArray, which: np.ndarray, points: DesignPoints,
    workload: Workload, opt: PointOptions,
) -> None:  # fmt: skip
    """Add what follows from the chips and times."""
    chips, time = out["chips"], out["time_s"]
    none = ~np.isfinite(time)
    out["energy_j"][none] = out["power_w"][none] = np.inf
    out["used_area_mm2"] = chips[:, K_AREA_USED].copy()
    out["die_area_mm2"] = die_area_mm2(rows, chips)
    out["area_mm2"] = device_area_mm2(rows, chips)
    out["peak_power_w"] = chips[:, K_POWER_USED].copy()
    for t, technology in enumerate(points.technology):
        mine = which == t
        if mine.any():
            together = np.minimum(float(opt.nodes_per_package), out["devices"][mine])
            out["cost_usd"][mine] = device_cost_usd(technology, chips[mine], together)
    out["system_cost_usd"] = out["cost_usd"] * out["devices"]
    out["headroom_bytes"] = out["capacity_bytes"] - out["memory_bytes"]
    samples = _samples(workload)
    with np.errstate(divide="ignore", invalid="ignore"):
        out["throughput_per_s"] = np.where(none, 0.0, samples / time)
        peak = chips[:, K_PEAK] * out["devices"] * time
        out["utilization"] = np.where(none | (peak <= 0.0), 0.0, out["flop"] / peak)


def _samples(workload: Workload) -> float:
    if isinstance(workload, Lstm):
        return float(workload.batch_size)
    if isinstance(workload, Gemm):
        return 1.0
    return workload.samples
