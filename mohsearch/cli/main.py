"""The command line: `mohsearch COMMAND`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mohsearch import __version__
from mohsearch.cli import (
    ablate,
    compare,
    doctor,
    engine,
    evaluate,
    front,
    pick,
    plot,
    report,
    shelves,
    study,
    tables,
    workload,
)
from mohsearch.cli.program import Program, example


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example(
        "mohsearch study run smoke --output results",
        "mohsearch front show results",
        "mohsearch plot gantt results --solution knee",
    ),
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of every error.")
def cli(debug: bool) -> None:
    """Search hardware for deep learning: Pareto sets over latency, energy, area and more.

    Exit codes: 0 done, 1 a run or check failed, 2 wrong usage or input, 130 interrupted,
    143 terminated.
    """


front.front.add_command(pick.pick)
for _command in (
    study.study,
    front.front,
    plot.plot,
    compare.compare,
    ablate.ablate,
    report.report,
    tables.tables,
    workload.workload,
    shelves.template,
    shelves.problem,
    shelves.operator,
    engine.engine,
    evaluate.evaluate,
    doctor.doctor,
):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line with ``args`` (default: the process's) and leave the process."""
    cli.main(args=None if args is None else list(args), prog_name="mohsearch")
