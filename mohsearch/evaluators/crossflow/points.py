"""Design points in, times out: the compiled loop over chips, workloads and strategies.

A workload is one product, one training step of the LSTM model, or one training step given as a
table of operations (transformers). In the default model the number of MCU bundles is chosen to make
the time smallest: compute time falls and traffic rises with it, so that a chip with the most
compute of an interval and the most memory of it bounds the interval.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mohsearch.evaluators.crossflow.age import build_chip, max_bundles
from mohsearch.evaluators.crossflow.compiled import entry, inner, outlined
from mohsearch.evaluators.crossflow.exact_tiling import exact_gemm
from mohsearch.evaluators.crossflow.kernels import (
    B_KP1,
    B_KP2,
    BUILD_CHIP,
    GATHER,
    LOG_COLUMNS,
    O_CANDIDATES,
    O_CHOOSE,
    O_EXACT,
    O_FIXED,
    O_FLOW,
    O_LINKS_KEPT,
    O_PRECISION,
    SCATTER,
    SIMULATE,
    TIME_ON,
    collective,
    product,
)  # fmt: skip
from mohsearch.evaluators.crossflow.layout import (
    CHIP_COLUMNS,
    K_BUNDLES,
    K_FLOPS,
    K_FLOW,
    K_LEVEL,
    L_SIZE,
    LEVEL_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.lstm import (
    C_F,
    CR,
    M_GATES,
    M_HIDDEN,
    P_H1,
    P_H2,
    P_HTYPE,
    P_LP,
    RC,
    divides,
    mini_batch,
    step_durations,
)  # fmt: skip
from mohsearch.evaluators.crossflow.operations import W_STAGES, first_op, ops_time
from mohsearch.evaluators.crossflow.point_rows import (
    GEMM,
    LSTM,
    OPS,
    X_BACKWARD,
    X_BUNDLES,
    X_CAPACITY,
    X_FORWARD,
    X_MEMORY,
    X_REASON,
    X_TIME,
    chip_reason,
    link_row,
    over_budget,
    override,
)  # fmt: skip
from mohsearch.evaluators.crossflow.point_totals import (
    device_memory,
    system_energy,
)  # fmt: skip
from mohsearch.evaluators.crossflow.random_tiling import draw_all, gemm_time, resolve_flow
from mohsearch.evaluators.crossflow.reasons import (
    INDIVISIBLE,
    MEMORY_OVERFLOW,
    NO_NETWORK,
    OK,
    OVER_BUDGET,
    UNSUPPORTED_PIPELINE,
)  # fmt: skip
from mohsearch.evaluators.crossflow.timeline import run

_TOLERANCE = 1e-12
_build, _simulate = build_chip.call, run.call


@inner
def _first_product(model: FloatArray, plan: FloatArray) -> tuple[float, float, float]:
    """Return the dimensions by which the authors' "best" dataflow is chosen once and for all."""
    rows, d = mini_batch(model, plan), model[M_HIDDEN]
    g = model[M_GATES] * d
    if plan[P_HTYPE] == CR:
        return rows, (2 * d) // plan[P_H1], g
    if plan[P_HTYPE] == RC:
        return rows // plan[P_H1], 2 * d, g // plan[P_H2]
    return rows, 2 * d, g


@inner
def _step_time(
    env: Any, model: FloatArray, plan: FloatArray, forward: Any, backward: Any,
    durations: FloatArray, scratch: FloatArray, log: FloatArray, result: FloatArray,
) -> float:  # fmt: skip
    step_durations(env, model, plan, durations, log)
    for i in range(durations.size):
        if not durations[i] < math.inf:
            result[X_FORWARD] = result[X_BACKWARD] = math.inf
            return math.inf
    kept = env[2][O_LINKS_KEPT] != 0.0
    f, b = forward, backward
    at = env[4][SIMULATE]
    result[X_FORWARD] = _simulate(
        at, (f[0], f[1], f[2], f[3], f[4], f[5], f[6], durations, kept, scratch)
    )
    result[X_BACKWARD] = _simulate(
        at, (b[0], b[1], b[2], b[3], b[4], b[5], b[6], durations, kept, scratch)
    )
    return result[X_FORWARD] + result[X_BACKWARD]  # type: ignore[no-any-return]


@inner
def _gemm_time(
    env: Any, model: FloatArray, plan: FloatArray, log: FloatArray, result: FloatArray
) -> float:
    """Time of the forward product of (m, k, n) = model[:3], split as the strategy says."""
    m, k, n = model[0], model[1], model[2]
    a, c = plan[P_H1], plan[P_H2]
    if plan[P_HTYPE] == CR:
        time = product(env, C_F, m, float(math.ceil(k / a)), n, log)
        time += collective(env, C_F, m * n, a, B_KP1, SCATTER, log)
    elif plan[P_HTYPE] == RC:
        rows = float(math.ceil(m / a))
        time = product(env, C_F, rows, k, float(math.ceil(n / c)), log)
        time += collective(env, C_F, rows * n, c, B_KP2, GATHER, log)
    else:
        time = product(env, C_F, m, k, n, log)
    result[X_FORWARD] = time
    return time  # type: ignore[no-any-return]


_GRAPH = "Tuple((int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64))"


@outlined(
    "float64(float64[::1], float64[::1], float64[::1], float64[::1], int64, float64[:, ::1],"
    " float64[::1], int8[:, :, ::1], float64[:, :, ::1], " + _GRAPH + ", " + _GRAPH + ","
    " float64[::1], float64[::1], float64[:, ::1], float64[::1], UniTuple(int64, 5))"
)
def _time_on(
    chip: FloatArray, place: FloatArray, model: FloatArray, plan: FloatArray, kind: int,
    ops: FloatArray, opt: FloatArray, draws: np.ndarray, tiles: FloatArray, forward: Any,
    backward: Any, durations: FloatArray, scratch: FloatArray, log: FloatArray, result: FloatArray,
    calls: tuple[int, ...],
) -> float:  # fmt: skip
    """Return the time on one chip (infinite with a reason if there is none)."""
    exact = opt[O_EXACT] != 0.0
    reason = chip_reason(chip, opt[O_PRECISION], exact)
    if reason == OK and not exact:
        reason = draw_all(chip, opt[O_PRECISION], int(opt[O_CANDIDATES]), draws, tiles)
        if kind == LSTM:
            m, k, n = _first_product(model, plan)
        elif kind == OPS:
            m, k, n = first_op(ops)
        else:
            m, k, n = model[0], model[1], model[2]
            if plan[P_HTYPE] == CR:
                k = k // plan[P_H1]
            elif plan[P_HTYPE] == RC:
                m, n = m // plan[P_H1], n // plan[P_H2]
        opt[O_FLOW] = resolve_flow(int(chip[K_FLOW]), m, k, n)
    result[X_REASON] = reason
    if reason != OK:
        return math.inf
    net = np.zeros(8)
    link_row(chip, place, plan, net)
    env = (chip, net, opt, tiles, calls)
    if kind == LSTM:
        time = _step_time(
            env, model, plan, forward, backward, durations, scratch, log, result
        )  # fmt: skip
    elif kind == OPS:
        time = ops_time(env, model, ops, durations, log)
        result[X_FORWARD], result[X_BACKWARD] = durations[0], time - durations[0]
    else:
        time = _gemm_time(env, model, plan, log, result)
    if not time < math.inf:
        result[X_REASON] = NO_NETWORK
    return time  # type: ignore[no-any-return]


_timed = _time_on.call


def addresses() -> tuple[int, ...]:
    """Return where the outlined functions are, for :func:`evaluate_all`."""
    return tuple(f.address for f in (exact_gemm, gemm_time, run, build_chip, _time_on))


@inner
def _mixed(low: FloatArray, high: FloatArray, out: FloatArray) -> None:
    """Write a chip with the memory of ``low`` bundles and the compute of ``high``."""
    for i in range(CHIP_COLUMNS):
        out[i] = low[i]
    out[K_FLOPS] = max(low[K_FLOPS], high[K_FLOPS])


@inner
def _choose_bundles(
    tech: FloatArray, alloc: FloatArray, over: FloatArray, most: int, place: FloatArray,
    model: FloatArray, plan: FloatArray, kind: int, ops: FloatArray, opt: FloatArray,
    draws: np.ndarray, tiles: FloatArray, forward: Any, backward: Any, durations: FloatArray,
    scratch: FloatArray, log: FloatArray, result: FloatArray, calls: tuple[int, ...],
) -> int:  # fmt: skip
    """Return the number of bundles, 1 to ``most``, with the smallest time (branch and bound).

    ``result[X_TIME]`` receives that time.
    """
    low, high, mix = np.zeros(CHIP_COLUMNS), np.zeros(CHIP_COLUMNS), np.zeros(CHIP_COLUMNS)
    stack = np.zeros((128, 2), dtype=np.int64)
    _build(calls[BUILD_CHIP], (tech, alloc, most, False, high))
    override(high, over)
    best = _timed(
        calls[TIME_ON],
        (high, place, model, plan, kind, ops, opt, draws, tiles, forward, backward, durations,
         scratch, log, result, calls),
    )  # fmt: skip
    chosen = most
    depth = 0
    if most > 1:
        stack[0, 0], stack[0, 1] = 1, most - 1
        depth = 1
    while depth > 0:
        depth -= 1
        a, b = stack[depth, 0], stack[depth, 1]
        _build(calls[BUILD_CHIP], (tech, alloc, a, False, low))
        _build(calls[BUILD_CHIP], (tech, alloc, b, False, high))
        override(low, over)
        override(high, over)
        if kind == GEMM:
            work = 2.0 * model[0] * model[1] * model[2] / (plan[P_H1] * plan[P_H2])
            if work >= high[K_FLOPS] * best:
                continue
        _mixed(low, high, mix)
        time = _timed(
            calls[TIME_ON],
            (mix, place, model, plan, kind, ops, opt, draws, tiles, forward, backward, durations,
             scratch, log, result, calls),
        )  # fmt: skip
        if time >= best * (1.0 - _TOLERANCE):
            continue
        if a == b:
            best, chosen = time, a
            continue
        mid = (a + b) // 2
        stack[depth, 0], stack[depth, 1] = a, mid
        stack[depth + 1, 0], stack[depth + 1, 1] = mid + 1, b
        depth += 2
    result[X_TIME] = best
    return chosen


@inner
def _evaluate_point(
    tech: FloatArray, alloc: FloatArray, over: FloatArray, place: FloatArray, model: FloatArray,
    plan: FloatArray, kind: int, ops: FloatArray, opt: FloatArray, draws: np.ndarray, forward: Any,
    backward: Any, chip: FloatArray, parts: FloatArray, durations: FloatArray,
    log: FloatArray, result: FloatArray, calls: tuple[int, ...],
) -> None:  # fmt: skip
    """Evaluate one design point; ``result[X_REASON]`` says why a time is infinite or unusable."""
    fixed = opt[O_FIXED] != 0.0
    scratch = np.empty(forward[3].size + backward[3].size)
    tiles = np.zeros((3, max(int(opt[O_CANDIDATES]), 2), 3))
    quiet = np.zeros((1, LOG_COLUMNS))
    result[:] = 0.0
    result[X_TIME] = math.inf
    if kind == LSTM and (plan[P_LP] == 2.0 or plan[P_LP] == 3.0):
        result[X_REASON] = UNSUPPORTED_PIPELINE
        return
    if kind == OPS and model[W_STAGES] == 0.0:
        result[X_REASON] = INDIVISIBLE
        return
    if kind == LSTM and not fixed and not divides(model, plan):
        result[X_REASON] = INDIVISIBLE
        return
    bundles = max_bundles(tech, alloc)
    if opt[O_CHOOSE] != 0.0 and bundles > 1:
        bundles = _choose_bundles(
            tech, alloc, over, bundles, place, model, plan, kind, ops, opt, draws, tiles, forward,
            backward, durations, scratch, quiet, result, calls,
        )  # fmt: skip
    _build(calls[BUILD_CHIP], (tech, alloc, bundles, not fixed, chip))
    override(chip, over)
    log[0, 0] = 0.0
    time = result[X_TIME]
    if kind == GEMM and log.shape[0] == 1 and time < math.inf:
        # The search has timed this chip; only a log or durations need it once more.
        result[X_REASON], result[X_FORWARD] = OK, time
    else:
        time = _timed(
            calls[TIME_ON],
            (chip, place, model, plan, kind, ops, opt, draws, tiles, forward, backward, durations,
             scratch, log, result, calls),
        )  # fmt: skip
    result[X_TIME] = time
    result[X_BUNDLES] = chip[K_BUNDLES]
    result[X_MEMORY] = device_memory(model, plan, kind, opt, parts)
    result[X_CAPACITY] = chip[K_LEVEL + 3 * LEVEL_FIELDS + L_SIZE]
    if time < math.inf and log.shape[0] > 1:
        system_energy(chip, place, model, plan, kind, ops, time, log, result)
    if fixed and result[X_REASON] == OK:
        if over_budget(alloc):
            result[X_REASON] = OVER_BUDGET
        elif result[X_MEMORY] > result[X_CAPACITY]:
            result[X_REASON] = MEMORY_OVERFLOW


@entry
def evaluate_all(
    tech: FloatArray, alloc: FloatArray, over: FloatArray, place: FloatArray, model: FloatArray,
    plan: FloatArray, kind: int, ops: FloatArray, opt: FloatArray, draws: np.ndarray, forward: Any,
    backward: Any, chips: FloatArray, durations: FloatArray, results: FloatArray, log: FloatArray,
    calls: tuple[int, ...],
) -> None:  # fmt: skip
    """Evaluate all rows of ``alloc`` for one workload and strategy.

    ``log`` receives the kernels of the last row; one of a single row is none, and leaves energy
    and power out.
    """
    parts = np.zeros(6)
    for i in range(alloc.shape[0]):
        t = i if tech.shape[0] > 1 else 0
        p = i if place.shape[0] > 1 else 0
        o = i if over.shape[0] > 1 else 0
        _evaluate_point(
            tech[t], alloc[i], over[o], place[p], model, plan, kind, ops, opt, draws, forward,
            backward, chips[i], parts, durations[i], log, results[i], calls,
        )  # fmt: skip
