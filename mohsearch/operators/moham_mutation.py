"""The seven mutations of the moham search (section V-B2 of the paper)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pymoo.core.mutation import Mutation

from mohsearch.operators.moham_kernels import (
    append_tile,
    arrays_of,
    count_loads,
    draw,
    drop_idle,
    genomes_copy,
    inner,
    move_layer,
    other_slot,
    pick_slot,
    retemplate,
    template_of,
)


def _hardware_is_fixed(problem: Any) -> str | None:
    if problem.space.fixed_templates is None:
        return None
    return "it changes the hardware, which this problem fixes"


def _rate(layer_probability: float | None) -> float:
    """Return the compiled code's sign for 'one random layer' or the rate per layer."""
    if layer_probability is None:
        return -1.0
    if not 0.0 < layer_probability <= 1.0:
        raise ValueError(f"layer_probability must lie above 0, at most 1; got {layer_probability}")
    return float(layer_probability)


class SchedulingMutation(Mutation):  # type: ignore[misc]  # pymoo ships no types
    """Swap two layers of the execution order (Figure 5b).

    Let i be the position of a random layer, j that of the first later layer that depends on it
    (the end, if none does) and k a random position between. The layers at i and k are swapped if
    everything that the layer at k depends on runs before i; otherwise nothing changes.

    Parameters
    ----------
    prob
        Probability per genome when pymoo applies the operator alone.
    layer_probability
        None: once, at one random layer. A number: at every layer with this probability.
    """

    per_layer = True

    def __init__(
        self, prob: float = 1.0, layer_probability: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(prob=prob, **kwargs)
        self.rate = _rate(layer_probability)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _mutate_orders(arrays_of(problem.space), children, self.rate, random_state)
        return children


class MappingMutation(Mutation):  # type: ignore[misc]
    """Give a random layer another of its mappings on its template (Figure 5c).

    The new mapping is drawn uniformly among the others; a layer with one mapping keeps it.
    Parameters as of :class:`SchedulingMutation`.
    """

    per_layer = True

    def __init__(
        self, prob: float = 1.0, layer_probability: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(prob=prob, **kwargs)
        self.rate = _rate(layer_probability)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _mutate_mappings(arrays_of(problem.space), children, self.rate, random_state)
        return children


class AssignmentMutation(Mutation):  # type: ignore[misc]
    """Move a random layer to another existing instance (Figure 5j).

    The instance is drawn uniformly among the others on which the layer can be mapped; where the
    templates differ the mapping is transformed. An instance without layers vanishes. Parameters as
    of :class:`SchedulingMutation`.
    """

    per_layer = True

    def __init__(
        self, prob: float = 1.0, layer_probability: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(prob=prob, **kwargs)
        self.rate = _rate(layer_probability)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _mutate_slots(arrays_of(problem.space), children, self.rate, random_state)
        return children


class SplittingMutation(Mutation):  # type: ignore[misc]
    """Split an instance in two of the same template (Figure 5f).

    The instance is drawn among those with at least two layers; half of its layers (rounded down),
    drawn at random, go to a new instance on the first free slot and the last tile. Without a free
    slot nothing changes.
    """

    refusal = staticmethod(_hardware_is_fixed)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _split(arrays_of(problem.space), children, random_state)
        return children


class MergingMutation(Mutation):  # type: ignore[misc]
    """Move all layers of one random instance to another (Figure 5g).

    Mappings are transformed where the templates differ; the emptied instance vanishes. A layer
    that cannot be mapped on the receiving instance moves to a third one that can run it; if there
    is none it stays, and its instance with it.
    """

    refusal = staticmethod(_hardware_is_fixed)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _merge(arrays_of(problem.space), children, random_state)
        return children


class PositionMutation(Mutation):  # type: ignore[misc]
    """Swap the tiles of two random instances in the mesh (Figure 5h).

    Under fixed hardware too: the instances are given, where they stand is not. Given instances
    without layers count, for they take up tiles.
    """

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _swap_tiles(arrays_of(problem.space), children, random_state)
        return children


class TemplateMutation(Mutation):  # type: ignore[misc]
    """Give a random instance another template (Figure 5i).

    The template is drawn uniformly among the others. The instance's layers undergo mapping
    transform; a layer without mapping on the new template moves to another instance that can run
    it. If one has no such instance, or none of the layers could stay, nothing changes.
    """

    refusal = staticmethod(_hardware_is_fixed)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _change_templates(arrays_of(problem.space), children, random_state)
        return children


@inner
def next_layer(rng, layer, rate):  # type: ignore[no-untyped-def]
    """Return the next layer hit when every layer is, independently, with probability ``rate``.

    Jumps by a geometric distance, so that the layers not hit cost no random number.
    """
    if rate >= 1.0:
        return layer + 1
    gap = np.log(1.0 - rng.random()) / np.log(1.0 - rate)
    return layer + 1 + int(min(gap, 1e15))


@inner
def swap_in_order(S, x, place, i, rng):  # type: ignore[no-untyped-def]
    """Scheduling mutation of the layer at position ``i``; ``place`` is the inverse of the order."""
    layer = x[i]
    j = S.n
    for e in range(S.outof[layer], S.outof[layer + 1]):
        j = min(j, place[S.after[e]])
    if j - i < 2:
        return
    k = i + 1 + draw(rng, j - i - 1)
    other = x[k]
    for e in range(S.into[other], S.into[other + 1]):
        if place[S.before[e]] > i:
            return
    x[i], x[k] = other, layer
    place[other], place[layer] = i, k


@njit(cache=True, nogil=True)
def _mutate_orders(S, X, rate, rng):  # type: ignore[no-untyped-def]
    place = np.empty(S.n, dtype=np.int64)
    for x in X:
        for k in range(S.n):
            place[x[k]] = k
        if rate < 0:
            swap_in_order(S, x, place, draw(rng, S.n), rng)
        else:
            i = next_layer(rng, -1, rate)
            while i < S.n:
                swap_in_order(S, x, place, i, rng)
                i = next_layer(rng, i, rate)


@inner
def change_mapping(S, x, layer, rng):  # type: ignore[no-untyped-def]
    """Draw another mapping for a layer, if it has one."""
    count = S.candidates[layer, template_of(S, x, layer)]
    if count > 1:
        index = draw(rng, count - 1)
        if index >= x[S.n + layer]:
            index += 1
        x[S.n + layer] = index


@njit(cache=True, nogil=True)
def _mutate_mappings(S, X, rate, rng):  # type: ignore[no-untyped-def]
    for x in X:
        if rate < 0:
            change_mapping(S, x, draw(rng, S.n), rng)
        else:
            layer = next_layer(rng, -1, rate)
            while layer < S.n:
                change_mapping(S, x, layer, rng)
                layer = next_layer(rng, layer, rate)


@inner
def change_slot(S, x, layer, load, rng):  # type: ignore[no-untyped-def]
    """Move a layer to another instance, if there is one that can run it."""
    old = x[2 * S.n + layer]
    slot = other_slot(S, x, layer, old, old, rng)
    if slot >= 0:
        move_layer(S, x, layer, slot, load)
        if load[old] == 0 and not S.fixed:
            x[3 * S.n + old] = -1


@njit(cache=True, nogil=True)
def _mutate_slots(S, X, rate, rng):  # type: ignore[no-untyped-def]
    load = np.empty(S.m, dtype=np.int64)
    for x in X:
        count_loads(S, x, load)
        if rate < 0:
            change_slot(S, x, draw(rng, S.n), load, rng)
        else:
            layer = next_layer(rng, -1, rate)
            while layer < S.n:
                change_slot(S, x, layer, load, rng)
                layer = next_layer(rng, layer, rate)


@njit(cache=True, nogil=True)
def _split(S, X, rng):  # type: ignore[no-untyped-def]
    if S.fixed:
        return
    n = S.n
    load = np.empty(S.m, dtype=np.int64)
    for x in X:
        count_loads(S, x, load)
        slot = pick_slot(load, 2, rng)
        free = -1
        for s in range(S.m - 1, -1, -1):
            if load[s] == 0:
                free = s
        if slot < 0 or free < 0:
            continue
        append_tile(S, x, free)
        x[3 * n + free] = x[3 * n + slot]
        wanted = load[slot] // 2
        left = load[slot]
        for layer in range(n):  # selection sampling: every half is equally likely
            if x[2 * n + layer] == slot:
                if rng.random() * left < wanted:
                    x[2 * n + layer] = free
                    wanted -= 1
                left -= 1


@njit(cache=True, nogil=True)
def _merge(S, X, rng):  # type: ignore[no-untyped-def]
    if S.fixed:
        return
    n = S.n
    load = np.empty(S.m, dtype=np.int64)
    for x in X:
        count_loads(S, x, load)
        source = pick_slot(load, 1, rng)
        hidden = load[source]
        load[source] = 0
        target = pick_slot(load, 1, rng)
        load[source] = hidden
        if target < 0:
            continue
        template = x[3 * n + target]
        for layer in range(n):
            if x[2 * n + layer] == source:
                goal = target
                if S.candidates[layer, template] == 0:
                    goal = other_slot(S, x, layer, source, target, rng)
                if goal >= 0:
                    move_layer(S, x, layer, goal, load)
        drop_idle(S, x, load)


@njit(cache=True, nogil=True)
def _swap_tiles(S, X, rng):  # type: ignore[no-untyped-def]
    first = 3 * S.n + S.m
    exists = np.empty(S.m, dtype=np.int64)
    for x in X:
        for s in range(S.m):
            exists[s] = 1 if x[3 * S.n + s] >= 0 else 0
        a = pick_slot(exists, 1, rng)
        exists[a] = 0
        b = pick_slot(exists, 1, rng)
        if b >= 0:
            x[first + a], x[first + b] = x[first + b], x[first + a]


@njit(cache=True, nogil=True)
def _change_templates(S, X, rng):  # type: ignore[no-untyped-def]
    if S.fixed or S.templates < 2:
        return
    n = S.n
    load = np.empty(S.m, dtype=np.int64)
    keep = np.zeros(n, dtype=np.bool_)
    for x in X:
        count_loads(S, x, load)
        slot = pick_slot(load, 1, rng)
        template = draw(rng, S.templates - 1)
        if template >= x[3 * n + slot]:
            template += 1
        stays = False
        for layer in range(n):
            if x[2 * n + layer] == slot and S.candidates[layer, template] > 0:
                stays = True
        if stays:
            retemplate(S, x, slot, template, keep, load, rng)
