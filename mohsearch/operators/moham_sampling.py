"""First populations of the moham search: random packages and heuristic seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pymoo.core.sampling import Sampling

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.operators.moham_kernels import arrays_of, draw, inner

SPREADS = (0.0, 2.0, 8.0)
"""How unevenly the networks of the application advance in a random order: standard deviation of
the logarithm of a network's weight. 0 makes all orders nearly equally likely, 8 runs one network
after the other."""


class RandomPackages(Sampling):  # type: ignore[misc]  # pymoo ships no types
    """Random valid packages.

    The number of instances is uniform in 1..min(m, n) and fills the slots from 0; templates are
    uniform; where a layer could not be mapped on any of them they are redrawn, then amended.
    Every layer goes to a uniform choice of the instances that can run it, with a uniform choice of
    its mappings there; an instance left empty takes a layer from another. Tiles are a random
    permutation. Under fixed hardware the templates are as given, and instances may stay empty.

    Orders are built from the front: among the layers that are ready the next is drawn with a
    weight of 1 + its number of descendants (for forests that makes every order equally likely),
    times a random weight of its network, whose spread is drawn from :data:`SPREADS` for each
    package. Orders thus range from evenly interleaved networks to one network after the other.

    Raises
    ------
    InfeasibleError
        If no set of as many templates as there are slots can run all layers.
    """

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        return random_packages(problem.space, n_samples, random_state)


class SeededPackages(Sampling):  # type: ignore[misc]
    """Packages made of every layer's best mapping.

    For each of three criteria (least latency, energy, area of the layer alone) and each choice of
    templates (each template alone, then the best of all) one design takes every layer's best
    mapping by that criterion; a layer that the single template cannot run takes the best of the
    others. Designs with one instance per template come first; if more samples are asked for, the
    designs repeat with a random number of instances per template, each holding random layers.
    Orders and tiles are random. Where one design wants more templates than there are slots, its
    layers get the best mapping on random instances instead.
    """

    def _do(
        self, problem: Any, n_samples: int, random_state: Any = None, **_: Any
    ) -> NDArray[np.int64]:
        return seeded_packages(problem.space, n_samples, random_state)


def random_packages(space: MohamSpace, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return random valid genomes, shape (count, n_var); see :class:`RandomPackages`."""
    X = np.empty((count, space.n_var), dtype=np.int64)
    S = arrays_of(space)
    network, weight = order_weights(S)
    _random_orders(S, X, network, weight, np.array(SPREADS), rng)
    fixed = np.empty(0, dtype=np.int64)
    if space.fixed_templates is not None:
        fixed = space.fixed_templates
    if not _random_hardware(S, X, fixed, rng):
        raise InfeasibleError(
            f"no {space.max_instances} instances can run all layers; allow more instances"
        )
    return X


@njit(cache=True, nogil=True)
def order_weights(S):  # type: ignore[no-untyped-def]
    """Return each layer's network (connected component) and 1 + its number of descendants."""
    n = S.n
    network = np.full(n, -1, dtype=np.int64)
    weight = np.ones(n)
    seen = np.empty(n, dtype=np.bool_)
    stack = np.empty(n, dtype=np.int64)
    for root in range(n):
        seen[:] = False
        stack[0] = root
        top = 1
        while top > 0:
            top -= 1
            layer = stack[top]
            for e in range(S.outof[layer], S.outof[layer + 1]):
                if not seen[S.after[e]]:
                    seen[S.after[e]] = True
                    weight[root] += 1
                    stack[top] = S.after[e]
                    top += 1
    networks = 0
    for root in range(n):
        if network[root] >= 0:
            continue
        network[root] = networks
        stack[0] = root
        top = 1
        while top > 0:
            top -= 1
            layer = stack[top]
            for e in range(S.outof[layer], S.outof[layer + 1]):
                if network[S.after[e]] < 0:
                    network[S.after[e]] = networks
                    stack[top] = S.after[e]
                    top += 1
            for e in range(S.into[layer], S.into[layer + 1]):
                if network[S.before[e]] < 0:
                    network[S.before[e]] = networks
                    stack[top] = S.before[e]
                    top += 1
        networks += 1
    return network, weight


@njit(cache=True, nogil=True)
def _random_orders(S, X, network, weight, spreads, rng):  # type: ignore[no-untyped-def]
    n = S.n
    ready = np.empty(n, dtype=np.int64)
    waiting = np.empty(n, dtype=np.int64)
    scale = np.empty(network.max() + 1)
    for x in X:
        spread = spreads[draw(rng, len(spreads))]
        for c in range(len(scale)):
            scale[c] = np.exp(spread * rng.standard_normal())
        count = 0
        total = 0.0
        for layer in range(n):
            waiting[layer] = S.into[layer + 1] - S.into[layer]
            if waiting[layer] == 0:
                ready[count] = layer
                count += 1
        for k in range(n):
            total = 0.0
            for r in range(count):
                total += weight[ready[r]] * scale[network[ready[r]]]
            mark = rng.random() * total
            pick = 0
            mark -= weight[ready[0]] * scale[network[ready[0]]]
            while mark >= 0.0 and pick < count - 1:
                pick += 1
                mark -= weight[ready[pick]] * scale[network[ready[pick]]]
            layer = ready[pick]
            ready[pick] = ready[count - 1]
            count -= 1
            x[k] = layer
            for e in range(S.outof[layer], S.outof[layer + 1]):
                s = S.after[e]
                waiting[s] -= 1
                if waiting[s] == 0:
                    ready[count] = s
                    count += 1


@inner
def _uncovered(S, x, rng):  # type: ignore[no-untyped-def]
    """Return a random layer that no instance can run, -1 if there is none."""
    found = -1
    count = 0
    for layer in range(S.n):
        can = False
        for s in range(S.m):
            t = x[3 * S.n + s]
            if t >= 0 and S.candidates[layer, t] > 0:
                can = True
                break
        if not can:
            count += 1
            if draw(rng, count) == 0:
                found = layer
    return found


@inner
def _draw_templates(S, x, rng):  # type: ignore[no-untyped-def]
    """Fill slots from 0 with random templates that can run all layers together."""
    n = S.n
    k = 1 + draw(rng, min(S.m, n))
    for attempt in range(10_000):
        if attempt < 10:
            x[3 * n : 3 * n + S.m] = -1
            for s in range(k):
                x[3 * n + s] = draw(rng, S.templates)
        lost = _uncovered(S, x, rng)
        if lost < 0:
            return True
        if attempt >= 10:
            useful = 0
            for t in range(S.templates):
                if S.candidates[lost, t] > 0:
                    useful += 1
            pick = draw(rng, useful)
            for t in range(S.templates):
                if S.candidates[lost, t] > 0:
                    if pick == 0:
                        if k < min(S.m, n):
                            x[3 * n + k] = t
                            k += 1
                        else:
                            x[3 * n + draw(rng, k)] = t
                    pick -= 1
    return False


@inner
def _assign_layers(S, x, load, rng):  # type: ignore[no-untyped-def]
    """Give every layer a random instance that can run it, and every instance a layer."""
    n = S.n
    load[:] = 0
    for layer in range(n):
        count = 0
        for s in range(S.m):
            t = x[3 * n + s]
            if t >= 0 and S.candidates[layer, t] > 0:
                count += 1
                if draw(rng, count) == 0:
                    x[2 * n + layer] = s
        load[x[2 * n + layer]] += 1
    if S.fixed:
        return
    for s in range(S.m):
        t = x[3 * n + s]
        if t >= 0 and load[s] == 0:
            count = 0
            taken = -1
            for layer in range(n):
                if S.candidates[layer, t] > 0 and load[x[2 * n + layer]] > 1:
                    count += 1
                    if draw(rng, count) == 0:
                        taken = layer
            if taken < 0:
                x[3 * n + s] = -1
            else:
                load[x[2 * n + taken]] -= 1
                load[s] = 1
                x[2 * n + taken] = s


@njit(cache=True, nogil=True)
def _random_hardware(S, X, fixed, rng):  # type: ignore[no-untyped-def]
    n, m = S.n, S.m
    load = np.empty(m, dtype=np.int64)
    for x in X:
        if S.fixed:
            x[3 * n : 3 * n + m] = fixed
        elif not _draw_templates(S, x, rng):
            return False
        for s in range(m):
            x[3 * n + m + s] = s
        for s in range(m - 1, 0, -1):
            q = draw(rng, s + 1)
            a, b = x[3 * n + m + s], x[3 * n + m + q]
            x[3 * n + m + s], x[3 * n + m + q] = b, a
        _assign_layers(S, x, load, rng)
        for layer in range(n):
            t = x[3 * n + x[2 * n + layer]]
            x[n + layer] = draw(rng, S.candidates[layer, t])
    return True


def seeded_packages(space: MohamSpace, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return heuristic genomes, shape (count, n_var); see :class:`SeededPackages`."""
    X = random_packages(space, count, rng)
    choices = [
        (feature, alone) for alone in (-1, *range(space.n_templates)) for feature in range(3)
    ]
    templates = [best_templates(space, feature, alone) for feature, alone in choices[:count]]
    for i, genome in enumerate(X):
        feature = choices[i % len(choices)][0]
        template = templates[i % len(choices)]
        if space.fixed_templates is None:
            _place_on_free(space, genome, template, i >= len(choices), rng)
        else:
            _place_on_fixed(space, genome, template, rng)
        blocks = space.view(genome)
        best = (space.fastest, space.least_energy, space.smallest)[feature]
        blocks.mapping[:] = best[np.arange(space.n_layers), blocks.template[blocks.slot]]
    return X


def best_templates(space: MohamSpace, feature: int, alone: int) -> NDArray[np.int64]:
    """Return for each layer the template of its best mapping by one feature, shape (n,).

    ``alone`` >= 0 takes that template wherever it can run the layer. Under fixed hardware only
    templates of the package count.
    """
    best = (space.fastest, space.least_energy, space.smallest)[feature]
    cell = space.unique_of_layer[:, None] * space.n_templates + np.arange(space.n_templates)
    usable = best >= 0
    if space.fixed_templates is not None:
        usable &= np.isin(np.arange(space.n_templates), space.fixed_templates)
    rows = np.where(usable, space.offsets[cell] + best, 0)
    value = np.where(usable, space.features[rows, feature], np.inf)
    template: NDArray[np.int64] = value.argmin(axis=1)
    if alone >= 0:
        template = np.where(usable[:, alone], alone, template)
    return template


def _place_on_free(
    space: MohamSpace,
    genome: NDArray[np.int64],
    template: NDArray[np.int64],
    spread: bool,
    rng: np.random.Generator,
) -> None:
    """Write instances of the wanted templates and the layers' slots."""
    used, layers = np.unique(template, return_counts=True)
    m = space.max_instances
    if len(used) > m:
        return  # the random instances stay, with the best mappings there
    copies = np.ones(len(used), dtype=np.int64)
    if spread:
        for _ in range(int(rng.integers(m - len(used) + 1))):
            copies[rng.choice(len(used), p=layers / layers.sum())] += 1
        copies = np.minimum(copies, layers)
    blocks = space.view(genome)
    blocks.template[:] = -1
    first = 0
    for t, k in zip(used, copies, strict=True):
        mine = rng.permutation(np.flatnonzero(template == t))
        own = np.concatenate([np.arange(k), rng.integers(k, size=len(mine) - k)])
        blocks.slot[mine] = first + own
        blocks.template[first : first + k] = t
        first += int(k)


def _place_on_fixed(
    space: MohamSpace,
    genome: NDArray[np.int64],
    template: NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """Spread the layers over the given instances of their templates."""
    blocks = space.view(genome)
    for t in np.unique(template):
        mine = np.flatnonzero(template == t)
        blocks.slot[mine] = rng.choice(np.flatnonzero(blocks.template == t), size=len(mine))
