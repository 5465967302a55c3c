"""Training step given as a table of operations per layer kind, run by pipeline stages.

One row is one operation of one layer kind: a product, a pass over memory, a collective or an
exchange. Stages hold layers of some kinds and work one micro-batch at a time, forward and backward
in turn (1F1B): the fill and drain of the pipeline is one micro-batch through all stages, the steady
state the widest stage once for every other micro-batch. Reductions of gradients and the optimizer
come after the last micro-batch. Source: DeepFlow paper, section 3.3 (kernel, data and layer
parallelism); schedule: Narayanan et al., SC 2021, section 2.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mohsearch.evaluators.crossflow.compiled import inner
from mohsearch.evaluators.crossflow.kernels import (
    B_LP,
    O_OVERHEAD,
    T_LP,
    collective,
    element_wise,
    exchange,
    product,
    scaled_last,
)  # fmt: skip
from mohsearch.evaluators.crossflow.layout import FloatArray

# Operation row.
Q_WHAT, Q_SEGMENT, Q_COUNT, Q_REPEATS, Q_A, Q_B, Q_C, Q_D = range(8)
OPERATION_COLUMNS = 8
"""What it is; 3 x layer kind + phase; how often in its segment; how often in the whole step over
all stages; then batch, m, k, n of a product; flop, bytes, launches of a pass; numbers, devices,
link, mode of a collective; bytes, link of an exchange."""
PRODUCT, PASS, COLLECTIVE, EXCHANGE = range(4)
FORWARD, BACKWARD, UPDATE = range(3)

# Workload row. The rows of the table after the operations say how many layers of each kind a
# stage holds.
W_MEMORY, W_OPERATIONS, W_KINDS, W_STAGES, W_MICRO, W_SEND = range(6)
"""Bytes per device; rows; layer kinds; stages; micro-batches; bytes between stages."""
# Durations.
(
    U_FORWARD, U_WIDEST, U_UPDATE, U_SEND, U_FILL,
) = range(5)  # fmt: skip


@inner
def op_repeats(row: FloatArray, model: FloatArray) -> float:
    """Return how often a step runs an operation over all pipeline stages."""
    return row[Q_REPEATS]  # type: ignore[no-any-return]


@inner
def first_op(ops: FloatArray) -> tuple[float, float, float]:
    """Return the dimensions of the first product, by which the authors choose a dataflow."""
    for i in range(ops.shape[0]):
        if ops[i, Q_WHAT] == PRODUCT:
            return ops[i, Q_B], ops[i, Q_C], ops[i, Q_D]
    return 1.0, 1.0, 1.0


@inner
def op_time(env: Any, index: int, row: FloatArray, log: FloatArray) -> float:
    """Return the time of one operation once."""
    what, overhead = row[Q_WHAT], env[2][O_OVERHEAD]
    if what == PRODUCT:
        # A batch is launched once.
        once = product(env, index, row[Q_B], row[Q_C], row[Q_D], log) - overhead
        return scaled_last(log, row[Q_A], once) + overhead  # type: ignore[no-any-return]
    if what == PASS:
        time = element_wise(env, index, row[Q_A], row[Q_B], log)
        return time + row[Q_C] * overhead  # type: ignore[no-any-return]
    if what == COLLECTIVE:
        return collective(env, index, row[Q_A], row[Q_B], int(row[Q_C]), int(row[Q_D]), log)  # type: ignore[no-any-return]
    return exchange(env, index, row[Q_A], int(row[Q_B]), log) + env[1][T_LP]  # type: ignore[no-any-return]


@inner
def ops_time(
    env: Any, model: FloatArray, ops: FloatArray, durations: FloatArray, log: FloatArray
) -> float:
    """Return the time of a training step; fill ``durations`` (``U_...``)."""
    kinds, stages, micro = int(model[W_KINDS]), int(model[W_STAGES]), model[W_MICRO]
    count = int(model[W_OPERATIONS])
    times = np.zeros(3 * kinds)
    for i in range(count):
        times[int(ops[i, Q_SEGMENT])] += op_time(env, i, ops[i], log) * ops[i, Q_COUNT]
    send = 0.0
    if stages > 1:
        send = exchange(env, count, model[W_SEND], B_LP, log) + env[1][T_LP]
    fill = widest = update = ahead = wide_ahead = 0.0
    for s in range(stages):
        stage = forward = last = 0.0
        for kind in range(kinds):
            layers = ops[count + 1 + s, kind]
            if layers == 0.0:
                continue
            forward += layers * times[3 * kind + FORWARD]
            stage += layers * (times[3 * kind + FORWARD] + times[3 * kind + BACKWARD])
            last += layers * times[3 * kind + UPDATE]
        fill += stage
        ahead += forward
        if stage > widest:
            widest, wide_ahead = stage, forward
        update = max(update, last)
    # A stage in steady state hands one activation on and one gradient back.
    steady = widest + (2.0 * send if stages > 1 else 0.0)
    durations[U_FORWARD] = ahead
    if micro > 1.0:
        durations[U_FORWARD] += (micro - 1.0) * wide_ahead
    durations[U_WIDEST], durations[U_UPDATE], durations[U_SEND] = widest, update, send
    durations[U_FILL] = fill + 2.0 * send * (stages - 1.0)
    time: float = durations[U_FILL] + update
    if micro > 1.0:
        time += (micro - 1.0) * steady
    return time
