"""`mohsearch report`: results as one page for the browser, and as Markdown."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from mohsearch.cli.front import RUN_OPTION
from mohsearch.cli.output import say
from mohsearch.cli.program import example


@click.command(
    epilog=example(
        "mohsearch report results/moham_arvr -o report",
        "mohsearch report results/a results/b -o report --designs 500",
    )
)
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for report.html, report.md and its pictures.",
)
@RUN_OPTION
@click.option("--title", default="", help="Heading. Default: the studies' titles.")
@click.option(
    "--designs",
    type=click.IntRange(min=0),
    default=3000,
    show_default=True,
    help="Most designs to put into the page; of every front the extremes and the knee first.",
)
def report(
    folders: tuple[Path, ...], output: Path, runs: tuple[str, ...], title: str, designs: int
) -> None:
    """Write one page about the results in each DIR, the output folder of a study.

    The page works without a network: fronts to explore, the design behind every point,
    comparisons, ablations, and the command that makes each figure. Needs the extra `report`.
    """
    from mohsearch.analysis.report import write_report

    words = ["mohsearch", "report", *map(str, folders), "-o", str(output)]
    words += [word for run in runs for word in ("--run", run)]
    words += ["--title", title] if title else []
    words += ["--designs", str(designs)] if designs != 3000 else []
    made = write_report(
        folders, output, title=title, runs=runs, designs=designs, command=shlex.join(words)
    )
    for note in made.report.notes:
        say(f"note: {note}")
    say(f"wrote {made.page} ({made.page.stat().st_size / 1e6:.1f} MB) and {made.copy}")
