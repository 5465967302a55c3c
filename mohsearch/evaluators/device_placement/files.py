"""Reading of placement problems: the PHAZE solver's input and compact chain cases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mohsearch.core.cards import read_json, validate
from mohsearch.core.errors import InputError
from mohsearch.evaluators.device_placement.problem import (
    ExpertPlan,
    LayerCosts,
    NetworkLevel,
    PipelineSchedule,
    PlacementProblem,
)

Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Degree = Annotated[int, Field(ge=1)]

_STATE_COPIES = {"SGD": 2.0, "Adam": 3.0, "AdamMixedPrecision": 8.0}
"""Bytes of weights, gradients and optimizer state per byte of weights.

``SGD`` and ``Adam`` count as PHAZE does: Adam is one further copy. ``AdamMixedPrecision`` keeps
master weights and both moments in 4 bytes each beside 2-byte weights and gradients.
"""


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Node(_Record):
    id: int
    parameterSize: Amount
    activationSize: Amount
    optimalLatencyFw: Amount
    optimalLatencyBw: Amount
    isTensorParallelized: bool


class _Edge(_Record):
    sourceId: int
    destId: int
    communicationCost: Amount


class _Level(_Record):
    devices: Degree
    bandwidth: Positive


_Levels = Annotated[tuple[_Level, ...], Field(min_length=1)]
_VirtualStages = Annotated[tuple[Degree, ...], Field(min_length=1)]
_Nodes = Annotated[tuple[_Node, ...], Field(min_length=1)]


class _GraphCase(_Record):
    id: str | None = None
    maxMemoryPerDevice: Positive
    maxDevices: Annotated[int, Field(ge=1, le=1_000_000)]
    bandwidth: Positive | None = None
    levels: _Levels | None = None
    virtualStages: _VirtualStages = (1,)
    mbsInBatch: Annotated[float, Field(ge=1)]
    activationRecomputation: bool
    optimizerAlgorithm: Literal["SGD", "Adam", "AdamMixedPrecision"] = "SGD"
    pipelineSchedule: PipelineSchedule = "1F1B"
    fixedPP: Degree | None = None
    fixedTMPC: Degree | None = None
    fixedDP: Degree | None = None
    numTransformerLayers: Degree | None = None
    nodes: Annotated[dict[Degree, _Nodes], Field(min_length=1)]
    edges: dict[Degree, tuple[_Edge, ...]] = {}


class _SliceCosts(_Record):
    fw: Amount
    bw: Amount
    weights: Amount
    opt: Amount = 0.0
    acts: Amount


class _ChainLayer(_Record):
    out_act: Amount
    by_t: Annotated[dict[Degree, _SliceCosts], Field(min_length=1)]


class _ChainCase(_Record):
    id: str | None = None
    layers: Annotated[tuple[_ChainLayer, ...], Field(min_length=1)]
    tmp_widths: Annotated[tuple[Degree, ...], Field(min_length=1)]
    K: Annotated[int, Field(ge=1, le=1_000_000)]
    B: Annotated[int, Field(ge=1)]
    bandwidth: Positive | None = None
    levels: _Levels | None = None
    virtualStages: _VirtualStages = (1,)
    recompute: bool
    input_act: Amount = 0.0
    hbm: Positive


def read_problems(path: Path) -> dict[str, PlacementProblem]:
    """Read placement problems by id.

    Parameters
    ----------
    path
        JSON: one problem, a list of problems, or an object with a list ``cases``. A problem has
        either ``nodes`` (the input of PHAZE's placement solver) or ``layers`` (a chain).

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    data = read_json(path)
    problems: dict[str, PlacementProblem] = {}
    for name, where, case in _cases(data, path):
        if name in problems:
            raise InputError(f"a second case with id {name!r}", source=path, field=where)
        problems[name] = _problem(case, path, where)
    if not problems:
        raise InputError("there is no case", source=path)
    return problems


def _cases(data: Any, path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if isinstance(data, dict) and "cases" in data:
        data = data["cases"]
    several = isinstance(data, list)
    for index, case in enumerate(data if several else [data]):
        where = f"cases[{index}]" if several else ""
        if not isinstance(case, dict):
            raise InputError("must be an object", source=path, field=where or None)
        yield str(case.get("id", f"case{index}" if several else path.stem)), where, case


def _problem(case: dict[str, Any], path: Path, where: str) -> PlacementProblem:
    try:
        if "layers" in case:
            return _chain_problem(validate(_ChainCase, {**case, "id": None}))
        if "nodes" in case:
            return _graph_problem(validate(_GraphCase, {**case, "id": None}))
    except InputError as error:
        field = ".".join(part for part in (where, error.field) if part) or None
        raise InputError(error.message, source=path, field=field) from error
    raise InputError(
        "neither 'nodes' (PHAZE's placement input) nor 'layers' (a chain)",
        source=path,
        field=where or None,
    )


def _network(case: _GraphCase | _ChainCase, devices: int) -> dict[str, Any]:
    """Return bandwidth, levels and virtual stages of a case."""
    if (case.bandwidth is None) == (case.levels is None):
        raise InputError("give either one bandwidth or levels", field="bandwidth")
    common = {"virtual_stages": case.virtualStages}
    if case.levels is None:
        return {"bandwidth_bytes_per_s": case.bandwidth, **common}
    for k, (small, large) in enumerate(pairwise(case.levels), start=1):
        if large.devices % small.devices or large.devices == small.devices:
            message = f"must be a multiple of the level before ({small.devices} devices)"
            raise InputError(message, field=f"levels[{k}].devices")
    last = case.levels[-1]
    if last.devices < devices:
        message = f"the last level holds {last.devices} devices, there are {devices}"
        raise InputError(message, field=f"levels[{len(case.levels) - 1}].devices")
    levels = tuple(NetworkLevel(level.devices, level.bandwidth) for level in case.levels)
    return {"bandwidth_bytes_per_s": last.bandwidth, "levels": levels, **common}


def _chain_problem(case: _ChainCase) -> PlacementProblem:
    n = len(case.layers)
    sizes = np.array([layer.out_act for layer in case.layers[:-1]])
    costs = {}
    for t in case.tmp_widths:
        for k, layer in enumerate(case.layers):
            if t not in layer.by_t:
                raise InputError(f"no costs for width {t}", field=f"layers[{k}].by_t")
        slices = [layer.by_t[t] for layer in case.layers]
        weights = np.array([s.weights for s in slices])
        costs[t] = LayerCosts(
            forward_s=np.array([s.fw for s in slices]),
            backward_s=np.array([s.bw for s in slices]),
            weight_bytes=weights,
            state_bytes=2 * weights + np.array([s.opt for s in slices]),
            activation_bytes=np.array([s.acts for s in slices]),
            sliced=np.full(n, t > 1),
            edge_bytes=sizes,
        )
    return PlacementProblem(
        layer_ids=tuple(range(n)),
        sources=np.arange(n - 1),
        targets=np.arange(1, n),
        costs=costs,
        devices=case.K,
        memory_bytes=case.hbm,
        **_network(case, case.K),
        microbatches=case.B,
        recompute=case.recompute,
        rounding="divisors",
        overlap_recompute=False,
        input_bytes=case.input_act,
    )


def _graph_problem(case: _GraphCase) -> PlacementProblem:
    widths = sorted(case.nodes)
    order = _topological_ids(case, widths[0])
    position = {layer: k for k, layer in enumerate(order)}
    joined = [(e.sourceId, e.destId) for e in case.edges.get(widths[0], ())]
    costs = {t: _graph_costs(case, t, position, joined) for t in widths}
    return PlacementProblem(
        layer_ids=order,
        sources=np.array([position[u] for u, _ in joined], dtype=np.int64),
        targets=np.array([position[v] for _, v in joined], dtype=np.int64),
        costs=costs,
        devices=case.maxDevices,
        memory_bytes=case.maxMemoryPerDevice,
        **_network(case, case.maxDevices),
        microbatches=int(case.mbsInBatch),
        recompute=case.activationRecomputation,
        schedule=case.pipelineSchedule,
        expert=_expert(case),
    )


def _topological_ids(case: _GraphCase, t: int) -> tuple[int, ...]:
    graph = nx.DiGraph()
    for k, node in enumerate(case.nodes[t]):
        if node.id in graph:
            raise InputError(f"a second layer {node.id}", field=f"nodes.{t}[{k}].id")
        graph.add_node(node.id)
    for k, edge in enumerate(case.edges.get(t, ())):
        for end in ("sourceId", "destId"):
            if getattr(edge, end) not in graph:
                message = f"no layer {getattr(edge, end)}"
                raise InputError(message, field=f"edges.{t}[{k}].{end}")
        if graph.has_edge(edge.sourceId, edge.destId):
            raise InputError("a second edge between the same layers", field=f"edges.{t}[{k}]")
        graph.add_edge(edge.sourceId, edge.destId)
    try:
        return tuple(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible as error:
        raise InputError("the layers form a circle", field=f"edges.{t}") from error


def _graph_costs(
    case: _GraphCase, t: int, position: dict[int, int], joined: list[tuple[int, int]]
) -> LayerCosts:
    nodes = {node.id: node for node in case.nodes[t]}
    if len(case.nodes[t]) != len(position) or nodes.keys() != position.keys():
        raise InputError("not the same layers as in the other widths", field=f"nodes.{t}")
    sizes = {(e.sourceId, e.destId): e.communicationCost for e in case.edges.get(t, ())}
    if len(case.edges.get(t, ())) != len(joined) or sizes.keys() != set(joined):
        raise InputError("not the same edges as in the other widths", field=f"edges.{t}")
    ordered = [nodes[layer] for layer in position]
    if t == 1 and any(node.isTensorParallelized for node in ordered):
        raise InputError("isTensorParallelized at width 1", field="nodes.1")
    weights = np.array([node.parameterSize for node in ordered])
    return LayerCosts(
        forward_s=np.array([node.optimalLatencyFw for node in ordered]),
        backward_s=np.array([node.optimalLatencyBw for node in ordered]),
        weight_bytes=weights,
        state_bytes=weights * _STATE_COPIES[case.optimizerAlgorithm],
        activation_bytes=np.array([node.activationSize for node in ordered]),
        sliced=np.array([node.isTensorParallelized for node in ordered]),
        edge_bytes=np.array([sizes[edge] for edge in joined], dtype=np.float64),
    )


def _expert(case: _GraphCase) -> ExpertPlan | None:
    given = {name: getattr(case, name) for name in ("fixedPP", "fixedTMPC", "fixedDP")}
    missing = [name for name, degree in given.items() if degree is None]
    if len(missing) == len(given):
        return None
    if missing or case.fixedPP is None or case.fixedTMPC is None or case.fixedDP is None:
        raise InputError("missing: an expert plan has all three degrees", field=missing[0])
    layers = case.numTransformerLayers or len(next(iter(case.nodes.values())))
    layers = min(layers, len(next(iter(case.nodes.values()))))
    return ExpertPlan(case.fixedPP, case.fixedTMPC, case.fixedDP, layers)
