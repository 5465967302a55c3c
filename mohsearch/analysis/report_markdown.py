"""The printable copy of a report: Markdown with tables and pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mohsearch.analysis.labels import pool_seeds
from mohsearch.analysis.plot_ablate import plot_ablate
from mohsearch.analysis.plot_convergence import plot_convergence
from mohsearch.analysis.plot_front import plot_front
from mohsearch.analysis.report_gather import Report
from mohsearch.analysis.report_tables import (
    Table,
    ablation_table,
    comparison_tables,
    highlight_table,
    run_table,
)
from mohsearch.analysis.style import save

Pictures = Mapping[str, Sequence[str]]
"""File names by section."""


def pictures(report: Report, output: Path) -> dict[str, list[str]]:
    """Draw the pictures of the Markdown into a folder and return their names by section."""
    written: dict[str, list[str]] = {}
    for case in report.cases:
        fronts, names = pool_seeds([member.front for member in case.members])
        drawn = [("front", plot_front(fronts, case.objectives, names=names))]
        if case.curves:
            drawn.append(("convergence", plot_convergence(case.curves)))
        for kind, figure in drawn:
            path = save(figure, output / f"{kind}-{_slug(case.name)}.png")
            written.setdefault(case.name, []).append(path.name)
    for number, (_, item) in enumerate(report.ablations, 1):
        path = save(plot_ablate(item), output / f"ablation-{number}.png")
        written.setdefault("ablation", []).append(path.name)
    return written


def _slug(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-")


def markdown(report: Report, drawn: Pictures, *, command: str, version: str) -> str:
    """Return the Markdown text.

    Parameters
    ----------
    drawn
        What :func:`pictures` wrote.
    command, version
        As in :func:`mohsearch.analysis.report_page.page`.
    """
    return "\n".join(_lines(report, drawn, command, version)).rstrip() + "\n"


def _lines(report: Report, drawn: Pictures, command: str, version: str) -> Iterator[str]:
    yield from (f"# {report.title}", "", f"mohsearch {version}; made with:", "")
    yield from _commands([command])
    for case in report.cases:
        yield from (f"## {case.name}", "")
        for name in drawn.get(case.name, ()):
            yield from (f"![{name.partition('-')[0]}]({name})", "")
        yield from _table(highlight_table(case))
        yield from _commands([member.command() for member in case.members])
    for problem, found in report.comparisons.items():
        yield from (f"## Comparison: {problem}", "")
        for table in comparison_tables(found):
            yield from _table(table)
        yield from _notes([f"hypervolume: {found.rule}", *found.notes])
        yield from _commands([report.command("compare", problem)])
    for number, (folder, item) in enumerate(report.ablations):
        yield from (f"## Ablation: {item.portfolio}{', ' + item.case if item.case else ''}", "")
        yield from (f"![ablation]({drawn['ablation'][number]})", "")
        yield from _table(ablation_table(item))
        yield from _notes([*item.rules, *item.notes])
        yield from _commands([f"mohsearch ablate {folder}"])
    yield from ("## Where the figures come from", "")
    yield from _notes(report.notes)
    yield from _table(run_table(report))


def _commands(commands: Sequence[str]) -> list[str]:
    return ["```", *commands, "```", ""]


def _notes(notes: Sequence[str]) -> list[str]:
    return [*(f"- {note}" for note in notes), ""] if notes else []


def _table(table: Table) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
        )

    columns = [column or " " for column in table["columns"]]
    head = [f"**{table['title']}**", ""] if table["title"] else []
    rule = "|" + " --- |" * len(columns)
    return [*head, line(columns), rule, *(line(row) for row in table["rows"]), ""]
