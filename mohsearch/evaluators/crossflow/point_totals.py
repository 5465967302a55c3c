"""Energy, power and memory of one design point, from the kernels that its run logged."""

from __future__ import annotations

import math

from mohsearch.evaluators.crossflow.compiled import inner
from mohsearch.evaluators.crossflow.kernels import (
    KIND_COLLECTIVE,
    KIND_TRANSFER,
    O_FIXED,
    O_PRECISION,
    R_BYTES0,
    R_FLOPS,
    R_KIND,
    R_N,
    R_NAME,
    R_SENT,
)  # fmt: skip
from mohsearch.evaluators.crossflow.layout import (
    K_FLOP_ENERGY,
    K_LEVEL,
    K_LINK_ENERGY,
    K_NET,
    L_ENERGY,
    L_STATIC,
    LEVEL_FIELDS,
    LINK_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.lstm import (
    C_B,
    C_F,
    CR,
    M_LAYERS,
    M_STEPS,
    P_DP,
    P_H1,
    P_H2,
    P_HTYPE,
    P_LP,
    R_C,
    R_E,
    R_S,
    RC,
    T_B,
    T_F,
    memory_per_device,
)  # fmt: skip
from mohsearch.evaluators.crossflow.operations import W_MEMORY, op_repeats
from mohsearch.evaluators.crossflow.point_rows import (
    H_FAR,
    H_NEAR,
    LSTM,
    OPS,
    X_ENERGY,
    X_FLOPS,
    X_POWER,
)  # fmt: skip


@inner
def _repeats(name: int, model: FloatArray, plan: FloatArray) -> float:
    """Return how often a step runs the kernels of one duration, over all pipeline stages."""
    if name in (T_F, T_B):
        return model[M_STEPS] * (plan[P_LP] - 1.0)  # type: ignore[no-any-return]
    if name in (C_F, C_B):
        return model[M_STEPS] * model[M_LAYERS]  # type: ignore[no-any-return]
    if name in (R_E, R_S):
        return 1.0
    if name == R_C:
        return model[M_LAYERS]  # type: ignore[no-any-return]
    return model[M_STEPS]  # type: ignore[no-any-return]


@inner
def system_energy(
    chip: FloatArray, place: FloatArray, model: FloatArray, plan: FloatArray, kind: int,
    ops: FloatArray, time: float, log: FloatArray, result: FloatArray,
) -> None:  # fmt: skip
    """Fill energy per run of the whole system and mean power per device."""
    dynamic = flops = 0.0
    near, far = chip[K_NET + K_LINK_ENERGY], chip[K_NET + LINK_FIELDS + K_LINK_ENERGY]
    for i in range(1, int(log[0, 0]) + 1):
        row = log[i]
        energy = row[R_FLOPS] * chip[K_FLOP_ENERGY]
        for level in range(4):
            energy += row[R_BYTES0 + level] * chip[K_LEVEL + level * LEVEL_FIELDS + L_ENERGY]
        if row[R_KIND] == KIND_COLLECTIVE or row[R_KIND] == KIND_TRANSFER:
            link = int(row[R_N])
            hops = place[H_NEAR + link] * near + place[H_FAR + link] * far
            energy += row[R_SENT] * hops
        times = 1.0
        if kind == LSTM:
            times = _repeats(int(row[R_NAME]), model, plan)
        elif kind == OPS:
            times = op_repeats(ops[int(row[R_NAME])], model)
        dynamic += energy * times
        flops += row[R_FLOPS] * times
    static = 0.0
    for level in range(4):
        static += chip[K_LEVEL + level * LEVEL_FIELDS + L_STATIC]
    # A log row stands for one of the kp * dp devices that a stage has.
    shards = plan[P_H1] * plan[P_H2] * plan[P_DP]
    devices = shards * plan[P_LP]
    result[X_ENERGY] = dynamic * shards + static * time * devices
    result[X_FLOPS] = flops * shards
    result[X_POWER] = result[X_ENERGY] / (time * devices) if time > 0.0 else 0.0


@inner
def device_memory(
    model: FloatArray, plan: FloatArray, kind: int, opt: FloatArray, parts: FloatArray
) -> float:
    """Return the bytes that a run keeps on each device (of transformers, the fullest)."""
    if kind == OPS:
        return model[W_MEMORY]  # type: ignore[no-any-return]
    if kind == LSTM:
        return memory_per_device(model, plan, opt[O_PRECISION], opt[O_FIXED] != 0.0, parts)  # type: ignore[no-any-return]
    m, k, n = model[0], model[1], model[2]
    a, c = plan[P_H1], plan[P_H2]
    if plan[P_HTYPE] == CR:
        k = math.ceil(k / a)
    elif plan[P_HTYPE] == RC:
        m, n = math.ceil(m / a), math.ceil(n / c)
    return opt[O_PRECISION] * (m * k + k * n + m * n)  # type: ignore[no-any-return]
