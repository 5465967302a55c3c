"""Times of single kernels: products, element-wise passes and ring collectives.

Source: DeepFlow paper, sections 6.1 to 6.4; the byte counts are those of the authors' program.
An *environment* is the tuple (chip row, link row, option row, drawn tiles, addresses of
outlined functions) that all kernels share.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mohsearch.evaluators.crossflow.compiled import codes, inner
from mohsearch.evaluators.crossflow.exact_tiling import (
    G_COMPUTE,
    G_FLOPS,
    G_Q0,
    GEMM_COLUMNS,
    exact_gemm,
)  # fmt: skip
from mohsearch.evaluators.crossflow.layout import (
    K_FLOPS,
    K_LEVEL,
    L_BANDWIDTH,
    L_LATENCY,
    LEVEL_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.random_tiling import gemm_time, level_time

_exact_gemm, _gemm_time = exact_gemm.call, gemm_time.call
# Places among the addresses.
EXACT_GEMM, RANDOM_GEMM, SIMULATE, BUILD_CHIP, TIME_ON = range(5)

# Option row.
(
    O_PRECISION, O_OVERHEAD, O_EXACT, O_CANDIDATES, O_GAP, O_FLOW, O_PASS_LEVEL, O_LINKS_KEPT,
    O_HOST, O_FIXED, O_CHOOSE,
) = range(11)  # fmt: skip
OPTION_COLUMNS = 11
"""Bytes per number; launch seconds; exact tiling; authors' candidates, gap clipping, dataflow;
level that element-wise passes use (-1: all); links stay busy; host bytes/s; other defects mended;
number of bundles chosen."""

# Link row: bandwidth and latency of kernel dims 1 and 2, data and pipeline parallelism.
B_KP1, B_KP2, B_DP, B_LP, T_KP1, T_KP2, T_DP, T_LP = codes(8)
LINK_COLUMNS = 8

# Log row of one kernel; ``R_N`` of a collective or exchange is its link.
(
    R_NAME, R_KIND, R_M, R_K, R_N, R_TIME, R_FLOPS, R_BYTES0, R_BYTES1, R_BYTES2, R_BYTES3, R_SENT,
    R_COMPUTE,
) = range(13)  # fmt: skip
LOG_COLUMNS = 13
LOG_ROWS = 400
KIND_GEMM, KIND_PASS, KIND_COLLECTIVE, KIND_TRANSFER = codes(4)
GATHER, SCATTER, REDUCE = codes(3)
"""Modes of a collective: all-gather, reduce-scatter, all-reduce."""


@inner
def note(
    log: FloatArray, name: int, kind: int, m: float, k: float, n: float, time: float,
    flops: float, moved: FloatArray, sent: float, compute: float,
) -> None:  # fmt: skip
    """Append a row to the log; its first entry counts the rows. A log of one row stays off."""
    row = int(log[0, 0]) + 1
    if row >= log.shape[0]:
        return
    log[0, 0] = row
    log[row, R_NAME], log[row, R_KIND] = name, kind
    log[row, R_M], log[row, R_K], log[row, R_N] = m, k, n
    log[row, R_TIME], log[row, R_FLOPS], log[row, R_SENT] = time, flops, sent
    log[row, R_COMPUTE] = compute
    for level in range(4):
        log[row, R_BYTES0 + level] = moved[level]


@inner
def product(env: Any, name: int, m: float, k: float, n: float, log: FloatArray) -> float:
    """Return the time of an m x k by k x n product with its launch."""
    chip, _, opt, tiles, calls = env
    row = np.zeros(GEMM_COLUMNS)
    if opt[O_EXACT] != 0.0:
        whole = float(math.ceil(m)), float(math.ceil(k)), float(math.ceil(n))
        time = _exact_gemm(
            calls[EXACT_GEMM], (chip, whole[0], whole[1], whole[2], opt[O_PRECISION], row)
        )
        time += opt[O_OVERHEAD]
    else:
        time = _gemm_time(
            calls[RANDOM_GEMM],
            (
                chip, tiles, int(opt[O_CANDIDATES]), m, k, n, int(opt[O_FLOW]), opt[O_PRECISION],
                opt[O_OVERHEAD], opt[O_GAP] != 0.0, row,
            ),
        )  # fmt: skip
        row[:] = 0.0
        row[G_FLOPS] = 2.0 * m * k * n
        row[G_COMPUTE] = row[G_FLOPS] / chip[K_FLOPS] if chip[K_FLOPS] > 0.0 else math.inf
    note(
        log, name, KIND_GEMM, m, k, n, time, row[G_FLOPS], row[G_Q0 : G_Q0 + 4], 0.0,
        row[G_COMPUTE],
    )  # fmt: skip
    return time  # type: ignore[no-any-return]


@inner
def element_wise(env: Any, name: int, flops: float, size: float, log: FloatArray) -> float:
    """Return the time of a pass over ``size`` bytes, without launch."""
    chip, _, opt, _, _ = env
    size = float(math.floor(size))
    level = int(opt[O_PASS_LEVEL])
    moved = np.zeros(4)
    compute = flops / chip[K_FLOPS] if chip[K_FLOPS] > 0.0 else math.inf
    if level >= 0:
        time = level_time(chip, level, flops, size)
        moved[level] = size
    else:
        time = compute
        moved[:] = size
        for i in range(4):
            k = K_LEVEL + i * LEVEL_FIELDS
            rate = chip[k + L_BANDWIDTH]
            time = max(time, size / rate + chip[k + L_LATENCY] if rate > 0.0 else math.inf)
    note(log, name, KIND_PASS, 0.0, 0.0, 0.0, time, flops, moved, 0.0, compute)
    return time  # type: ignore[no-any-return]


@inner
def collective(
    env: Any, name: int, numbers: float, devices: float, link: int, mode: int, log: FloatArray
) -> float:  # fmt: skip
    """Return the time of a ring collective over ``devices`` on a tensor of ``numbers``."""
    if devices <= 1.0:
        return 0.0
    _, net, opt, _, _ = env
    size = opt[O_PRECISION] * numbers
    share = size / devices
    bandwidth, latency = net[link], net[link + 4]
    if bandwidth <= 0.0:
        return math.inf
    quiet = np.zeros((1, LOG_COLUMNS))
    steps = devices - 1.0
    factor = 2.0 if mode == REDUCE else 1.0
    staging = element_wise(env, name, 0.0, 2.0 * share, quiet)
    time = (share / bandwidth + staging + latency) * factor * steps
    staged = 2.0 * share * factor * steps
    if mode != GATHER:
        adding = element_wise(env, name, numbers / devices, 3.0 * share, quiet)
        time += (adding + opt[O_OVERHEAD]) * steps
        flops = numbers / devices * steps
        staged += 3.0 * share * steps
    else:
        time += element_wise(env, name, 0.0, 3.0 * size, quiet) + opt[O_OVERHEAD]
        flops = 0.0
        staged += 3.0 * size
    note(
        log, name, KIND_COLLECTIVE, numbers, devices, float(link), time, flops,
        _through(opt, staged), share * factor * steps, 0.0,
    )  # fmt: skip
    return time  # type: ignore[no-any-return]


@inner
def _through(opt: FloatArray, size: float) -> FloatArray:
    """Return the bytes per level of passes over ``size`` bytes."""
    moved = np.zeros(4)
    level = int(opt[O_PASS_LEVEL])
    if level >= 0:
        moved[level] = size
    else:
        moved[:] = size
    return moved


@inner
def scaled_last(log: FloatArray, factor: float, time: float) -> float:
    """Scale what the last row of the log moved, and ``time``; return the latter."""
    row = int(log[0, 0])
    if row > 0:
        log[row, R_TIME] *= factor
        for column in range(R_FLOPS, R_SENT + 1):
            log[row, column] *= factor
    return time * factor


@inner
def exchange(env: Any, name: int, size: float, link: int, log: FloatArray) -> float:
    """Return the time to send ``size`` bytes to a neighbour, with both ends' memory traffic."""
    _, net, _, _, _ = env
    if net[link] <= 0.0:
        return math.inf
    quiet = np.zeros((1, LOG_COLUMNS))
    time = element_wise(env, name, 0.0, 2.0 * size, quiet) + size / net[link]
    note(
        log, name, KIND_TRANSFER, size, 0.0, float(link), time, 0.0, _through(env[2], 2.0 * size),
        size, 0.0,
    )  # fmt: skip
    return time  # type: ignore[no-any-return]
