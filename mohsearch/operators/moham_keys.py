"""Generic integer operators on the moham genome, for comparison: pymoo's own, with a repair.

A row of plain integers is read as a package by :func:`decode_keys`, so that operators that know
nothing of packages can be used. Execution orders travel as random keys (the position of each
layer), the usual way to hand a permutation to integer operators.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation

from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.operators.moham_kernels import arrays_of, genomes_copy, inner
from mohsearch.operators.moham_sampling import random_packages


class KeysCrossover(Crossover):  # type: ignore[misc]  # pymoo ships no types
    """A generic integer crossover of pymoo on keys, then the repair of :func:`decode_keys`.

    Parameters
    ----------
    prob
        Probability per mating when pymoo applies the operator alone.
    method
        ``sbx`` (simulated binary, rounded) or ``uniform``.
    eta
        Distribution index of ``sbx``; pymoo's documentation advises 3 for integers.
    """

    def __init__(
        self,
        prob: float = 1.0,
        method: Literal["sbx", "uniform"] = "sbx",
        eta: float = 3.0,
        **kwargs: Any,
    ) -> None:
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.crossover.ux import UX

        super().__init__(2, 2, prob=prob, **kwargs)
        if method not in {"sbx", "uniform"}:
            raise ValueError(f"method must be 'sbx' or 'uniform', got {method!r}")
        self.inner = SBX(eta=eta) if method == "sbx" else UX()

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        keys = encode_keys(problem.space, X)
        children = self.inner._do(problem, keys, random_state=random_state)
        return decode_keys(problem.space, children)


class KeysMutation(Mutation):  # type: ignore[misc]
    """A generic integer mutation of pymoo on keys, then the repair of :func:`decode_keys`.

    Parameters
    ----------
    prob
        Probability per genome when pymoo applies the operator alone.
    method
        ``polynomial`` (rounded) or ``reset`` (a uniform value within the gene's bounds).
    eta
        Distribution index of ``polynomial``.
    prob_var
        Probability per gene (default: 1 / number of genes).
    """

    def __init__(
        self,
        prob: float = 1.0,
        method: Literal["polynomial", "reset"] = "polynomial",
        eta: float = 3.0,
        prob_var: float | None = None,
        **kwargs: Any,
    ) -> None:
        from pymoo.operators.mutation.pm import PM

        super().__init__(prob=prob, prob_var=prob_var, **kwargs)
        if method not in {"polynomial", "reset"}:
            raise ValueError(f"method must be 'polynomial' or 'reset', got {method!r}")
        self.inner = PM(eta=eta, prob_var=prob_var) if method == "polynomial" else None

    def _do(
        self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        keys = encode_keys(problem.space, X)
        if self.inner is not None:
            keys = self.inner._do(problem, keys, random_state=random_state)
        else:
            rate = self.get_prob_var(problem, size=len(keys))[:, None]
            fresh = random_state.integers(problem.space.lower, problem.space.upper + 1, keys.shape)
            keys = np.where(random_state.random(keys.shape) < rate, fresh, keys)
        return decode_keys(problem.space, keys)


def encode_keys(space: MohamSpace, X: NDArray[Any]) -> NDArray[np.int64]:
    """Return valid genomes with the order block replaced by the position of each layer.

    Shapes ``(..., n_var)``. :func:`decode_keys` is the inverse on valid genomes.
    """
    keys = genomes_copy(X)
    order = space.view(np.asarray(X)).order
    positions = np.broadcast_to(np.arange(space.n_layers), order.shape)
    np.put_along_axis(space.view(keys).order, order, positions, axis=-1)
    return keys


def decode_keys(space: MohamSpace, keys: NDArray[Any]) -> NDArray[np.int64]:
    """Read any numbers as valid genomes; shapes ``(..., n_var)``.

    Real numbers are rounded. In this order:

    1. order: of the layers whose predecessors have run, the one with the least key comes next
       (ties: the lower id);
    2. slot: modulo the number of slots (under fixed hardware: on to the next slot that has a
       template);
    3. template: modulo the number of templates;
    4. a layer that cannot be mapped on its slot's template goes to the next occupied slot that can
       run it, else to the next empty one, which gets a suitable template; if no slot is empty, its
       own slot gets the next template that can run it and this step starts again; should that not
       end after ``m * T`` rounds, slots and templates are those of a fixed random package;
    5. empty slots lose their template;
    6. mapping: modulo the number of candidates;
    7. tile: the rank of the gene (ties: the lower slot).
    """
    rows = np.rint(np.asarray(keys, dtype=np.float64)).astype(np.int64)
    flat = np.ascontiguousarray(rows.reshape(-1, space.n_var))
    genomes = np.empty_like(flat)
    arrays = arrays_of(space)
    fixed = np.empty(0, np.int64) if space.fixed_templates is None else space.fixed_templates
    if not _decode(arrays, flat, genomes, fixed, np.empty(0, np.int64)):
        spare = random_packages(space, 1, np.random.Generator(np.random.PCG64(0)))[0]
        _decode(arrays, flat, genomes, fixed, spare)
    return genomes.reshape(rows.shape)


@njit(cache=True, nogil=True)
def _decode(S, keys, genomes, fixed, spare):  # type: ignore[no-untyped-def]
    """Decode all rows; False if a row needs a spare genome and there is none."""
    n, m = S.n, S.m
    waiting = np.empty(n, dtype=np.int64)
    ready = np.empty(n, dtype=np.int64)
    used = np.empty(m, dtype=np.bool_)
    for i in range(len(keys)):
        key = keys[i]
        x = genomes[i]
        _decode_order(S, key, x, waiting, ready)
        for s in range(m):
            x[3 * n + s] = fixed[s] if S.fixed else key[3 * n + s] % S.templates
        for layer in range(n):
            slot = key[2 * n + layer] % m
            while x[3 * n + slot] < 0:
                slot = (slot + 1) % m
            x[2 * n + layer] = slot
        settled = False
        for _ in range(1 + m * S.templates):
            used[:] = False
            for layer in range(n):
                used[x[2 * n + layer]] = True
            if _settle(S, x, used):
                settled = True
                break
        if not settled:
            if len(spare) == 0:
                return False
            x[2 * n : 3 * n + m] = spare[2 * n : 3 * n + m]
        used[:] = False
        for layer in range(n):
            slot = x[2 * n + layer]
            used[slot] = True
            x[n + layer] = key[n + layer] % S.candidates[layer, x[3 * n + slot]]
        for s in range(m):
            if not used[s] and not S.fixed:
                x[3 * n + s] = -1
            rank = 0
            for q in range(m):
                a, b = key[3 * n + m + q], key[3 * n + m + s]
                if a < b or (a == b and q < s):
                    rank += 1
            x[3 * n + m + s] = rank
    return True


@inner
def _decode_order(S, key, x, waiting, ready):  # type: ignore[no-untyped-def]
    count = 0
    for layer in range(S.n):
        waiting[layer] = S.into[layer + 1] - S.into[layer]
        if waiting[layer] == 0:
            ready[count] = layer
            count += 1
    for k in range(S.n):
        pick = 0
        for r in range(1, count):
            a, b = ready[r], ready[pick]
            if key[a] < key[b] or (key[a] == key[b] and a < b):
                pick = r
        layer = ready[pick]
        count -= 1
        ready[pick] = ready[count]
        x[k] = layer
        for e in range(S.outof[layer], S.outof[layer + 1]):
            s = S.after[e]
            waiting[s] -= 1
            if waiting[s] == 0:
                ready[count] = s
                count += 1


@inner
def _settle(S, x, used):  # type: ignore[no-untyped-def]
    """Step 4 of :func:`decode_keys`; False if it has to start again."""
    n, m = S.n, S.m
    for layer in range(n):
        own = x[2 * n + layer]
        if S.candidates[layer, x[3 * n + own]] > 0:
            continue
        goal = -1
        for step in range(1, m):
            s = (own + step) % m
            t = x[3 * n + s]
            if (used[s] or S.fixed) and t >= 0 and S.candidates[layer, t] > 0:
                goal = s
                break
        if goal < 0:
            change = own
            for step in range(1, m):
                s = (own + step) % m
                if not used[s]:
                    goal = change = s
                    break
            t = x[3 * n + change]
            for step in range(S.templates):
                if S.candidates[layer, (t + step) % S.templates] > 0:
                    x[3 * n + change] = (t + step) % S.templates
                    break
            if goal < 0:
                return False
        x[2 * n + layer] = goal
        used[goal] = True
    return True
