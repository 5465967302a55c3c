"""The placement program: exact, stage by stage from the end of the pipeline.

Source: PHAZE, section 5 and appendix B. Two observations keep it small. The devices of a stage are
fixed by its layers (the tensor-parallel width, or one), so the devices used follow from how many
stages and how many wide ones there are, and the table needs no device axis. And of all replica
counts that give a pipeline the same number of microbatches, only the smallest matters.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mohsearch.evaluators.device_placement.interleaved import place_interleaved
from mohsearch.evaluators.device_placement.kernels import choose_first_stage, place_stages
from mohsearch.evaluators.device_placement.plan import balance_bound_s, evaluate_plan
from mohsearch.evaluators.device_placement.problem import (
    Floats,
    Integers,
    LayerCosts,
    Placement,
    PlacementProblem,
)
from mohsearch.evaluators.device_placement.stages import (
    StagePairs,
    StageTable,
    stage_pairs,
    stage_table,
)


def place(problem: PlacementProblem) -> Placement:
    """Return the fastest plan over all widths, degrees and partitions.

    The result is optimal for the model of :class:`PlacementProblem`; on a tie the smaller
    tensor-parallel width is kept. Layers of a stage run one after another. Where several virtual
    stages a device are allowed, their plans are found by balancing chunks, and the bound may be
    lower than the time (:mod:`mohsearch.evaluators.device_placement.interleaved`).

    Parameters
    ----------
    problem
        Network, cluster and cost model.

    Returns
    -------
    Placement
        Without stages, and with an infinite time, when no plan fits.

    Raises
    ------
    InfeasibleError
        If the layer graph branches too widely to be enumerated.
    """
    pairs = stage_pairs(problem)
    found = [_place_flat(part, pairs) for part in problem.at_levels()]
    if max(problem.virtual_stages) > 1:
        found += [place_interleaved(part, pairs) for part in problem.at_levels()]
    if 1 not in problem.virtual_stages:
        found = found[len(problem.at_levels()) :]
    best = min(found, key=lambda plan: plan.time_per_batch_s)
    return replace(
        best,
        bound_s=min(best.time_per_batch_s, *(plan.bound_s for plan in found)),
        balance_bound_s=min(plan.balance_bound_s for plan in found),
    )


def _place_flat(problem: PlacementProblem, pairs: StagePairs) -> Placement:
    """Return the fastest plan with one stage a device on a flat network."""
    fastest = math.inf
    plan: tuple[int, int, list[list[int]]] | None = None
    bound = math.inf
    for tensor, costs in sorted(problem.costs.items()):
        bound = min(bound, balance_bound_s(problem, tensor, costs))
        table = stage_table(problem, costs, pairs)
        found = _WidthSearch(problem, tensor, costs, pairs, table).search(fastest)
        if found is not None:
            fastest, degree, stages = found
            plan = (tensor, degree, stages)
    if plan is None:
        return Placement((), 0, 0, math.inf, math.inf, bound)
    result = evaluate_plan(problem, *plan, balance_bound_s=bound)
    if not math.isclose(result.time_per_batch_s, fastest, rel_tol=1e-9):
        raise RuntimeError(f"plan re-evaluates to {result.time_per_batch_s}, not to {fastest}")
    return result


class _WidthSearch:
    """The program for one tensor-parallel width."""

    def __init__(
        self,
        problem: PlacementProblem,
        tensor: int,
        costs: LayerCosts,
        pairs: StagePairs,
        table: StageTable,
    ) -> None:
        self.problem = problem
        self.tensor = tensor
        self.pairs = pairs
        self.table = table
        self.counted = bool(costs.sliced.any() and not costs.sliced.all() and tensor > 1)
        self.narrow = tensor if costs.sliced.all() else 1
        self.stages = min(problem.layers, problem.devices // self.narrow)
        self.first = np.flatnonzero(pairs.whole == pairs.sets - 1)

    def search(self, limit: float) -> tuple[float, int, list[list[int]]] | None:
        """Return time, data-parallel degree and stages of a plan faster than ``limit``."""
        if self.stages == 0:
            return None
        degrees, batches = self.problem.replica_choices
        if self.problem.schedule == "1F1B":
            return self._search(self._deepest(), degrees, batches, limit)
        result = None
        for c in range(len(degrees)):
            needed = self.table.fixed + (batches[c] - 1) * self.table.kept
            fits = needed <= self.problem.memory_bytes
            deepest = np.where(fits, self.stages, 0).astype(np.int64)
            found = self._search(deepest, degrees[c : c + 1], batches[c : c + 1], limit)
            if found is not None:
                result = found
                limit = found[0]
        return result

    def _deepest(self) -> Integers:
        """Return the farthest place from the end at which each stage still fits."""
        room = self.problem.memory_bytes - self.table.fixed
        with np.errstate(divide="ignore", invalid="ignore"):
            further = np.floor(room / self.table.kept)
        further = np.where(self.table.kept > 0, np.minimum(further, self.stages), self.stages)
        return np.where(room >= 0, 1 + further, 0).astype(np.int64)

    def _search(
        self, deepest: Integers, degrees: Integers, batches: Floats, limit: float
    ) -> tuple[float, int, list[list[int]]] | None:
        pairs, table = self.pairs, self.table
        shared = (table.last_load, table.inner_load, deepest, table.wide)
        best = place_stages(pairs.whole, pairs.part, *shared, self.counted, pairs.sets, self.stages)
        fastest, (pair, s, q, choice) = choose_first_stage(
            best,
            self.first,
            pairs.part,
            *shared,
            table.weights,
            self.tensor,
            self.narrow,
            self.counted,
            self.problem.devices,
            degrees,
            batches,
            self.problem.sync_s_per_byte(self.tensor, degrees),
            limit,
        )
        if pair < 0:
            return None
        slowest = max(self._load(pair, s), best[self._before(pair, s, q)])
        stages = self._trace(best, deepest, pair, s, q, slowest)
        return float(fastest), int(degrees[choice]), stages

    def _load(self, pair: int, s: int) -> float:
        return float((self.table.last_load if s == 1 else self.table.inner_load)[pair])

    def _before(self, pair: int, s: int, q: int) -> tuple[int, int, int]:
        step = int(self.counted and self.table.wide[pair])
        return int(self.pairs.part[pair]), s - 1, q - step

    def _trace(
        self, best: Floats, deepest: Integers, pair: int, s: int, q: int, slowest: float
    ) -> list[list[int]]:
        """Return the stages of a plan that has ``pair`` first and no load above ``slowest``."""
        stages = [self.pairs.layers_of(pair).tolist()]
        left, s, q = self._before(pair, s, q)
        while s > 0:
            low, high = np.searchsorted(self.pairs.whole, [left, left + 1])
            for k in range(low, high):
                if deepest[k] < s or self._load(k, s) > slowest:
                    continue
                rest = self._before(k, s, q)
                if rest[2] >= 0 and best[rest] <= slowest:
                    stages.append(self.pairs.layers_of(k).tolist())
                    left, s, q = rest
                    break
            else:
                raise RuntimeError("no stage reproduces the optimum")
        return stages
