"""From the options of the deepflow problem to its technologies, bounds and system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import CrossflowConfig, allocation_row
from mohsearch.evaluators.crossflow.design_points import (
    ORDERS,
    PointOptions,
    Technology,
    technology_of,
)
from mohsearch.evaluators.crossflow.design_space import (
    CLASS_GENES,
    FRACTION_NAMES,
    FRACTIONS,
    G_LOGIC,
    G_MEMORY,
    G_NETWORK,
    DeepflowSpace,
    enumerate_strategies,
    gene_bounds,
)
from mohsearch.evaluators.crossflow.evaluate import Strategy, place_row
from mohsearch.evaluators.crossflow.layout import (
    A_AREA,
    A_CHIP_AREA,
    A_NODE_AREA,
    A_TDP,
    FloatArray,
)
from mohsearch.evaluators.crossflow.point_rows import V_INTRA
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.hardware.systems import load_system
from mohsearch.problems.deepflow_options import DeepflowOptions


@dataclass(frozen=True)
class Setup:
    """What the options amount to.

    Attributes
    ----------
    technologies
        One per combination of logic node, memory and network, the network varying fastest.
    logic, memory, network
        Names that the genes count through.
    space
        Bounds and classes of the genome.
    allocation : (ALLOCATION_COLUMNS,)
        Budgets and fractions of the system.
    chip_area_mm2
        The die's area where it is given.
    """

    options: DeepflowOptions
    technologies: tuple[Technology, ...]
    logic: tuple[str, ...]
    memory: tuple[str, ...]
    network: tuple[str, ...]
    space: DeepflowSpace
    allocation: FloatArray
    chip_area_mm2: float | None

    def technology_index(self, X: FloatArray) -> NDArray[np.int64]:
        """Return the place of each genome's technology in ``technologies``: shape (n,)."""
        logic, memory, network = (X[:, g].astype(np.int64) for g in (G_LOGIC, G_MEMORY, G_NETWORK))
        return np.asarray((logic * len(self.memory) + memory) * len(self.network) + network)

    def point_options(self) -> PointOptions:
        """Return what the evaluator takes beside the points."""
        o = self.options
        place = None
        if o.inter_derate is not None or o.intra_derate is not None:
            place = place_row(
                o.devices, nodes_per_package=o.nodes_per_package,
                inter_derate=o.inter_derate or 1.0, intra_derate=o.intra_derate or 0.0,
            )  # fmt: skip
        return PointOptions(
            nodes_per_package=o.nodes_per_package,
            inter=o.inter_topology,
            intra=o.intra_topology,
            model=o.model(),
            precision_bytes=o.precision_bytes,
            launch_overhead_s=o.launch_overhead_s,
            place=place,
        )


def build_setup(options: DeepflowOptions, catalog: Catalog | None = None) -> Setup:
    """Look the named cards up and work out the bounds of every gene.

    Raises
    ------
    InputError
        If a card is unknown, or what is fixed leaves nothing feasible.
    """
    card = load_system(options.system, catalog)
    if card.crossflow is None:
        raise InputError(f"the system {card.name} has no CrossFlow allocation", field="system")
    config = config_from({"system": options.system}, catalog=catalog)
    named = card.crossflow.get("technology", {})
    logic = options.logic or (str(named["logic"]),)
    memory = options.memory or (str(named["memory"]),)
    network = options.network or (str(named["inter_network"]),)
    technologies = tuple(_technology(options, *names) for names in product(logic, memory, network))
    allocation = allocation_row(config)
    strategies = _strategies(options)
    ranges: dict[str, tuple[float, float]] = {
        "logic": (0, len(logic) - 1),
        "memory": (0, len(memory) - 1),
        "network": (0, len(network) - 1),
        "tdp_w": options.tdp_w or (allocation[A_TDP],) * 2,
        "node_area_mm2": options.node_area_mm2 or (allocation[A_NODE_AREA],) * 2,
        "strategy": (0, len(strategies) - 1),
        "mapping_order": (0, len(ORDERS) - 1) if options.mapping == "searched" else (-1, -1),
        "extra_stacks": options.extra_stacks,
    }
    ranges |= dict(_fixed_fractions(options, config, allocation))
    lower, upper = gene_bounds(ranges)
    reference = allocation[A_AREA : A_AREA + FRACTIONS]
    space = DeepflowSpace(lower, upper, strategies, reference)
    chip = options.chip_area_mm2
    given = {"rest": None, "system": float(allocation[A_CHIP_AREA])}
    chip_area = given[chip] if isinstance(chip, str) else chip
    return Setup(
        options, technologies, logic, memory, network, space, allocation, chip_area
    )  # fmt: skip


def _technology(options: DeepflowOptions, logic: str, memory: str, network: str) -> Technology:
    technology = technology_of(
        options.system, logic=logic, memory=memory, inter_network=network,
        quoted_bandwidths=options.quoted_bandwidths,
    )  # fmt: skip
    if options.intra_bandwidth_gb_per_s is None:
        return technology
    overrides = technology.overrides.copy()
    overrides[V_INTRA] = options.intra_bandwidth_gb_per_s * 1e9
    return replace(technology, overrides=overrides)


def _strategies(options: DeepflowOptions) -> tuple[Strategy, ...]:
    if options.strategies == "all":
        return enumerate_strategies(options.devices, options.pipeline_stages)
    return tuple(Strategy.parse(name) for name in options.strategies)


def _fixed_fractions(
    options: DeepflowOptions, config: CrossflowConfig, allocation: FloatArray
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the fractions that are not searched, each with its value twice.

    Links that the system does not have get nothing (under ``compat`` what the system's card says),
    and a class with one free fraction gives it all that is left.
    """
    known = dict(zip(FRACTION_NAMES, allocation[A_AREA : A_AREA + FRACTIONS], strict=True))
    if options.fractions == "system":
        values = known | options.fixed_fractions
    else:
        values = dict(options.fixed_fractions)
        absent = []
        if options.nodes_per_package == 1:
            absent.append("intra")
        if options.devices <= options.nodes_per_package:
            absent.append("inter")
        for name in FRACTION_NAMES:
            if name.partition(".")[2] in absent:
                values.setdefault(name, known[name] if options.compat == "deepflow" else 0.0)
    for genes in CLASS_GENES:
        names = FRACTION_NAMES[genes]
        free = [name for name in names if name not in values]
        if len(free) == 1:
            values[free[0]] = max(1.0 - sum(values[n] for n in names if n in values), 0.0)
    yield from ((name, (float(v), float(v))) for name, v in values.items())
