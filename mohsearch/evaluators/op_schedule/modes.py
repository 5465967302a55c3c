"""Which modes and groups of operators can matter in an optimal schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.op_schedule.instance import Flags, ScheduleInstance

PARALLEL_ONLY, SPREAD_ONLY, EITHER = 1, 2, 3


def modes(instance: ScheduleInstance) -> NDArray[np.int64]:
    """Return which modes can be part of an optimal schedule, shape (ops,).

    Taking all cores without being faster is never better. And an operator whose latency on one core
    is no less than running it and everything it could ever overlap one after another gains nothing
    from overlap: then it takes all cores. (What cannot overlap is found again with those left out.)
    """
    n = len(instance)
    result = np.where(instance.alone <= instance.spread, PARALLEL_ONLY, EITHER)
    loose = ~(instance.before | instance.before.T)
    np.fill_diagonal(loose, False)
    changed = True
    while changed:
        changed = False
        open_ops = result != SPREAD_ONLY
        for group in components(loose & open_ops[:, None] & open_ops[None, :]):
            total = instance.shortest[group].sum()
            for i in group:
                if result[i] == EITHER and instance.alone[i] >= total:
                    result[i] = SPREAD_ONLY
                    changed = True
    return np.asarray(result.reshape(n), dtype=np.int64)


def components(adjacent: Flags) -> list[list[int]]:
    """Return the connected components of an undirected graph given as a matrix."""
    n = len(adjacent)
    label = [-1] * n
    groups: list[list[int]] = []
    for root in range(n):
        if label[root] >= 0:
            continue
        label[root] = len(groups)
        group = [root]
        for i in group:
            for j in np.flatnonzero(adjacent[i]).tolist():
                if label[j] < 0:
                    label[j] = label[root]
                    group.append(j)
        groups.append(group)
    return groups
