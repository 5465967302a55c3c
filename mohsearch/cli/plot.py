"""`mohsearch plot`: pictures of fronts, schedules, convergence and deepflow designs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from mohsearch.cli.front import FOLDER, RUN_OPTION, one_run
from mohsearch.cli.output import say
from mohsearch.cli.program import Group, example

_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Picture to write: .png, .svg or .pdf. Default: a PNG in DIR, named after the command.",
)
_TITLE = click.option("--title", "heading", default="", help="Title of the picture.")


@click.group(cls=Group, epilog=example("mohsearch plot front results -o front.svg"))
def plot() -> None:
    """Draw the results of a study: PNG, SVG or PDF."""


def _save(figure: Any, output: Path | None, folder: Path, name: str, part: str = "") -> None:
    """Write a picture; ``part`` tells several pictures of one command apart."""
    from mohsearch.analysis.style import save

    path = output or folder / name
    if part:
        path = path.with_stem(f"{path.stem}-{Path(part).stem}")
    say(f"wrote {save(figure, path)}")


def _solution(*words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option that picks a solution; ``words`` are what else it may be called."""
    names = "".join(f"{word}, " for word in words)
    return click.option(
        "--solution",
        default="knee",
        show_default=True,
        metavar="WHICH",
        help=f"knee, {names}a metric's name (its best), or a number.",
    )


def _one_design(
    folder: Path, runs: tuple[str, ...], solution: str, problem: str
) -> tuple[Any, int, Mapping[str, Any]]:
    """Return the one run to draw, of ``problem``, the number of a solution in it, its design."""
    from mohsearch.analysis.fronts import choose
    from mohsearch.analysis.results import read_fronts

    item = one_run(read_fronts(folder, runs), problem)
    index = choose(item, solution)
    return item, index, item.designs[index] if item.designs else {}


@plot.command(
    epilog=example(
        "mohsearch plot front results",
        "mohsearch plot front results --objectives latency_s,energy_j --by run -o front.pdf",
    )
)
@FOLDER
@_OUTPUT
@RUN_OPTION
@click.option("--objectives", metavar="A,B,...", help="Metrics to draw. Default: the objectives.")
@click.option(
    "--by",
    type=click.Choice(["label", "run"]),
    default="label",
    show_default=True,
    help="One colour per label, its seeds pooled, or one per run.",
)
@click.option("--log/--no-log", default=None, help="Log axes. Default: where the range is wide.")
@_TITLE
def front(
    folder: Path,
    output: Path | None,
    runs: tuple[str, ...],
    objectives: str | None,
    by: str,
    log: bool | None,
    heading: str,
) -> None:
    """Draw the fronts in DIR on each plane of two objectives, and all objectives together.

    The star is the knee, the cross the ideal point: proven bounds no solution can pass. A study of
    several workloads gives one picture for each.
    """
    from mohsearch.analysis.labels import by_workload, labels, pool_seeds
    from mohsearch.analysis.plot_front import plot_front
    from mohsearch.analysis.results import read_fronts

    chosen = [name.strip() for name in objectives.split(",")] if objectives else None
    groups = by_workload(read_fronts(folder, runs, designs=False))
    for workload, fronts in groups.items():
        shown, names = pool_seeds(fronts) if by == "label" else (fronts, labels(fronts))
        figure = plot_front(shown, chosen, names=names, heading=heading, log=log)
        _save(figure, output, folder, "front.png", workload if len(groups) > 1 else "")


@plot.command(
    epilog=example(
        "mohsearch plot gantt results --solution knee",
        "mohsearch plot gantt results --solution 12 -o schedule.svg",
    )
)
@FOLDER
@_OUTPUT
@RUN_OPTION
@_solution("fastest", "least-energy", "smallest")
@_TITLE
def gantt(
    folder: Path, output: Path | None, runs: tuple[str, ...], solution: str, heading: str
) -> None:
    """Draw one design's schedule: rows are instances, bars layers, and each instance's area."""
    from mohsearch.analysis.plot_gantt import plot_gantt
    from mohsearch.analysis.quantities import scale_for

    item, index, design = _one_design(folder, runs, solution, "moham")
    figures = ", ".join(
        scale_for([item.values[n][index]], item.metric(n).unit).quantity(item.values[n][index])
        for n in item.objectives
    )
    word = "" if solution.isdigit() else f" ({solution.replace('-', ' ')})"
    title = heading or f"Solution {index}{word}: {figures}"
    _save(plot_gantt(design, heading=title, note=f"run {item.run}"), output, folder, "gantt.png")


@plot.command(epilog=example("mohsearch plot convergence results --by engine"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@click.option(
    "--by",
    type=click.Choice(["engine", "portfolio", "problem", "workload"]),
    help="What runs must share to be repetitions. Default: everything but the seed.",
)
@_TITLE
def convergence(
    folder: Path, output: Path | None, runs: tuple[str, ...], by: str | None, heading: str
) -> None:
    """Draw hypervolume against evaluations: median and quartiles over seeds.

    Works on a running or interrupted study too. Several workloads give one picture each.
    """
    from mohsearch.analysis.convergence import curves
    from mohsearch.analysis.labels import by_workload
    from mohsearch.analysis.plot_convergence import plot_convergence
    from mohsearch.analysis.results import read_histories

    histories = read_histories(folder, runs)
    groups = by_workload([history.front for history in histories])
    for workload, fronts in groups.items():
        members = {front.run for front in fronts}
        chosen = [history for history in histories if history.front.run in members]
        title = heading or f"Convergence: {workload}"
        figure = plot_convergence(curves(chosen, by), heading=title)
        _save(figure, output, folder, "convergence.png", workload if len(groups) > 1 else "")


@plot.command(
    epilog=example("mohsearch plot attainment results --objectives latency_s,energy_j --by engine")
)
@FOLDER
@_OUTPUT
@RUN_OPTION
@click.option("--objectives", metavar="A,B,...", help="Metrics to draw. Default: the objectives.")
@click.option(
    "--by",
    type=click.Choice(["engine", "portfolio", "problem", "template"]),
    help="What runs must share to be repetitions. Default: everything but the seed.",
)
@_TITLE
def attainment(
    folder: Path,
    output: Path | None,
    runs: tuple[str, ...],
    objectives: str | None,
    by: str | None,
    heading: str,
) -> None:
    """Draw what a quarter, half and three quarters of the seeds attain.

    A point is attained by a run that has a solution as good or better. Several workloads give one
    picture each.
    """
    from mohsearch.analysis.labels import by_workload
    from mohsearch.analysis.plot_attainment import plot_attainment
    from mohsearch.analysis.results import read_fronts

    chosen = [name.strip() for name in objectives.split(",")] if objectives else None
    groups = by_workload(read_fronts(folder, runs, designs=False))
    for workload, fronts in groups.items():
        figure = plot_attainment(fronts, chosen, by=by, heading=heading)
        _save(figure, output, folder, "attainment.png", workload if len(groups) > 1 else "")


@plot.command(epilog=example("mohsearch plot partition results --solution interval_s"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_solution()
@_TITLE
def partition(
    folder: Path, output: Path | None, runs: tuple[str, ...], solution: str, heading: str
) -> None:
    """Draw one partition of a graph over chips: ops by chip, load per chip, traffic on the ring."""
    from mohsearch.analysis.plot_chiplet import partition_facts, plot_partition
    from mohsearch.core.errors import InputError
    from mohsearch.workloads.op_graph_files import load_graph

    item, _, design = _one_design(folder, runs, solution, "chiplet")
    try:
        graph, note = load_graph(str(item.attrs["workload"])), ""
    except InputError:
        graph, note = None, " (its graph is not on the shelf: not drawn)"
    facts = ", ".join(partition_facts(design)) if design else ""
    title = heading or f"{item.attrs['workload']}: {facts}"
    figure = plot_partition(design, graph, heading=title, note=f"run {item.run}{note}")
    _save(figure, output, folder, "partition.png")


@plot.command(
    epilog=example(
        "mohsearch plot samples results --at 20,100,300,1000",
        "mohsearch plot samples results --baseline equal-time --threshold 1.2,1.25",
    )
)
@FOLDER
@_OUTPUT
@RUN_OPTION
@click.option("--baseline", help="Heuristic to compare with. Default: the first that is stated.")
@click.option("--at", default="20,100,300,1000", show_default=True, help="Samples of the table.")
@click.option("--threshold", default="", metavar="X,X,...", help="Improvements to reach.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table as CSV.")
@_TITLE
def samples(
    folder: Path,
    output: Path | None,
    runs: tuple[str, ...],
    baseline: str | None,
    at: str,
    threshold: str,
    as_csv: bool,
    heading: str,
) -> None:
    """Print and draw the best result against samples: mean and deviation over seeds.

    Improvement over each heuristic that the runs state, and samples until an improvement is
    reached, as in Tables 2 and 3 of the multi-chip partitioning paper.
    """
    from mohsearch.analysis.plot_samples import plot_samples
    from mohsearch.analysis.results import read_histories
    from mohsearch.analysis.samples import sample_curves, sample_table
    from mohsearch.cli.output import figure_text, print_table, say, to_csv

    curves = sample_curves(read_histories(folder, runs))
    last = max(int(curve.samples[-1]) for curve in curves)
    wanted = _counts(at, "--at")
    counts = sorted({min(n, last) for n in wanted})
    if max(wanted) > last:
        say(f"the longest run has {last} samples: nothing is known beyond")
    rows = sample_table(curves, counts, _numbers(threshold, "--threshold"))
    if as_csv:
        click.echo(to_csv(rows), nl=False)
    else:
        headers = list(rows[0])
        cells = [["-" if r[h] is None else figure_text(r[h]) for h in headers] for r in rows]
        print_table(headers, cells, numeric=range(1, len(headers)))
    _save(plot_samples(curves, baseline, heading=heading), output, folder, "samples.png")


def _counts(text: str, option: str) -> list[int]:
    from mohsearch.core.errors import InputError

    counts = [part.strip() for part in text.split(",") if part.strip()]
    if not counts or not all(part.isdecimal() and int(part) > 0 for part in counts):
        raise InputError(f"{option}: positive whole numbers with commas between, got {text!r}")
    return [int(part) for part in counts]


def _numbers(text: str, option: str) -> list[float]:
    from mohsearch.core.errors import InputError

    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option}: numbers with commas between, got {text!r}") from None


@plot.command(epilog=example("mohsearch plot correlation results"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_TITLE
def correlation(folder: Path, output: Path | None, runs: tuple[str, ...], heading: str) -> None:
    """Draw two cost models on the same designs, for runs that differ in their problem alone."""
    from mohsearch.analysis.correlation import matched_pairs
    from mohsearch.analysis.plot_correlation import plot_correlation
    from mohsearch.analysis.results import read_histories

    pairs = matched_pairs(read_histories(folder, runs))
    for pair in pairs:
        say(f"{pair.name}: Pearson R {pair.pearson:.3f} over {len(pair.x)} designs")
    _save(plot_correlation(pairs, heading=heading), output, folder, "correlation.png")


@plot.command(epilog=example("mohsearch plot fractions results --sort-by cost_usd"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@click.option(
    "--sort-by", metavar="METRIC", help="Metric along the axis. Default: the first objective."
)
@_TITLE
def fractions(
    folder: Path, output: Path | None, runs: tuple[str, ...], sort_by: str | None, heading: str
) -> None:
    """Draw how each design of a deepflow front splits its area, power and edge."""
    from mohsearch.analysis.plot_deepflow import plot_fractions
    from mohsearch.analysis.results import read_fronts

    front = one_run(read_fronts(folder, runs), "deepflow")
    _save(plot_fractions(front, heading=heading, sort_by=sort_by), output, folder, "fractions.png")


@plot.command(epilog=example("mohsearch plot scaling results -o fig9.svg"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_TITLE
def scaling(folder: Path, output: Path | None, runs: tuple[str, ...], heading: str) -> None:
    """Draw the best time of each technology that deepflow runs evaluated, and write a table of it.

    The table (CSV, beside the picture) has the best strategy and the data-parallel time as well.
    """
    import csv

    from mohsearch.analysis.deepflow_tables import by_technology, read_evaluated
    from mohsearch.analysis.plot_deepflow import plot_scaling

    rows = [row for run in read_evaluated(folder, runs) for row in by_technology(run)]
    _save(plot_scaling(rows, heading=heading), output, folder, "scaling.png")
    table = (output or folder / "scaling.png").with_suffix(".csv")
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    say(f"wrote {table}")


@plot.command(epilog=example("mohsearch plot roofline results --solution time_s"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_solution()
@_TITLE
def roofline(
    folder: Path, output: Path | None, runs: tuple[str, ...], solution: str, heading: str
) -> None:
    """Draw the roofline of one deepflow design with the kernels of an iteration on it."""
    from mohsearch.analysis.plot_roofline import plot_roofline

    item, index, design = _one_design(folder, runs, solution, "deepflow")
    title = heading or f"Roofline of solution {index}: {design.get('strategy', '')}".strip(": ")
    figure = plot_roofline(design, heading=title, note=f"run {item.run}")
    _save(figure, output, folder, "roofline.png")


_MODEL = click.option("--model", help="One of the design's models. Default: the first.")


@plot.command(
    epilog=example("mohsearch plot layer results --solution throughput_samples_per_s -o layer.png")
)
@FOLDER
@_OUTPUT
@RUN_OPTION
@_solution("smallest", "least-energy")
@_MODEL
@_TITLE
def layer(
    folder: Path,
    output: Path | None,
    runs: tuple[str, ...],
    solution: str,
    model: str | None,
    heading: str,
) -> None:
    """Draw when the operators of a training accelerator's layer run: forward and backward pass."""
    from mohsearch.analysis.plot_phaze import plot_layer_schedule

    item, index, design = _one_design(folder, runs, solution, "phaze")
    note = f"run {item.run}, solution {index}"
    figure = plot_layer_schedule(design, model=model, heading=heading, note=note)
    _save(figure, output, folder, "layer.png")


@plot.command(epilog=example("mohsearch plot pipeline results --model llama2-7b -o pipeline.png"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_solution("smallest", "least-energy")
@_MODEL
@_TITLE
def pipeline(
    folder: Path,
    output: Path | None,
    runs: tuple[str, ...],
    solution: str,
    model: str | None,
    heading: str,
) -> None:
    """Draw a training pipeline: its first microbatches, and the memory of every stage."""
    from mohsearch.analysis.plot_phaze import plot_pipeline

    item, index, design = _one_design(folder, runs, solution, "phaze")
    note = f"run {item.run}, solution {index}"
    figure = plot_pipeline(design, model=model, heading=heading, note=note)
    _save(figure, output, folder, "pipeline.png")


@plot.command(epilog=example("mohsearch plot hysteresis results/phaze_hysteresis"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_TITLE
def hysteresis(folder: Path, output: Path | None, runs: tuple[str, ...], heading: str) -> None:
    """Draw how far PHAZE's published search goes at each level, beside the proven optimum."""
    from mohsearch.analysis.phaze_hysteresis import plot_hysteresis
    from mohsearch.analysis.results import read_histories

    figure = plot_hysteresis(read_histories(folder, runs), heading=heading)
    _save(figure, output, folder, "hysteresis.png")


@plot.command(epilog=example("mohsearch plot intensity results -o fig1.svg"))
@FOLDER
@_OUTPUT
@RUN_OPTION
@_TITLE
def intensity(folder: Path, output: Path | None, runs: tuple[str, ...], heading: str) -> None:
    """Draw operations per byte of main memory over devices and strategies of deepflow runs."""
    from mohsearch.analysis.deepflow_tables import compute_intensity, read_evaluated
    from mohsearch.analysis.plot_deepflow import plot_intensity

    rows = [row for run in read_evaluated(folder, runs) for row in compute_intensity(run)]
    _save(plot_intensity(rows, heading=heading), output, folder, "intensity.png")
