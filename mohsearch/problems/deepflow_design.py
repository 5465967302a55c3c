"""A genome of the deepflow problem in the field's words: technology, shares, strategy, chip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mohsearch.evaluators.crossflow.design_points import ORDERS, DesignPoints, PointMetrics
from mohsearch.evaluators.crossflow.design_space import (
    CLASS_GENES,
    CLASS_NAMES,
    FRACTION_NAMES,
    G_LOGIC,
    G_MEMORY,
    G_NETWORK,
    G_NODE_AREA,
    G_STACKS,
    G_STRATEGY,
    G_TDP,
)
from mohsearch.evaluators.crossflow.dpe import DIMENSIONS
from mohsearch.evaluators.crossflow.evaluate import Workload
from mohsearch.evaluators.crossflow.layout import A_CHIP_AREA, FloatArray, chip_record
from mohsearch.evaluators.crossflow.point_kernels import kernel_records
from mohsearch.evaluators.crossflow.reasons import REASONS
from mohsearch.problems.deepflow_setup import Setup

SPARE = "unspent"
"""Name of what a budget does not give out."""


def describe_design(
    setup: Setup,
    x: FloatArray,
    points: DesignPoints,
    found: PointMetrics,
    workload: Workload,
    metrics: Mapping[str, float],
) -> dict[str, Any]:
    """Return the design of one genome as plain JSON types.

    Parameters
    ----------
    points, found
        The genome as the only point of the evaluator, and what it said.
    """
    order = int(found.mapping[0])
    return {
        "technology": {
            "logic": setup.logic[int(x[G_LOGIC])],
            "memory": setup.memory[int(x[G_MEMORY])],
            "network": setup.network[int(x[G_NETWORK])],
        },
        "budgets": {
            "tdp_w": float(x[G_TDP]),
            "node_area_mm2": float(x[G_NODE_AREA]),
            "chip_area_mm2": float(points.allocation[0, A_CHIP_AREA]),
            "extra_stacks": int(x[G_STACKS]),
        },
        "fractions": fractions_of(x),
        "strategy": str(setup.space.strategies[int(x[G_STRATEGY])]),
        "devices": setup.options.devices,
        "mapping_order": [DIMENSIONS[i] for i in ORDERS[order]] if order >= 0 else None,
        "reason": REASONS[int(found.reason[0])],
        "kernels": kernel_records(points, found, 0, workload, setup.point_options()),
        "chip": {k: v for k, v in chip_record(found.chips[0]).items() if np.isfinite(v)},
        "metrics": dict(metrics),
    }


def fractions_of(x: FloatArray) -> dict[str, dict[str, float]]:
    """Return the shares of each budget by component, and what is not given out."""
    shares: dict[str, dict[str, float]] = {}
    for name, genes in zip(CLASS_NAMES, CLASS_GENES, strict=True):
        part = {
            label.partition(".")[2]: float(value)
            for label, value in zip(FRACTION_NAMES[genes], x[genes], strict=True)
        }
        shares[name] = {**part, SPARE: max(1.0 - sum(part.values()), 0.0)}
    return shares
