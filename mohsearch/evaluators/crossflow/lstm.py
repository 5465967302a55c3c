"""Training step of the LSTM language model under RC, CR, data and pipeline parallelism.

Eleven durations (embedding, cell, softmax, hand-over, each forward and backward, and three weight
updates) feed the event-driven simulation. Source: DeepFlow paper, sections 3.3, 5 and 6; byte and
operation counts as in the authors' program.
"""

from __future__ import annotations

import math
from typing import Any

from mohsearch.evaluators.crossflow.compiled import codes, inner
from mohsearch.evaluators.crossflow.kernels import (
    B_DP,
    B_KP1,
    B_KP2,
    B_LP,
    GATHER,
    O_FIXED,
    O_HOST,
    O_OVERHEAD,
    O_PRECISION,
    REDUCE,
    SCATTER,
    T_LP,
    collective,
    element_wise,
    exchange,
    product,
    scaled_last,
)  # fmt: skip
from mohsearch.evaluators.crossflow.layout import FloatArray

# Model row.
M_BATCH, M_VOCABULARY, M_LAYERS, M_HIDDEN, M_STEPS, M_GATES = range(6)
MODEL_COLUMNS = 6
# Strategy row: kernel type and dims of hidden, softmax and embedding layers; data, pipeline.
(
    P_HTYPE, P_H1, P_H2, P_STYPE, P_S1, P_S2, P_ETYPE, P_E1, P_E2, P_DP, P_LP,
) = range(11)  # fmt: skip
STRATEGY_COLUMNS = 11
NONE, CR, RC = -1.0, 1.0, 2.0
# Durations.
E_F, C_F, S_F, T_F, E_B, C_B, S_B, T_B, R_E, R_C, R_S = codes(11)
DURATIONS = ("Ef", "Cf", "Sf", "Tf", "Eb", "Cb", "Sb", "Tb", "Re", "Rc", "Rs")


@inner
def mini_batch(model: FloatArray, plan: FloatArray) -> float:
    """Return the samples per data-parallel shard."""
    return float(math.ceil(model[M_BATCH] / plan[P_DP]))


@inner
def divides(model: FloatArray, plan: FloatArray) -> bool:
    """Tell whether the authors' program accepts the strategy for these dimensions."""
    d, g, b = model[M_HIDDEN], model[M_GATES] * model[M_HIDDEN], mini_batch(model, plan)
    h1, h2, s1, s2 = plan[P_H1], plan[P_H2], plan[P_S1], plan[P_S2]
    if plan[P_HTYPE] == CR:
        if h1 <= 1.0 or not (h1 % 4 == 0 or h1 == 2.0) or (2 * d) % h1 != 0:
            return False
    elif plan[P_HTYPE] == RC:
        if h1 <= 1.0 and h2 <= 1.0:
            return False
        if not (h2 % model[M_GATES] == 0 or h2 in (1.0, 2.0)) or b % h1 != 0 or g % h2 != 0:
            return False
    if plan[P_STYPE] == CR:
        return s1 > 1.0 and d % s1 == 0  # type: ignore[no-any-return]
    if plan[P_STYPE] == RC:
        return (s1 > 1.0 or s2 > 1.0) and b % s1 == 0 and d % s2 == 0  # type: ignore[no-any-return]
    return True


@inner
def _share(x: float, parts: float, fixed: bool) -> float:
    """Split a dimension: whole numbers, rounded up in the default model, down by the authors."""
    return float(math.ceil(x / parts)) if fixed else x // parts


@inner
def _forward_cr(
    env: Any, name: int, m: float, k: float, n: float, d: float, log: FloatArray
) -> float:
    fixed = env[2][O_FIXED] != 0.0
    time = product(env, name, m, _share(k, d, fixed), n, log)
    return time + collective(env, name, m * n, d, B_KP1, SCATTER, log)  # type: ignore[no-any-return]


@inner
def _backward_cr(
    env: Any, name: int, m: float, k: float, n: float, d: float, log: FloatArray
) -> float:
    fixed = env[2][O_FIXED] != 0.0
    time = collective(env, name, m * n, d, B_KP1, GATHER, log)
    time += product(env, name, k, _share(m, d, fixed), n, log)
    return time + product(env, name, m, _share(n, d, fixed), k, log)  # type: ignore[no-any-return]


@inner
def _forward_rc(
    env: Any, name: int, m: float, k: float, n: float, a: float, c: float, log: FloatArray
) -> float:
    fixed = env[2][O_FIXED] != 0.0
    rows = _share(m, a, fixed)
    time = product(env, name, rows, k, _share(n, c, fixed), log)
    return time + collective(env, name, rows * n, c, B_KP2, GATHER, log)  # type: ignore[no-any-return]


@inner
def _backward_rc(
    env: Any, name: int, m: float, k: float, n: float, a: float, c: float, log: FloatArray
) -> float:
    # The authors count half of the gathers of both operands.
    whole = collective(env, name, k * m, a, B_KP1, GATHER, log)
    time = scaled_last(log, 0.5, whole) if a > 1.0 else 0.0
    time += collective(env, name, m * (n / c), a, B_KP1, GATHER, log)
    time += collective(env, name, (m / a) * n, c, B_KP2, GATHER, log)
    whole = collective(env, name, k * n, c, B_KP2, GATHER, log)
    time += scaled_last(log, 0.5, whole) if c > 1.0 else 0.0
    time += product(env, name, k / a, m, n / c, log)
    return time + product(env, name, m / a, n, k / c, log)  # type: ignore[no-any-return]


@inner
def _hidden(
    env: Any, model: FloatArray, plan: FloatArray, out: FloatArray, log: FloatArray
) -> None:
    opt = env[2]
    b, o, fixed = opt[O_PRECISION], opt[O_OVERHEAD], opt[O_FIXED] != 0.0
    rows, d = mini_batch(model, plan), model[M_HIDDEN]
    g = model[M_GATES] * d
    kind, h1, h2 = plan[P_HTYPE], plan[P_H1], plan[P_H2]
    if kind == NONE:
        forward = product(env, C_F, rows, 2 * d, g, log)
        forward += element_wise(env, C_F, 5 * rows * g, 13 * rows * g * b, log) + 5 * o
        backward = product(env, C_B, rows, g, 2 * d, log) + product(env, C_B, 2 * d, rows, g, log)
        flops = 5 * rows * d + 2 * d * g
        backward += element_wise(env, C_B, flops, b * (13 * rows * d + 6 * d * g), log) + 5 * o
    elif kind == CR:
        cells = rows * (g / h1)
        forward = _forward_cr(env, C_F, rows, 2 * d, g, h1, log)
        forward += element_wise(env, C_F, 5 * cells, 13 * cells * b, log) + 5 * o
        forward += exchange(env, C_F, 4 * cells * b, B_KP1, log)
        weights = 2 * d * g / h1
        backward = element_wise(
            env, C_B, 5 * cells + weights, 13 * cells * b + 3 * weights * b, log
        )  # fmt: skip
        backward += 5 * o + exchange(env, C_B, 4 * cells * b, B_KP1, log)
        backward += _backward_cr(env, C_B, rows, 2 * d, g, h1, log)
    else:
        cells = (rows / h1) * (g / h2)
        talks = (h2 if fixed else plan[P_S2]) > 1.0
        forward = _forward_rc(env, C_F, rows, 2 * d, g, h1, h2, log)
        forward += element_wise(env, C_F, 5 * cells, 13 * cells * b, log) + 5 * o
        weights = 2 * d * g / h2
        backward = element_wise(
            env, C_B, 5 * cells + weights, 13 * cells * b + 3 * weights * b, log
        )  # fmt: skip
        backward += 5 * o + _backward_rc(env, C_B, rows, 2 * d, g, h1, h2, log)
        if talks:
            forward += exchange(env, C_F, 4 * cells * b, B_KP2, log)
            backward += exchange(env, C_B, float(math.floor(rows * (g / h2) * 4 * b)), B_KP2, log)
    out[C_F], out[C_B] = forward, backward


@inner
def _softmax(
    env: Any, model: FloatArray, plan: FloatArray, out: FloatArray, log: FloatArray
) -> None:
    opt = env[2]
    b, o = opt[O_PRECISION], opt[O_OVERHEAD]
    rows, d, v = mini_batch(model, plan), model[M_HIDDEN], model[M_VOCABULARY]
    kind, s1, s2 = plan[P_STYPE], plan[P_S1], plan[P_S2]
    if kind == NONE:
        forward = product(env, S_F, rows, d, v, log)
        forward += element_wise(env, S_F, rows * (3 * v - 1), 7 * rows * v * b, log) + 4 * o
        backward = product(env, S_B, d, rows, v, log) + product(env, S_B, rows, v, d, log)
        backward += element_wise(env, S_B, 5 * rows * v, 11 * rows * v * b, log) + 4 * o
    elif kind == CR:
        cells = (rows / s1) * v
        forward = _forward_cr(env, S_F, rows, d, v, s1, log) + o
        forward += element_wise(env, S_F, 3 * cells, 7 * cells * b, log)
        forward += collective(env, S_F, rows, s1, B_KP1, GATHER, log)
        backward = _backward_cr(env, S_B, rows, d, v, s1, log) + o
        backward += element_wise(env, S_B, 5 * cells, 11 * cells * b, log)
    else:
        cells = (rows / s1) * (v / s2)
        forward = _forward_rc(env, S_F, rows, d, v, s1, s2, log) + o
        forward += element_wise(env, S_F, 3 * cells, 7 * cells * b, log)
        if s2 > 1.0:
            forward += exchange(env, S_F, b * (rows / s1) * s2, B_KP2, log)
        backward = _backward_rc(env, S_B, rows, d, v, s1, s2, log) + o
        backward += element_wise(env, S_B, 5 * cells, 11 * cells * b, log)
    out[S_F], out[S_B] = forward, backward


@inner
def _embedding(
    env: Any, model: FloatArray, plan: FloatArray, out: FloatArray, log: FloatArray
) -> None:
    opt = env[2]
    rows, d = mini_batch(model, plan), model[M_HIDDEN]
    kind, e1, e2 = plan[P_ETYPE], plan[P_E1], plan[P_E2]
    size = 2 * rows * d * opt[O_PRECISION]
    if kind == RC:
        size = size / e1 / e2
    forward = element_wise(env, E_F, 0.0, size, log) + opt[O_OVERHEAD]
    backward = element_wise(env, E_B, 0.0, size, log) + opt[O_OVERHEAD]
    if kind == NONE:
        forward += size / opt[O_HOST]
    elif kind == CR:
        forward += collective(env, E_F, rows * d, e1, B_KP1, GATHER, log)
        backward += collective(env, E_B, rows * d, e1, B_KP1, GATHER, log)
    else:
        backward += collective(env, E_B, rows * d / e2, e1, B_KP1, GATHER, log)
    out[E_F], out[E_B] = forward, backward


@inner
def _update(
    env: Any, name: int, k: float, n: float, kind: float, d1: float, d2: float, dp: float,
    log: FloatArray,
) -> float:  # fmt: skip
    """Return the time to reduce the gradients of k x n weights over the shards and apply them."""
    b = env[2][O_PRECISION]
    time = 0.0
    if kind == CR:
        k = k / d1
    elif kind == RC:
        n = n / d2
        time = collective(env, name, k * n, d1, B_KP1, GATHER, log)
    reduced = k * n / d1 if kind == RC else k * n
    time += collective(env, name, reduced, dp, B_DP, REDUCE, log)
    time += element_wise(env, name, 3 * k * n, 4 * k * n * b, log)
    return time + element_wise(env, name, 4 * k * n, 3 * k * n * b, log)  # type: ignore[no-any-return]


@inner
def step_durations(
    env: Any, model: FloatArray, plan: FloatArray, out: FloatArray, log: FloatArray
) -> None:
    """Fill the eleven durations of one training step (``DURATIONS``, seconds)."""
    opt, net = env[2], env[1]
    rows, d, v = mini_batch(model, plan), model[M_HIDDEN], model[M_VOCABULARY]
    _hidden(env, model, plan, out, log)
    _softmax(env, model, plan, out, log)
    _embedding(env, model, plan, out, log)
    out[T_F] = 0.0
    if plan[P_LP] > 1.0:
        tensor = rows * d
        if plan[P_HTYPE] == CR:
            tensor = rows * (d / plan[P_H1])
        elif plan[P_HTYPE] == RC:
            tensor = (rows / plan[P_H1]) * (d / plan[P_H2])
        out[T_F] = exchange(env, T_F, opt[O_PRECISION] * tensor, B_LP, log) + net[T_LP]
    out[T_B] = out[T_F]
    g, dp = model[M_GATES] * d, plan[P_DP]
    own = opt[O_FIXED] != 0.0
    kind = plan[P_HTYPE]
    out[R_C] = _update(env, R_C, 2 * d, g, kind, plan[P_H1], plan[P_H2], dp, log)
    kind = plan[P_STYPE] if own else plan[P_HTYPE]
    out[R_S] = _update(env, R_S, d, v, kind, plan[P_S1], plan[P_S2], dp, log)
    kind = plan[P_ETYPE] if own else plan[P_HTYPE]
    out[R_E] = _update(env, R_E, v, d, kind, plan[P_E1], plan[P_E2], dp, log)


@inner
def memory_per_device(
    model: FloatArray, plan: FloatArray, precision: float, fixed: bool, out: FloatArray
) -> float:
    """Return the bytes a device needs; ``out`` receives embedding, hidden, softmax, weights,
    activations and point-wise bytes.

    A pipeline device holds the largest of the three parts. The authors' program leaves the
    softmax layer out of that (``fixed=False``). No optimiser state is counted.
    """  # noqa: D205
    rows, d, s = mini_batch(model, plan), model[M_HIDDEN], model[M_STEPS]
    stages = plan[P_LP] - 2.0 if plan[P_LP] > 2.0 else plan[P_LP]
    layers = model[M_LAYERS] / stages
    # Splits follow the kernel type; a type other than RC splits the inner dimension.
    h1, h2, s1, s2, e1, e2 = (
        plan[P_H1], plan[P_H2], plan[P_S1], plan[P_S2], plan[P_E1], plan[P_E2],
    )  # fmt: skip
    rc = plan[P_HTYPE] == RC
    x = math.ceil(rows / h1) if rc else rows
    y = 2 * d if rc else math.ceil(2 * d / h1)
    z = math.ceil(d * model[M_GATES] / h2) if rc else d * model[M_GATES]
    hidden_act = x * z * s * layers * precision
    hidden_wt = (y + 1) * z * layers * precision
    hidden_point = (x * z / 2) * 9 * layers * s * precision
    rc = plan[P_STYPE] == RC
    x = math.ceil(rows / s1) if rc else rows
    y = d if rc else math.ceil(d / s1)
    z = math.ceil(model[M_VOCABULARY] / s2) if rc else model[M_VOCABULARY]
    soft_act = x * s * z * precision
    soft_wt = (y + 1) * z * precision
    soft_point = (2 * x * s * z + x * s) * precision
    rc = plan[P_ETYPE] == RC
    x = math.ceil(rows / e1) if rc else rows
    y = model[M_VOCABULARY] if rc else math.ceil(model[M_VOCABULARY] / e1)
    z = math.ceil(d / e2) if (plan[P_HTYPE] == RC) else d
    emb_act = x * s * z * precision
    emb_wt = y * z * precision
    embedding, softmax = emb_act + emb_wt, soft_act + soft_wt + soft_point
    hidden = hidden_act + hidden_wt + hidden_point
    out[0], out[1], out[2] = embedding, hidden, softmax
    out[3] = hidden_wt + soft_wt + emb_wt
    out[4] = hidden_act + soft_act + emb_act
    out[5] = hidden_point + soft_point
    if plan[P_LP] == 1.0:
        return embedding + hidden + softmax  # type: ignore[no-any-return]
    return max(hidden, embedding, softmax if fixed else 0.0)  # type: ignore[no-any-return]
