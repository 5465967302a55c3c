"""The report as one HTML page that needs no network: data, scripts and styles are all inside."""

from __future__ import annotations

import base64
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis import style
from mohsearch.analysis.ablate import Ablation
from mohsearch.analysis.compare import Comparison
from mohsearch.analysis.convergence import Band, bands
from mohsearch.analysis.fronts import distance_to_ideal
from mohsearch.analysis.quantities import scale_for, short_name
from mohsearch.analysis.report_gather import Case, Member, Report
from mohsearch.analysis.report_sheets import STEPS, Sheet
from mohsearch.analysis.report_tables import ablation_table, comparison_tables, run_table
from mohsearch.core.optional import require

BLOCK = 50
"""Designs that are unpacked together when one of them is asked for."""

MOST_POINTS = 200
"""Points of a convergence curve."""

DIGITS = 6
"""Figures of a metric that are kept."""


def page(report: Report, *, command: str, version: str) -> str:
    """Return the page.

    Parameters
    ----------
    report
        What to show.
    command
        The command that makes this page.
    version
        Of this package.

    Raises
    ------
    MissingExtraError
        If plotly is not installed.
    """
    plotly = require("plotly.offline", "report").get_plotlyjs()
    blocks, places = _blocks(report)
    data = {
        "title": report.title,
        "command": command,
        "version": version,
        "palette": style.PALETTE,
        "steps": STEPS,
        "block": BLOCK,
        "names": report.names.entries,
        "cases": [_case(case, places[k]) for k, case in enumerate(report.cases)],
        "comparisons": [_comparison(p, c, report) for p, c in report.comparisons.items()],
        "ablations": [_ablation(str(folder), item) for folder, item in report.ablations],
        "runs": run_table(report),
        "certificates": dict(report.certificates),
        "notes": report.notes,
    }
    parts = {
        "title": html.escape(report.title),
        "version": html.escape(version),
        "style": _asset("report.css"),
        "plotly": pack(plotly),
        "script": _asset("report.js"),
        "data": pack(data),
        "designs": "\n".join(
            f'<script type="text/plain" id="designs-{k}">{block}</script>'
            for k, block in enumerate(blocks)
        ),
    }
    text = _asset("report.html")
    for name, part in parts.items():
        text = text.replace(f"<!--{{{name}}}-->", part, 1)
    return text


def pack(value: Any) -> str:
    """Return a value as JSON, deflated, in base64: plain text that a browser unpacks.

    Examples
    --------
    >>> unpack(pack({"a": [1, 2.5, None]}))
    {'a': [1, 2.5, None]}
    """
    text = json.dumps(_strict(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def unpack(text: str) -> Any:
    """Return what :func:`pack` packed."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, np.ndarray):
        return _strict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _asset(name: str) -> str:
    return (files("mohsearch.analysis") / "report_assets" / name).read_text(encoding="utf-8")


def _blocks(report: Report) -> tuple[list[str], list[list[dict[int, int]]]]:
    """Return the packed sheets, and where each is: by case and member, by solution its number."""
    sheets: list[Sheet] = []
    places: list[list[dict[int, int]]] = []
    for case in report.cases:
        places.append([])
        for member in case.members:
            numbers = {}
            for solution, sheet in member.sheets.items():
                numbers[solution] = len(sheets)
                sheets.append(sheet)
            places[-1].append(numbers)
    packed = [pack(sheets[k : k + BLOCK]) for k in range(0, len(sheets), BLOCK)]
    return packed, places


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def _case(case: Case, places: Sequence[Mapping[int, int]]) -> dict[str, Any]:
    start = 0
    members = []
    contenders = list(dict.fromkeys(member.contender for member in case.members))
    for member in case.members:
        members.append(_member(member, contenders.index(member.contender), start))
        start += len(member.front)
    return {
        "name": case.name,
        "problem": case.problem,
        "workload": case.workload,
        "objectives": case.objectives,
        "metrics": [_metric(case, m.name) for m in case.metrics],
        "contenders": contenders,
        "members": members,
        "member": [k for k, m in enumerate(case.members) for _ in range(len(m.front))],
        "solution": [i for m in case.members for i in range(len(m.front))],
        "sheet": [
            numbers.get(i, -1)
            for m, numbers in zip(case.members, places, strict=True)
            for i in range(len(m.front))
        ],
        "best": [int(flag) for mask in case.best for flag in mask],
        "values": {
            m.name: [v for x in case.members for v in _rounded(x.front.values[m.name])]
            for m in case.metrics
        },
        "over": _over_bound(case),
        "knee": members[case.knee[0]]["start"] + case.knee[1],
        "bands": [_band(band) for band in bands(case.curves)],
    }


def _band(band: Band) -> dict[str, Any]:
    rows = np.linspace(0, len(band.evaluations) - 1, MOST_POINTS)
    rows = np.unique(rows.round().astype(np.int64))
    return {
        "contender": band.contender,
        "runs": band.runs,
        "evaluations": band.evaluations[rows],
        "low": _rounded(band.low[rows]),
        "median": _rounded(band.median[rows]),
        "high": _rounded(band.high[rows]),
    }


def _member(member: Member, contender: int, start: int) -> dict[str, Any]:
    return {
        "label": member.label,
        "folder": str(member.folder),
        "run": member.run,
        "contender": contender,
        "start": start,
        "command": member.command(),
    }


def _metric(case: Case, name: str) -> dict[str, Any]:
    metric = case.members[0].front.metric(name)
    values = np.concatenate([m.front.values[name] for m in case.members])
    scale = scale_for(values, metric.unit)
    return {
        "name": name,
        "label": short_name(name),
        "unit": scale.unit,
        "factor": scale.factor,
        "sense": metric.sense,
        "description": metric.long_name,
        "log": style.wants_log(values),
    }


def _over_bound(case: Case) -> dict[str, list[float]]:
    """Return by metric the distances from proven bounds, where every run has one."""
    each = [distance_to_ideal(member.front) for member in case.members]
    shared = [m.name for m in case.metrics if all(m.name in distances for distances in each)]
    return {n: [v for d in each for v in _rounded(d[n])] for n in shared if n in case.objectives}


def _comparison(problem: str, found: Comparison, report: Report) -> dict[str, Any]:
    return {
        "problem": problem,
        "tables": comparison_tables(found),
        "notes": [f"hypervolume: {found.rule}", *found.notes],
        "command": report.command("compare", problem),
    }


def _ablation(folder: str, item: Ablation) -> dict[str, Any]:
    steps = (item.control, *item.steps)
    return {
        "title": f"{item.portfolio}{', ' + item.case if item.case else ''}",
        "table": ablation_table(item),
        "names": ["nothing (control)", *(step.name for step in item.steps)],
        "share": [100 * step.share for step in steps],
        "low": [100 * step.quartiles()[0] for step in steps],
        "high": [100 * step.quartiles()[2] for step in steps],
        "published": [None if s.published is None else 100 * s.published for s in steps],
        "notes": [*item.rules, *item.notes],
        "command": f"mohsearch ablate {folder}",
    }
