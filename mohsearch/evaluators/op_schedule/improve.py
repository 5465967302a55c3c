"""Local search over orders and modes: a better schedule for a fixed number of steps.

A schedule is a list of operators with their modes. They are placed one after the other, as early
as predecessors, the last operator on all cores and explicit cores allow (fused operators take a
pair). A step moves one operator within the places its order to others leaves, or turns a mode, and
is accepted by simulated annealing. The random numbers come from a seed inside the compiled code:
the same input gives the same schedule on every machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mohsearch.evaluators.op_schedule.instance import TENSOR, VECTOR, Schedule, ScheduleInstance
from mohsearch.evaluators.op_schedule.modes import EITHER, PARALLEL_ONLY, SPREAD_ONLY, modes
from mohsearch.evaluators.op_schedule.pairing import pair_up

HOT, COLD = 3e-3, 1e-5
"""First and last temperature as shares of the makespan."""
_FAR = 2**62


def improve(
    instance: ScheduleInstance, start: Schedule, *, steps: int, seed: int = 1, hot: float = HOT
) -> Schedule:
    """Return the best schedule that an annealing from ``start`` meets, at least as short.

    Parameters
    ----------
    instance
        The operators.
    start
        A valid schedule.
    steps
        Schedules tried.
    seed
        Of the steps.
    hot
        First temperature as a share of the makespan.

    Examples
    --------
    >>> from mohsearch.evaluators.op_schedule.instance import serial_schedule
    >>> two = ScheduleInstance.build([TENSOR, VECTOR], [4, 3], [3, 3], [], 1, 1)
    >>> improve(two, serial_schedule(two), steps=50).makespan(two)
    4
    """
    if len(instance) < 2:
        return start
    allowed = modes(instance)
    intra = np.where(allowed == SPREAD_ONLY, True, start.intra)
    intra = np.where(allowed == PARALLEL_ONLY, False, intra)
    rank = np.argsort(instance.order)
    order = np.lexsort((rank, np.array(start.start)))
    before = instance.before
    ahead = [np.flatnonzero(before[:, i]) for i in range(len(instance))]
    into = np.cumsum([0, *map(len, ahead)])
    found, found_intra = _anneal(
        order.astype(np.int64),
        intra.astype(np.bool_),
        allowed == EITHER,
        instance.kinds,
        instance.alone,
        instance.spread,
        into.astype(np.int64),
        np.concatenate(ahead).astype(np.int64),
        before,
        max(1, min(instance.tensor_cores, int((instance.kinds != VECTOR).sum()))),
        max(1, min(instance.vector_cores, int((instance.kinds != TENSOR).sum()))),
        steps,
        seed,
        hot,
    )
    place = np.empty(len(instance), dtype=np.int64)
    place[found] = np.arange(len(instance))
    better = pair_up(instance, Schedule(tuple(place.tolist()), tuple(found_intra.tolist())))
    return better if better.makespan(instance) < start.makespan(instance) else start


@njit(cache=True, nogil=True, error_model="numpy")
def _random(state):  # type: ignore[no-untyped-def]
    """Advance a xorshift generator; return a number in [0, 1)."""
    word = state[0]
    word ^= word << np.uint64(13)
    word ^= word >> np.uint64(7)
    word ^= word << np.uint64(17)
    state[0] = word
    return np.float64(word >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True, error_model="numpy")
def _pick(free, other, pairs, moment):  # type: ignore[no-untyped-def]
    """Return a core free at ``moment``: unpaired, else that whose partner is busy longest."""
    best = -1
    busiest = -1
    for c in range(len(free) - 1, -1, -1):
        if free[c] > moment:
            continue
        busy = other[c] if c < pairs and c < len(other) else _FAR
        if busy > busiest:
            best, busiest = c, busy
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _place(order, intra, kinds, alone, spread, into, ahead, tensor, vector, end):  # type: ignore[no-untyped-def]
    """Return the makespan of a list; ``tensor``, ``vector`` and ``end`` are overwritten."""
    tensor[:] = 0
    vector[:] = 0
    pairs = min(len(tensor), len(vector))
    barrier = 0
    horizon = 0
    for i in order:
        moment = barrier
        for e in range(into[i], into[i + 1]):
            moment = max(moment, end[ahead[e]])
        if intra[i]:
            end[i] = max(moment, horizon) + spread[i]
            barrier = end[i]
            tensor[:] = barrier
            vector[:] = barrier
        elif kinds[i] == TENSOR or kinds[i] == VECTOR:
            mine, other = (tensor, vector) if kinds[i] == TENSOR else (vector, tensor)
            moment = max(moment, mine.min())
            c = _pick(mine, other, pairs, moment)
            end[i] = moment + alone[i]
            mine[c] = end[i]
        else:
            c = 0
            for k in range(1, pairs):
                if max(tensor[k], vector[k]) < max(tensor[c], vector[c]):
                    c = k
            end[i] = max(moment, tensor[c], vector[c]) + alone[i]
            tensor[c] = end[i]
            vector[c] = end[i]
        horizon = max(horizon, end[i])
    return horizon


@njit(cache=True, nogil=True, error_model="numpy")
def _shift(order, before, place, state):  # type: ignore[no-untyped-def]
    """Move the operator at ``place`` to a random place its order to others allows."""
    i = order[place]
    low = place
    while low > 0 and not before[order[low - 1], i]:
        low -= 1
    high = place
    while high < len(order) - 1 and not before[i, order[high + 1]]:
        high += 1
    target = low + int(_random(state) * (high - low + 1))
    step = 1 if target > place else -1
    while place != target:
        order[place] = order[place + step]
        place += step
    order[target] = i
    return low < high


@njit(cache=True, nogil=True, error_model="numpy")
def _anneal(  # type: ignore[no-untyped-def]
    order, intra, either, kinds, alone, spread, into, ahead, before, tensor_cores, vector_cores,
    steps, seed, hot,
):  # fmt: skip
    """Return the order and the modes of the best list met."""
    n = len(order)
    state = np.array([seed * 2654435769 + 88172645463325252], dtype=np.uint64)
    tensor = np.zeros(tensor_cores, dtype=np.int64)
    vector = np.zeros(vector_cores, dtype=np.int64)
    end = np.zeros(n, dtype=np.int64)
    now = _place(order, intra, kinds, alone, spread, into, ahead, tensor, vector, end)
    best, best_order, best_intra = now, order.copy(), intra.copy()
    new_order, new_intra = order.copy(), intra.copy()
    heat = hot * now
    cooling = (COLD / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        heat *= cooling
        new_order[:] = order
        new_intra[:] = intra
        kind = _random(state)
        place = int(_random(state) * n)
        changed = False
        if kind < 0.7:
            changed = _shift(new_order, before, place, state)
        i = new_order[place] if kind >= 0.7 else order[place]
        if (kind < 0.15 or kind >= 0.7) and either[i]:
            new_intra[i] = not new_intra[i]
            changed = True
        if kind >= 0.9:
            j = int(_random(state) * n)
            if either[j]:
                new_intra[j] = not new_intra[j]
                changed = True
        if not changed:
            continue
        value = _place(new_order, new_intra, kinds, alone, spread, into, ahead, tensor, vector, end)
        if value <= now or _random(state) < np.exp((now - value) / heat):
            now = value
            order[:] = new_order
            intra[:] = new_intra
            if now < best:
                best = now
                best_order[:] = order
                best_intra[:] = intra
    return best_order, best_intra
