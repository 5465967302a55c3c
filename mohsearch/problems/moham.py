"""The moham problem: packages of sub-accelerators for a set of networks."""

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
from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.mapper.table import MappingTable, build_table
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.evaluators.package import (
    PackageEvaluator,
    PackageTables,
    largest_instance,
    restrict,
    tabulate,
)
from mohsearch.evaluators.package_bounds import ideal_point, latency_bounds_s
from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.hardware.architecture import Architecture
from mohsearch.hardware.templates import load_template
from mohsearch.problems.base import ProblemCard, SearchProblem
from mohsearch.problems.moham_design import describe_package
from mohsearch.problems.moham_options import MohamOptions
from mohsearch.workloads.application import Application
from mohsearch.workloads.zoo import load_application

Progress = Callable[[int, int, str], None]


def load_card(catalog: Catalog | None = None) -> ProblemCard:
    """Return the declaration of the problem, ``problems/moham.yaml``."""
    return read_card(ProblemCard, (catalog or Catalog()).find("problems", "moham", kind="problem"))


class MohamProblem(SearchProblem):
    """Search for packages: hardware, mapping, assignment, order and position together.

    Genomes are laid out by :attr:`space`; :meth:`metrics` accepts valid ones only. The operators of
    :mod:`mohsearch.operators` keep genomes valid, so the problem works with ``pymoo.minimize``.

    Parameters
    ----------
    application
        Networks to run.
    architectures
        Templates, in the order of ``table.templates``.
    table
        Mappings of the application's unique layers on the templates.
    options
        Hardware and modelling options; names of templates in it do not matter here.
    objectives
        Metrics to optimise (default: the card's).
    card
        Declaration (default: the one on the shelf).

    Attributes
    ----------
    space
        Layout of genomes and the arrays that operators share.
    evaluator
        The package evaluator behind :meth:`metrics`.

    Raises
    ------
    InfeasibleError
        If a layer has no mapping on any template.
    """

    def __init__(
        self,
        application: Application,
        architectures: Sequence[Architecture],
        table: MappingTable,
        options: MohamOptions | None = None,
        *,
        objectives: Sequence[str] | None = None,
        card: ProblemCard | None = None,
    ) -> None:
        self.options = options or MohamOptions()
        self.application = application
        self.architectures = tuple(architectures)
        self.network = self.options.network()
        fixed_templates = None
        instances = None
        if self.options.fixed_hardware is not None:
            counts = list(self.options.fixed_hardware.values())
            fixed_templates = np.repeat(np.arange(len(counts)), counts)
            instances = [largest_instance(a, t, table) for t, a in enumerate(architectures)]
            table = restrict(table, instances, table.templates)
        self.table = table
        self.tables: PackageTables = tabulate(
            table,
            self.architectures,
            self.network,
            clock_hz=self.options.clock_ghz * 1e9,
            fixed=instances,
        )
        _check_mappable(application, table)
        offsets, ids = application.predecessor_offsets, application.predecessor_ids
        self.space = MohamSpace.from_arrays(
            application.unique_index,
            [ids[offsets[v] : offsets[v + 1]].tolist() for v in range(application.n_layers)],
            self.tables.offsets,
            self.tables.features(self.network),
            templates=len(table.templates),
            max_instances=self.options.slots,
            fixed_templates=fixed_templates,
        )
        self.evaluator = PackageEvaluator(self.space, self.tables, self.network)
        super().__init__(card or load_card(), self.space.lower, self.space.upper, objectives)

    def metrics(self, X: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """Return every metric of the card for genomes X (count, n_var), each of shape (count,).

        Raises
        ------
        ValueError
            If a genome is not valid (see :meth:`MohamSpace.is_valid`).
        """
        genomes = np.ascontiguousarray(X, dtype=np.int64)
        valid = self.space.is_valid(genomes)
        if not valid.all():
            count = int((~valid).sum())
            first = int(np.flatnonzero(~valid)[0])
            raise ValueError(f"{count} of {len(valid)} genomes are not valid, the first is {first}")
        return self.evaluator.evaluate(genomes)

    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return the design that one valid genome stands for, as plain JSON types.

        ``package`` holds mesh, memory interfaces and link loads, ``instances`` the hardware,
        ``layers`` the schedule, ``metrics`` what :meth:`metrics` says, and ``bottleneck`` which of
        the bounds on latency is nearest.
        """
        row = np.ascontiguousarray(x, dtype=np.int64).reshape(1, -1)
        metrics = {name: float(values[0]) for name, values in self.metrics(row).items()}
        return describe_package(
            self.evaluator, row[0], self.application, self.architectures, self.table, metrics
        )

    @cached_property
    def _ideal(self) -> dict[str, float]:
        return ideal_point(self.space, self.tables, self.network)

    def ideal_point(self) -> dict[str, float]:
        """Return proven best values by metric, over all packages of the kept mappings.

        See :mod:`mohsearch.evaluators.package_bounds` for the proofs.
        """
        return dict(self._ideal)

    def certificate(self) -> dict[str, Any]:
        """Return what is proven: completeness of the layer mappings, and the bounds on latency."""
        pairs = self.table.certificates
        complete = sum(bool(c.get("complete")) for c in pairs)
        tolerances = (c.get("tolerance") for c in pairs)
        proven = [t for t in tolerances if isinstance(t, float)]
        empty = int((np.diff(self.table.offsets) == 0).sum())
        return {
            "mapper": {
                "layer_template_pairs": len(pairs),
                "complete": complete,
                "proven_within_a_factor": sum(bool(t) for t in proven),
                "largest_factor": 1.0 + max(proven, default=0.0),
                "without_mapping": empty,
                "mappings_kept": len(self.table.cycles),
                "mappings_per_layer": self.options.mappings_per_layer,
            },
            "schedule": "exact in the fluid model: rates change only when a layer starts or ends",
            "ideal_point": "over all packages of the kept mappings",
            "latency_bounds_s": latency_bounds_s(self.space, self.tables, self.network),
        }

    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""
        return content_digest(
            self.card.slug, self.application.digest(), self.tables, self.network,
            self.space.max_instances, self.space.fixed_templates,
        )  # fmt: skip


def _check_mappable(application: Application, table: MappingTable) -> None:
    """Raise InfeasibleError naming the first layer without any mapping, and the reasons."""
    templates = len(table.templates)
    counts = np.diff(table.offsets).reshape(-1, templates).sum(axis=1)
    for layer, u in zip(application.layers, application.unique_index, strict=True):
        if counts[u]:
            continue
        reasons = []
        for t, name in enumerate(table.templates):
            reason = table.certificates[u * templates + t].get("infeasible")
            reasons.append(f"{name}: {reason or 'no mapping fits the given instance'}")
        raise InfeasibleError(f"layer {layer.name} has no mapping ({'; '.join(reasons)})")


def build(
    options: Mapping[str, Any] | MohamOptions | None,
    workload: str,
    *,
    objectives: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> MohamProblem:
    """Build the problem for a workload by name: load it, map its layers, wire the evaluator.

    Parameters
    ----------
    options
        Fields of :class:`mohsearch.problems.moham_options.MohamOptions`.
    workload
        Application or network, by name or path.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.
    cache_dir
        Folder of the layer mappings' cache (default: the user's cache folder).
    progress
        Called with (pairs done, pairs in all, label) while layers are mapped.
    workers
        Processes that map layers (default: one per core, or what the study allows); 1 starts none.

    Raises
    ------
    InputError
        If an option or a name is wrong.
    InfeasibleError
        If a layer has no mapping on any template.
    """
    if not isinstance(options, MohamOptions):
        options = validate(MohamOptions, dict(options or {}))
    application = load_application(workload, catalog)
    architectures = load_architectures(options, catalog)
    table = build_table(
        application.unique_layers,
        architectures,
        limit=options.mappings_per_layer,
        rule=options.mapping_rule,
        options=MapperOptions(effort=options.mapper_effort),
        cache=True if cache_dir is None else cache_dir,
        workers=workers,
        progress=progress,
    )
    card = load_card(catalog)
    return MohamProblem(
        application, architectures, table, options, objectives=objectives, card=card
    )


def load_architectures(
    options: MohamOptions, catalog: Catalog | None = None
) -> tuple[Architecture, ...]:
    """Return the templates that the options name, with the options' changes."""
    architectures = []
    for name in options.template_names:
        architecture = load_template(
            name,
            options.variant,
            register_file_area=options.register_file_area,
            omit=options.omit_levels.get(name, ()),
            catalog=catalog,
        )
        if options.memory_words_per_cycle is not None:
            architecture = architecture.with_memory_bandwidth(options.memory_words_per_cycle)
        architectures.append(architecture)
    return tuple(architectures)
