"""pymoo's mating on arrays: the same children from the same draws, without an object for each.

pymoo makes an ``Individual`` of every child, also of those that its duplicate filter drops, reads
genomes back out of them before every operator, and holds tournaments one by one. With genomes of a
thousand genes that is most of a generation's time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import binary_tournament
from pymoo.core.crossover import Crossover
from pymoo.core.mating import Mating
from pymoo.core.mutation import Mutation
from pymoo.core.repair import NoRepair
from pymoo.operators.selection.tournament import TournamentSelection

from mohsearch.engines.duplicates import SeenElimination
from mohsearch.engines.engine import FloatArray, IntArray
from mohsearch.engines.rows import column, genomes, population_of


class ArrayMating(Mating):  # type: ignore[misc]  # pymoo ships no types
    """Selection, crossover, mutation and the duplicate filter, on whole arrays.

    Draws the same random numbers in the same order as pymoo 0.6's ``Mating``, so that both make the
    same children.

    Parameters
    ----------
    mating
        What it takes the place of (see :func:`on_arrays`).
    """

    def __init__(self, mating: Mating) -> None:
        super().__init__(
            _selection(mating.selection),
            mating.crossover,
            mating.mutation,
            eliminate_duplicates=mating.eliminate_duplicates,
            n_max_iterations=mating.n_max_iterations,
        )

    def do(
        self,
        problem: Any,
        pop: Any,
        n_offsprings: int,
        random_state: Any = None,
        n_max_iterations: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return at most ``n_offsprings`` new individuals."""
        X = genomes(pop)
        batches: list[NDArray[Any]] = []
        missing = n_offsprings
        for _ in range(n_max_iterations or self.n_max_iterations):
            if missing <= 0:
                break
            children = self._children(problem, pop, X, missing, random_state, kwargs)
            kept = self.eliminate_duplicates.new_rows(children)[:missing]
            batches.append(children if len(kept) == len(children) else children[kept])
            missing -= len(kept)
        rows = np.concatenate(batches) if len(batches) > 1 else batches[0]
        return population_of(rows)

    def _children(
        self,
        problem: Any,
        pop: Any,
        X: NDArray[Any],
        count: int,
        rng: np.random.Generator,
        context: dict[str, Any],
    ) -> NDArray[Any]:
        matings = math.ceil(count / self.crossover.n_offsprings)
        parents = self.selection._do(
            problem,
            pop,
            matings,
            n_parents=self.crossover.n_parents,
            random_state=rng,
            **context,
        )
        children = crossed(problem, self.crossover, X[parents.T], rng, context)
        return mutated(problem, self.mutation, children, rng, context)


def on_arrays(mating: Any) -> Any:
    """Return the same mating on arrays, or ``mating`` itself where that would not be the same.

    The latter where operators bring more than ``_do``: a type or repair of their own, another
    ``do``, or another number of children than parents.
    """
    crossover, mutation = mating.crossover, mating.mutation
    plain = (
        type(mating) is Mating
        and isinstance(mating.repair, NoRepair)
        and isinstance(mating.eliminate_duplicates, SeenElimination)
        and mating.eliminate_duplicates.index is not None
        and type(crossover).do is Crossover.do
        and type(mutation).do is Mutation.do
        and crossover.n_parents == crossover.n_offsprings
        and all(o.vtype is None and o.repair is None for o in (crossover, mutation))
    )
    return ArrayMating(mating) if plain else mating


def _selection(selection: Any) -> Any:
    if getattr(selection, "func_comp", None) is binary_tournament:
        return TournamentSelection(func_comp=dominance_tournament)
    return selection


def crossed(
    problem: Any,
    crossover: Any,
    parents: NDArray[Any],
    rng: np.random.Generator,
    context: dict[str, Any],
) -> NDArray[Any]:
    """Return the children of each mating, shape (n, n_var): copies where chance spared them.

    Parameters
    ----------
    parents
        Shape (n_parents, n_matings, n_var), not shared with anything.
    """
    spared: NDArray[np.bool_] = np.asarray(rng.random(parents.shape[1]) >= probability(crossover))
    children = parents
    if not spared.all():
        before = parents[:, spared]
        children = crossover._do(problem, parents, random_state=rng, **context)
        children[:, spared] = before
    return np.asarray(children.reshape(-1, parents.shape[-1]))


def mutated(
    problem: Any,
    mutation: Any,
    X: NDArray[Any],
    rng: np.random.Generator,
    context: dict[str, Any],
) -> NDArray[Any]:
    """Return the rows of ``X`` after mutation: unchanged where chance spared them."""
    before = X.copy() if probability(mutation) < 1 else X
    mutants = np.asarray(mutation._do(problem, X, random_state=rng, **context))
    spared = rng.random(len(X)) > probability(mutation)
    if spared.any():
        mutants[spared] = before[spared]
    return mutants


def probability(operator: Any) -> float:
    """Return the probability with which pymoo applies an operator at all."""
    value = operator.prob
    return float(getattr(value, "value", value))


def dominance_tournament(pop: Any, P: IntArray, algorithm: Any, **kwargs: Any) -> IntArray:
    """Return the winners of binary tournaments: pymoo's ``binary_tournament`` of NSGA-II at once.

    Less constraint violation wins; among feasible ones the dominating one, or the one of better
    rank where the algorithm says so; then the larger crowding distance; then a coin.

    Parameters
    ----------
    P
        Numbers of the two contestants, shape (n, 2).

    Returns
    -------
    ndarray
        Numbers of the winners, shape (n, 1).
    """
    a, b = P.T
    violation = column(pop, "CV")[:, 0]
    if algorithm.tournament_type == "comp_by_dom_and_crowding":
        relation = _dominance(column(pop, "F"), a, b)
    else:
        relation = _less(column(pop, "rank"), a, b)
    room = _less(-column(pop, "crowding"), a, b)
    feasible = (violation[a] <= 0) & (violation[b] <= 0)
    better = np.where(feasible, np.where(relation != 0, relation, room), _less(violation, a, b))
    ties = np.flatnonzero(better == 0)
    better[ties] = 1 - 2 * algorithm.random_state.integers(0, 2, len(ties))
    return np.asarray(np.where(better > 0, a, b)[:, None])


def _less(values: FloatArray, a: IntArray, b: IntArray) -> NDArray[np.int8]:
    """Return 1 where ``a`` has the lesser value, -1 where ``b`` has, else 0."""
    return np.subtract(values[a] < values[b], values[a] > values[b], dtype=np.int8)


def _dominance(F: FloatArray, a: IntArray, b: IntArray) -> NDArray[np.int8]:
    """Return 1 where ``a`` dominates ``b``, -1 where the reverse, else 0."""
    smaller = (F[a] < F[b]).any(axis=1)
    larger = (F[a] > F[b]).any(axis=1)
    return np.subtract(smaller, larger, dtype=np.int8)
