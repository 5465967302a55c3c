"""What the exact mapper is measured against: random search and a genetic mapper, equal budgets.

Both draw from the space that :func:`mohsearch.evaluators.mapper.exact.search_layer` walks and cost
mappings with the same compiled code. The genetic one follows MEDEA (Russo et al., DATE 2022) as
MOHaM uses it: NSGA-II with binary tournaments, crossover that swaps a level's loops between two
parents, mutations that fill a buffer, raise the parallelism or move loops at random, and a new
random mapping in the place of an illegal child.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import moocore
import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.mapper import kernels as kn
from mohsearch.evaluators.mapper.exact import MappingFront
from mohsearch.evaluators.mapper.kernels import charge, compiled, enter_order, settle_level
from mohsearch.evaluators.mapper.space import MappingSpace, build_space, padded_layers
from mohsearch.evaluators.mapper.translate import MapperOptions, new_state, tables_of
from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.layer import LayerShape

FloatArray = NDArray[np.float64]

FILL, PARALLEL, RANDOM = 0.2, 0.2, 0.4
"""Mutation probabilities of MOHaM's configuration."""

POPULATION = 120


@compiled
def cost_factors(t, st, factors, heads, out):  # type: ignore[no-untyped-def]
    """Cost one mapping of the spatial choice entered: cycles, energy and area into ``out``.

    ``factors`` (L, 8) are its temporal factors, ``heads`` (L,) choose among the loop orders that
    may differ. Returns whether all tiles fit.
    """
    depth = t.depth
    for child in range(1, depth):
        for d in range(8):
            rest = st.rest[child - 1, d] / factors[child - 1, d]
            at = 0
            while t.divisors[d, at] != rest:
                at += 1
            st.left[child, d] = at
        if not settle_level(t, st, child - 1):
            return False
        orders = kn.list_orders(t, st, child - 1)
        enter_order(t, st, child - 1, st.heads[child - 1, heads[child - 1] % orders])
    last = depth - 1
    for level in range(depth):
        st.reads[depth, level] = st.reads[last, level]
        st.writes[depth, level] = st.writes[last, level]
    out[1] = st.energy[last] + charge(t, st, depth, depth)
    out[0] = kn.least_cycles(t, st, depth)
    out[2] = st.chip_area[last] + st.inner_area[depth]
    return True


@dataclass
class Candidate:
    """One mapping as the baselines vary it: spatial choice, temporal factors, order per level."""

    choice: int
    factors: NDArray[np.int64]
    heads: NDArray[np.int64]
    objectives: FloatArray


class MappingSampler:
    """Draws and costs mappings of a layer; counts every mapping it costs.

    The least padded variant of the layer is the one searched. Mappings that do not fit count too.
    """

    def __init__(
        self,
        layer: LayerShape,
        architecture: Architecture,
        rng: np.random.Generator,
        options: MapperOptions | None = None,
    ) -> None:
        options = options or MapperOptions()
        executed = padded_layers(layer, architecture, padding=options.padding)[0]
        self.space: MappingSpace = build_space(executed, architecture)
        self.tables = tables_of(self.space, options)
        self.state = new_state()
        self.rng = rng
        self.evaluations = 0
        self.depth = len(architecture.levels)
        self.bounds = np.array(executed.bounds())
        self.parallel = self.space.spatial.prod(axis=1)

    def random(self) -> Candidate | None:
        """Draw a mapping, each factorisation of each dimension equally likely; None if illegal."""
        choice = int(self.rng.integers(len(self.space.spatial)))
        factors = np.ones((self.depth, 8), dtype=np.int64)
        for d in range(8):
            factors[:, d] = self._random_split(d, int(self.bounds[d] // self.parallel[choice, d]))
        return self.cost(choice, factors, self.rng.integers(0, 60, size=self.depth))

    def _random_split(self, d: int, rest: int) -> NDArray[np.int64]:
        space, values = self.space, self.space.divisors[d]
        at = int(np.flatnonzero(values[: space.whole_bound[d] + 1] == rest)[0])
        factors = np.ones(self.depth, dtype=np.int64)
        for level in range(self.depth):
            start = int(space.option_start[level, d, at])
            options = space.option_next[start : start + int(space.option_count[level, d, at])]
            weight = space.chains[level + 1, d, options]
            following = int(self.rng.choice(options, p=weight / weight.sum()))
            factors[level] = values[at] // values[following]
            at = following
        return factors

    def legal(self, choice: int, factors: NDArray[np.int64]) -> bool:
        """Tell whether factors multiply up to the bounds and stand where the rules allow them."""
        space = self.space
        for d in range(8):
            rest = int(self.bounds[d] // self.parallel[choice, d])
            if factors[:, d].prod() != rest:
                return False
            values = space.divisors[d]
            for level in range(self.depth):
                at = int(np.searchsorted(values[: space.whole_bound[d] + 1], rest))
                start = int(space.option_start[level, d, at])
                options = space.option_next[start : start + int(space.option_count[level, d, at])]
                rest //= int(factors[level, d])
                if not (values[options] == rest).any():
                    return False
        return True

    def cost(
        self, choice: int, factors: NDArray[np.int64], heads: NDArray[np.int64]
    ) -> Candidate | None:
        """Cost a legal mapping; None where a tile does not fit."""
        self.evaluations += 1
        self.state["sigma"][: self.depth] = self.space.spatial[choice]
        if kn.enter_spatial(self.tables, self.state):
            return None
        out = np.empty(3)
        if not cost_factors(self.tables, self.state, factors, heads, out):
            return None
        return Candidate(choice, factors, heads, out)


def random_search(
    layer: LayerShape,
    architecture: Architecture,
    evaluations: int,
    rng: np.random.Generator,
    options: MapperOptions | None = None,
) -> FloatArray:
    """Return the non-dominated objectives among ``evaluations`` random mappings, shape (n, 3)."""
    sampler = MappingSampler(layer, architecture, rng, options)
    found = []
    while sampler.evaluations < evaluations:
        candidate = sampler.random()
        if candidate is not None:
            found.append(candidate.objectives)
    return _non_dominated(found)


def genetic_search(
    layer: LayerShape,
    architecture: Architecture,
    evaluations: int,
    rng: np.random.Generator,
    options: MapperOptions | None = None,
) -> FloatArray:
    """Return the non-dominated objectives that a genetic mapper finds, shape (n, 3).

    All mappings costed on the way count, illegal children's replacements included.
    """
    sampler = MappingSampler(layer, architecture, rng, options)
    population: list[Candidate] = []
    seen: list[FloatArray] = []
    while len(population) < POPULATION and sampler.evaluations < evaluations:
        drawn = sampler.random()
        if drawn is not None:
            population.append(drawn)
            seen.append(drawn.objectives)
    while sampler.evaluations < evaluations and population:
        rank, crowding = _rank(population)
        children: list[Candidate] = []
        while len(children) < POPULATION and sampler.evaluations < evaluations:
            first, second = (_tournament(rank, crowding, rng) for _ in range(2))
            child = _offspring(sampler, population[first], population[second])
            child = child or sampler.random()
            if child is not None:
                children.append(child)
                seen.append(child.objectives)
        population = _survivors([*population, *children])
    return _non_dominated(seen)


def _offspring(sampler: MappingSampler, mother: Candidate, father: Candidate) -> Candidate | None:
    """Return a child, None where it is illegal."""
    rng, depth = sampler.rng, sampler.depth
    choice, factors, heads = mother.choice, mother.factors.copy(), mother.heads.copy()
    level = int(rng.integers(1, depth)) if depth > 1 else 0
    factors[level], heads[level] = father.factors[level], father.heads[level]
    if rng.random() < PARALLEL:
        choice = _more_parallel(sampler, choice)
    if rng.random() < FILL:
        _move_factor(sampler, factors, inward=True)
    if rng.random() < RANDOM:
        if rng.random() < 0.5:
            _move_factor(sampler, factors, inward=bool(rng.integers(2)))
        else:
            heads[int(rng.integers(depth))] = int(rng.integers(60))
    _compensate(sampler, choice, factors)
    if not sampler.legal(choice, factors):
        return None
    return sampler.cost(choice, factors, heads)


def _more_parallel(sampler: MappingSampler, choice: int) -> int:
    """Return a spatial choice that uses at least as many instances (they are sorted by that)."""
    return int(sampler.rng.integers(choice + 1))


def _move_factor(sampler: MappingSampler, factors: NDArray[np.int64], *, inward: bool) -> None:
    """Move a prime factor of a random loop to another level, in place."""
    rng, depth = sampler.rng, sampler.depth
    loops = np.argwhere(factors > 1)
    if not len(loops) or depth < 2:
        return
    level, d = (int(v) for v in loops[rng.integers(len(loops))])
    targets = range(level + 1, depth) if inward else range(level)
    if not targets:
        return
    value = int(factors[level, d])
    prime = next(p for p in range(2, value + 1) if value % p == 0)
    factors[level, d] //= prime
    factors[int(rng.choice(list(targets))), d] *= prime


def _compensate(sampler: MappingSampler, choice: int, factors: NDArray[np.int64]) -> None:
    """Mend dimensions whose factors no longer multiply up to their bounds, outermost level first.

    What is missing goes to the memory's loops; what is too much is taken from there, or the
    dimension is split anew.
    """
    for d in range(8):
        rest = int(sampler.bounds[d] // sampler.parallel[choice, d])
        inner = int(factors[1:, d].prod())
        if rest % inner == 0:
            factors[0, d] = rest // inner
        else:
            factors[:, d] = sampler._random_split(d, rest)


def _rank(population: list[Candidate]) -> tuple[NDArray[Any], FloatArray]:
    """Return non-domination ranks and crowding distances."""
    objectives = np.array([c.objectives for c in population])
    rank = np.asarray(moocore.pareto_rank(objectives))
    crowding = np.zeros(len(population))
    for value in np.unique(rank):
        members = np.flatnonzero(rank == value)
        for column in objectives[members].T:
            order = np.argsort(column, kind="stable")
            span = column[order[-1]] - column[order[0]]
            crowding[members[order[[0, -1]]]] = np.inf
            if span > 0 and len(members) > 2:
                gaps = (column[order[2:]] - column[order[:-2]]) / span
                crowding[members[order[1:-1]]] += gaps
    return rank, crowding


def _tournament(rank: NDArray[Any], crowding: FloatArray, rng: np.random.Generator) -> int:
    a, b = (int(v) for v in rng.integers(len(rank), size=2))
    if rank[a] != rank[b]:
        return a if rank[a] < rank[b] else b
    return a if crowding[a] >= crowding[b] else b


def _survivors(population: list[Candidate]) -> list[Candidate]:
    rank, crowding = _rank(population)
    order = np.lexsort((-crowding, rank))[:POPULATION]
    return [population[i] for i in order]


def _non_dominated(found: list[FloatArray]) -> FloatArray:
    if not found:
        return np.empty((0, 3))
    points = np.unique(np.array(found), axis=0)
    kept: FloatArray = points[np.asarray(moocore.is_nondominated(points))]
    return kept


def relative_hypervolume(front: MappingFront, points: FloatArray) -> float:
    """Return the hypervolume of ``points`` over that of an exact front.

    In the logarithms of cycles, energy and area, scaled so that the front spans the unit cube; the
    reference point is 10 % beyond it.
    """
    exact = np.log(front.objectives)
    low, span = exact.min(axis=0), np.ptp(exact, axis=0)
    span = np.where(span > 0, span, 1.0)
    reference = np.full(3, 1.1)

    def volume(logs: FloatArray) -> float:
        scaled = (logs - low) / span
        inside = scaled[(scaled < reference).all(axis=1)]
        return float(moocore.hypervolume(inside, ref=reference)) if len(inside) else 0.0

    return volume(np.log(points)) / volume(exact) if len(points) else 0.0
