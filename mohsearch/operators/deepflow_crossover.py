"""Crossovers of the deepflow search, and pymoo's generic operators with a repair."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation

from mohsearch.evaluators.crossflow.design_space import (
    CLASS_GENES,
    G_LOGIC,
    G_NODE_AREA,
    G_STACKS,
    G_STRATEGY,
    G_TDP,
    GENES,
)

Genomes = NDArray[np.float64]

BLOCKS = (
    *CLASS_GENES,
    *(slice(gene, gene + 1) for gene in range(G_LOGIC, G_STRATEGY)),
    slice(G_STRATEGY, G_STACKS),
    slice(G_STACKS, GENES),
)
"""Area, power, perimeter fractions; logic, memory, network; power, area of a node; strategy with
its order; extra stacks."""
WHOLE_BLOCKS = (
    *CLASS_GENES,
    slice(G_LOGIC, G_TDP),
    slice(G_TDP, G_STRATEGY),
    slice(G_STRATEGY, G_STACKS),
    slice(G_STACKS, GENES),
)
"""The same with technology in one block and both budgets in one."""


class BlendCrossover(Crossover):  # type: ignore[misc]  # pymoo ships no types
    """Children on the line through two parents, in their fractions and budgets.

    The weight is uniform in ``-beyond`` to ``1 + beyond``, drawn anew for area, power and perimeter
    fractions and for each budget; what leaves the simplex is brought back.
    Technology, strategy and order stay with the first parent of each child.

    Parameters
    ----------
    beyond
        How far outside the parents' line segment children may lie.
    together
        One weight for all of a child's genes.
    """

    def __init__(
        self, prob: float = 1.0, beyond: float = 0.25, together: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(2, 2, prob=prob, **kwargs)
        if beyond < 0.0:
            raise ValueError(f"beyond must not be negative, got {beyond}")
        self.beyond = beyond
        self.together = together

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children = np.array(X, dtype=np.float64)
        count = children.shape[1]
        parts = (*CLASS_GENES, slice(G_TDP, G_TDP + 1), slice(G_NODE_AREA, G_NODE_AREA + 1))
        drawn = 1 if self.together else len(parts)
        weights = random_state.uniform(-self.beyond, 1.0 + self.beyond, (drawn, count, 1))
        for i, genes in enumerate(parts):
            weight = weights[0 if self.together else i]
            a, b = children[0][:, genes].copy(), children[1][:, genes].copy()
            children[0][:, genes] = a + weight * (b - a)
            children[1][:, genes] = b + weight * (a - b)
        return _repaired(problem, children)


class BlockCrossover(Crossover):  # type: ignore[misc]
    """Exchanges whole blocks between two parents: any choice of them but none and all.

    Blocks are the fractions of one budget, logic node, memory and network, power and area of a
    node, the strategy with its mapping order, and the extra memory stacks.

    Parameters
    ----------
    whole
        Technology is one block, and power and area of a node are one.
    """

    def __init__(self, prob: float = 1.0, whole: bool = False, **kwargs: Any) -> None:
        super().__init__(2, 2, prob=prob, **kwargs)
        self.blocks = WHOLE_BLOCKS if whole else BLOCKS

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        children = np.array(X, dtype=np.float64)
        count = children.shape[1]
        free = problem.space.free
        live = [block for block in self.blocks if free[block].any()]
        if len(live) < 2:
            return children
        number = random_state.integers(1, 2 ** len(live) - 1, count)
        for i, block in enumerate(live):
            rows = np.flatnonzero((number >> i) & 1)
            children[0][rows, block], children[1][rows, block] = (
                children[1][rows, block].copy(),
                children[0][rows, block].copy(),
            )
        return children


class GenericCrossover(Crossover):  # type: ignore[misc]
    """pymoo's simulated binary crossover on the raw genes, repaired.

    Parameters
    ----------
    eta
        Distribution index.
    """

    def __init__(self, prob: float = 1.0, eta: float = 15.0, **kwargs: Any) -> None:
        from pymoo.operators.crossover.sbx import SBX

        super().__init__(2, 2, prob=prob, **kwargs)
        self.inner = SBX(eta=eta, prob=1.0)

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        pairs = np.array(X, dtype=np.float64)
        children = self.inner._do(problem, pairs, random_state=random_state)
        return _repaired(problem, np.asarray(children, dtype=np.float64))


class GenericMutation(Mutation):  # type: ignore[misc]
    """pymoo's polynomial mutation on the raw genes, repaired.

    Parameters
    ----------
    eta
        Distribution index.
    """

    def __init__(self, prob: float = 1.0, eta: float = 20.0, **kwargs: Any) -> None:
        from pymoo.operators.mutation.pm import PM

        super().__init__(prob=prob, **kwargs)
        self.inner = PM(eta=eta)

    def _do(self, problem: Any, X: Any, random_state: Any = None, **_: Any) -> Genomes:
        rows = np.array(X, dtype=np.float64)
        changed = self.inner._do(problem, rows, random_state=random_state)
        return np.asarray(problem.space.repair(np.asarray(changed, dtype=np.float64)))


def _repaired(problem: Any, children: Genomes) -> Genomes:
    shape = children.shape
    return np.asarray(problem.space.repair(children.reshape(-1, shape[-1])).reshape(shape))
