"""Lower bounds on the makespan of one layer: critical path, work, and both with two budgets.

Time splits into moments in which one operator has all cores and the rest, ``tau``. If operator i
takes all cores, it adds its spread latency; if not, it loads one core and lies on chains, both
within ``tau``. Hence for weights ``w_i = a / tensor cores + b / vector cores + flow through i`` (a
counts for tensor and fused, b for vector and fused operators; the flow sends 1 - a - b along paths)

    makespan >= sum over i of min(spread_i, w_i alone_i).

The weights are the dual of the two-budget relaxation; each choice is a valid bound, and being a sum
over operators it is cheap to keep up to date in a search.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.op_schedule.instance import TENSOR, VECTOR, Flags, ScheduleInstance

Floats = NDArray[np.float64]

STEPS = 8
"""The shares a and b, and the units of flow, are multiples of 1 / STEPS."""


def tails(instance: ScheduleInstance) -> NDArray[np.int64]:
    """Return the longest chain of shortest latencies from each operator on, itself included."""
    tail = instance.shortest.copy()
    after: list[list[int]] = [[] for _ in range(len(instance))]
    for i, j in instance.edges:
        after[i].append(j)
    for i in reversed(instance.order):
        tail[i] += max((tail[j] for j in after[i]), default=0)
    return tail


def critical_path(instance: ScheduleInstance) -> int:
    """Return the longest chain of shortest latencies."""
    return int(tails(instance).max(initial=0))


@njit(cache=True, nogil=True, error_model="numpy")
def _route(alone, spread, base, order, before, units, unit):  # type: ignore[no-untyped-def]
    """Send ``units`` of flow along paths, each where it gains most; return the weights."""
    n = len(alone)
    weight = base.copy()
    value = np.empty(n)
    previous = np.empty(n, dtype=np.int64)
    for _ in range(units):
        last = -1
        for i in order:
            now = min(spread[i], alone[i] * weight[i])
            more = min(spread[i], alone[i] * (weight[i] + unit)) - now
            value[i] = more
            previous[i] = -1
            best = 0.0
            for j in range(n):
                if before[j, i] and value[j] > best:
                    best = value[j]
                    previous[i] = j
            value[i] += best
            if last < 0 or value[i] > value[last]:
                last = i
        while last >= 0:
            weight[last] += unit
            last = previous[last]
    return weight


def budget_weights(instance: ScheduleInstance, only_parallel: Flags, only_spread: Flags) -> Floats:
    """Return weights of many two-budget bounds, shape (bounds, ops).

    Parameters
    ----------
    instance
        The operators.
    only_parallel, only_spread
        Operators whose mode is known, shape (ops,).
    """
    forever = float(2**53)
    alone = np.where(only_spread, forever, instance.alone).astype(np.float64)
    spread = np.where(only_parallel, forever, instance.spread).astype(np.float64)
    order = np.array(instance.order, dtype=np.int64)
    tensor = (instance.kinds != VECTOR) / max(instance.tensor_cores, 1)
    vector = (instance.kinds != TENSOR) / max(instance.vector_cores, 1)
    rows = []
    for a in range(STEPS + 1):
        for b in range(STEPS + 1 - a):
            base = a / STEPS * tensor + b / STEPS * vector
            base = np.where(only_spread, 0.0, base)
            weight = _route(alone, spread, base, order, instance.before, STEPS - a - b, 1.0 / STEPS)
            rows.append(np.where(only_spread, 0.0, weight))
    return np.array(rows)


def budget_costs(
    instance: ScheduleInstance, weights: Floats, only_parallel: Flags, only_spread: Flags
) -> Floats:
    """Return what each operator adds to each bound, shape (bounds, ops)."""
    parallel = weights * instance.alone
    spread = np.broadcast_to(instance.spread.astype(np.float64), parallel.shape)
    mixed = np.minimum(parallel, spread)
    return np.where(only_spread, spread, np.where(only_parallel, parallel, mixed))


def two_budget(instance: ScheduleInstance) -> int:
    """Return the best two-budget bound over a grid of weights.

    Examples
    --------
    >>> five = ScheduleInstance.build([TENSOR] * 5, [4] * 5, [2] * 5, [], 2, 1)
    >>> two_budget(five)
    10
    """
    none = np.zeros(len(instance), dtype=np.bool_)
    if len(instance) == 0:
        return 0
    parallel = instance.alone <= instance.spread
    weights = budget_weights(instance, parallel, none)
    best = float(budget_costs(instance, weights, parallel, none).sum(axis=1).max())
    return ceil(best - 1e-6)
