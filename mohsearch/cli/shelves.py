"""What stands on the other shelves: templates, problems, operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mohsearch.cli.output import figure_text, print_facts, print_table, to_json
from mohsearch.cli.program import Group, example

if TYPE_CHECKING:
    from mohsearch.hardware.templates import AxisCard, LevelCard, TemporalCard

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@click.group(cls=Group, epilog=example("mohsearch template list"))
def template() -> None:
    """List and show sub-accelerator templates."""


@template.command("list", epilog=example("mohsearch template list"))
@_JSON
def list_templates(as_json: bool) -> None:
    """List the sub-accelerator templates by name."""
    from mohsearch.core.catalog import Catalog
    from mohsearch.hardware.templates import read_template, template_names

    catalog = Catalog.around()
    cards = [(name, read_template(name, catalog)) for name in template_names(catalog)]
    if as_json:
        click.echo(to_json([{"name": n, "title": c.title, "dataflow": c.dataflow,
                             "variants": list(c.variants)} for n, c in cards]))  # fmt: skip
        return
    table = [[n, c.title, c.dataflow, ", ".join(c.variants)] for n, c in cards]
    print_table(["name", "title", "dataflow", "variants"], table)
    click.echo("\nMore about one: mohsearch template show NAME")


@template.command(
    "show",
    epilog=example("mohsearch template show simba", "mohsearch template show simba -v artifact"),
)
@click.argument("name", metavar="NAME_OR_FILE")
@click.option("-v", "--variant", help="Variant of the card. Default: the card's own default.")
@_JSON
def show_template(name: str, variant: str | None, as_json: bool) -> None:
    """Show a template: its levels from memory inwards, sizes, bandwidths, rules for mappings."""
    from mohsearch.core.catalog import Catalog
    from mohsearch.core.errors import UnknownNameError
    from mohsearch.hardware.templates import load_template, read_template

    catalog = Catalog.around()
    card = read_template(name, catalog)
    chosen = variant or card.default
    if chosen not in card.variants:
        raise UnknownNameError(f"variant of template {card.name!r}:", chosen, card.variants)
    figures = card.variants[chosen]
    load_template(name, chosen, catalog=catalog)  # refuses what no search could use
    if as_json:
        click.echo(to_json(card.model_dump(mode="json")))
        return
    print_facts(
        {
            "name": card.name,
            "title": card.title,
            "dataflow": card.dataflow,
            "variant": f"{chosen} (of {', '.join(card.variants)})",
            "description": card.description,
            "figures": figures.description,
            "MAC width": f"{figures.mac_bits} bit",
            "technology": card.technology,
            "source": card.source,
        }
    )
    click.echo()
    _print_levels(figures.levels)
    click.echo()
    _print_rules(figures.levels)


def _print_levels(levels: Sequence[LevelCard]) -> None:
    """Print what each level is: size and bandwidth of one instance, tensors kept."""

    def number(value: float | None) -> str:
        return "-" if value is None else figure_text(value)

    table = [
        [
            level.name + (" (optional)" if level.optional else ""),
            level.memory.kind,
            number(level.size_words),
            str(level.word_bits),
            number(level.read_words_per_cycle),
            number(level.write_words_per_cycle),
            " ".join(level.keeps) or "-",
        ]
        for level in levels
    ]
    headers = ["level", "kind", "words", "bits/word", "reads/cycle", "writes/cycle", "keeps"]
    print_table(headers, table, numeric=range(2, 6))
    click.echo("reads and writes in words per cycle of one instance; - is unlimited")


def _print_rules(levels: Sequence[LevelCard]) -> None:
    """Print what a mapping may do at each level, in time and in space."""
    headers = ["level", "loops in time", "fan-out below"]
    table = [
        [level.name, _loops(level.temporal), "; ".join(_axis(a) for a in level.fanout) or "-"]
        for level in levels
    ]
    if any(level.gemm_fanout is not None for level in levels):
        headers.append("fan-out below, matrix products")
        for row, level in zip(table, levels, strict=True):
            axes = level.gemm_fanout
            row.append("the same" if axes is None else "; ".join(_axis(a) for a in axes) or "-")
    print_table(headers, table)
    click.echo("a > b: a outside b; whole: all that the levels inside leave of the dimension")


def _loops(rule: TemporalCard) -> str:
    if rule.order is not None:
        allowed = set(rule.all_dims())
        text = " > ".join(dim for dim in rule.order if dim in allowed)
    else:
        text = rule.dims if isinstance(rule.dims, str) else " ".join(rule.dims)
    return (text or "-") + _whole(rule.whole)


def _axis(axis: AxisCard) -> str:
    if axis.exact:
        return f"{axis.axis}: exactly " + " ".join(f"{d}={n}" for d, n in axis.exact.items())
    return f"{axis.axis}: up to {axis.limit} over {' '.join(axis.dims)}" + _whole(axis.whole)


def _whole(dims: Sequence[str]) -> str:
    return f", {' '.join(dims)} whole" if dims else ""


@click.group(cls=Group, epilog=example("mohsearch problem list", "mohsearch problem show moham"))
def problem() -> None:
    """List and show search problems."""


def _problem_cards() -> dict[str, Any]:
    from mohsearch.core.cards import read_card
    from mohsearch.core.catalog import Catalog
    from mohsearch.problems import PROBLEMS
    from mohsearch.problems.base import ProblemCard

    catalog = Catalog.around()
    on_shelf = catalog.names("problems")
    return {
        name: read_card(ProblemCard, catalog.find("problems", name)) if name in on_shelf else None
        for name in PROBLEMS.names()
    }


@problem.command("list", epilog=example("mohsearch problem list"))
@_JSON
def list_problems(as_json: bool) -> None:
    """List the search problems by name."""
    cards = _problem_cards()
    if as_json:
        click.echo(to_json({n: c and c.model_dump(mode="json") for n, c in cards.items()}))
        return
    table = [
        [name, card.title if card else "(no card)", ", ".join(card.objectives) if card else ""]
        for name, card in cards.items()
    ]
    print_table(["name", "title", "objectives"], table)
    click.echo("\nMore about one: mohsearch problem show NAME")


@problem.command("show", epilog=example("mohsearch problem show moham"))
@click.argument("name")
@_JSON
def show_problem(name: str, as_json: bool) -> None:
    """Show a problem: variables, metrics, objectives, constraints, budget, options, reference."""
    from mohsearch.core.errors import UnknownNameError
    from mohsearch.problems import PROBLEM_OPTIONS, PROBLEMS

    if name not in PROBLEMS.names():
        raise UnknownNameError("problem", name, PROBLEMS.names())
    card = _problem_cards()[name]
    options = PROBLEM_OPTIONS.load(name) if name in PROBLEM_OPTIONS.names() else None
    if as_json:
        schema = options.model_json_schema() if options else {}
        facts = card.model_dump(mode="json") if card else {"slug": name}
        click.echo(to_json(facts | {"options": schema}))
        return
    if card is not None:
        _print_problem(card)
    else:
        click.echo(f"{name}: no card problems/{name}.yaml in reach that says what it searches")
    if options is not None:
        click.echo()
        table = [
            [field, _default(info), info.description or ""]
            for field, info in options.model_fields.items()
        ]
        print_table(["option", "default", "meaning"], table, title="Options of a study's problem")


def _default(info: Any) -> str:
    value = info.get_default(call_default_factory=True, validated_data={})
    return "-" if value in (None, {}, ()) else figure_text(value)


def _print_problem(card: Any) -> None:
    print_facts(
        {
            "name": card.slug,
            "title": card.title,
            "description": card.description,
            "reference": card.reference,
            "objectives": ", ".join(card.objectives),
            "default budget": f"{card.budget.population} individuals, "
            f"{card.budget.generations} generations",
        }
    )
    click.echo()
    table = [
        [v.name, v.kind, "" if v.unit == "1" else v.unit, _range(v), v.description]
        for v in card.variables
    ]
    print_table(["variable", "kind", "unit", "values", "meaning"], table, title="Variables")
    click.echo()
    table = [
        [m.name, m.unit, m.sense, "yes" if m.name in card.objectives else "", m.description]
        for m in card.metrics
    ]
    print_table(["metric", "unit", "best", "objective", "meaning"], table, title="Metrics")
    if card.constraints:
        click.echo()
        table = [[c.name, c.unit, c.description] for c in card.constraints]
        print_table(["constraint (<= 0)", "unit", "meaning"], table, title="Constraints")


def _range(variable: Any) -> str:
    if variable.values is not None:
        return ", ".join(variable.values)
    if variable.bounds is None:
        return ""
    return " to ".join(f"{bound:g}" for bound in variable.bounds)


@click.group(cls=Group, epilog=example("mohsearch operator list moham"))
def operator() -> None:
    """List the variation operators and portfolios of a problem."""


@operator.command("list", epilog=example("mohsearch operator list moham"))
@click.argument("problem_name", metavar="[PROBLEM]", required=False)
@_JSON
def list_operators(problem_name: str | None, as_json: bool) -> None:
    """List the operators of PROBLEM (default: of every problem), and its portfolios.

    A study switches operators off by name with 'without', or keeps a few with 'only'.
    """
    from mohsearch.core.catalog import Catalog
    from mohsearch.operators.portfolio import describe, describe_portfolios

    catalog = Catalog.around()
    slugs = [problem_name] if problem_name else catalog.names("operators")
    found = {s: (describe(s, catalog), describe_portfolios(s, catalog)) for s in slugs}
    if as_json:
        click.echo(to_json({s: {"operators": o, "portfolios": p} for s, (o, p) in found.items()}))
        return
    for k, (slug, (operators, portfolios)) in enumerate(found.items()):
        if k:
            click.echo()
        columns = ["name", "kind", "rate", "application", "description"]
        table = [[figure_text(row[c]) for c in columns] for row in operators]
        columns[3] = "applied per"
        print_table(columns, table, title=f"Operators of {slug}", numeric=[2])
        click.echo()
        table = [
            [
                p["name"] + (" (default)" if p["default"] else ""),
                p["kind"],
                str(len(p["operators"])),
                p["description"],
            ]
            for p in portfolios
        ]
        headers = ["name", "kind", "operators", "description"]
        print_table(headers, table, title=f"Portfolios of {slug}", numeric=[2])
