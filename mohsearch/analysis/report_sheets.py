"""What a click on a solution shows: facts, tables and pictures of one decoded design.

A sheet is plain JSON. Designs are recognised by their form, so that one of a problem unknown here
is shown too, by its scalars and lists of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mohsearch.analysis.designs import buffer_bytes, describe, is_package
from mohsearch.analysis.quantities import UNIT_OF_SUFFIX, scale_for, short_name, size_text

STEPS = 10_000
"""Times in a schedule are kept as whole numbers of this share of its length."""

MOST_ROWS = 64
MOST_FACTS = 80

Sheet = dict[str, Any]


class Names:
    """Texts that many sheets share, kept once.

    Examples
    --------
    >>> names = Names()
    >>> names.number("conv1", "unet"), names.number("conv2", "unet"), names.number("conv1", "unet")
    (0, 1, 0)
    >>> names.entries
    [('conv1', 'unet'), ('conv2', 'unet')]
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, name: str, group: str = "") -> int:
        """Return the number of a name in a group, a new one for a new name."""
        return self._numbers.setdefault((name, group), len(self._numbers))

    @property
    def entries(self) -> list[tuple[str, str]]:
        """Names with their groups, in the order of their numbers."""
        return list(self._numbers)


def fact_text(name: str, value: Any) -> str:
    """Return a value as people read it, with the unit that its name's suffix declares.

    Examples
    --------
    >>> fact_text("busy_s", 0.0123), fact_text("size_bytes", 65536), fact_text("gap", 0.25)
    ('12.30 ms', '64 KiB', '0.25')
    >>> fact_text("link_bytes_per_s", 2.5e12), fact_text("tile", [0, 1])
    ('2.5 TB/s', '(0, 1)')
    """
    if isinstance(value, bool) or value is None:
        return "-" if value is None else ("yes" if value else "no")
    if isinstance(value, (list, tuple)):
        return f"({', '.join(fact_text('', item) for item in value)})"
    if not isinstance(value, (int, float)):
        return str(value)
    if name.endswith("_bytes_per_s"):
        return _rate_text(float(value))
    if name.endswith("_bytes") or name == "bytes":
        return size_text(float(value))
    for suffix, unit in UNIT_OF_SUFFIX.items():
        if name.endswith(suffix):
            return scale_for([value], unit).quantity(float(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _rate_text(value: float) -> str:
    for factor, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} B/s"


def sheet_of(design: Mapping[str, Any], names: Names) -> Sheet:
    """Return the sheet of one decoded design.

    Keys: ``line`` (one line of words), ``facts`` (sections of name and text), ``tables`` (title,
    columns, rows) and ``pictures`` (``kind`` is ``gantt`` or ``stack``).

    Parameters
    ----------
    design
        What a problem's ``decode`` returned.
    names
        Names of layers and ops, shared by all sheets of a report.
    """
    if is_package(design):
        return _package(design, names)
    if "fractions" in design:
        return _chip(design)
    if {"chips", "links", "labels"} <= set(design):
        return _partition(design)
    if isinstance(design.get("models"), list):
        return _training(design, names)
    return _general(design)


def _general(design: Mapping[str, Any], skip: Sequence[str] = ("metrics",)) -> Sheet:
    rest = {k: v for k, v in design.items() if k not in skip}
    return {
        "line": describe(rest),
        "facts": _facts(rest),
        "tables": _record_tables(rest),
        "pictures": [],
    }


def _facts(design: Mapping[str, Any]) -> list[list[Any]]:
    """Return sections of scalars: those of the design itself first, then of each part."""
    own = [[_words(k), fact_text(k, v)] for k, v in design.items() if _is_scalar(v)]
    sections: list[list[Any]] = [["", own[:MOST_FACTS]]] if own else []
    for name, part in design.items():
        if not isinstance(part, Mapping):
            continue
        rows = [[_words(k), fact_text(k, v)] for k, v in part.items() if _is_scalar(v)]
        if rows:
            title = _words(name)
            sections.append([title[:1].upper() + title[1:], rows[:MOST_FACTS]])
    return sections


def _is_scalar(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 8 and all(isinstance(v, (str, int, float)) for v in value)
    return value is None or isinstance(value, (str, int, float))


def _record_tables(design: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _table(_words(name), part)
        for name, part in design.items()
        if isinstance(part, list) and part and all(isinstance(r, Mapping) for r in part)
    ]


def _table(title: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a table of records' scalars; long ones are cut, saying so."""
    columns = list(dict.fromkeys(k for r in records for k, v in r.items() if _is_scalar(v)))
    rows = [[fact_text(c, r[c]) if c in r else "" for c in columns] for r in records[:MOST_ROWS]]
    if len(records) > MOST_ROWS:
        title = f"{title} (the first {MOST_ROWS} of {len(records):,})"
    return {
        "title": title[:1].upper() + title[1:],
        "columns": [_words(c) for c in columns],
        "rows": rows,
    }


def _words(name: str) -> str:
    return short_name(str(name)) if not str(name).isupper() else str(name)


def _package(design: Mapping[str, Any], names: Names) -> Sheet:
    instances = sorted(design["instances"], key=lambda i: (str(i["template"]), int(i["id"])))
    rows = []
    for number, item in enumerate(instances):
        shown: dict[str, Any] = {"#": number + 1, "template": item["template"]}
        shown |= {k: item[k] for k in ("tile", "macs") if k in item}
        if item.get("levels"):
            shown["buffers_bytes"] = buffer_bytes(item)
        keys = ("area_mm2", "energy_j", "busy_s", "layers")
        rows.append(shown | {k: item[k] for k in keys if k in item})
    package = design.get("package")
    package = package if isinstance(package, Mapping) else {}
    sheet = _general({k: design[k] for k in ("package", "bottleneck") if k in design})
    return sheet | {
        "line": describe(design),
        "tables": [
            _table("Instances", rows),
            *_record_tables({"interfaces": _interfaces(package)}),
        ],
        "pictures": [_package_gantt(design, instances, names)] if design["layers"] else [],
    }


def _interfaces(package: Mapping[str, Any]) -> list[Any]:
    found = package.get("interfaces")
    return found if isinstance(found, list) else []


def _package_gantt(
    design: Mapping[str, Any], instances: Sequence[Mapping[str, Any]], names: Names
) -> dict[str, Any]:
    place = {item["id"]: k for k, item in enumerate(instances)}
    bars = []
    for layer in design["layers"]:
        network = str(layer.get("network", ""))
        number = names.number(str(layer["name"]), network)
        stalled = float(layer.get("stalled_s", 0.0))
        bars.append((number, place[layer["instance"]], layer["start_s"], layer["end_s"], stalled))
    rows = [
        [f"{k + 1} {item['template']}", str(item["template"])] for k, item in enumerate(instances)
    ]
    return _gantt("Schedule", rows, bars)


def _gantt(title: str, rows: list[list[str]], bars: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return a schedule: rows are label and group, bars name number, row, start, end, stalled.

    Bars are stored by column, times as whole numbers of 1 / :data:`STEPS` of the end.
    """
    end = max(float(bar[3]) for bar in bars) or 1.0
    bars = sorted(bars, key=lambda bar: (bar[0], bar[2], bar[1]))
    starts = [round(STEPS * float(bar[2]) / end) for bar in bars]
    ends = [max(round(STEPS * float(bar[3]) / end), s) for bar, s in zip(bars, starts, strict=True)]
    stalls = [round(STEPS * float(bar[4]) / end) for bar in bars]
    picture: dict[str, Any] = {
        "kind": "gantt",
        "title": title,
        "rows": rows,
        "end_s": float(f"{end:.6g}"),
        "name": [bar[0] for bar in bars],
        "row": [bar[1] for bar in bars],
        "start": starts,
        "length": [e - s for s, e in zip(starts, ends, strict=True)],
    }
    return picture | ({"stall": stalls} if any(stalls) else {})


def _stack(
    title: str, axis: str, places: Sequence[str], series: Mapping[str, Sequence[float]], unit: str
) -> dict[str, Any]:
    """Return stacked bars: one bar per place, one colour per series that is not all 0."""
    scale = scale_for([sum(column) for column in zip(*series.values(), strict=True)], unit)
    return {
        "kind": "stack",
        "title": title,
        "axis": axis,
        "places": list(places),
        "unit": scale.unit,
        "series": [
            [name, [float(f"{v * scale.factor:.5g}") for v in values]]
            for name, values in series.items()
            if any(values)
        ],
    }


def _chip(design: Mapping[str, Any]) -> Sheet:
    sheet = _general(design, skip=("metrics", "fractions"))
    shares: Mapping[str, Mapping[str, float]] = design["fractions"]
    parts = list(dict.fromkeys(name for budget in shares.values() for name in budget))
    series = {p: [100 * float(budget.get(p, 0.0)) for budget in shares.values()] for p in parts}
    technology = design.get("technology", {})
    words = [*map(str, technology.values()), f"strategy {design.get('strategy', '-')}"]
    return sheet | {
        "line": ", ".join(words),
        "pictures": [_stack("Shares of the budgets", "budget", list(shares), series, "%")],
    }


def _partition(design: Mapping[str, Any]) -> Sheet:
    sheet = _general(design, skip=("metrics", "labels"))
    chips = design["chips"]
    compute = [float(chip["compute_s"]) for chip in chips]
    moving = [float(chip["load_s"]) - c for chip, c in zip(chips, compute, strict=True)]
    numbers = [str(chip["chip"]) for chip in chips]
    busy = [float(link.get("busy_s", 0.0)) for link in design["links"]]
    ends = [f"{link['from']}-{link['to']}" for link in design["links"]]
    series = {"compute": compute, "send and receive": moving}
    pictures = [_stack("Time per sample on every chip", "chip", numbers, series, "s")]
    if any(busy):
        pictures.append(_stack("Time per sample on every link", "link", ends, {"busy": busy}, "s"))
    line = f"{len(chips)} chips, {len(design['labels']):,} ops"
    return sheet | {"line": line, "pictures": pictures}


def _training(design: Mapping[str, Any], names: Names) -> Sheet:
    sheet = _general(design, skip=("metrics", "models"))
    for model in design["models"]:
        title = str(model.get("model", ""))
        facts = [[_words(k), fact_text(k, v)] for k, v in model.items() if _is_scalar(v)]
        sheet["facts"].append([title, facts[:MOST_FACTS]])
        stages = model.get("stages") or []
        if stages:
            sheet["tables"].append(_table(f"{title}: stages", stages))
            loads = {"load": [float(stage["load_s"]) for stage in stages]}
            numbers = [str(k + 1) for k in range(len(stages))]
            sheet["pictures"].append(
                _stack(f"{title}: load of every stage", "stage", numbers, loads, "s")
            )
        sheet["pictures"] += _layer_gantts(title, model.get("layers") or [], names)
    placed = [m for m in design["models"] if m.get("placed")]
    core = design.get("architecture", {})
    words = [
        f"{core.get('tensor_cores', '?')} tensor cores of {core.get('width')} x {core.get('depth')}"
    ]
    words += [f"{core.get('vector_cores', '?')} vector cores"]
    words += [
        f"{m['model']}: pipeline {m['pipeline']}, data {m['data']}, tensor {m['tensor']}"
        for m in placed
    ]
    return sheet | {"line": "; ".join(words)}


def _layer_gantts(
    title: str, layers: Sequence[Mapping[str, Any]], names: Names
) -> list[dict[str, Any]]:
    """Return the op schedules of the layer that takes most of a model's time, one a pass."""
    timed = [layer for layer in layers if _passes(layer)]
    if not timed:
        return []
    heaviest = max(
        timed, key=lambda layer: layer["count"] * sum(map(_makespan, _passes(layer).values()))
    )
    label = f"{title}: {heaviest['name']} (x {heaviest['count']})"
    return [
        _op_gantt(f"{label}, {_words(name)}", part["ops"], names)
        for name, part in _passes(heaviest).items()
    ]


def _makespan(part: Mapping[str, Any]) -> float:
    return float(part["makespan_s"])


def _passes(layer: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {k: v for k, v in layer.items() if isinstance(v, Mapping) and v.get("ops")}


def _op_gantt(title: str, ops: Sequence[Mapping[str, Any]], names: Names) -> dict[str, Any]:
    rows: dict[tuple[str, str], int] = {}
    bars = []
    for op in ops:
        number = names.number(str(op["name"]), str(op["engine"]))
        for row in _cores(op):
            place = rows.setdefault(row, len(rows))
            bars.append((number, place, op["start_s"], op["end_s"], 0.0))
    order = {place: k for k, (_, place) in enumerate(sorted(rows.items()))}
    placed = [(bar[0], order[bar[1]], *bar[2:]) for bar in bars]
    return _gantt(title, [list(row) for row in sorted(rows)], placed)


def _cores(op: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows an op stands in: its cores, or all of its kind."""
    if op.get("all_cores"):
        return [("all cores", "all cores")]
    cores = [
        (f"{kind} core {op[f'{kind}_core'] + 1:>3}", f"{kind} core")
        for kind in ("tensor", "vector")
        if op.get(f"{kind}_core") is not None
    ]
    return cores or [(str(op["engine"]), str(op["engine"]))]
