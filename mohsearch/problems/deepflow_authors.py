"""Designs under the placements of the authors' program: its layouts, its way of counting links.

A package is a square mesh, packages stand in a chain, and of a message between packages only the
first link counts. Source: ``deviceMapping.py`` (nanocad-lab/DeepFlow at 566c192).
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache

import numpy as np

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.crossflow.design_points import (
    ORDERS,
    DesignPoints,
    PointMetrics,
    PointOptions,
    evaluate_points,
    strategy_of,
)
from mohsearch.evaluators.crossflow.dpe import DIMENSIONS, Placement, Sizes, authors_layouts
from mohsearch.evaluators.crossflow.evaluate import Workload, place_row


@lru_cache(maxsize=1024)
def _layouts(sizes: Sizes, nodes_per_package: int) -> tuple[Placement, ...]:
    try:
        found = authors_layouts(sizes, nodes_per_package)
    except InfeasibleError:
        return ()
    # the devices of each shard are not needed further on
    return tuple(replace(layout, device_of={}) for layout in found)


def evaluate_in_authors_layouts(
    points: DesignPoints, workload: Workload, options: PointOptions
) -> PointMetrics:
    """Return the metrics of n designs, each in the best of the authors' layouts.

    Where a strategy does not nest into the packages, and between packages on anything but a chain,
    this project's placements hold.
    """
    if options.inter != "chain" or options.intra != "mesh":
        return evaluate_points(points, workload, options)
    codes = np.atleast_2d(np.asarray(points.strategy))
    best: dict[str, np.ndarray] = {}
    for code in np.unique(codes, axis=0):
        mine = np.flatnonzero((codes == code).all(axis=1))
        found = _best_layout(_some(points, mine), code, workload, options)
        for f in fields(PointMetrics):
            column = getattr(found, f.name)
            whole = best.setdefault(f.name, np.zeros((len(codes), *column.shape[1:]), column.dtype))
            whole[mine] = column
    return PointMetrics(**best)


def _some(points: DesignPoints, rows: np.ndarray) -> DesignPoints:
    which = None if points.which is None else points.which[rows]
    return DesignPoints(
        points.technology, points.allocation[rows], which, np.asarray(points.strategy)[rows]
    )


def _best_layout(
    points: DesignPoints, code: np.ndarray, workload: Workload, options: PointOptions
) -> PointMetrics:
    plan = strategy_of(code)
    layouts = _layouts((plan.kp1, plan.kp2, plan.dp, plan.lp), options.nodes_per_package)
    if not layouts:
        return evaluate_points(points, workload, options)
    chosen: dict[str, np.ndarray] = {}
    for layout in layouts:
        place = place_row(
            plan.devices, nodes_per_package=options.nodes_per_package,
            inter_derate=layout.inter_derate, intra_derate=layout.intra_derate,
            crosses=layout.crosses,
        )  # fmt: skip
        found = evaluate_points(points, workload, replace(options, place=place))
        order = ORDERS.index(tuple(DIMENSIONS.index(name) for name in layout.order))
        values = {f.name: getattr(found, f.name) for f in fields(PointMetrics)}
        values["mapping"] = np.full(len(found.time_s), order)
        better = found.time_s < chosen["time_s"] if chosen else np.ones(len(found.time_s), bool)
        for name, column in values.items():
            chosen.setdefault(name, column.copy())[better] = column[better]
    return PointMetrics(**chosen)
