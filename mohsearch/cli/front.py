"""`mohsearch front`: show and export what a study found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mohsearch.cli.output import print_facts, print_table, say, to_csv, to_json
from mohsearch.cli.program import Group, example
from mohsearch.core.files import write_text

if TYPE_CHECKING:
    from mohsearch.analysis.fronts import Front

RUN_OPTION = click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="RUN",
    help="Only this run: its name, a part of it, or a pattern such as '*nsga2*'. Repeatable.",
)
FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
_SORT = click.option("--sort", metavar="METRIC", help="Sort by this metric, best first.")


@click.group(cls=Group, epilog=example("mohsearch front show results"))
def front() -> None:
    """Show or export the Pareto fronts of a study."""


@front.command(
    epilog=example(
        "mohsearch front show results --sort energy_j --limit 10",
        "mohsearch front show results --solution knee",
    )
)
@FOLDER
@RUN_OPTION
@_SORT
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most so many solutions per run.",
)
@click.option("--all", "everything", is_flag=True, help="Show all solutions.")
@click.option(
    "--solution",
    metavar="WHICH",
    help="Show one design in full: knee, fastest, least-energy, smallest, a metric, or a number.",
)
def show(
    folder: Path,
    runs: tuple[str, ...],
    sort: str | None,
    limit: int,
    everything: bool,
    solution: str | None,
) -> None:
    """Print the fronts in DIR, the output folder of a study, as tables."""
    from mohsearch.analysis.export import rows
    from mohsearch.analysis.results import read_fronts

    fronts = read_fronts(folder, runs)
    if solution is not None:
        show_solution(one_run(fronts), solution)
        return
    for k, item in enumerate(fronts):
        if k:
            click.echo()
        chosen = [int(i) for i in rows(item, sort, None if everything else limit)]
        print_front(item, chosen, bounds=True)
        if len(chosen) < len(item):
            click.echo(f"{len(chosen)} of {len(item)} solutions; all of them with --all")


def one_run(fronts: Sequence[Front], problem: str | None = None) -> Front:
    """Return the front to take where one is asked for: the best of several, saying so.

    The best is the one with the largest hypervolume; of several workloads, on the first one. Where
    runs of ``problem`` are among them, it is one of those.
    """
    from mohsearch.analysis.compare import compare
    from mohsearch.analysis.labels import by_workload

    fronts = [front for front in fronts if front.attrs.get("problem") == problem] or fronts
    if len(fronts) == 1:
        return fronts[0]
    groups = by_workload(fronts)
    workload, rivals = next(iter(groups.items()))
    standings = compare(rivals).standings
    volumes = {r: v for s in standings for r, v in zip(s.runs, s.hypervolumes, strict=True)}
    best = max(rivals, key=lambda front: volumes[front.run])
    where = f" on {workload}" if len(groups) > 1 else ""
    say(f"taking {best.run}, the run with the largest hypervolume{where}; for another: --run")
    return best


def print_front(item: Front, chosen: Sequence[int], *, bounds: bool) -> None:
    """Print solutions of one front as a table, with the ideal point below."""
    from mohsearch.analysis.designs import describe
    from mohsearch.analysis.fronts import distance_to_ideal, highlights
    from mohsearch.analysis.proof import proof_in_words, with_proven_values
    from mohsearch.analysis.quantities import count_text, excess_text, scale_for, short_name

    item = with_proven_values(item)
    scales = {n: scale_for(item.values[n], item.metric(n).unit) for n in item.objectives}
    distances = distance_to_ideal(item) if bounds else {}
    notes = highlights(item, 0)
    headers = ["#"]
    for name in item.objectives:
        unit = scales[name].unit
        headers.append(short_name(name) + (f" ({unit})" if unit else ""))
    table = []
    for i in chosen:
        row = [str(i)]
        for name in item.objectives:
            value = scales[name].text(float(item.values[name][i]))
            above = excess_text(float(distances[name][i]), 0) if name in distances else ""
            row.append(f"{value} {above:>6}".rstrip())
        table.append([*row, notes.get(i, ""), describe(item.designs[i]) if item.designs else ""])
    title = f"{item.run}: {count_text(len(item), 'solution')}"
    numeric = range(1 + len(item.objectives))
    print_table([*headers, "note", "design"], table, title=title, numeric=numeric)
    if item.ideal_point:
        parts = [
            f"{short_name(name)} {scales[name].quantity(bound)}"
            for name, bound in item.ideal_point.items()
            if name in scales
        ]
        meaning = "; beside each value: how far above" if distances else ""
        click.echo(f"proven bound for any solution: {', '.join(parts)}{meaning}")
    proof = proof_in_words(item)
    if proof:
        click.echo(f"proof: {proof}")


def show_solution(item: Front, solution: str) -> None:
    """Print one solution: metrics, and for a package its instances and what holds it up."""
    from mohsearch.analysis.designs import describe, is_package
    from mohsearch.analysis.fronts import choose
    from mohsearch.analysis.quantities import scale_for, short_name

    index = choose(item, solution)
    facts: dict[str, object] = {"run": item.run, "solution": index}
    for metric in item.metrics:
        value = float(item.values[metric.name][index])
        facts[short_name(metric.name)] = scale_for([value], metric.unit).quantity(value)
    design: Any = item.designs[index] if item.designs else {}
    facts["design"] = describe(design)
    if not is_package(design):
        print_facts(facts)
        return
    facts["layers"] = len(design["layers"])
    if "bottleneck" in design:
        held = design["bottleneck"]
        computing, stalled = held["compute_s"], held["stalled_s"]
        time = scale_for([computing, stalled], "s")
        facts["critical chain"] = (
            f"{len(held['chain'])} layers one after the other: {time.quantity(computing)} "
            f"computing, {time.quantity(stalled)} lost to shared bandwidth"
        )
    print_facts(facts)
    click.echo()
    _print_instances(design)


def _print_instances(design: Any) -> None:
    from mohsearch.analysis.designs import buffer_bytes
    from mohsearch.analysis.quantities import scale_for, size_text

    end = max(layer["end_s"] for layer in design["layers"])
    energy = scale_for([part.get("energy_j", 0.0) for part in design["instances"]], "J")
    table = []
    for part in design["instances"]:
        layers = [layer for layer in design["layers"] if layer["instance"] == part["id"]]
        busy = sum(layer["end_s"] - layer["start_s"] for layer in layers)
        table.append(
            [
                str(part["id"]),
                str(part["template"]),
                str(part.get("tile", "")),
                f"{int(part['macs']):,}" if "macs" in part else "",
                size_text(buffer_bytes(part)) if part.get("levels") else "",
                f"{part['area_mm2']:.3g}" if "area_mm2" in part else "",
                energy.text(part["energy_j"], 3) if "energy_j" in part else "",
                str(len(layers)),
                f"{busy / end:.0%}",
            ]
        )
    headers = ["#", "template", "tile", "MACs", "memory", "area (mm²)", f"energy ({energy.unit})"]
    print_table([*headers, "layers", "busy"], table, numeric=[0, 3, 4, 5, 6, 7, 8])


@front.command(
    epilog=example(
        "mohsearch front export results -o front.csv",
        "mohsearch front export results --format json --run nsga2 > front.json",
        "mohsearch front export results --solution knee --as yaml -o knee.yaml",
        "mohsearch front export results --solution 12 --as timeloop -o timeloop/",
    )
)
@FOLDER
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; its suffix (.csv, .json, .nc) is the format. Default: standard output.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "netcdf"]),
    help="Format, where there is no suffix to tell it.",
)
@RUN_OPTION
@_SORT
@click.option("--limit", type=click.IntRange(min=1), help="At most so many solutions per run.")
@click.option(
    "--solution",
    metavar="WHICH",
    help="One design only: knee, fastest, least-energy, smallest, a metric, or a number.",
)
@click.option(
    "--as",
    "design_format",
    type=click.Choice(["yaml", "timeloop"]),
    help="Form of one design: YAML that 'mohsearch evaluate design' accepts, or a folder of "
    "Timeloop architectures, problems and mappings. Default: yaml.",
)
def export(
    folder: Path,
    output: Path | None,
    file_format: str | None,
    runs: tuple[str, ...],
    sort: str | None,
    limit: int | None,
    solution: str | None,
    design_format: str | None,
) -> None:
    """Write the fronts in DIR as CSV, JSON or NetCDF, or one design as YAML or for Timeloop.

    CSV has one row per solution; JSON holds the whole designs; NetCDF needs the extra 'netcdf'.
    """
    from mohsearch.analysis.export import document, records, write_netcdf
    from mohsearch.analysis.quantities import count_text
    from mohsearch.analysis.results import read_fronts

    if solution is not None or design_format is not None:
        from mohsearch.analysis.fronts import choose
        from mohsearch.cli.design_export import export_design

        item = one_run(read_fronts(folder, runs))
        index = choose(item, solution or "knee")
        export_design(folder, item, index, design_format or "yaml", output)
        return
    if output is not None and output.is_dir():
        raise click.UsageError(f"{str(output)!r} is a folder; give a file")
    kind = file_format or _format_of(output)
    if kind == "netcdf" and output is None:
        raise click.UsageError("NetCDF needs a file: give --output FILE.nc")
    fronts = read_fronts(folder, runs)
    if kind == "netcdf" and output is not None:
        write_netcdf(fronts, output, sort, limit)
    else:
        text = (
            to_csv(records(fronts, sort, limit))
            if kind == "csv"
            else to_json(document(fronts, sort, limit)) + "\n"
        )
        if output is None:
            click.echo(text, nl=False)
            return
        write_text(output, text)
    total = sum(min(len(item), limit or len(item)) for item in fronts)
    counts = f"{count_text(total, 'solution')} of {count_text(len(fronts), 'run')}"
    say(f"wrote {counts} to {output}")


def _format_of(output: Path | None) -> str:
    if output is None:
        return "csv"
    formats = {".csv": "csv", ".json": "json", ".nc": "netcdf"}
    try:
        return formats[output.suffix.lower()]
    except KeyError:
        raise click.UsageError(
            f"cannot tell a format from {output.name!r}: "
            f"end it in {', '.join(formats)}, or give --format"
        ) from None
