"""MOEA/D that spends its budget on genomes it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.moead import ParallelMOEAD

from mohsearch.engines.duplicates import SeenElimination
from mohsearch.engines.engine import IntArray
from mohsearch.engines.rows import population_of


class NovelMOEAD(ParallelMOEAD):  # type: ignore[misc]  # pymoo ships no types
    """pymoo's MOEA/D in batches, without children that were evaluated before.

    MOEA/D as published keeps such children. Where genes are whole numbers and parents are
    neighbours, most children are copies, and under an equal number of evaluations it would get but
    a part of what other methods get. Here a subproblem whose child is known mates again, and takes
    a fresh sample where that does not help.

    Also, each subproblem gets a child of its own neighbourhood: pymoo 0.6.2 takes the children for
    sorted by mating, but they are sorted by their place among the children of a mating.

    Source: Zhang and Li 2007, by pymoo.

    Parameters
    ----------
    ref_dirs
        One direction for each subproblem, shape (population, objectives).
    rounds
        Matings tried for each child.
    duplicates
        Tells what was evaluated before; its batch is started by the caller.
    fresh
        Returns at most so many genomes that are neither known nor in the batch.
    """

    def __init__(
        self,
        ref_dirs: Any,
        *,
        rounds: int,
        duplicates: SeenElimination,
        fresh: Callable[[int], NDArray[Any]],
        **kwargs: Any,
    ) -> None:
        super().__init__(ref_dirs, **kwargs)
        self.rounds = rounds
        self.duplicates = duplicates
        self.fresh = fresh

    def _initialize_infill(self) -> Any:
        """Return one genome for each subproblem; some twice where the space has too few."""
        rows = self.fresh(self.pop_size)
        return population_of(rows[np.arange(self.pop_size) % len(rows)])

    def _infill(self) -> Any:
        count = min(self.n_offsprings, len(self.pop))
        waiting: IntArray = self.random_state.permutation(len(self.pop))[:count]
        places, rows = [waiting[:0]], [self.pop.get("X")[:0]]
        for _ in range(self.rounds):
            if not len(waiting):
                break
            children = self._children(waiting)
            new = self.duplicates.new_rows(children)
            places.append(waiting[new])
            rows.append(children[new])
            waiting = np.delete(waiting, new)
        if len(waiting):
            rows.append(self.fresh(len(waiting)))
            places.append(waiting[: len(rows[-1])])
        self.indices = np.concatenate(places)
        return population_of(np.concatenate(rows))

    def _children(self, places: IntArray) -> NDArray[Any]:
        """Return one child of each subproblem, shape (subproblems, n_var)."""
        mating = self.mating
        parents = self.selection.do(
            self.problem,
            self.pop,
            len(places),
            mating.crossover.n_parents,
            neighbors=self.neighbors[places],
            random_state=self.random_state,
        )
        children = mating.do(
            self.problem,
            self.pop,
            len(places) * mating.crossover.n_offsprings,
            n_max_iterations=1,
            parents=parents,
            random_state=self.random_state,
        ).get("X")
        siblings = children.reshape(-1, len(places), children.shape[-1])
        chosen = self.random_state.integers(len(siblings), size=len(places))
        return np.asarray(siblings[chosen, np.arange(len(places))])
