"""Tables, records and files: how commands print."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click


def is_terminal() -> bool:
    """Return whether a person reads standard output."""
    return sys.stdout.isatty()


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    numeric: Iterable[int] = (),
) -> None:
    """Print a table: drawn by rich on a terminal, aligned plain text elsewhere.

    ``numeric`` holds the columns to align to the right.
    """
    right = set(numeric)
    if is_terminal():
        _print_rich(headers, rows, title, right)
        return
    if title:
        click.echo(title)
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(headers))]
    for line in lines:
        cells = [
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def _print_rich(
    headers: Sequence[str], rows: Sequence[Sequence[str]], title: str, right: set[int]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for k, header in enumerate(headers):
        table.add_column(header, justify="right" if k in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two columns; long texts are wrapped."""
    import shutil
    import textwrap

    facts = {name: value for name, value in facts.items() if value not in ("", None)}
    width = max((len(name) for name in facts), default=0)
    room = max(40, shutil.get_terminal_size((100, 24)).columns - width - 2)
    for name, value in facts.items():
        lines = [
            line
            for part in str(value).strip().splitlines() or [""]
            for line in textwrap.wrap(part, room, break_long_words=False) or [""]
        ]
        for k, line in enumerate(lines):
            click.echo(f"{name if k == 0 else '':<{width}}  {line}".rstrip())


def to_json(value: Any) -> str:
    """Return strict JSON: values that are no number become null."""
    return json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if hasattr(value, "tolist"):
        return _strict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as CSV with a header; columns in order of first appearance."""
    import csv
    import io

    columns = list(dict.fromkeys(name for record in records for name in record))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()


def say(text: str) -> None:
    """Tell the person at the terminal something that is not part of the result."""
    click.echo(text, err=True)


def figure_text(value: object) -> str:
    """Return a value as a table cell: integers with thousands, floats with four figures."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value == 0 or not 1e-3 <= abs(value) < 1e9:
            return f"{value:.4g}"
        text = f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, (list, tuple)):
        return ", ".join(figure_text(item) for item in value)
    return str(value)
