"""`mohsearch compare`: which engine, portfolio, template or problem variant wins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mohsearch.cli.front import RUN_OPTION
from mohsearch.cli.output import is_terminal, print_table, say, to_csv, to_json
from mohsearch.cli.program import example
from mohsearch.core.files import write_text

if TYPE_CHECKING:
    from mohsearch.analysis.compare import Comparison

PICTURES = (".png", ".svg", ".pdf")


@click.command(
    epilog=example(
        "mohsearch compare results --by engine",
        "mohsearch compare results/a results/b --by portfolio -o ranking.csv -o ranking.png",
    )
)
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--by",
    type=click.Choice(["engine", "portfolio", "problem", "workload", "template", "seed"]),
    help="What the contenders are. Default: all that differs between runs but the workload.",
)
@RUN_OPTION
@click.option("--objectives", metavar="A,B,...", help="Metrics to compare on. Default: objectives.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write: .csv (standings), .json (all), or a picture (.png, .svg, .pdf). "
    "Repeatable.",
)
@click.option(
    "--curves",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV file for the whole curves: median and quartiles at each number of evaluations.",
)
@click.option(
    "--tests",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV file for the tests of each pair.",
)
@click.option(
    "--format",
    "shown",
    type=click.Choice(["table", "csv"]),
    help="What to print. Default: a table on a terminal, CSV into a file or pipe.",
)
def compare(
    folders: tuple[Path, ...],
    by: str | None,
    runs: tuple[str, ...],
    objectives: str | None,
    outputs: tuple[Path, ...],
    curves: Path | None,
    tests: Path | None,
    shown: str | None,
) -> None:
    """Rank engines, portfolios, templates or variants of studies.

    Contenders in each DIR, the output folder of a study, are ranked by hypervolume over seeds.

    Runs that differ only in the seed are repetitions. Pairs are tested by Mann-Whitney's U with
    Holm's correction and Vargha and Delaney's A; where there are too few seeds to conclude
    anything, that is said. Beside the hypervolume's median and quartiles stands, for each other
    contender, the share of solutions it Pareto-dominates.
    """
    from mohsearch.analysis.compare import compare as compare_fronts
    from mohsearch.analysis.gather import gather

    _check_outputs(outputs)
    names = [name.strip() for name in objectives.split(",")] if objectives else None
    fronts = gather(folders, runs, tell=lambda note: say(f"note: {note}"))
    result = compare_fronts(fronts, by, names)
    if curves is not None or any(p.suffix.lower() in PICTURES for p in outputs):
        from mohsearch.analysis.compared_curves import compared_curves, curve_records

        found = compared_curves(folders, runs, result)
        if curves is not None:
            write_text(curves, to_csv(curve_records(found, result)))
            say(f"wrote {curves}")
    for path in outputs:
        _write(path, result, found if path.suffix.lower() in PICTURES else ())
    if tests is not None:
        write_text(tests, to_csv(result.test_records()))
        say(f"wrote {tests}")
    kind = shown or ("table" if is_terminal() or outputs else "csv")
    if kind == "csv":
        click.echo(to_csv(result.records()), nl=False)
        for note in result.notes:
            say(f"note: {note}")
    else:
        _print(result)


def _check_outputs(outputs: tuple[Path, ...]) -> None:
    known = (".csv", ".json", *PICTURES)
    for path in outputs:
        if path.suffix.lower() not in known:
            raise click.UsageError(
                f"cannot tell a format from {path.name!r}: end it in {', '.join(known)}"
            )


def _write(path: Path, result: Comparison, found: Any) -> None:
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        from mohsearch.analysis.plot_compare import plot_compare
        from mohsearch.analysis.style import save

        save(plot_compare(result, found), path)
    elif suffix == ".json":
        document = {
            "objectives": result.objectives,
            "hypervolume_rule": result.rule,
            "standings": result.records(),
            "tests": result.test_records(),
            "mean_ranks": result.mean_ranks(),
            "friedman_p": result.friedman_p(),
            "notes": result.notes,
        }
        write_text(path, to_json(document) + "\n")
    else:
        write_text(path, to_csv(result.records()))
    say(f"wrote {path}")


def _print(result: Comparison) -> None:
    for k, case in enumerate(result.cases):
        if k:
            click.echo()
        _print_standings(result, case)
        _print_bounds(result, case)
        _print_tests(result, case)
    if len(result.cases) > 1 and result.mean_ranks():
        click.echo()
        ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in result.mean_ranks().items())
        p = result.friedman_p()
        tested = "" if math.isnan(p) else f" (Friedman test: p = {p:.3g})"
        click.echo(f"mean rank over {len(result.cases)} cases: {ranks}{tested}")
    click.echo(f"compared on {result.objectives_in_words()}")
    click.echo(f"hypervolume: {result.rule}")
    for note in result.notes:
        click.echo(f"note: {note}")


def _print_standings(result: Comparison, case: str) -> None:
    standings = [s for s in result.standings if s.case == case]
    shared = 1 < len(standings) <= 6 and any(s.dominated for s in standings)
    others = [s.contender for s in standings] if shared else []
    headers = ["rank", "/".join(result.fields), "runs", "hypervolume", "quartiles", "IGD+"]
    headers += ["epsilon", "R2", "spread", "CPU-s"]
    fixed = len(headers)
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
            f"{standing.epsilon:.4f}",
            f"{standing.r2:.4f}",
            "-" if math.isnan(standing.spread) else f"{standing.spread:.3f}",
            f"{standing.cpu_s:,.2f}" if standing.cpu_s >= 0 else "",
        ]
        for name in others:
            share = standing.dominated.get(name)
            row.append("" if share is None or math.isnan(share) else f"{share:.1%}")
        table.append(row)
    print_table(headers, table, title=case, numeric=[0, *range(2, fixed + len(others))])


def _print_bounds(result: Comparison, case: str) -> None:
    """Print how near each contender comes to the provable ideal point."""
    from mohsearch.analysis.quantities import excess_text, short_name

    standings = [s for s in result.standings if s.case == case]
    names = list(dict.fromkeys(name for s in standings for name in s.over_bound))
    if not names:
        return
    click.echo()
    table = [
        [s.contender, *(excess_text(s.over_bound[n]) if n in s.over_bound else "" for n in names)]
        for s in standings
    ]
    headers = ["best above the proven bound", *(short_name(name) for name in names)]
    print_table(headers, table, numeric=range(1, len(headers)))


def _print_tests(result: Comparison, case: str) -> None:
    tests = result.tests[case]
    if not tests:
        return
    click.echo()
    table = [
        [
            *(t.first, t.second, f"{t.p:.3g}", f"{t.p_holm:.3g}", f"{t.a12:.2f}"),
            *(t.size, result.verdict(t)),
        ]
        for t in tests
    ]
    headers = ["first", "second", "p", "p (Holm)", "A", "effect", "conclusion"]
    print_table(headers, table, numeric=[2, 3, 4])
