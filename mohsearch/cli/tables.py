"""`mohsearch tables`: a publication's tables from results, its figures beside ours."""

from __future__ import annotations

from pathlib import Path

import click

from mohsearch.cli.front import RUN_OPTION
from mohsearch.cli.output import say
from mohsearch.cli.program import example


@click.command(
    epilog=example(
        "mohsearch tables results/phaze_table2 results/phaze_tpuv4_expert",
        "mohsearch tables results/megatron_a100 > errors.md",
    )
)
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@RUN_OPTION
def tables(folders: tuple[Path, ...], runs: tuple[str, ...]) -> None:
    """Print the tables of a publication from the results in each DIR, as Markdown.

    For the phaze studies and megatron_a100: published figures stand beside ours, and what a study
    has not reached yet is a dash. Runs of different cost models stand in tables of their own.
    """
    from mohsearch.analysis.published_tables import published_tables

    made = published_tables(folders, runs, tell=lambda note: say(f"note: {note}"))
    for k, (heading, lines) in enumerate(made):
        click.echo(("\n" if k else "") + f"## {heading}\n")
        click.echo("\n".join(lines).rstrip())
