"""One model on a cluster of one accelerator: the best schedule and placement inside every point.

The inner problem is solved exactly, in three steps that stop as soon as nothing is open: bounded
latencies give every tensor-parallel width a time it cannot beat; running one op after the other
gives a time that is reached; only widths that can still win get their schedules searched. The
placement over the latencies is exact (see :mod:`mohsearch.evaluators.uniform_placement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.plan import evaluate_plan
from mohsearch.evaluators.device_placement.problem import ExpertPlan, PlacementProblem
from mohsearch.evaluators.training_architecture import Architectures
from mohsearch.evaluators.training_times import (
    LayerTimes,
    SliceTimes,
    TrainingModel,
    UpdateCosts,
    roofline_times,
)
from mohsearch.evaluators.uniform_placement import (
    FIRST,
    INNER,
    LAST,
    Cluster,
    UniformChain,
    UniformPlans,
    place_uniform,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class TrainingCluster:
    """The machine and the batch.

    Attributes
    ----------
    devices, batch
        Accelerators, and samples of a global batch.
    bandwidth_bytes_per_s
        Of every link.
    sync_factor
        Gradient bytes times this cross a link in a synchronisation: 2 for a ring, 4 as published.
    overlap_recompute
        Whether transfers run while a stage repeats its forward pass.
    """

    devices: int
    batch: int
    bandwidth_bytes_per_s: float
    sync_factor: float = 2.0
    overlap_recompute: bool = True

    def cluster(self, microbatch: int) -> Cluster:
        """Return the placement's machine for a size of microbatch."""
        return Cluster(
            self.devices,
            math.ceil(self.batch / microbatch),
            self.bandwidth_bytes_per_s,
            self.sync_factor,
            self.overlap_recompute,
        )


class Setting(NamedTuple):
    """How a device trains: samples of a microbatch, memory, and what becomes of activations."""

    microbatch: int
    hbm_bytes: int
    recompute: str


class Training(NamedTuple):
    """What training costs on several accelerators, each of shape (count,).

    Attributes
    ----------
    time_s
        Of one batch; infinite where no placement fits.
    bound_s
        No schedule and placement is faster.
    energy_j
        Of one sample.
    setting
        Position of the setting taken.
    plans
        The placements.
    """

    time_s: Floats
    bound_s: Floats
    energy_j: Floats
    setting: Integers
    plans: UniformPlans

    def take(self, index: Integers) -> Training:
        """Return some of the accelerators, by place."""
        columns: list[Any] = [column[index] for column in self.plans]
        return Training(
            self.time_s[index],
            self.bound_s[index],
            self.energy_j[index],
            self.setting[index],
            UniformPlans(*columns),
        )


class SettingTables(NamedTuple):
    """Bounds on latencies and energies of many accelerators: of layers by width, of the update."""

    lower: tuple[LayerTimes, ...]
    update: UpdateCosts

    def take(self, index: Integers) -> SettingTables:
        """Return some of the accelerators, by place."""
        lower = tuple(LayerTimes(*(column[index] for column in t)) for t in self.lower)
        return SettingTables(lower, UpdateCosts(*(column[index] for column in self.update)))

    def put(self, index: Integers, other: SettingTables) -> None:
        """Write the bounds of some accelerators."""
        for mine, theirs in zip(
            (*self.lower, self.update), (*other.lower, other.update), strict=True
        ):
            for target, source in zip(mine, theirs, strict=True):
                target[index] = source


class TrainingSearch:
    """Evaluates accelerators for one model on one cluster.

    Parameters
    ----------
    model, cluster
        What is trained, and on what.
    expert
        A placement by hand that takes the place of the optimal one; its width must be one of the
        model's.
    """

    def __init__(
        self, model: TrainingModel, cluster: TrainingCluster, expert: ExpertPlan | None = None
    ) -> None:
        self.model = model
        self.cluster = cluster
        self.expert = expert

    def evaluate(self, architectures: Architectures, settings: Sequence[Setting]) -> Training:
        """Return what training costs on each accelerator in the fastest of the settings."""
        if self.expert is not None:
            parts = [self._evaluate_expert(architectures, setting) for setting in settings]
            return _fastest(parts)
        made: dict[tuple[int, bool], list[SliceTimes]] = {}
        for setting in settings:
            key = (setting.microbatch, setting.recompute == "selective")
            if key not in made:
                made[key] = self.slices(architectures, setting)
        slices = [made[s.microbatch, s.recompute == "selective"] for s in settings]
        lower = [[part.lower() for part in parts] for parts in slices]
        serial = [[part.serial() for part in parts] for parts in slices]
        reached = np.full(len(architectures), np.inf)
        for k, setting in enumerate(settings):
            plans = self._place(serial[k], setting, slices[k][0].update)
            reached = np.minimum(reached, plans.time_s)
        results = []
        for k, setting in enumerate(settings):
            times, bounds = serial[k], lower[k]
            for w, part in enumerate(slices[k]):
                first = self._place_one(w, lower[k][w], setting, part.update).time_s
                exact = np.isfinite(first) & (first <= reached)
                _solve_open(part, np.flatnonzero(exact), times[w], bounds[w])
            update = slices[k][0].update
            plans = self._place(times, setting, update)
            proven = self._place(bounds, setting, update).time_s
            energy = self._energy(times, setting, update, plans)
            chosen = np.full(len(plans.time_s), k)
            results.append(Training(plans.time_s, proven, energy, chosen, plans))
        return _fastest(results)

    def slices(self, architectures: Architectures, setting: Setting) -> list[SliceTimes]:
        """Return the model's slices on accelerators, one for each width."""
        mode = "selective" if setting.recompute == "selective" else "none"
        widths = self.model.widths if self.expert is None else (self.expert.tensor,)
        return [
            SliceTimes(self.model, architectures, setting.microbatch, width, mode)
            for width in widths
        ]

    def tables(self, architectures: Architectures, setting: Setting) -> SettingTables:
        """Return bounds on latencies and energies from costed and bounded operators."""
        slices = self.slices(architectures, setting)
        update = slices[0].update
        return SettingTables(tuple(part.lower() for part in slices), update)

    def empty_tables(self, count: int) -> SettingTables:
        """Return tables for :meth:`SettingTables.put` to fill."""
        lower = tuple(
            LayerTimes(*(np.empty((count, 3)) for _ in range(4))) for _ in self.model.widths
        )
        return SettingTables(lower, UpdateCosts(np.empty(count), np.empty(count)))

    def roofline(self, architectures: Architectures, setting: Setting) -> SettingTables:
        """Return weaker bounds without costing any operator."""
        mode = "selective" if setting.recompute == "selective" else "none"
        zero = np.zeros(len(architectures))
        return SettingTables(
            tuple(
                roofline_times(self.model, architectures, setting.microbatch, width, mode)
                for width in self.model.widths
            ),
            UpdateCosts(zero, zero),
        )

    def optimistic(self, tables: SettingTables, setting: Setting) -> tuple[Floats, Floats]:
        """Return a time of a batch and an energy of a sample that accelerators cannot beat.

        Parameters
        ----------
        tables
            Of these accelerators, for the same microbatch and mode.
        setting
            How they train.
        """
        plans = self._place(tables.lower, setting, tables.update)
        return plans.time_s, self._least_energy(tables.lower, setting, tables.update)

    def balanced(self, tables: SettingTables, setting: Setting) -> tuple[Floats, Floats]:
        """Return a weaker bound on the time without any placement, and the bound on the energy.

        All devices share the work evenly, and one microbatch passes all layers.
        """
        chain = self._chain(setting)
        cluster = self.cluster.cluster(setting.microbatch)
        best = np.full(len(tables.update.seconds), np.inf)
        counts = np.array([1.0, chain.inner, 1.0])
        for width, times in zip(chain.widths.tolist(), tables.lower, strict=True):
            work = (times.forward_s + times.backward_s) @ counts
            share = cluster.microbatches * width / cluster.devices
            best = np.minimum(best, work * max(1.0, share))
        return best, self._least_energy(tables.lower, setting, tables.update)

    def chain(self, setting: Setting, width: int) -> UniformChain:
        """Return the layers' bytes for one of the widths, by its position."""
        return _narrowed(self._chain(setting), [width])

    def placement_problem(
        self, chain: UniformChain, times: LayerTimes, index: int, setting: Setting
    ) -> PlacementProblem:
        """Return the placement of one accelerator and width in the general form.

        Parameters
        ----------
        chain
            Of one width, see :meth:`chain`.
        times
            Latencies on several accelerators, and ``index`` the one meant.
        setting
            How it trains.
        """
        return self.cluster.cluster(setting.microbatch).problem(
            chain,
            times.forward_s[index : index + 1],
            times.backward_s[index : index + 1],
            self.memory_bytes(setting),
            setting.recompute == "full",
        )

    def expert_sizes(self, inner: int) -> list[int]:
        """Return the inner layers of every stage of the plan by hand: as equal as can be."""
        stages = 1 if self.expert is None else min(self.expert.pipeline, inner)
        return [inner // stages + (k < inner % stages) for k in range(stages)]

    def memory_bytes(self, setting: Setting) -> float:
        """Return what a device has for weights and kept activations."""
        return setting.hbm_bytes - self.model.transient_bytes(setting.microbatch, setting.recompute)

    def _chain(self, setting: Setting) -> UniformChain:
        chain = self.model.chain(setting.microbatch, setting.recompute)
        if self.expert is None:
            return chain
        return _narrowed(chain, [self.model.widths.index(self.expert.tensor)])

    def _place(
        self, times: Sequence[LayerTimes], setting: Setting, update: UpdateCosts
    ) -> UniformPlans:
        return self._placed(self._chain(setting), times, setting, update)

    def _place_one(
        self, width: int, times: LayerTimes, setting: Setting, update: UpdateCosts
    ) -> UniformPlans:
        return self._placed(_narrowed(self._chain(setting), [width]), [times], setting, update)

    def _placed(
        self,
        chain: UniformChain,
        times: Sequence[LayerTimes],
        setting: Setting,
        update: UpdateCosts,
    ) -> UniformPlans:
        count = len(times[0].forward_s)
        return place_uniform(
            chain,
            self.cluster.cluster(setting.microbatch),
            np.stack([t.forward_s for t in times], axis=1),
            np.stack([t.backward_s for t in times], axis=1),
            np.full(count, self.memory_bytes(setting)),
            np.full(count, setting.recompute == "full"),
            update.seconds,
        )

    def _energy(
        self,
        times: Sequence[LayerTimes],
        setting: Setting,
        update: UpdateCosts,
        plans: UniformPlans,
    ) -> Floats:
        """Return the energy of a sample under given plans; infinite where there is none."""
        chain = self._chain(setting)
        energy = np.full(len(plans.time_s), np.inf)
        for w, width in enumerate(chain.widths.tolist()):
            rows = np.flatnonzero(plans.width == w)
            one, last = times[w], plans.last[rows]
            again = (setting.recompute == "full") & (plans.stages[rows] > 1)
            pass_j = _whole(one.forward_j[rows] + one.backward_j[rows], chain.inner)
            repeated = one.forward_j[rows, FIRST]
            repeated = repeated + (chain.inner - last) * one.forward_j[rows, INNER]
            weights = _whole(chain.weight_bytes[w], chain.inner)
            step = plans.replicas[rows] * weights * update.energy_j[rows] / self.cluster.batch
            energy[rows] = width * ((pass_j + again * repeated) / setting.microbatch + step)
        return energy

    def _least_energy(
        self, lower: Sequence[LayerTimes], setting: Setting, update: UpdateCosts
    ) -> Floats:
        """Return an energy of a sample that no schedule and plan undercuts."""
        chain = self._chain(setting)
        best = np.full(len(update.seconds), np.inf)
        memory = self.memory_bytes(setting)
        for w, width in enumerate(chain.widths.tolist()):
            one = lower[w]
            pass_j = _whole(one.forward_j + one.backward_j, chain.inner)
            if setting.recompute == "full":
                alone = chain.state_bytes[w] + chain.activation_bytes[w]
                if (
                    _whole(alone, chain.inner) > memory
                ):  # several stages, so all but the last repeat
                    room = memory - alone[LAST]
                    most = max(0, min(chain.inner, int(room / alone[INNER] * (1 + 1e-12))))
                    repeated = (chain.inner - most) * one.forward_j[:, INNER]
                    pass_j = pass_j + one.forward_j[:, FIRST] + repeated
            weights = _whole(chain.weight_bytes[w], chain.inner)
            step = weights * update.energy_j / self.cluster.batch
            best = np.minimum(best, width * (pass_j / setting.microbatch + step))
        return best

    def _evaluate_expert(self, architectures: Architectures, setting: Setting) -> Training:
        """Return what the given plan costs; its stages hold equal numbers of layers."""
        expert = self.expert
        assert expert is not None
        part, chain = self.slices(architectures, setting)[0], self._chain(setting)
        count = len(part.architectures)
        times, bounds = part.serial(), part.lower()
        _solve_open(part, np.arange(count), times, bounds)
        plans = UniformPlans(
            np.full(count, np.inf), *(np.full(count, -1, dtype=np.int64) for _ in range(6))
        )
        proven = np.full(count, np.inf)
        sizes = self.expert_sizes(chain.inner)
        for values, result in ((times, plans.time_s), (bounds, proven)):
            for i in range(count):
                problem = self.placement_problem(chain, values, i, setting)
                ends = np.cumsum(sizes) + 1
                ends[-1] += 1
                starts = [0, *ends[:-1].tolist()]
                stages = [list(range(a, b)) for a, b in zip(starts, ends.tolist(), strict=True)]
                try:
                    plan = evaluate_plan(problem, expert.tensor, expert.data, stages)
                except InfeasibleError:
                    continue
                weights = problem.costs[expert.tensor].weight_bytes[stages[0]].sum()
                result[i] = plan.time_per_batch_s + part.update.seconds[i] * weights
                plans.width[i], plans.stages[i] = 0, len(stages)
                plans.replicas[i] = expert.data
                plans.first[i], plans.last[i] = len(stages[0]) - 1, len(stages[-1]) - 1
                plans.most[i] = max((len(stage) for stage in stages[1:-1]), default=0)
        if len(sizes) == 1:
            plans.first[:] = plans.last[:] = chain.inner
        energy = self._energy([times], setting, part.update, plans)
        chosen = np.zeros(count, dtype=np.int64)
        return Training(plans.time_s, proven, energy, chosen, plans)


def _solve_open(part: SliceTimes, index: Integers, times: LayerTimes, bounds: LayerTimes) -> None:
    """Put the best schedules of some accelerators into ``times`` and their proofs into ``bounds``.

    Both hold serial latencies and first bounds; where these agree nothing is open.
    """
    closed = (times.forward_s == bounds.forward_s) & (times.backward_s == bounds.backward_s)
    for i in index[~closed[index].all(axis=1)].tolist():
        found, bound = part.solve(i)
        for target, source in zip(times, found, strict=True):
            target[i] = source[0]
        bounds.forward_s[i], bounds.backward_s[i] = bound


def _fastest(parts: Sequence[Training]) -> Training:
    """Return the fastest of several results, row by row; a tie is the first's."""
    best = np.stack([part.time_s for part in parts]).argmin(axis=0)
    rows = np.arange(len(best))

    def pick(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.asarray(np.stack(columns)[best, rows])

    plans = UniformPlans(
        *(pick(columns) for columns in zip(*(p.plans for p in parts), strict=True))
    )
    bound = np.stack([part.bound_s for part in parts]).min(axis=0)
    return Training(
        plans.time_s, bound, pick([p.energy_j for p in parts]), best.astype(np.int64), plans
    )


def _whole(values: Floats, inner: int) -> Floats:
    """Return the sum over all layers; the last axis holds first, inner and last."""
    return np.asarray(values[..., FIRST] + inner * values[..., INNER] + values[..., LAST])


def _narrowed(chain: UniformChain, widths: Sequence[int]) -> UniformChain:
    """Return the chain with some of its widths."""
    rows = np.array(widths)
    return UniformChain(
        chain.inner,
        chain.widths[rows],
        chain.weight_bytes[rows],
        chain.state_bytes[rows],
        chain.activation_bytes[rows],
        chain.boundary_bytes[rows],
        chain.input_bytes,
    )
