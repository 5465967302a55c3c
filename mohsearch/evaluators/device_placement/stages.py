"""All stages a plan may be built of, with their loads and memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.kernels import (
    chain_loads,
    chain_stash,
    subgraph_load,
    subset_pairs,
)
from mohsearch.evaluators.device_placement.problem import (
    Flags,
    Floats,
    Integers,
    LayerCosts,
    PlacementProblem,
)

MAX_DOWNSETS = 6000
"""More closed layer sets than this are refused: the program grows with their square."""


@dataclass(frozen=True)
class StagePairs:
    """Every stage as a pair of closed layer sets: what is left before and after it is taken.

    Attributes
    ----------
    whole, part
        Numbers of the two sets, shape (pairs,); sorted by ``whole``; set 0 is empty.
    members
        Layers in each set, shape (sets, layers); the last set has all.
    """

    whole: Integers
    part: Integers
    members: Flags

    @property
    def sets(self) -> int:
        """Number of closed sets."""
        return len(self.members)

    def layers_of(self, pair: int) -> Integers:
        """Return the positions of the layers of one stage."""
        return np.flatnonzero(self.members[self.whole[pair]] & ~self.members[self.part[pair]])


@dataclass(frozen=True)
class StageTable:
    """Loads in seconds and memory in bytes of every stage, shape (pairs,)."""

    last_load: Floats
    inner_load: Floats
    weights: Floats
    state: Floats
    activations: Floats
    kept: Floats
    wide: Flags

    @property
    def fixed(self) -> Floats:
        """Memory of a stage at the end of the pipeline."""
        return self.state + self.activations


@lru_cache(maxsize=64)
def _interval_pairs(n: int) -> StagePairs:
    """Stages of a chain: set k holds the last k layers."""
    whole, part = np.tril_indices(n + 1, -1)
    members = np.arange(n)[None, :] >= n - np.arange(n + 1)[:, None]
    return StagePairs(whole.astype(np.int64), part.astype(np.int64), members)


def _branching_pairs(problem: PlacementProblem) -> StagePairs:
    """Stages of any layer graph: differences of sets that are closed under successors."""
    n = problem.layers
    after = [0] * n
    for u, v in zip(problem.sources.tolist(), problem.targets.tolist(), strict=True):
        after[u] |= 1 << v
    known = {0}
    frontier = [0]
    while frontier:
        grown = {
            closed | 1 << v
            for closed in frontier
            for v in range(n)
            if not closed >> v & 1 and not after[v] & ~closed
        }
        frontier = list(grown - known)
        known |= grown
        if len(known) > MAX_DOWNSETS:
            raise InfeasibleError(
                f"the layer graph branches too widely: more than {MAX_DOWNSETS:,} sets of layers "
                "are closed under successors"
            )
    ordered = sorted(known, key=lambda closed: (closed.bit_count(), closed))
    members = np.array([[bool(c >> v & 1) for v in range(n)] for c in ordered])
    words = np.array(
        [[c >> 63 * k & (1 << 63) - 1 for k in range(-(-n // 63))] for c in ordered],
        dtype=np.int64,
    )
    whole, part = subset_pairs(words)
    return StagePairs(whole, part, members)


def stage_pairs(problem: PlacementProblem) -> StagePairs:
    """Return all stages a plan may be built of.

    Raises
    ------
    InfeasibleError
        If the layer graph has more than :data:`MAX_DOWNSETS` closed sets.
    """
    return _interval_pairs(problem.layers) if problem.is_chain else _branching_pairs(problem)


def stage_table(problem: PlacementProblem, costs: LayerCosts, pairs: StagePairs) -> StageTable:
    """Return load and memory of every stage for one tensor-parallel width (paper, B.1)."""
    transfer = costs.edge_bytes / problem.bandwidth_bytes_per_s
    n = problem.layers
    edges = (problem.sources, problem.targets)
    if problem.is_chain:
        i, j = n - pairs.whole, n - pairs.part
        tables = chain_loads(costs.forward_s, costs.backward_s, *edges, transfer)
        forth, back, again = (table[i, j] for table in tables)
        entering = chain_stash(*edges, costs.edge_bytes, n)[i, j]

        def total(values: Floats) -> Floats:
            sums = np.concatenate(([0.0], np.cumsum(values)))
            return np.asarray(sums[j] - sums[i])
    else:
        inside = pairs.members[pairs.whole] & ~pairs.members[pairs.part]
        loads = [
            subgraph_load(stage, costs.forward_s, costs.backward_s, *edges, transfer)
            for stage in inside
        ]
        forth, back, again = (np.array(column) for column in zip(*loads, strict=True))
        crosses = inside[:, problem.targets] & ~inside[:, problem.sources]
        entering = crosses @ costs.edge_bytes

        def total(values: Floats) -> Floats:
            return np.asarray(inside @ values)

    once = forth + back
    work = total(costs.forward_s)
    repeated = forth + work + (again if problem.overlap_recompute else back)
    activations = total(costs.activation_bytes)
    fed = pairs.whole == pairs.sets - 1
    kept = entering + np.where(fed, problem.input_bytes, 0.0) if problem.recompute else activations
    return StageTable(
        last_load=once,
        inner_load=repeated if problem.recompute else once,
        weights=total(costs.weight_bytes),
        state=total(costs.state_bytes),
        activations=activations,
        kept=kept,
        wide=total(costs.sliced.astype(np.float64)) > 0.5,
    )
