"""Compiled moves on one moham genome; everything here keeps a valid genome valid.

A genome is the integer row described in :class:`mohsearch.evaluators.package_space.MohamSpace`.
Every function changes the genome it is handed in place, so callers hand in copies.

Where a layer has no mapping on the template it should go to, one rule holds in all moves: the
layer moves to another existing instance on which it can be mapped, drawn uniformly; where there is
none, either the layer stays where it is (merging) or the whole move is refused and the genome stays
as it was (template change, instance crossover).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.package_space import MohamSpace

_INNER: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
inner = njit(**_INNER)
"""Compiles a function that only compiled code calls: without the costly door from Python."""


class Arrays(NamedTuple):
    """The arrays of a :class:`MohamSpace` that compiled code reads."""

    n: int
    m: int
    templates: int
    into: NDArray[np.int64]
    before: NDArray[np.int64]
    outof: NDArray[np.int64]
    after: NDArray[np.int64]
    unique: NDArray[np.int64]
    offsets: NDArray[np.int64]
    candidates: NDArray[np.int64]
    transform: NDArray[np.int64]
    fixed: bool


def arrays_of(space: MohamSpace) -> Arrays:
    """Return what compiled code needs to know of a space."""
    return Arrays(
        n=space.n_layers,
        m=space.max_instances,
        templates=space.n_templates,
        into=space.predecessor_offsets,
        before=space.predecessors,
        outof=space.successor_offsets,
        after=space.successors,
        unique=space.unique_of_layer,
        offsets=space.offsets,
        candidates=space.candidates,
        transform=space.transform,
        fixed=space.fixed_templates is not None,
    )


def genomes_copy(X: NDArray[Any]) -> NDArray[np.int64]:
    """Return a contiguous int64 copy of genomes of any shape."""
    return np.array(X, dtype=np.int64, order="C", copy=True)


@inner
def draw(rng, k):  # type: ignore[no-untyped-def]
    """Return a uniform integer of 0..k-1 (k far below 2**53)."""
    return int(rng.random() * k)


@inner
def template_of(S, x, layer):  # type: ignore[no-untyped-def]
    """Return the template on which a layer runs."""
    return x[3 * S.n + x[2 * S.n + layer]]


@inner
def transformed(S, layer, source, index, target):  # type: ignore[no-untyped-def]
    """Return the candidate on template ``target`` most like candidate ``index`` of ``source``."""
    if source == target:
        return index
    row = S.offsets[S.unique[layer] * S.templates + source] + index
    return S.transform[row, target]


@inner
def count_loads(S, x, load):  # type: ignore[no-untyped-def]
    """Write the number of layers of each slot to ``load``."""
    load[:] = 0
    for layer in range(S.n):
        load[x[2 * S.n + layer]] += 1


@inner
def drop_idle(S, x, load):  # type: ignore[no-untyped-def]
    """Take the template from slots without layers (never under fixed hardware)."""
    if not S.fixed:
        for s in range(S.m):
            if load[s] == 0:
                x[3 * S.n + s] = -1


@inner
def append_tile(S, x, slot):  # type: ignore[no-untyped-def]
    """Give a slot the last tile, all others keeping their relative order."""
    first = 3 * S.n + S.m
    old = x[first + slot]
    for s in range(S.m):
        if x[first + s] > old:
            x[first + s] -= 1
    x[first + slot] = S.m - 1


@inner
def other_slot(S, x, layer, avoid, also, rng):  # type: ignore[no-untyped-def]
    """Return a random instance on which a layer can be mapped, none of two slots; -1 if none."""
    count = 0
    for s in range(S.m):
        t = x[3 * S.n + s]
        if t >= 0 and s not in (avoid, also) and S.candidates[layer, t] > 0:
            count += 1
    if count == 0:
        return -1
    pick = draw(rng, count)
    for s in range(S.m):
        t = x[3 * S.n + s]
        if t >= 0 and s not in (avoid, also) and S.candidates[layer, t] > 0:
            if pick == 0:
                return s
            pick -= 1
    return -1


@inner
def has_other_slot(S, x, layer, avoid):  # type: ignore[no-untyped-def]
    """Say whether another instance than ``avoid`` could run a layer."""
    for s in range(S.m):
        t = x[3 * S.n + s]
        if t >= 0 and s != avoid and S.candidates[layer, t] > 0:
            return True
    return False


@inner
def move_layer(S, x, layer, slot, load):  # type: ignore[no-untyped-def]
    """Assign a layer to a slot whose template can run it, with mapping transform."""
    n = S.n
    old = x[2 * n + layer]
    x[n + layer] = transformed(S, layer, x[3 * n + old], x[n + layer], x[3 * n + slot])
    x[2 * n + layer] = slot
    load[old] -= 1
    load[slot] += 1


@inner
def pick_slot(load, least, rng):  # type: ignore[no-untyped-def]
    """Return a random slot with at least ``least`` layers; -1 if there is none."""
    count = 0
    for s in range(len(load)):
        if load[s] >= least:
            count += 1
    if count == 0:
        return -1
    pick = draw(rng, count)
    for s in range(len(load)):
        if load[s] >= least:
            if pick == 0:
                return s
            pick -= 1
    return -1


@inner
def retemplate(S, x, slot, template, keep, load, rng):  # type: ignore[no-untyped-def]
    """Give an instance another template; its layers undergo mapping transform.

    Layers with ``keep[layer]`` set are not looked at: the caller brings them in later. Returns
    False and leaves ``x`` alone if a layer has nowhere to go.
    """
    n = S.n
    old = x[3 * n + slot]
    for layer in range(n):
        if x[2 * n + layer] == slot and not keep[layer] and S.candidates[layer, template] == 0:
            if not has_other_slot(S, x, layer, slot):
                return False
    for layer in range(n):
        if x[2 * n + layer] == slot and not keep[layer]:
            if S.candidates[layer, template] > 0:
                x[n + layer] = transformed(S, layer, old, x[n + layer], template)
            else:
                move_layer(S, x, layer, other_slot(S, x, layer, slot, slot, rng), load)
    x[3 * n + slot] = template
    return True
