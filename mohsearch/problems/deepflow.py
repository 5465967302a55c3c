"""The deepflow problem: resources, technology and parallelism of a training system."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import read_card, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.age import generate
from mohsearch.evaluators.crossflow.design_points import (
    DesignPoints,
    PointMetrics,
    PointOptions,
    Technology,
    evaluate_points,
)
from mohsearch.evaluators.crossflow.design_space import (
    FRACTIONS,
    G_NODE_AREA,
    G_ORDER,
    G_STACKS,
    G_STRATEGY,
    G_TDP,
    WHOLE,
    DeepflowSpace,
)
from mohsearch.evaluators.crossflow.evaluate import Gemm, Lstm, shared_row
from mohsearch.evaluators.crossflow.layout import (
    A_AREA,
    A_CHIP_AREA,
    A_NODE_AREA,
    A_POWER,
    A_TDP,
    ALLOCATION_COLUMNS,
    C_FLOPS,
    C_FREQ,
    C_MARGIN,
    C_POWER,
    C_VOLT,
    C_VT,
    D_AREA,
    D_CAPACITY,
    K_FLOPS,
    FloatArray,
)
from mohsearch.evaluators.crossflow.placement import candidates
from mohsearch.evaluators.crossflow.reasons import MEMORY_OVERFLOW, NO_WAFER, OK, OVER_BUDGET
from mohsearch.evaluators.crossflow.transformer import Transformer
from mohsearch.problems.base import Box, ProblemCard, SearchProblem
from mohsearch.problems.deepflow_authors import evaluate_in_authors_layouts
from mohsearch.problems.deepflow_box import independent_variables
from mohsearch.problems.deepflow_design import describe_design
from mohsearch.problems.deepflow_options import DeepflowOptions
from mohsearch.problems.deepflow_setup import Setup, build_setup
from mohsearch.problems.deepflow_workloads import load_iteration

NO_TIME_S = 1e9
NO_ENERGY_J = 1e18
NO_POWER_W = 1e9
NO_COST_USD = 1e12
MOST_PLACED = 2**16
"""Most devices whose placements are searched: a strategy then takes about five seconds."""

MOST_PLACEMENTS = 2**22
"""Most devices times strategies, likewise."""

RUNS = (OK, MEMORY_OVERFLOW, OVER_BUDGET)
"""Reasons of designs that have a time."""

COSTS = ("cost_usd", "system_cost_usd")
"""What a design that cannot run reports (its constraint ``missing_parts`` is 1), and what one costs
whose memory has no known price (cost is refused as an objective then)."""

Workload = Lstm | Gemm | Transformer


def load_card(catalog: Catalog | None = None) -> ProblemCard:
    """Return the declaration of the problem, ``problems/deepflow.yaml``."""
    path = (catalog or Catalog()).find("problems", "deepflow", kind="problem")
    return read_card(ProblemCard, path)


class DeepflowProblem(SearchProblem):
    """Search over fractions of area, power and perimeter, technology, budgets and parallelism.

    Genomes are rows of reals laid out by :mod:`mohsearch.evaluators.crossflow.design_space`;
    whole-number genes hold whole numbers.

    Parameters
    ----------
    workload
        What one iteration runs.
    setup
        Technologies, space and budgets that the options amount to.
    objectives
        Metrics to optimise (default: the card's).
    card
        Declaration (default: the one on the shelf).

    Attributes
    ----------
    space
        Bounds and classes of the genome, for operators and engines.
    """

    def __init__(
        self,
        workload: Workload,
        setup: Setup,
        *,
        objectives: Sequence[str] | None = None,
        card: ProblemCard | None = None,
    ) -> None:
        self.workload = workload
        self.setup = setup
        self.options: DeepflowOptions = setup.options
        self.space: DeepflowSpace = setup.space
        self.technologies: tuple[Technology, ...] = setup.technologies
        self.point_options: PointOptions = setup.point_options()
        if self.point_options.place is None:
            _check_placements(setup.options.devices, len(self.space.strategies))
        card = card or load_card()
        unpriced = [t.name for t in self.technologies if math.isnan(t.stack_usd)]
        if unpriced and set(objectives or card.objectives) & set(COSTS):
            raise InputError(
                f"no price of memory is known for {unpriced[0]}; leave cost out of the objectives",
                field="objectives",
            )
        super().__init__(card, self.space.lower, self.space.upper, objectives, vtype=float)

    @cached_property
    def need_bytes(self) -> FloatArray:
        """Main memory that a device needs, by strategy: shape (strategies,).

        It depends on workload and strategy, not on the chip.
        """
        count = len(self.space.strategies)
        points = DesignPoints(
            technology=self.technologies[:1],
            allocation=np.tile(self.setup.allocation, (count, 1)),
            strategy=self.space.codes,
        )
        opt = self.point_options
        if opt.place is None:  # any will do, and the best is costly to find
            (alone, *_) = candidates((1, 1, 1, 1), opt.nodes_per_package, opt.inter, opt.intra)
            opt = replace(opt, place=shared_row(1, opt.nodes_per_package, alone))
        return evaluate_points(points, self.workload, opt).memory_bytes

    def points(self, X: NDArray[Any]) -> DesignPoints:
        """Return what the evaluator takes for genomes X (n, n_var).

        Raises
        ------
        ValueError
            If a fraction is negative or a whole-number gene is out of its table.
        """
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        _check(X, self.space)
        which = self.setup.technology_index(X)
        strategy = X[:, G_STRATEGY].astype(np.int64)
        rows = np.zeros((len(X), ALLOCATION_COLUMNS))
        rows[:, A_NODE_AREA] = X[:, G_NODE_AREA]
        rows[:, A_TDP] = X[:, G_TDP]
        rows[:, A_CHIP_AREA] = self._chip_area(X, which, strategy)
        rows[:, A_AREA : A_AREA + FRACTIONS] = X[:, :FRACTIONS]
        return DesignPoints(
            technology=self.technologies,
            which=which,
            allocation=rows,
            strategy=self.space.codes[strategy],
            mapping=X[:, G_ORDER].astype(np.int64),
        )

    def evaluated(self, points: DesignPoints) -> PointMetrics:
        """Return all that the evaluator says about some points; no price is a reason too."""
        if self.options.compat == "deepflow" and self.point_options.place is None:
            found = evaluate_in_authors_layouts(points, self.workload, self.point_options)
        else:
            found = evaluate_points(points, self.workload, self.point_options)
        unbuilt = np.isinf(found.cost_usd) & np.isin(found.reason, RUNS)
        return replace(found, reason=np.where(unbuilt, NO_WAFER, found.reason))

    def _chip_area(
        self, X: FloatArray, which: NDArray[np.int64], strategy: NDArray[np.int64]
    ) -> FloatArray:
        """Return the die's area: given, or the node's rest beside the memory stacks."""
        given = self.setup.chip_area_mm2
        if given is not None:
            return np.full(len(X), given)
        tables = np.array([t.row for t in self.technologies])
        stacks = np.ceil(self.need_bytes[strategy] / tables[which, D_CAPACITY])
        taken = (stacks + X[:, G_STACKS]) * tables[which, D_AREA]
        # a hair less, so that the rest of the node holds the stacks in floating point too
        area = (X[:, G_NODE_AREA] - taken) * (1.0 - 1e-12)
        if self.options.reticle_mm2 is not None:
            area = np.minimum(area, self.options.reticle_mm2)
        return np.asarray(np.maximum(area, 0.0))

    def metrics(self, X: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """Return every metric and constraint of the card for genomes X (n, n_var), each (n,).

        Fractions may sum to more than one; ``budget_excess`` says so.
        """
        points = self.points(X)
        found = self.evaluated(points)
        runs = np.isin(found.reason, RUNS) & (found.time_s < math.inf)
        values = {
            "time_s": np.where(runs, found.time_s, NO_TIME_S),
            "throughput_per_s": np.where(runs, found.throughput_per_s, 0.0),
            "energy_j": np.where(runs, found.energy_j, NO_ENERGY_J),
            "power_w": np.where(runs, found.power_w, NO_POWER_W),
            "utilization": np.where(runs, found.utilization, 0.0),
        }
        for name in (
            "peak_power_w", "area_mm2", "cost_usd", "system_cost_usd", "memory_bytes",
            "headroom_bytes", "bundles",
        ):  # fmt: skip
            values[name] = np.asarray(getattr(found, name), dtype=np.float64)
        for name in COSTS:
            values[name] = np.where(np.isfinite(values[name]), values[name], NO_COST_USD)
        values |= self._constraints(np.atleast_2d(np.asarray(X, float)), found, runs)
        return values

    def _constraints(
        self, X: FloatArray, found: PointMetrics, runs: NDArray[np.bool_]
    ) -> dict[str, FloatArray]:
        capacity = found.capacity_bytes
        excess = np.divide(
            found.memory_bytes, capacity, out=np.full(len(X), 2.0), where=capacity > 0.0
        )  # fmt: skip
        ignored = self.options.memory_limit == "ignored"
        over = self.space.spent(X).max(axis=1) - 1.0
        return {
            "missing_parts": np.where(runs, 0.0, 1.0),
            "memory_excess": np.zeros(len(X)) if ignored else excess - 1.0,
            "budget_excess": np.where(over <= 1e-9, np.minimum(over, 0.0), over),
        }

    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return the design of one genome: technology, budgets, shares, strategy, chip, kernels."""
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        metrics = {name: float(values[0]) for name, values in self.metrics(row).items()}
        points = self.points(row)
        found = self.evaluated(points)
        return describe_design(self.setup, row[0], points, found, self.workload, metrics)

    @cached_property
    def _ideal(self) -> dict[str, float]:
        if self.options.compat != "none":
            return {}
        flop, samples = product_flop(self.workload)
        rate = self._best_rate()
        if rate <= 0.0 or flop <= 0.0:
            return {}
        time = flop / (self.options.devices * rate)
        energy = min(_least_flop_energy(t.row) for t in self.technologies)
        return {
            "time_s": time,
            "throughput_per_s": samples / time,
            "energy_j": flop * energy,
            "utilization": 1.0,
        }

    def _best_rate(self) -> float:
        """Return the most flop/s of a device: a whole die and all power for compute."""
        chip = self.setup.chip_area_mm2
        if chip is None:
            chip = float(self.space.upper[G_NODE_AREA])
            if self.options.reticle_mm2 is not None:
                chip = min(chip, self.options.reticle_mm2)
        rows = np.zeros((len(self.technologies), ALLOCATION_COLUMNS))
        rows[:, A_NODE_AREA] = self.space.upper[G_NODE_AREA]
        rows[:, A_CHIP_AREA] = chip
        rows[:, A_TDP] = self.space.upper[G_TDP]
        rows[:, A_AREA] = rows[:, A_POWER] = 1.0
        tables = np.array([t.row for t in self.technologies])
        return float(generate(tables, rows)[:, K_FLOPS].max())

    def ideal_point(self) -> dict[str, float]:
        """Return proven best values: all operations at the rate and energy of a chip of cores only.

        No design does its operations faster than a die of nothing but compute at all power, over
        all technologies of the search, nor with less energy than at the lowest voltage. Empty under
        ``compat``, whose model counts operations differently.
        """
        return dict(self._ideal)

    def certificate(self) -> dict[str, Any]:
        """Return what is proven about tiling, mapping and the ideal point."""
        exact = self.point_options.model.exact_tiling
        return {
            "tiling": "best of all power-of-two and divisor tiles" if exact else "random tiles",
            "mapping": "fastest of all orders" if self.options.mapping == "best" else "searched",
            "strategies": len(self.space.strategies),
            "ideal_point": "all operations on a die of compute only" if self._ideal else "none",
        }

    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""
        return content_digest(
            self.card.slug,
            repr(self.workload),
            [[t.row, t.overrides, repr((t.wafer, t.stack_usd))] for t in self.technologies],
            self.space.lower,
            self.space.upper,
            [str(s) for s in self.space.strategies],
            self.options.model_dump(mode="json"),
        )

    def box(self) -> Box:
        """Return logits of the fractions, logarithms of the budgets, and the whole numbers."""
        return independent_variables(self.space)


def _check_placements(devices: int, strategies: int) -> None:
    """Refuse systems whose placements take too long to find."""
    if devices > MOST_PLACED or devices * strategies > MOST_PLACEMENTS:
        raise InputError(
            f"{strategies:,} strategies on {devices:,} devices are too many to find their best "
            f"placements (at most {MOST_PLACED:,} devices and {MOST_PLACEMENTS:,} together): name "
            "fewer strategies, or give inter_derate or intra_derate",
            field="devices",
        )


def _check(X: FloatArray, space: DeepflowSpace) -> None:
    if X.shape[1] != space.n_var:
        raise ValueError(f"genomes have {space.n_var} genes, got {X.shape[1]}")
    if (X[:, :FRACTIONS] < 0.0).any() or not np.isfinite(X).all():
        raise ValueError("fractions must not be negative, and every gene finite")
    table = X[:, WHOLE]
    good = (
        (table == np.round(table)) & (table >= space.lower[WHOLE]) & (table <= space.upper[WHOLE])
    )
    if not good.all():
        row = int(np.flatnonzero(~good.all(axis=1))[0])
        raise ValueError(f"genome {row} has a table index that is no whole number in its range")


def product_flop(workload: Workload) -> tuple[float, float]:
    """Return the operations of an iteration's matrix products, all devices, and its samples.

    Splitting rounds shares up, so that no strategy does fewer. A transformer's are those of the
    uncut model, recomputed ones included; a last micro-batch counts for the samples it has.
    """
    if isinstance(workload, Transformer):
        layers = workload.cut(1).layers
        once = sum(w.count * (w.forward.tensor_flops + w.backward.tensor_flops) for w in layers)
        return once * workload.batch_size / workload.microbatch, workload.samples
    if isinstance(workload, Gemm):
        return 2.0 * workload.m * workload.k * workload.n, 1.0
    w, d = workload, workload.layer_size
    cells = 2.0 * w.batch_size * (2 * d) * (w.num_gates * d) * w.num_layers
    softmax = 2.0 * w.batch_size * d * w.vocab_size
    return 3.0 * w.seq_len * (cells + softmax), float(w.batch_size)


def _least_flop_energy(row: FloatArray) -> float:
    """Return the energy of an operation at the lowest voltage of a technology."""
    nominal = row[C_POWER] / (row[C_FLOPS] * row[C_FREQ])
    return float(nominal * ((row[C_VT] + row[C_MARGIN]) / row[C_VOLT]) ** 2)


def build(
    options: Mapping[str, Any] | DeepflowOptions | None,
    workload: str | Workload,
    *,
    objectives: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    cache_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    workers: int | None = None,
) -> DeepflowProblem:
    """Build the problem for a workload by name.

    Parameters
    ----------
    options
        Fields of :class:`mohsearch.problems.deepflow_options.DeepflowOptions`.
    workload
        Name of an iteration (``problems/workloads/iterations``), a path to its card, or itself.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.
    cache_dir, progress, workers
        Not used: nothing is precomputed.

    Raises
    ------
    InputError
        If an option or a name is wrong.

    Examples
    --------
    >>> problem = build({"devices": 8, "strategies": "d8"}, "lm_tiny")
    >>> [part.name for part in problem.space.classes]
    ['area', 'power', 'perimeter']
    """
    del cache_dir, progress, workers
    if not isinstance(options, DeepflowOptions):
        options = validate(DeepflowOptions, dict(options or {}))
    if isinstance(workload, str | Path):
        workload = load_iteration(workload, catalog)
    if isinstance(workload, Gemm):
        options = _for_product(options)
    return DeepflowProblem(
        workload, build_setup(options, catalog), objectives=objectives, card=load_card(catalog)
    )


def _for_product(options: DeepflowOptions) -> DeepflowOptions:
    """Return options for a single product, which kernel parallelism alone can split."""
    if options.strategies != "all":
        return options
    return options.model_copy(update={"pipeline_stages": (1,)})
