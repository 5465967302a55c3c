"""The chiplet problem: partitions of a computation graph over the chips of a package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import moocore
import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import read_card, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.partition.bounds import interval_bounds, metric_bounds
from mohsearch.evaluators.partition.chip_package import ChipPackage, load_chip_package
from mohsearch.evaluators.partition.contiguous import contiguous_front
from mohsearch.evaluators.partition.costs import (
    HardwareModel,
    describe_partition,
    evaluate_partitions,
)
from mohsearch.evaluators.partition.downsets import solve_downsets
from mohsearch.evaluators.partition.general_program import solve_general
from mohsearch.evaluators.partition.solve import proven_interval_s
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.problems.base import ProblemCard, SearchProblem
from mohsearch.problems.chiplet_baselines import GREEDY, greedy_partitions
from mohsearch.problems.chiplet_options import ChipletOptions
from mohsearch.problems.chiplet_space import PartitionSpace
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph

Progress = Callable[[int, int, str], None]

MOST_DOWNSETS = 3000
"""Graphs with more downsets are seeded by splits of the program order alone."""

MOST_DOWNSETS_IN_PARALLEL = 1000
"""Graphs with more downsets are seeded by chains alone: the other program takes seconds there."""

LIMITS = 40
"""Limits on the interval for which seeds of least traffic are made."""


def load_card(catalog: Catalog | None = None) -> ProblemCard:
    """Return the declaration of the problem, ``problems/chiplet.yaml``."""
    found = (catalog or Catalog()).find("problems", "chiplet", kind="problem")
    return read_card(ProblemCard, found)


class ChipletProblem(SearchProblem):
    """Search for partitions of one graph over the chips of one package.

    Genomes are laid out by :attr:`space`. Constraints 1 to 3 of the paper hold for every genome;
    constraint 4, memory, is the problem's one constraint unless the option ``memory_limit`` is off.

    Parameters
    ----------
    graph
        Computation graph.
    package
        Chips, links, energies and process.
    options
        Genome, fidelity and limits.
    objectives
        Metrics to optimise (default: the card's).
    card
        Declaration (default: the one on the shelf).

    Attributes
    ----------
    space
        Layout of genomes and the operators' way to partitions.
    task
        Graph on package with the chips available.
    """

    def __init__(
        self,
        graph: PartitionGraph,
        package: ChipPackage | None = None,
        options: ChipletOptions | None = None,
        *,
        objectives: Sequence[str] | None = None,
        card: ProblemCard | None = None,
    ) -> None:
        self.options = options or ChipletOptions()
        self.task = PartitionTask(
            graph, _changed(package or load_chip_package(), self.options), self.options.chips
        )
        chosen = self.options
        self.space = PartitionSpace(self.task, chosen.genome, chosen.constraints, chosen.repair)
        card = card or load_card()
        self.hardware = HardwareModel(seed=self.options.hardware_seed)
        self._sram_bytes = self.task.package.chip.sram_bytes
        genes = {"labels": "chip", "offsets": "offset", "segments": "weight", "keys": "key"}
        shown = {genes[self.options.genome]}
        if self.options.genome != "labels":
            shown.add("chips")
        changes: dict[str, Any] = {
            "variables": tuple(v for v in card.variables if v.name in shown),
        }
        if not self.options.memory_limit:
            changes["constraints"] = ()
        super().__init__(
            card.model_copy(update=changes), self.space.lower, self.space.upper, objectives
        )

    def metrics(self, X: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """Return every metric of the card for genomes X (count, n_var), each of shape (count,).

        Raises
        ------
        ValueError
            If a genome of kind ``labels`` is no valid partition.
        """
        genomes = np.asarray(X, dtype=np.int64)
        if ((genomes < self.space.lower) | (genomes > self.space.upper)).any():
            raise ValueError("a genome leaves the bounds of its genes")
        partitions = self.space.partitions(genomes)
        if self.options.genome == "labels":
            broken = np.flatnonzero(~self.space.valid(partitions))
            if len(broken):
                raise ValueError(
                    f"{len(broken)} of {len(genomes)} partitions break constraints 1 to 3, "
                    f"the first is {broken[0]}"
                )
        return self.costs(partitions)

    def costs(self, partitions: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """Return every metric of valid partitions (count, n_ops), each of shape (count,)."""
        values = dict(
            evaluate_partitions(
                self.task,
                np.ascontiguousarray(partitions, dtype=np.int16),
                self.options.fidelity,
                hardware=self.hardware,
            )
        )
        values["memory_excess"] = values["peak_memory_bytes"] / self._sram_bytes - 1.0
        return {m.name: values[m.name] for m in (*self.card.metrics, *self.card.constraints)}

    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return the partition that one genome stands for, as plain JSON types.

        Beside what :func:`~mohsearch.evaluators.partition.costs.describe_partition` says of chips
        and links: ``graph``, ``ops``, ``bound`` (proven least interval, with the gap) and
        ``baselines_interval_s`` (the greedy heuristics on the same cost model).
        """
        genome = np.asarray(x, dtype=np.int64).reshape(1, -1)
        labels = self.space.partitions(genome)[0].astype(np.int16)
        metrics = {name: float(values[0]) for name, values in self.metrics(genome).items()}
        described = describe_partition(
            self.task, labels, self.options.fidelity, hardware=self.hardware
        )
        graph = self.task.graph
        bound_s = self._ideal["interval_s"]
        return {
            **described,
            "graph": graph.name,
            "ops": graph.n,
            "metrics": metrics,
            "bound": {"interval_s": bound_s, "gap": metrics["interval_s"] / bound_s - 1.0},
            "baselines_interval_s": dict(self.baselines),
        }

    @cached_property
    def _ideal(self) -> dict[str, float]:
        bounds = metric_bounds(self.task, self.options.fidelity, hardware=self.hardware)
        if self.options.fidelity == "analytic":
            bounds["interval_s"] = max(bounds["interval_s"], proven_interval_s(self.task))
        bounds["throughput_per_s"] = 1.0 / bounds["interval_s"]
        return {m.name: float(bounds[m.name]) for m in self.card.metrics if m.name in bounds}

    @cached_property
    def greedy(self) -> NDArray[np.int64]:
        """The greedy heuristics' partitions, shape (3, n_ops)."""
        return np.stack(list(greedy_partitions(self.task).values()))

    @cached_property
    def baselines(self) -> dict[str, float]:
        """Interval of each greedy heuristic on this problem's cost model, in seconds."""
        intervals = self.costs(self.greedy)["interval_s"].tolist()
        return dict(zip(GREEDY, intervals, strict=True))

    @property
    def seeds(self) -> NDArray[np.int64]:
        """Partitions that dynamic programs prove best, shape (seeds, n_ops).

        For every number of chips the least interval, over all downsets of the graph where these are
        few, and over the program order; unless constraints are ``chain``, the partitions with
        branches on chips of their own that are better still; and for every number of chips and
        each of 40 limits on the interval the least bytes between chips, over the program order.
        Those that no other is better than in all objectives come first, of these the one with the
        least interval.
        """
        return self._seeds[0]

    @cached_property
    def _seeds(self) -> tuple[NDArray[np.int64], int]:
        rows = [contiguous_front(self.task).labels]
        try:
            chains = solve_downsets(self.task, limit=MOST_DOWNSETS)
            rows.append(chains.labels)
            if self.options.constraints != "chain":
                least_s = float(chains.interval_s.min())
                rows.append(solve_general(self.task, least_s, MOST_DOWNSETS_IN_PARALLEL).labels)
        except InfeasibleError:
            pass  # too many downsets
        longest = float(self.task.time_s.sum())
        shortest = float(evaluate_partitions(self.task, rows[0])["interval_s"].min())
        for limit in np.geomspace(shortest, longest, LIMITS + 1)[1:]:
            rows.append(contiguous_front(self.task, interval_limit_s=float(limit)).labels)
        found = np.unique(np.concatenate(rows).astype(np.int64), axis=0)
        found = found[self.space.valid(found)]
        costs = self.costs(found)
        F = np.column_stack([costs[m.name] for m in self.objective_cards]) * self.signs
        for constraint in self.card.constraints:
            F[costs[constraint.name] > 0] = np.inf
        best = (
            moocore.is_nondominated(F, keep_weakly=False) if F.shape[1] > 1 else F[:, 0] <= F.min()
        )
        order = np.lexsort([costs["interval_s"], ~best])
        return found[order], int(best.sum())

    @property
    def best_seeds(self) -> int:
        """How many of :attr:`seeds` come first because no other is better in all objectives."""
        return self._seeds[1]

    def ideal_point(self) -> dict[str, float]:
        """Return proven best values by metric (:mod:`mohsearch.evaluators.partition.bounds`).

        The analytic interval's is :func:`~mohsearch.evaluators.partition.solve.proven_interval_s`,
        which counts transfers; under the fidelity ``hardware`` no bound here does.
        """
        return dict(self._ideal)

    def certificate(self) -> dict[str, Any]:
        """Return what is proven of the interval, and the greedy baselines to compare with."""
        bounds = interval_bounds(self.task)
        return {
            "validity": "constraints 1 to 3 hold for every genome",
            "interval_bound_s": self._ideal["interval_s"],
            "analytic_interval_bounds_s": {
                "balance": float(bounds.balance_s),
                "skip": float(bounds.skip_s),
            },
            "baselines_interval_s": dict(self.baselines),
        }

    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""
        options = self.options
        return content_digest(
            self.card.slug,
            self.task.digest(),
            options.genome,
            options.constraints,
            options.fidelity,
            options.hardware_seed,
            options.memory_limit,
        )


def _changed(package: ChipPackage, options: ChipletOptions) -> ChipPackage:
    """Return the package with what the options set differently."""
    changes: dict[str, float] = {}
    if options.element_bytes is not None:
        changes["element_bytes"] = float(options.element_bytes)
    if options.sram_mb is not None:
        changes["sram_bytes"] = options.sram_mb * 2**20
    return package.model_copy(update={"chip": package.chip.model_copy(update=changes)})


def build(
    options: Mapping[str, Any] | ChipletOptions | None,
    workload: str,
    *,
    objectives: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> ChipletProblem:
    """Build the problem for a graph by name or path.

    Parameters
    ----------
    options
        Fields of :class:`~mohsearch.problems.chiplet_options.ChipletOptions`.
    workload
        Computation graph on the shelf ``problems/workloads/graphs``, or a JSON or ONNX file.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.
    cache_dir, progress, workers
        Not needed: nothing here takes long.

    Raises
    ------
    InputError
        If an option or a name is wrong.
    """
    if not isinstance(options, ChipletOptions):
        options = validate(ChipletOptions, dict(options or {}))
    graph = load_graph(workload, catalog)
    package = load_chip_package(options.package, catalog)
    return ChipletProblem(graph, package, options, objectives=objectives, card=load_card(catalog))
