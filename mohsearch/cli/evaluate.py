"""`mohsearch evaluate`: call one evaluator on a file of cases, so that other tools can use it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mohsearch.cli.options import DIM
from mohsearch.cli.output import (
    figure_text,
    is_terminal,
    print_facts,
    print_table,
    say,
    to_csv,
    to_json,
)
from mohsearch.cli.program import example
from mohsearch.core.files import write_text

if TYPE_CHECKING:
    from mohsearch.evaluators.report import EvaluationReport


_OPTIONS = {"chips": "--chips", "dims": "--dim"}
"""Settings of evaluators, and what the command line calls them."""


def _list(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from mohsearch.evaluators import EVALUATORS

    for name in EVALUATORS.names():
        summary, accepted = _manual(EVALUATORS.load(name))
        click.echo(name)
        print_facts({"  does": summary, "  input": accepted})
    ctx.exit(0)


def _manual(evaluator: Any) -> tuple[str, str]:
    """Return summary and accepted input of an evaluator, from its documentation."""
    text = re.sub(r":class:`~?([^`]+)`", r"\1", (evaluator.__doc__ or "").replace("``", ""))
    lines = [line.strip() for line in text.strip().splitlines()]
    summary = lines[0].removesuffix(".") if lines else ""
    if "path" in lines:
        rest = [*lines[lines.index("path") + 1 :], ""]
        titles = {
            p.name: f"{_OPTIONS[p.name] if p.kind is p.KEYWORD_ONLY else p.name.upper()}:"
            for p in inspect.signature(evaluator).parameters.values()
        }
        parts = [titles.get(line, line) for line in rest[: rest.index("")]]
        return summary, " ".join(parts)
    paragraphs = "\n".join(lines[1:]).strip().split("\n\n")
    return summary, " ".join(paragraphs[0].split()) if paragraphs[0] else ""


@click.command(
    epilog=example(
        "mohsearch evaluate --list",
        "mohsearch evaluate loop-nest cases.json -o counts.json",
        "mohsearch evaluate systolic cases.csv --format csv",
        "mohsearch evaluate chip-partition graph.json --chips 36 -o partition.json",
        "mohsearch evaluate chip-check graph.json partition.json --chips 36",
    )
)
@click.argument("name", metavar="EVALUATOR")
@click.argument(
    "files", metavar="INPUT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write."
)
@click.option(
    "--format",
    "shown",
    type=click.Choice(["table", "json", "csv"]),
    help="Default: a table on a terminal, else by the output's suffix, else the evaluator's own.",
)
@click.option(
    "--chips", type=click.IntRange(min=1), help="Chips that may be used (chip-* evaluators)."
)
@DIM
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List the evaluators and the input each accepts.",
)
def evaluate(
    name: str,
    files: tuple[Path, ...],
    output: Path | None,
    shown: str | None,
    chips: int | None,
    dims: Mapping[str, int],
) -> None:
    """Run one evaluator on a file of cases.

    What each case in INPUT costs is printed, or written to a file.
    """
    from mohsearch.analysis.quantities import count_text
    from mohsearch.core.errors import InputError
    from mohsearch.evaluators import EVALUATORS

    evaluator = EVALUATORS.load(name)
    settings = _settings(name, evaluator, files, {"chips": chips, "dims": dims or None})
    for file in files:
        if not file.is_file():
            problem = "is a directory" if file.is_dir() else "no such file"
            raise InputError(problem, source=file)
    report: EvaluationReport = _evaluated(evaluator, files, settings)
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    natural = suffix if suffix in {"json", "csv"} else report.natural_format
    kind = shown or ("table" if output is None and is_terminal() else natural)
    if kind == "table":
        if output is not None:
            raise click.UsageError("a table is for reading; write json or csv to a file")
        _print_rows(report.rows)
        if report.summary:
            click.echo()
            _print_rows(report.summary)
        return
    text = to_json(report.document) + "\n" if kind == "json" else to_csv(report.rows)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
        rows = f" in {count_text(len(report.rows), 'row')}" if kind == "csv" else ""
        say(f"wrote {count_text(report.cases, 'case')}{rows} to {output}")
    _say_summary(report)


def _evaluated(evaluator: Any, files: Sequence[Path], settings: Mapping[str, Any]) -> Any:
    """Call an evaluator; errors name the file also where the evaluator did not know it."""
    from mohsearch.core.errors import InputError

    try:
        return evaluator(*files, **settings)
    except InputError as error:
        if error.source is not None:
            raise
        raise InputError(error.message, source=files[-1], field=error.field) from error
    except OverflowError as error:
        raise InputError(f"a number is too large: {error}", source=files[-1]) from error


def _settings(
    name: str, evaluator: Any, files: Sequence[Path], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that are not None, refusing those, and files, that nothing takes."""
    parameters = inspect.signature(evaluator).parameters.values()
    wanted = [p for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    if len(files) != len(wanted):
        names = " ".join(p.name.upper() for p in wanted)
        inputs = "1 input" if len(wanted) == 1 else f"{len(wanted)} inputs"
        raise click.UsageError(f"{name} takes {inputs}: {names}; got {len(files)}")
    settings = {key: value for key, value in given.items() if value is not None}
    for key in settings:
        if key not in {p.name for p in parameters}:
            raise click.UsageError(f"{name} has no {_OPTIONS[key]}")
    return settings


def _say_summary(report: EvaluationReport) -> None:
    """Print the summary where it does not mix with the cases: after a written file, or aside."""
    for row in report.summary:
        say(" ".join(f"{key}={figure_text(value)}" for key, value in row.items()))


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    numeric = [
        k
        for k, column in enumerate(columns)
        if all(isinstance(row.get(column, 0), (int, float)) for row in rows)
    ]
    table = [[figure_text(row.get(column)) for column in columns] for row in rows]
    print_table(columns, table, numeric=numeric)
