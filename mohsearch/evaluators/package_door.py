"""Evaluator ``package-schedule``: layers with given latencies and traffic on a given package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import networkx as nx
from pydantic import Field, model_validator

from mohsearch.core.cards import Card, read_json, validate
from mohsearch.core.errors import InputError
from mohsearch.evaluators.package_network import PackageNetwork, Sharing
from mohsearch.evaluators.package_schedule import Schedule, schedule_layers
from mohsearch.evaluators.report import EvaluationReport

Bandwidth = Annotated[float, Field(ge=1e-6, le=1e9)]
"""From 1 kB/s, so that times stay numbers, to what never limits anything."""


class InstanceEntry(Card):
    """One instance; its memory interface follows from the mesh where it is not given."""

    id: str
    interface: int | None = Field(default=None, ge=0, le=255)


class LayerEntry(Card):
    """One layer: where it runs, how long alone, and what it moves to and from memory."""

    name: str
    instance: str
    cycles: Annotated[float, Field(ge=1e-6, le=1e18)]
    memory_bytes: Annotated[float, Field(ge=0, le=1e18)]
    predecessors: tuple[str, ...] = ()


class ScheduleCase(Card):
    """One schedule to work out; layers run in the order they stand in, or in ``order``."""

    id: str = ""
    clock_ghz: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    interface_bandwidth_gb_per_s: Bandwidth = 4.0
    link_bandwidth_gb_per_s: Bandwidth = 16.0
    system_bandwidth_gb_per_s: Bandwidth = 16.0
    sharing: Sharing = "proportional"
    instances: tuple[InstanceEntry, ...] = Field(min_length=1)
    layers: tuple[LayerEntry, ...] = Field(min_length=1)
    order: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _names_agree(self) -> ScheduleCase:
        ids = [i.id for i in self.instances]
        names = [layer.name for layer in self.layers]
        if len(set(ids)) < len(ids):
            raise ValueError("two instances have the same id")
        if len(set(names)) < len(names):
            raise ValueError("two layers have the same name")
        placed = [i.interface is not None for i in self.instances]
        if any(placed) and not all(placed):
            raise ValueError("give the interface of every instance or of none")
        for layer in self.layers:
            if layer.instance not in ids:
                raise ValueError(f"layer {layer.name!r}: no instance {layer.instance!r}")
            for p in layer.predecessors:
                if p not in names:
                    raise ValueError(f"layer {layer.name!r}: no layer {p!r} to wait for")
        if self.order is not None and sorted(self.order) != sorted(names):
            raise ValueError("order must name each layer once")
        return self


def evaluate(path: Path) -> EvaluationReport:
    """Schedule layers of given cycles and traffic on the instances of a package.

    Parameters
    ----------
    path
        JSON: one case, a list of cases, or ``{"cases": [...]}``. A case holds ``instances``
        (``id``, optionally ``interface``), ``layers`` (``name``, ``instance``, ``cycles``,
        ``memory_bytes``, optionally ``predecessors``), and optionally ``id`` (default: its
        number), ``order``, ``clock_ghz``, ``sharing``, ``interface_bandwidth_gb_per_s``,
        ``link_bandwidth_gb_per_s`` and ``system_bandwidth_gb_per_s`` (:class:`ScheduleCase`).

    Returns
    -------
    EvaluationReport
        Start, end and stall of every layer in seconds; the document has them by case id, with the
        traffic of each interface.

    Raises
    ------
    InputError
        If the file is not JSON, or a case is wrong; the message holds the field path.

    Examples
    --------
    >>> import json, tempfile
    >>> layer = {"name": "conv", "instance": "a", "cycles": 1000, "memory_bytes": 0}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "case.json"
    ...     _ = file.write_text(json.dumps({"instances": [{"id": "a"}], "layers": [layer]}))
    ...     print(evaluate(file).rows[0]["end_s"])
    1e-06
    """
    data = read_json(path)
    entries = data.get("cases", [data]) if isinstance(data, dict) else data
    if not isinstance(entries, list) or not entries:
        raise InputError("no case in it", source=path)
    rows: list[dict[str, Any]] = []
    document: dict[str, Any] = {}
    for number, entry in enumerate(entries, start=1):
        source = f"{path}: case {number}"
        case = validate(ScheduleCase, entry, source=source)
        _check_order(case, source)
        name = case.id or str(number)
        if name in document:
            raise InputError(f"an earlier case has the id {name!r}", source=source, field="id")
        document[name] = _document(case, _schedule(case))
        rows += [{"case": name, **layer} for layer in document[name]["layers"]]
    return EvaluationReport(rows=tuple(rows), document=document, natural_format="json")


def _check_order(case: ScheduleCase, source: str) -> None:
    """Refuse dependencies with a cycle, and an order against them."""
    graph = nx.DiGraph([(p, layer.name) for layer in case.layers for p in layer.predecessors])
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        path = " -> ".join([*cycle, cycle[0]])
        raise InputError(f"the dependencies form a cycle: {path}", source=source, field="layers")
    names = case.order or tuple(layer.name for layer in case.layers)
    place = {name: k for k, name in enumerate(names)}
    for k, layer in enumerate(case.layers):
        for before in layer.predecessors:
            if place[before] > place[layer.name]:
                message = f"{layer.name!r} must come after {before!r}, which it waits for"
                field = "order" if case.order else f"layers[{k}]"
                raise InputError(message, source=source, field=field)


def _network(case: ScheduleCase) -> PackageNetwork:
    return PackageNetwork(
        interface_bandwidth_bytes_per_s=case.interface_bandwidth_gb_per_s * 1e9,
        link_bandwidth_bytes_per_s=case.link_bandwidth_gb_per_s * 1e9,
        system_bandwidth_bytes_per_s=case.system_bandwidth_gb_per_s * 1e9,
        sharing=case.sharing,
    )


def _interfaces(case: ScheduleCase) -> list[int]:
    given = [i.interface for i in case.instances if i.interface is not None]
    return given or _network(case).assignment(len(case.instances))


def _schedule(case: ScheduleCase) -> Schedule:
    rank = {layer.name: i for i, layer in enumerate(case.layers)}
    instance = {entry.id: i for i, entry in enumerate(case.instances)}
    return schedule_layers(
        [rank[name] for name in case.order or tuple(rank)],
        [instance[layer.instance] for layer in case.layers],
        [layer.cycles / (case.clock_ghz * 1e9) for layer in case.layers],
        [layer.memory_bytes for layer in case.layers],
        [[rank[p] for p in layer.predecessors] for layer in case.layers],
        _interfaces(case),
        _network(case),
    )


def _document(case: ScheduleCase, result: Schedule) -> dict[str, Any]:
    bandwidth = case.interface_bandwidth_gb_per_s * 1e9
    return {
        "latency_s": result.latency_s,
        "layers": [
            {
                "name": layer.name,
                "instance": layer.instance,
                "start_s": float(result.start_s[i]),
                "end_s": float(result.end_s[i]),
                "stalled_s": float(result.stalled_s[i]),
            }
            for i, layer in enumerate(case.layers)
        ],
        "instances": [
            {"id": entry.id, "interface": j}
            for entry, j in zip(case.instances, _interfaces(case), strict=True)
        ],
        "interfaces": [
            {
                "interface": j,
                "bytes": float(moved),
                "utilisation": float(moved / bandwidth / result.latency_s),
            }
            for j, moved in enumerate(result.interface_bytes)
        ],
    }
