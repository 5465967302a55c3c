"""Whether a schedule is valid, decided without anything the solvers use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mohsearch.evaluators.op_schedule.instance import FUSED, VECTOR, Schedule, ScheduleInstance

Cores = tuple[int | None, int | None]
"""Tensor and vector core of an operator."""
MAX_PAIRING_STEPS = 200_000
"""Assignments tried or taken back before the pairing of fused cores counts as not found."""


def find_fault(instance: ScheduleInstance, schedule: Schedule) -> str | None:
    """Return what is wrong with a schedule, or None.

    Checked are the orders, that an operator on all cores runs alone, the number of cores of each
    kind at every moment, and that every fused operator gets a pair of cores for all its time.

    Examples
    --------
    >>> from mohsearch.evaluators.op_schedule.instance import TENSOR
    >>> two = ScheduleInstance.build([TENSOR, TENSOR], [4, 3], [2, 2], [], 1, 1)
    >>> find_fault(two, Schedule((0, 0), (False, False)))
    'at 0 more than 1 tensor cores are in use'
    >>> find_fault(two, Schedule((0, 4), (False, False)))
    """
    spans = _spans(instance, schedule)
    for i, start, _, _ in spans:
        if start < 0:
            return f"operator {i} starts before 0"
    ends = {i: end for i, _, end, _ in spans}
    starts = {i: start for i, start, _, _ in spans}
    for i, j in instance.edges:
        if ends[i] > starts[j]:
            return f"operator {j} starts before operator {i} ends"
    fault = _overlap(spans) or _core_counts(instance, spans)
    if fault is None and assign_cores(instance, schedule) is None:
        return "no assignment gives every fused operator a pair of cores"
    return fault


def _spans(instance: ScheduleInstance, schedule: Schedule) -> list[tuple[int, int, int, bool]]:
    spans = []
    for i in range(len(instance)):
        length = int(instance.spread[i] if schedule.intra[i] else instance.alone[i])
        start = int(schedule.start[i])
        spans.append((i, start, start + length, bool(schedule.intra[i])))
    return spans


def _overlap(spans: list[tuple[int, int, int, bool]]) -> str | None:
    for i, start, end, intra in spans:
        if intra and start < end:
            for j, other, other_end, _ in spans:
                if i != j and other < other_end and other < end and start < other_end:
                    return f"operator {j} runs while operator {i} takes all cores"
    return None


def _core_counts(instance: ScheduleInstance, spans: list[tuple[int, int, int, bool]]) -> str | None:
    for name, cores, other in (
        ("tensor", instance.tensor_cores, VECTOR),
        ("vector", instance.vector_cores, 1 - VECTOR),
    ):
        changes = []
        for i, start, end, intra in spans:
            if not intra and instance.kinds[i] != other and start < end:
                changes += [(start, 1), (end, -1)]
        used = 0
        for moment, change in sorted(changes):
            used += change
            if used > cores:
                return f"at {moment} more than {cores} {name} cores are in use"
    return None


def assign_cores(instance: ScheduleInstance, schedule: Schedule) -> list[Cores] | None:
    """Return the tensor and vector core of every operator, or None where there is no assignment.

    Operators on all cores, and those that take no time, get (None, None). The search is complete up
    to :data:`MAX_PAIRING_STEPS` trials.
    """
    spans = _spans(instance, schedule)
    result: list[Cores] = [(None, None)] * len(instance)
    queue = [s for s in spans if not s[3] and s[1] < s[2]]
    # By start; of those that start together the fused first, for only they are bound to pairs.
    queue.sort(key=lambda s: (s[1], instance.kinds[s[0]] != FUSED, s[0]))
    n = len(queue)
    tensor_cores = min(instance.tensor_cores, instance.pairs + n)
    vector_cores = min(instance.vector_cores, instance.pairs + n)
    pairs = min(instance.pairs, 2 * n)  # more cannot all be touched
    # Tensor core c and vector core c are pair c, below ``instance.pairs``; the others have none.
    unpaired_tensor = range(instance.pairs, tensor_cores)
    unpaired_vector = range(instance.pairs, vector_cores)
    tensor_free: dict[int, int] = {}  # when each core ends what it runs
    vector_free: dict[int, int] = {}

    def options(kind: int, now: int) -> list[Cores]:
        """Return free cores, one of those that are alike: later operators cannot tell them apart.

        Cores without a partner come first, which keeps pairs for fused operators.
        """
        seen = set()
        found: list[Cores] = []
        for c in [*(unpaired_vector if kind == VECTOR else unpaired_tensor), *range(pairs)]:
            if kind == FUSED and c >= pairs:
                continue
            busy = (max(tensor_free.get(c, 0), now), max(vector_free.get(c, 0), now))
            if (kind != VECTOR and busy[0] > now) or (kind != 0 and busy[1] > now):
                continue
            state = (c < pairs, busy)
            if state not in seen:
                seen.add(state)
                found.append((None if kind == VECTOR else c, None if kind == 0 else c))
        return found

    def choices(k: int) -> Iterator[Cores]:
        """Occupy the cores of each option of the k-th operator in turn, and free them again."""
        i, start, end, _ = queue[k]
        for tensor, vector in options(int(instance.kinds[i]), start):
            saved = (tensor_free.get(tensor or 0, 0), vector_free.get(vector or 0, 0))
            if tensor is not None:
                tensor_free[tensor] = end
            if vector is not None:
                vector_free[vector] = end
            yield tensor, vector
            if tensor is not None:
                tensor_free[tensor] = saved[0]
            if vector is not None:
                vector_free[vector] = saved[1]

    found = _first_of_each(choices, n)
    if found is None:
        return None
    for (i, *_), pair in zip(queue, found, strict=True):
        result[i] = pair
    return result


def _first_of_each(choices: Callable[[int], Iterator[Cores]], count: int) -> list[Cores] | None:
    """Return one choice at each of ``count`` depths, or None where there is no such sequence.

    Depth first, and without recursion, for a layer may have more operators than Python recurses.
    """
    taken: list[Cores] = []
    levels = [choices(0)] if count else []
    for _ in range(MAX_PAIRING_STEPS):
        if len(taken) == count:
            return taken
        if not levels:
            return None
        chosen = next(levels[-1], None)
        if chosen is None:
            levels.pop()
            del taken[-1:]
            continue
        taken.append(chosen)
        if len(taken) < count:
            levels.append(choices(len(taken)))
    return None
