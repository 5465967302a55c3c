"""Results as one page for the browser and its printable copy in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mohsearch
from mohsearch.analysis.report_gather import Report, gather_report
from mohsearch.analysis.report_markdown import markdown, pictures
from mohsearch.analysis.report_page import page
from mohsearch.core.files import write_text

MOST_DESIGNS = 3000
"""Designs in a page, unless more are asked for: some megabytes."""


@dataclass(frozen=True)
class WrittenReport:
    """What was written.

    Attributes
    ----------
    page, copy
        ``report.html`` and ``report.md``.
    pictures
        Pictures that the Markdown shows.
    report
        What they show.
    """

    page: Path
    copy: Path
    pictures: tuple[Path, ...]
    report: Report


def write_report(
    folders: Sequence[str | Path],
    output: str | Path,
    *,
    title: str = "",
    runs: Sequence[str] = (),
    designs: int = MOST_DESIGNS,
    command: str = "",
) -> WrittenReport:
    """Write the results of one or more studies as a page and as Markdown with pictures.

    The page holds everything it needs and opens no connection: fronts to explore, the design behind
    every point, comparisons, ablations, and where each figure comes from.

    Parameters
    ----------
    folders
        Output folders of studies, of any problems.
    output
        Folder to write to; made if need be.
    title
        Heading (default: the studies' titles).
    runs
        Names, parts of names or shell patterns (default: all runs).
    designs
        Most designs that the page holds.
    command
        What to name as the command that makes the page (default: the plain one).

    Raises
    ------
    InputError
        If a folder holds no front, or the output cannot be written.
    MissingExtraError
        If plotly is not installed.
    """
    output = Path(output)
    report = gather_report([Path(f) for f in folders], title=title, patterns=runs, designs=designs)
    command = command or f"{report.command('report')} -o {output}"
    html = page(report, command=command, version=mohsearch.__version__)
    written = pictures(report, output)
    write_text(output / "report.html", html)
    text = markdown(report, written, command=command, version=mohsearch.__version__)
    write_text(output / "report.md", text)
    drawn = tuple(output / name for names in written.values() for name in names)
    return WrittenReport(output / "report.html", output / "report.md", drawn, report)
