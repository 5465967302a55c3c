"""`mohsearch engine`: the search methods and what each can do."""

from __future__ import annotations

from typing import Any

import click

from mohsearch.cli.output import figure_text, print_facts, print_table, to_json
from mohsearch.cli.program import Group, example

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@click.group(cls=Group, epilog=example("mohsearch engine list", "mohsearch engine show optuna"))
def engine() -> None:
    """List the search methods and what each can do."""


@engine.command("list", epilog=example("mohsearch engine list"))
@_JSON
def list_engines(as_json: bool) -> None:
    """List engines and their algorithms: objectives they take, constraints, operators used.

    What stands here is what the engines declare: a study that asks for more is refused.
    """
    from mohsearch.engines import ENGINES

    rows = [row for name in ENGINES.names() for row in _rows(name)]
    if as_json:
        click.echo(to_json(rows))
        return
    table = [
        [
            row["engine"],
            row["algorithm"] + (" (default)" if row["default"] else ""),
            row["objectives"],
            "yes" if row["constraints"] else "no",
            _varies_by(row),
            _limits(row),
            row["summary"],
        ]
        for row in rows
    ]
    headers = ["engine", "algorithm", "objectives", "constraints", "varies by", "limits", "summary"]
    print_table(headers, table)


@engine.command(epilog=example("mohsearch engine show pymoo"))
@click.argument("name")
def show(name: str) -> None:
    """Show one engine: what it is, its algorithms and its options."""
    from mohsearch.engines import ENGINES

    loaded = ENGINES.load(name)
    lines = [line.strip() for line in (loaded.__doc__ or "").strip().splitlines()]
    print_facts({"engine": name, "does": " ".join(lines).replace("``", "")})
    click.echo()
    table = [
        [
            row["algorithm"] + (" (default)" if row["default"] else ""),
            row["objectives"],
            "yes" if row["constraints"] else "no",
            _varies_by(row),
            "yes" if row["immigrants"] else "no",
            _limits(row),
            row["summary"],
        ]
        for row in _rows(name)
    ]
    headers = ["algorithm", "objectives", "constraints", "varies by", "immigrants", "limits"]
    print_table([*headers, "summary"], table, title="Algorithms")
    fields = loaded.options_card.model_fields
    if fields:
        click.echo()
        table = [
            [option, figure_text(field.default), field.description or ""]
            for option, field in fields.items()
        ]
        print_table(["option", "default", "meaning"], table, title="Options")


def _rows(name: str) -> list[dict[str, Any]]:
    """Return one record per algorithm of an engine, from what its class declares."""
    from mohsearch.engines import ENGINES

    loaded = ENGINES.load(name)
    return [
        {
            "engine": name,
            "algorithm": algorithm,
            "default": algorithm == loaded.default_algorithm,
            "objectives": _range(can.min_objectives, can.max_objectives),
            "constraints": can.constraints,
            "operators": list(can.operators),
            "immigrants": can.immigrants,
            "max_genes": can.max_genes,
            "max_evaluations": can.max_evaluations,
            "options": list(loaded.options_card.model_fields),
            "summary": can.summary,
        }
        for algorithm, can in loaded.algorithms.items()
    ]


def _range(least: int, most: int | None) -> str:
    if most == least:
        return str(least)
    return f"{least} to {'any' if most is None else most}"


def _varies_by(row: dict[str, Any]) -> str:
    """Return which operators of the portfolio an algorithm uses, in words."""
    operators = set(row["operators"])
    if {"crossover", "mutation"} <= operators:
        return "the portfolio"
    if not operators:
        return "its own ways"
    return " and ".join(sorted(operators)) + " of the portfolio"


def _limits(row: dict[str, Any]) -> str:
    parts = []
    if row["max_genes"] is not None:
        parts.append(f"{row['max_genes']:,} genes")
    if row["max_evaluations"] is not None:
        parts.append(f"{row['max_evaluations']:,} evaluations")
    return ", ".join(parts)
