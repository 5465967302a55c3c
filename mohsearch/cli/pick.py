"""`mohsearch front pick`: one design by budgets, weights or trade-offs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mohsearch.cli.front import FOLDER, RUN_OPTION, one_run, show_solution
from mohsearch.cli.output import say
from mohsearch.cli.program import example


def _amounts(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Read NAME=NUMBER pairs, repeated or joined by commas."""
    amounts = {}
    for text in (part for value in values for part in value.split(",")):
        name, equals, number = text.strip().partition("=")
        try:
            amounts[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not (name and equals):
            raise click.BadParameter(f"{text.strip()!r} is not NAME=NUMBER, such as latency_ms=5")
    return amounts


@click.command(
    epilog=example(
        "mohsearch front pick results --budget latency_ms=5 --weights energy=2,area=1",
        "mohsearch front pick results --budget area_mm2=20 --knee",
    )
)
@FOLDER
@RUN_OPTION
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    callback=_amounts,
    metavar="METRIC=VALUE",
    help="Only designs within it, in any unit: latency_ms=5, energy_uj=20, area_mm2=4. Repeatable.",
)
@click.option(
    "--weights",
    multiple=True,
    callback=_amounts,
    metavar="METRIC=WEIGHT,...",
    help="Importance of objectives, any scale; those not named have none.",
)
@click.option(
    "--method",
    type=click.Choice(["pseudo-weights", "compromise"]),
    default="pseudo-weights",
    show_default=True,
    help="How weights choose: nearest pseudo-weights, or least weighted distance to the ideal.",
)
@click.option("--knee", is_flag=True, help="The knee (default without weights).")
@click.option("--trade-off", is_flag=True, help="List designs with a high trade-off instead.")
def pick(
    folder: Path,
    runs: tuple[str, ...],
    budgets: dict[str, float],
    weights: dict[str, float],
    method: Any,
    knee: bool,
    trade_off: bool,
) -> None:
    """Choose one design from the front in DIR by budgets, and by weights or as the knee."""
    from mohsearch.analysis.pick import by_weights, high_trade_offs, knee_among, within
    from mohsearch.analysis.results import read_fronts
    from mohsearch.cli.front import print_front

    if sum([bool(weights), knee, trade_off]) > 1:
        raise click.UsageError("give one of --weights, --knee and --trade-off")
    item = one_run(read_fronts(folder, runs))
    among = within(item, budgets)
    if budgets:
        say(f"{len(among)} of {len(item)} designs are within the budget")
    if trade_off:
        found = high_trade_offs(item, among)
        if not len(found):
            say("no design stands out by its trade-off")
            return
        print_front(item, [int(i) for i in found], bounds=True)
        return
    index = by_weights(item, weights, method, among) if weights else knee_among(item, among)
    show_solution(item, str(index))
    say(f"write it: mohsearch front export {folder} --run {item.run} --solution {index} --as yaml")
