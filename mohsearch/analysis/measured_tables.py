"""Accuracy of predicted figures: mean error and log-correlation of every set, device and kind.

They take the runs of the study ``deepflow_validation`` or of one like it: problem ``measured``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mohsearch.analysis.fronts import Front

Section = tuple[str, list[str]]


def sections(fronts: Sequence[Front]) -> list[Section]:
    """Return a table of all sets and one of the groups of each, by problem label."""
    found = []
    for label in dict.fromkeys(str(front.attrs["problem_label"]) for front in fronts):
        mine = [front for front in fronts if front.attrs["problem_label"] == label]
        records = {str(front.attrs["workload"]): _accuracy(front) for front in mine}
        whole = [(name, rows[-1]) for name, rows in records.items()]
        parts = [(name, row) for name, rows in records.items() for row in rows[:-1]]
        found.append((f"Measured figures, {label}: sets", _table(whole)))
        found.append((f"Measured figures, {label}: devices and kinds", _table(parts)))
    return found


def _accuracy(front: Front) -> list[Mapping[str, Any]]:
    given = front.attrs["certificate"]
    certificate = json.loads(given) if isinstance(given, str) else given
    rows: list[Mapping[str, Any]] = certificate["accuracy"]
    return rows


def _table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    lines = [
        "| set | device | kind | points | mean error | log-correlation | roofline: error"
        " | log-correlation |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows:
        plain = row["roofline_log_correlation"] is not None
        cells = [
            name,
            row["device"],
            row["kind"],
            f"{row['points']:,}",
            f"{row['mean_error']:.1%}",
            _figure(row["log_correlation"]),
            f"{row['roofline_mean_error']:.1%}" if plain else "-",
            _figure(row["roofline_log_correlation"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
