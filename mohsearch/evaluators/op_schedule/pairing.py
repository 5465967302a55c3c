"""Simple schedules in which every fused operator gets a pair of cores."""

from __future__ import annotations

import numpy as np

from mohsearch.evaluators.op_schedule.bounds import tails
from mohsearch.evaluators.op_schedule.instance import (
    FUSED,
    TENSOR,
    VECTOR,
    Schedule,
    ScheduleInstance,
)


def pair_up(instance: ScheduleInstance, schedule: Schedule) -> Schedule:
    """Start operators in the given order and modes, each as soon as its cores are really free.

    Single operators take unpaired cores first, then those whose partner is busy longest.
    """
    pairs = instance.pairs
    tensor = np.zeros(min(instance.tensor_cores, pairs + len(instance)), dtype=np.int64)
    vector = np.zeros(min(instance.vector_cores, pairs + len(instance)), dtype=np.int64)
    start = [0] * len(instance)
    end = np.zeros(len(instance), dtype=np.int64)
    rank = {i: k for k, i in enumerate(instance.order)}
    done: list[int] = []
    for i in sorted(range(len(instance)), key=lambda i: (schedule.start[i], rank[i])):
        moment = int(end[instance.before[:, i]].max(initial=0))
        if schedule.intra[i]:
            moment = max(moment, int(end[done].max(initial=0)))
            end[i] = moment + instance.spread[i]
            tensor[:] = vector[:] = end[i]
        else:
            moment = _take(instance, int(instance.kinds[i]), moment, tensor, vector, i)
            end[i] = moment + instance.alone[i]
        start[i] = moment
        done.append(i)
    return Schedule(tuple(start), schedule.intra)


def list_schedule(instance: ScheduleInstance) -> Schedule:
    """Return a schedule in which operators take one core each as soon as they can.

    Those with the longest chain behind them come first; an operator takes all cores where that is
    so much faster that the cores lose nothing.
    """
    behind = tails(instance)
    earliest = tails(instance.reversed()) - instance.shortest
    lost = np.where(
        instance.kinds == VECTOR,
        instance.vector_cores,
        np.where(instance.kinds == TENSOR, instance.tensor_cores, instance.pairs),
    )
    intra = instance.spread * lost <= instance.alone
    intra &= instance.spread < instance.alone
    rank = np.empty(len(instance), dtype=np.int64)
    place = np.argsort(instance.order)  # so that operators of no length keep their order, too
    rank[np.lexsort((place, -behind, earliest))] = np.arange(len(instance))
    return pair_up(instance, Schedule(tuple(rank.tolist()), tuple(intra.tolist())))


def _take(
    instance: ScheduleInstance,
    kind: int,
    moment: int,
    tensor: np.ndarray,
    vector: np.ndarray,
    i: int,
) -> int:
    """Occupy cores for operator i from the earliest time on; return that time."""
    pairs = instance.pairs
    length = int(instance.alone[i])
    if kind == FUSED:
        free = np.maximum(tensor[:pairs], vector[:pairs])
        c = int(np.argmin(free))
        moment = max(moment, int(free[c]))
        tensor[c] = vector[c] = moment + length
        return moment
    mine, other = (tensor, vector) if kind == TENSOR else (vector, tensor)
    moment = max(moment, int(mine.min()))
    best, partner = -1, -1
    for c in range(len(mine) - 1, -1, -1):
        if mine[c] > moment:
            continue
        busy = int(other[c]) if c < pairs and c < len(other) else 2**62
        if busy > partner:
            best, partner = c, busy
    mine[best] = moment + length
    return moment
