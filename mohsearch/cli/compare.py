"""`mohsearch compare`: which engine, portfolio or problem variant wins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mohsearch.cli.front import FOLDER, RUN_OPTION
from mohsearch.cli.output import is_terminal, print_table, say, to_csv
from mohsearch.cli.program import example
from mohsearch.core.files import write_text

if TYPE_CHECKING:
    from mohsearch.analysis.compare import Comparison


@click.command(
    epilog=example(
        "mohsearch compare results --by engine",
        "mohsearch compare results --by portfolio -o ranking.csv",
    )
)
@FOLDER
@click.option(
    "--by",
    type=click.Choice(["engine", "portfolio", "problem", "workload"]),
    help="What the contenders are. Default: all that differs between runs but the workload.",
)
@RUN_OPTION
@click.option("--objectives", metavar="A,B,...", help="Metrics to compare on. Default: objectives.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="CSV file to write."
)
@click.option(
    "--format",
    "shown",
    type=click.Choice(["table", "csv"]),
    help="What to print. Default: a table on a terminal, CSV into a file or pipe.",
)
def compare(
    folder: Path,
    by: str | None,
    runs: tuple[str, ...],
    objectives: str | None,
    output: Path | None,
    shown: str | None,
) -> None:
    """Rank engines, portfolios or variants of a study.

    Contenders in DIR, the output folder of a study, are ranked by hypervolume over seeds.

    Runs that differ only in the seed are repetitions. Beside the hypervolume's median and
    quartiles stands, for each other contender, the share of solutions it Pareto-dominates.
    """
    from mohsearch.analysis.compare import compare as compare_fronts
    from mohsearch.analysis.results import read_fronts

    names = [name.strip() for name in objectives.split(",")] if objectives else None
    result = compare_fronts(read_fronts(folder, runs, designs=False), by, names)
    if output is not None:
        write_text(output, to_csv(result.records()))
        say(f"wrote {output}")
    kind = shown or ("table" if is_terminal() or output is not None else "csv")
    if kind == "csv":
        click.echo(to_csv(result.records()), nl=False)
    else:
        _print(result)


def _print(result: Comparison) -> None:
    for k, case in enumerate(result.boxes):
        if k:
            click.echo()
        standings = [s for s in result.standings if s.case == case]
        others = [s.contender for s in standings] if 1 < len(standings) <= 6 else []
        headers = ["rank", "/".join(result.fields), "runs", "hypervolume", "quartiles", "IGD+"]
        headers += [f"dominated by {name}" for name in others]
        table = []
        for standing in standings:
            low, middle, high = standing.quartiles()
            row = [
                str(standing.rank),
                standing.contender,
                str(len(standing.runs)),
                f"{middle:.4f}",
                f"{low:.4f} to {high:.4f}",
                f"{standing.igd_plus:.4f}",
            ]
            for name in others:
                share = standing.dominated.get(name)
                row.append("" if share is None else f"{share:.1%}")
            table.append(row)
        numeric = [0, 2, 3, 4, 5, *range(6, len(headers))]
        print_table(headers, table, title=case, numeric=numeric)
    click.echo(f"compared on {', '.join(result.objectives)}")
    click.echo(f"hypervolume: {next(iter(result.boxes.values())).rule}")
