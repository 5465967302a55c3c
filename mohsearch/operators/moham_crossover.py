"""The three crossovers of the moham search (section V-B2 of the paper)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover

from mohsearch.operators.moham_kernels import (
    append_tile,
    arrays_of,
    count_loads,
    draw,
    drop_idle,
    genomes_copy,
    inner,
    retemplate,
)


class SchedulingCrossover(Crossover):  # type: ignore[misc]  # pymoo ships no types
    """One-cut crossover of the execution orders (Figure 5a).

    A child executes the layers before the cut in the order of one parent and the others in the
    order of the second; all other genes stay with the first. The cut is uniform in 1..n-1. Both
    orders being topological, the child's is.

    Parameters
    ----------
    prob
        Probability per mating when pymoo applies the operator alone.
    """

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(2, 2, prob=prob, **kwargs)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _cross_orders(arrays_of(problem.space), children[0], children[1], random_state)
        return children


class MappingCrossover(Crossover):  # type: ignore[misc]
    """One-cut crossover of the mappings (Figure 5d).

    A child keeps the mappings of the layers before the cut *in its own execution order* and takes
    those of the others from the second parent, by mapping transform where the layer runs on
    another template there. The cut is uniform in 1..n-1.
    """

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(2, 2, prob=prob, **kwargs)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _cross_mappings(arrays_of(problem.space), children[0], children[1], random_state)
        return children


class InstanceCrossover(Crossover):  # type: ignore[misc]
    """Exchange one instance between two packages (SA crossover, Figure 5e).

    The slot is drawn uniformly among those occupied in either parent. Occupied in both: each child
    gets the other parent's instance there, with the layers and mappings it has there; the layers
    that the child already had on the slot stay on it, by mapping transform where the templates
    differ. Occupied in one: the other's child gets the instance as an additional one on the last
    tile, with its layers; the first child is a copy. Instances that lose all layers vanish. The
    number of instances never exceeds the number of slots.

    A layer that stays but has no mapping on the new template moves to another instance that can
    run it; without such an instance that child stays a copy of its parent.
    """

    def __init__(self, prob: float = 1.0, **kwargs: Any) -> None:
        super().__init__(2, 2, prob=prob, **kwargs)

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        children = genomes_copy(X)
        _cross_instances(arrays_of(problem.space), children[0], children[1], random_state)
        return children


@inner
def splice_order(first, second, cut, child, taken):  # type: ignore[no-untyped-def]
    """Write to ``child`` the head of ``first`` up to ``cut`` and the rest as in ``second``."""
    taken[:] = False
    for k in range(cut):
        child[k] = first[k]
        taken[first[k]] = True
    k = cut
    for layer in second:
        if not taken[layer]:
            child[k] = layer
            k += 1


@njit(cache=True, nogil=True)
def _cross_orders(S, A, B, rng):  # type: ignore[no-untyped-def]
    n = S.n
    if n < 2:
        return
    taken = np.empty(n, dtype=np.bool_)
    for i in range(len(A)):
        cut = 1 + draw(rng, n - 1)
        a = A[i, :n].copy()
        b = B[i, :n].copy()
        splice_order(a, b, cut, A[i, :n], taken)
        splice_order(b, a, cut, B[i, :n], taken)


@inner
def take_mappings(S, child, donor_mapping, donor, cut):  # type: ignore[no-untyped-def]
    """Give ``child`` the donor's mappings of the layers at positions ``cut`` and later."""
    n = S.n
    for k in range(cut, n):
        layer = child[k]
        source = donor[3 * n + donor[2 * n + layer]]
        target = child[3 * n + child[2 * n + layer]]
        index = donor_mapping[layer]
        if source != target:
            row = S.offsets[S.unique[layer] * S.templates + source] + index
            index = S.transform[row, target]
        child[n + layer] = index


@njit(cache=True, nogil=True)
def _cross_mappings(S, A, B, rng):  # type: ignore[no-untyped-def]
    n = S.n
    if n < 2:
        return
    for i in range(len(A)):
        cut = 1 + draw(rng, n - 1)
        a = A[i, n : 2 * n].copy()
        b = B[i, n : 2 * n].copy()
        take_mappings(S, A[i], b, B[i], cut)
        take_mappings(S, B[i], a, A[i], cut)


@inner
def receive_instance(S, child, donor, slot, keep, load, rng):  # type: ignore[no-untyped-def]
    """Bring the donor's instance at ``slot``, with its layers, into ``child``."""
    n = S.n
    template = donor[3 * n + slot]
    count_loads(S, child, load)
    for layer in range(n):
        keep[layer] = donor[2 * n + layer] == slot
    if load[slot] == 0:
        if not S.fixed:
            append_tile(S, child, slot)
            child[3 * n + slot] = template
    elif child[3 * n + slot] != template:
        if not retemplate(S, child, slot, template, keep, load, rng):
            return
    for layer in range(n):
        if keep[layer]:
            load[child[2 * n + layer]] -= 1
            load[slot] += 1
            child[2 * n + layer] = slot
            child[n + layer] = donor[n + layer]
    drop_idle(S, child, load)


@njit(cache=True, nogil=True)
def _cross_instances(S, A, B, rng):  # type: ignore[no-untyped-def]
    keep = np.empty(S.n, dtype=np.bool_)
    load_a = np.empty(S.m, dtype=np.int64)
    load_b = np.empty(S.m, dtype=np.int64)
    load = np.empty(S.m, dtype=np.int64)
    for i in range(len(A)):
        count_loads(S, A[i], load_a)
        count_loads(S, B[i], load_b)
        count = 0
        for s in range(S.m):
            if load_a[s] + load_b[s] > 0:
                count += 1
        pick = draw(rng, count)
        slot = -1
        for s in range(S.m):
            if load_a[s] + load_b[s] > 0:
                if pick == 0:
                    slot = s
                pick -= 1
        old_a = A[i].copy()
        if load_b[slot] > 0:
            receive_instance(S, A[i], B[i], slot, keep, load, rng)
        if load_a[slot] > 0:
            receive_instance(S, B[i], old_a, slot, keep, load, rng)
