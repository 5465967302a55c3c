"""The phaze problem: training accelerators with the placement of models on a cluster of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import read_card, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_architecture import Architectures, default_technology
from mohsearch.evaluators.training_bridge import WorkloadCosts
from mohsearch.evaluators.training_grid import (
    ARCHITECTURE,
    HBM,
    MICROBATCH,
    TrainingGrid,
)
from mohsearch.evaluators.training_search import Setting, SettingTables, Training, TrainingSearch
from mohsearch.evaluators.training_times import TrainingModel
from mohsearch.problems.base import ProblemCard, SearchProblem
from mohsearch.problems.phaze_design import describe_architecture, describe_training
from mohsearch.problems.phaze_options import COST_SWITCHES, PhazeOptions
from mohsearch.problems.phaze_published import published, with_published
from mohsearch.workloads.hf_config import ModelConfig
from mohsearch.workloads.training import build_training
from mohsearch.workloads.training_sets import load_models

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NOT_PLACED = 1e12
"""Stands for the time, energy and power of a design that cannot train a model; such a design
violates a constraint, so that the number is never compared."""

GIVEN = frozenset({"area_mm2", "hbm_bytes"})
"""Metrics that no optimisation inside a design changes."""

BIN_MM2 = 0.01
"""Area bins of the published exploration order: 10,000 um2."""


def load_card(catalog: Catalog | None = None) -> ProblemCard:
    """Return the declaration of the problem, ``problems/phaze.yaml``."""
    return read_card(ProblemCard, (catalog or Catalog()).find("problems", "phaze", kind="problem"))


class PhazeProblem(SearchProblem):
    """Search for an accelerator, and how a cluster of it trains one or several models.

    Genomes are rows of indices into :attr:`grid`. Any row within the bounds can be evaluated; one
    outside the area budget, or without a placement, violates a constraint.

    Parameters
    ----------
    models
        What is trained; several are trained one after another on the whole cluster.
    options
        Grid, cluster and modelling.
    objectives
        Metrics to optimise (default: the card's).
    card
        Declaration (default: the one on the shelf).

    Raises
    ------
    InputError
        If no tensor-parallel width cuts a model, or a model has layers of more than three kinds.
    """

    def __init__(
        self,
        models: Sequence[ModelConfig],
        options: PhazeOptions | None = None,
        *,
        objectives: Sequence[str] | None = None,
        card: ProblemCard | None = None,
    ) -> None:
        self.models = tuple(models)
        names = [model.name for model in self.models]
        self.options = with_published(options or PhazeOptions(), names).resolved()
        self.grid: TrainingGrid = self.options.grid()
        self.cluster = self.options.cluster()
        self.searches = tuple(self._search(model) for model in self.models)
        self._gaps: dict[bytes, float] = {}
        self._energies: dict[bytes, float] = {}
        self._tables: dict[tuple[int, int, str, bool], tuple[SettingTables, Flags]] = {}
        upper = np.array(self.grid.shape) - 1
        super().__init__(card or load_card(), np.zeros_like(upper), upper, objectives)

    def _search(self, config: ModelConfig) -> TrainingSearch:
        options = self.options
        expert = options.expert_plan()
        asked = options.tensor_parallel if expert is None else (expert.tensor,)
        if options.published_widths and expert is None and config.name in published().models:
            asked = published().models[config.name].widths
        widths = tuple(w for w in sorted(asked) if _cuts(config, w, options))
        if not widths:
            raise InputError(
                f"none of the widths {', '.join(map(str, asked))} cuts {config.name} "
                f"({config.heads} heads)",
                field="tensor_parallel",
            )
        model = TrainingModel(
            config,
            widths,
            options.cost(),
            sequence=options.sequence_length,
            precision=options.precision,
            optimizer=options.optimizer,
            sequence_parallel=options.sequence_parallel,
            weight_gradients=options.weight_gradients,
            schedule_width=options.schedule_states,
            schedule_gap=options.schedule_gap,
            schedule_nodes=options.phase_nodes,
        )
        search = TrainingSearch(model, self.cluster, expert)
        search.model.chain(options.microbatches[0], options.recompute[0])  # refuses early
        one = self.grid.architectures(np.zeros((1, ARCHITECTURE.stop), dtype=np.int64))
        for width in {min(widths), max(widths)}:  # refuses counts beyond 64 bits
            largest = model.workload(max(options.microbatches), width, "none")
            WorkloadCosts.build(largest, one, model.cost)
        return search

    def metrics(self, X: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """Return every metric and constraint of the card for rows X (count, 8).

        Raises
        ------
        ValueError
            If a row lies outside the grid.
        """
        rows = np.asarray(X).astype(np.int64)
        if ((rows < 0) | (rows >= np.array(self.grid.shape))).any():
            raise ValueError("a genome lies outside the grid")
        index = tuple(rows[:, ARCHITECTURE].T)
        excess = self.grid.excess_mm2[index]
        values = self._failed(len(rows))
        values["area_mm2"] = self.grid.area_mm2[index]
        values["hbm_bytes"] = np.array(self.grid.hbm_bytes, dtype=float)[rows[:, HBM]]
        values["area_excess_mm2"] = excess
        fits = np.flatnonzero(excess == 0)
        for found, results in self._trained(rows[fits]):
            self._combine(values, rows, fits[found], results)
        return values

    def _failed(self, count: int) -> dict[str, Floats]:
        worst = dict.fromkeys(("energy_j", "iteration_s", "power_w"), NOT_PLACED)
        best = dict.fromkeys(("throughput_samples_per_s", "mfu", "unplaced"), 0.0)
        start = worst | best | {"devices": float(self.cluster.devices)}
        return {name: np.full(count, value) for name, value in start.items()}

    def _trained(self, rows: Integers) -> list[tuple[Integers, list[Training]]]:
        """Return the training of every model for groups of rows in one setting."""
        if not len(rows):
            return []
        keys, group = np.unique(rows[:, MICROBATCH:], axis=0, return_inverse=True)
        result = []
        for k, key in enumerate(keys):
            mine = np.flatnonzero(group.ravel() == k)
            distinct, back = np.unique(rows[mine, ARCHITECTURE], axis=0, return_inverse=True)
            machines = self.grid.architectures(distinct)
            settings = self.settings(key)
            found = [search.evaluate(machines, settings) for search in self.searches]
            result.append((mine, [part.take(back.ravel()) for part in found]))
        return result

    def settings(self, genes: Integers) -> tuple[Setting, ...]:
        """Return the settings that the last three genes stand for, several under best_setting."""
        microbatch, hbm, recompute = genes.tolist()
        memory = self.grid.hbm_bytes[hbm]
        options = self.options
        if options.best_setting:
            modes = [(b, mode) for b in options.microbatches for mode in options.recompute]
            return tuple(Setting(b, memory, mode) for b, mode in modes)
        return (
            Setting(self.grid.microbatches[microbatch], memory, self.grid.recompute[recompute]),
        )

    def _combine(
        self, values: dict[str, Floats], X: Integers, rows: Integers, results: Sequence[Training]
    ) -> None:
        """Write the metrics of some rows from the training of every model."""
        times = np.stack([part.time_s for part in results])
        unplaced = (~np.isfinite(times)).sum(axis=0)
        values["unplaced"][rows] = unplaced
        bounds = np.stack([part.bound_s for part in results])
        for i, row in enumerate(rows.tolist()):
            with np.errstate(invalid="ignore"):
                gap = np.nanmax(1 - bounds[:, i] / times[:, i]) if unplaced[i] == 0 else 0.0
            self._gaps[X[row].astype(np.int64).tobytes()] = float(max(0.0, gap))
        good = unplaced == 0
        if not good.any():
            return
        at, times = rows[good], times[:, good]
        energy = np.stack([part.energy_j for part in results])[:, good]
        devices = np.stack(
            [self._devices(s, p) for s, p in zip(self.searches, results, strict=True)]
        )
        throughput = self.cluster.batch / times
        flops = np.array([search.model.flops_per_sample for search in self.searches])
        peak = self._peak_flops(self.grid.architectures(X[at]))
        values["throughput_samples_per_s"][at] = self._mean(throughput)
        values["energy_j"][at] = np.exp(np.log(energy).mean(axis=0))
        for row in at.tolist():
            self._energies[X[row].astype(np.int64).tobytes()] = float(values["energy_j"][row])
        values["iteration_s"][at] = times.sum(axis=0)
        values["mfu"][at] = (throughput * flops[:, None] / peak).mean(axis=0)
        values["power_w"][at] = (energy * self.cluster.batch).sum(axis=0) / times.sum(axis=0)
        values["devices"][at] = devices[:, good].max(axis=0)

    def _devices(self, search: TrainingSearch, part: Training) -> Integers:
        chain = search.model.widths if search.expert is None else (search.expert.tensor,)
        width = np.array(chain)[np.maximum(part.plans.width, 0)]
        return np.asarray(width * part.plans.stages * part.plans.replicas)

    def _mean(self, values: Floats) -> Floats:
        if self.options.mean == "geometric":
            return np.asarray(np.exp(np.log(values).mean(axis=0)))
        return np.asarray(values.mean(axis=0))

    def _peak_flops(self, machines: Architectures) -> Floats:
        elements = machines.tensor_cores * machines.width * machines.depth
        return np.asarray(2.0 * elements * self.options.clock_ghz * 1e9 * self.cluster.devices)

    def gaps(self, X: NDArray[Any]) -> Floats:
        """Return by what share of its value each objective of evaluated designs may still improve.

        Shape (n, n_obj). It is the share by which the time may fall, of several models the largest;
        for the energy what no schedule undercuts; zero where schedules and placement are proven
        optimal, where nothing is placed, and for area and memory, which are given. Designs that
        another process or session evaluated are evaluated again here.
        """
        rows = np.asarray(X).astype(np.int64)
        unknown = [row.tobytes() not in self._gaps for row in rows]
        if any(unknown):
            self.metrics(rows[unknown])
        share = np.array([self._gaps.get(row.tobytes(), 0.0) for row in rows])
        columns = {name: np.zeros(len(rows)) for name in GIVEN} | {
            "energy_j": self._energy_share(rows, share)
        }
        return np.stack([columns.get(m.name, share) for m in self.objective_cards], axis=1)

    def _energy_share(self, rows: Integers, share: Floats) -> Floats:
        """Return the share of the energy that a faster schedule may save, shape (n,).

        A faster schedule may take any cores: what no schedule undercuts is the bound.
        """
        result = share.copy()
        mine = np.flatnonzero(share > 0)
        if len(mine) and self.options.expert_plan() is None:
            least = self._optimistic(rows[mine], placed=True)["energy_j"]
            spent = np.array([self._energies[rows[i].tobytes()] for i in mine.tolist()])
            result[mine] = np.clip(1.0 - least / spent, 0.0, None)
        return result

    def designs(self) -> Integers:
        """Return all designs within the area budget, larger areas first."""
        return self.grid.designs()

    def exploration(self) -> tuple[Integers, Integers, Integers]:
        """Return all designs in the published order, with the number of their search and area bin.

        One search for each setting; bins of 10,000 um2 by falling area; within a bin the larger
        numbers of cores, widths, depths and buffers first.
        """
        hardware = self.grid.accelerators
        area = self.grid.area_mm2[tuple(hardware.T)]
        bins = np.floor(area / BIN_MM2 * (1 + 1e-12)).astype(np.int64)
        order = np.lexsort((*(-hardware.T[::-1]), -bins))
        settings = np.indices(self.grid.shape[MICROBATCH:]).reshape(3, -1).T
        count = len(order)
        X = np.hstack(
            [np.tile(hardware[order], (len(settings), 1)), np.repeat(settings, count, axis=0)]
        )
        number = np.tile(-bins[order], len(settings))
        return X, np.repeat(np.arange(len(settings)), count), number

    def optimistic_tiers(
        self,
    ) -> tuple[tuple[str, Callable[[NDArray[Any]], dict[str, Floats]]], ...]:
        """Return bounds on metrics: balanced rooflines, then placements of bounded schedules."""
        if self.options.expert_plan() is not None:
            return ()
        return (
            ("balanced rooflines", lambda X: self._optimistic(X, placed=False)),
            ("placed critical paths and core budgets", lambda X: self._optimistic(X, placed=True)),
        )

    def _optimistic(self, X: NDArray[Any], *, placed: bool) -> dict[str, Floats]:
        """Return metrics that designs within the budget cannot beat."""
        rows = np.asarray(X).astype(np.int64)
        times = np.empty((len(self.searches), len(rows)))
        energy = np.empty_like(times)
        ranks = self.grid.rank[tuple(rows[:, ARCHITECTURE].T)]
        keys, group = np.unique(rows[:, MICROBATCH:], axis=0, return_inverse=True)
        for k, key in enumerate(keys):
            mine = np.flatnonzero(group.ravel() == k)
            for m in range(len(self.searches)):
                bounds = [
                    self._bound(m, ranks[mine], setting, placed) for setting in self.settings(key)
                ]
                times[m, mine] = np.min([b[0] for b in bounds], axis=0)
                energy[m, mine] = np.min([b[1] for b in bounds], axis=0)
        impossible = ~np.isfinite(times)
        times = np.where(impossible, NOT_PLACED, times)
        throughput = self.cluster.batch / times
        flops = np.array([search.model.flops_per_sample for search in self.searches])
        peak = self._peak_flops(self.grid.architectures(rows))
        index = tuple(rows[:, ARCHITECTURE].T)
        return {
            "throughput_samples_per_s": self._mean(throughput),
            "area_mm2": self.grid.area_mm2[index],
            "energy_j": np.exp(np.log(energy).mean(axis=0)),
            "hbm_bytes": np.array(self.grid.hbm_bytes, dtype=float)[rows[:, HBM]],
            "iteration_s": times.sum(axis=0),
            "mfu": (throughput * flops[:, None] / peak).mean(axis=0),
            "power_w": np.zeros(len(rows)),
            "devices": np.ones(len(rows)),
            "area_excess_mm2": self.grid.excess_mm2[index],
            "unplaced": impossible.sum(axis=0).astype(float),
        }

    def _bound(
        self, m: int, ranks: Integers, setting: Setting, placed: bool
    ) -> tuple[Floats, Floats]:
        """Return bounds on time and energy; tables grow by the accelerators asked for."""
        search = self.searches[m]
        mode = "selective" if setting.recompute == "selective" else "none"
        if not placed:
            machines = self.grid.architectures(self.grid.accelerators)
            key = (m, setting.microbatch, mode, False)
            if key not in self._tables:
                self._tables[key] = (search.roofline(machines, setting), np.empty(0, dtype=bool))
            return search.balanced(self._tables[key][0].take(ranks), setting)
        key = (m, setting.microbatch, mode, True)
        if key not in self._tables:
            count = len(self.grid.accelerators)
            self._tables[key] = (search.empty_tables(count), np.zeros(count, dtype=np.bool_))
        tables, known = self._tables[key]
        missing = np.unique(ranks[~known[ranks]])
        if len(missing):
            machines = self.grid.architectures(self.grid.accelerators[missing])
            tables.put(missing, search.tables(machines, setting))
            known[missing] = True
        return search.optimistic(tables.take(ranks), setting)

    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return the design of one row: accelerator, placement and schedules, as JSON types."""
        row = np.asarray(x).astype(np.int64).reshape(1, -1)
        metrics = {name: float(column[0]) for name, column in self.metrics(row).items()}
        machines = self.grid.architectures(row)
        settings = self.settings(row[0, MICROBATCH:])
        parts = []
        if metrics["area_excess_mm2"] == 0:
            parts = [describe_training(search, machines, settings) for search in self.searches]
        return {
            "architecture": describe_architecture(machines),
            "training": {
                "hbm_bytes": self.grid.hbm_bytes[int(row[0, HBM])],
                "devices": self.cluster.devices,
                "global_batch": self.cluster.batch,
                "modelled": self.options.model_dump(
                    mode="json", include=SWITCHES, exclude_none=True
                ),
            },
            "models": parts,
            "metrics": metrics,
        }

    @cached_property
    def _ideal(self) -> dict[str, float]:
        """See :meth:`ideal_point`."""
        machines = self.grid.architectures(self.grid.accelerators)
        elements = float((machines.tensor_cores * machines.width * machines.depth).max())
        rate = elements * self.options.clock_ghz * 1e9 * self.cluster.devices
        technology = self.options.cost().technology
        macs = np.array([self._least_macs(search) for search in self.searches])
        batch = self.cluster.batch
        energy = macs * (technology.multiply_pj + technology.add_pj) * 1e-12
        area = self.grid.area_mm2[self.grid.admitted]
        return {
            "throughput_samples_per_s": float(self._mean((rate / macs)[:, None])[0]),
            "area_mm2": float(area.min()),
            "energy_j": float(np.exp(np.log(energy).mean())),
            "hbm_bytes": float(min(self.grid.hbm_bytes)),
            "iteration_s": float((batch * macs / rate).sum()),
            "devices": 1.0,
        }

    def _least_macs(self, search: TrainingSearch) -> float:
        """Return the multiply-accumulates of a sample, on all devices of the best width."""
        counts = []
        for width in search.model.widths:
            part = search.model.workload(1, width)
            counts.append(part.flops / 2 * width)
        return float(min(counts))

    def ideal_point(self) -> dict[str, float]:
        """Return proven best values by metric.

        Throughput and time: every multiplier of the accelerator with the most is busy in every
        cycle on all devices; energy: the multiplications and additions alone.
        """
        return dict(self._ideal)

    def certificate(self) -> dict[str, Any]:
        """Return what is proven inside every point."""
        expert = self.options.expert_plan()
        return {
            "designs": self.grid.size,
            "placement": "exact: all widths, degrees and partitions" if expert is None else "given",
            "schedule": (
                f"bounded for all; searched with {self.options.schedule_states} states where "
                f"bounds leave more than {self.options.schedule_gap:g} open"
            ),
            "ideal_point": "all multipliers busy; multiplications and additions alone",
            "widths": {s.model.config.name: list(s.model.widths) for s in self.searches},
        }

    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""
        cost = {
            name: value for name, value in vars(self.options.cost()).items() if name != "technology"
        }
        return content_digest(
            self.card.slug,
            [model.model_dump(mode="json") for model in self.models],
            self.options.model_dump(mode="json"),
            {name: str(value) for name, value in cost.items()},
            self.options.cost().technology.model_dump(mode="json"),
            default_technology().model_dump(mode="json"),
        )


SWITCHES = {*COST_SWITCHES, "placement", "mean"}
"""Options that say how things were modelled; named in every design."""


def _cuts(config: ModelConfig, width: int, options: PhazeOptions) -> bool:
    try:
        build_training(
            config,
            tensor_parallel=width,
            sequence_length=options.sequence_length,
            sequence_parallel=options.sequence_parallel and width > 1,
        )
    except InputError as error:
        if error.field == "tensor_parallel":
            return False
        raise
    return True


def build(
    options: Mapping[str, Any] | PhazeOptions | None,
    workload: str,
    *,
    objectives: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    cache_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    workers: int | None = None,
) -> PhazeProblem:
    """Build the problem for a model, several joined by ``+``, or a named set.

    Parameters
    ----------
    options
        Fields of :class:`mohsearch.problems.phaze_options.PhazeOptions`.
    workload
        As :func:`mohsearch.workloads.training_sets.load_models` takes it.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.
    cache_dir, progress, workers
        Not needed: nothing is prepared.

    Raises
    ------
    InputError
        If an option or a name is wrong.
    """
    if not isinstance(options, PhazeOptions):
        options = validate(PhazeOptions, dict(options or {}))
    models = load_models(workload, catalog)
    return PhazeProblem(models, options, objectives=objectives, card=load_card(catalog))
