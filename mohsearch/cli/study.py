"""`mohsearch study`: list, show, plan, run, resume and look after studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mohsearch.cli.interruption import TERMINATED, ends_on_request, exit_code_of
from mohsearch.cli.output import figure_text, print_facts, print_table, say, to_json
from mohsearch.cli.program import Group, example

if TYPE_CHECKING:
    from mohsearch.study.plan import Study
    from mohsearch.study.results import RunStatus
    from mohsearch.study.run import StudyOutcome

_NAME = click.argument("name", metavar="NAME_OR_FILE")
_WORKERS = click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Runs carried out at the same time. Default: the study's, else one per core.",
)
_EXECUTOR = click.option(
    "--executor",
    metavar="KIND",
    help="runs, evaluations, dask or dask://HOST:PORT: what is spread over workers, and where. "
    "Default: the study's. Never changes a result.",
)
_STORAGE = click.option(
    "--storage",
    metavar="URL",
    help="Search together with other processes that say the same: journal (a file in the output "
    "folder), journal:///PATH or postgresql://USER@HOST:PORT/DATABASE. For engine optuna.",
)
_QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress, no tables.")
_PICTURES = {
    "chiplet": "partition",
    "deepflow": "roofline",
    "moham": "gantt",
    "phaze": "pipeline",
}
"""The picture of one design, by problem."""

_FULL_TABLES = 4
"""With more runs than this, one table of runs is printed instead of one table per front."""


@click.group(
    cls=Group,
    epilog=example("mohsearch study list", "mohsearch study run smoke --output results/smoke"),
)
def study() -> None:
    """Run studies: searches declared in a YAML file."""


@study.command("list", epilog=example("mohsearch study list"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_(as_json: bool) -> None:
    """List the studies that can be run by name: bundled ones and those of this project."""
    from mohsearch.core.cards import read_card
    from mohsearch.core.catalog import Catalog
    from mohsearch.core.errors import InputError
    from mohsearch.study.spec import StudySpec

    catalog = Catalog.around()
    rows: list[dict[str, Any]] = []
    for name in catalog.names("studies"):
        path = catalog.find("studies", name)
        try:
            spec = read_card(StudySpec, path)
        except InputError as error:
            rows.append({"name": name, "title": f"(not valid: {error})", "runs": None})
            continue
        rows.append({"name": name, "title": spec.title, "runs": len(spec.cells())})
    if as_json:
        click.echo(to_json(rows))
        return
    table = [[str(r["name"]), figure_text(r["runs"]), str(r["title"])] for r in rows]
    print_table(["name", "runs", "title"], table, numeric=[1])
    click.echo("\nRun one: mohsearch study run NAME --output DIR")


@study.command(epilog=example("mohsearch study show smoke"))
@_NAME
def show(name: str) -> None:
    """Show what a study searches, with what, how long, and what is expected to come out."""
    from mohsearch.study.plan import load_study

    loaded = load_study(name)
    spec = loaded.spec
    steady = " (stops earlier once the front is steady)" if spec.budget.convergence else ""
    print_facts(
        {
            "name": spec.name,
            "title": spec.title,
            "description": spec.description,
            "reference": spec.reference,
            "expectation": spec.expectation,
            "problems": "; ".join(_entry(p.title, p.name, p.options) for p in spec.problems),
            "workloads": ", ".join(spec.workloads),
            "engines": "; ".join(
                _entry(e.title, f"{e.engine} {e.algorithm or ''}".strip(), e.options)
                for e in spec.engines
            ),
            "portfolios": ", ".join(p.title for p in spec.portfolios),
            "seeds": figure_text(spec.seeds),
            "budget": f"{spec.budget.population} individuals x {spec.budget.generations} "
            f"generations per run{steady}",
            "runs": len(spec.cells()),
            "file": loaded.source,
        }
    )


def _entry(title: str, name: str, options: dict[str, Any]) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in options.items())
    text = title if title == name else f"{title} ({name})"
    return f"{text}: {settings}" if settings else text


@study.command(epilog=example("mohsearch study plan smoke"))
@_NAME
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plan(name: str, as_json: bool) -> None:
    """List the runs a study consists of, every name in it checked; nothing is run."""
    from mohsearch.analysis.quantities import count_text
    from mohsearch.study.plan import load_study, plan_study

    planned = plan_study(load_study(name))
    if as_json:
        click.echo(
            to_json(
                {
                    "study": planned.study.spec.name,
                    "digest": planned.digest,
                    "evaluations": planned.evaluations,
                    "runs": [{"run": run.id, "digest": run.digest} for run in planned.runs],
                }
            )
        )
        return
    table = [
        [run.id, run.problem.title, run.workload, run.engine.title, run.portfolio.title,
         str(run.seed)]
        for run in planned.runs
    ]  # fmt: skip
    headers = ["run", "problem", "workload", "engine", "portfolio", "seed"]
    print_table(headers, table, numeric=[5])
    runs = count_text(len(planned.runs), "run")
    click.echo(f"\n{runs}, {planned.evaluations:,} evaluations at most")


@study.command(epilog=example("mohsearch study schema > study.schema.json"))
def schema() -> None:
    """Print the JSON Schema of study files: every field with its meaning."""
    from mohsearch.study.spec import StudySpec

    click.echo(to_json(StudySpec.model_json_schema()))


@study.command(
    epilog=example(
        "mohsearch study run smoke --output results/smoke",
        "mohsearch study run my_study.yaml --workers 2 --seeds 1,2,3",
    )
)
@_NAME
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results. Default: results/NAME.",
)
@_WORKERS
@_EXECUTOR
@_STORAGE
@click.option("--seeds", metavar="N,N,...", help="Seeds in place of the study's, such as 1,2,3.")
@_QUIET
def run(
    name: str,
    output: Path | None,
    workers: int | None,
    executor: str | None,
    storage: str | None,
    seeds: str | None,
    quiet: bool,
) -> None:
    """Run a study, by name or YAML file, into a folder.

    Run it again with the same folder, or use 'study resume', to go on after an interruption: what
    is complete is kept, and the result is the same as without the interruption.
    """
    from mohsearch.study.plan import load_study

    loaded = load_study(name)
    if seeds is not None:
        loaded = _with_seeds(loaded, seeds)
    loaded = _with_storage(_with_executor(loaded, executor), storage)
    _carry_out(loaded, output or Path("results") / loaded.spec.name, workers, quiet)


@study.command(epilog=example("mohsearch study resume results/smoke"))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@_WORKERS
@_EXECUTOR
@_STORAGE
@_QUIET
def resume(
    folder: Path, workers: int | None, executor: str | None, storage: str | None, quiet: bool
) -> None:
    """Go on with an interrupted study in its output folder DIR."""
    from mohsearch.study.files import OutputFolder
    from mohsearch.study.run import stored_study

    loaded = _with_executor(stored_study(OutputFolder(folder)), executor)
    loaded = _with_storage(loaded, storage)
    _carry_out(loaded, folder, workers, quiet)


@study.command(epilog=example("mohsearch study verify results/smoke"))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def verify(folder: Path) -> None:
    """Compare every byte of the results in DIR with what was written.

    Damaged results are mended by 'study resume': what is sound is kept.
    """
    from mohsearch.study.files import OutputFolder
    from mohsearch.study.results import check_failures, check_results
    from mohsearch.study.run import stored_study

    stored_study(OutputFolder(folder))
    count = check_results(OutputFolder(folder))
    say(f"{count} run{'s' if count != 1 else ''} as written")
    log = check_failures(OutputFolder(folder))
    if log.by_run:
        say(f"{sum(log.by_run.values()):,} failed evaluations logged, as written")
    if log.torn:
        say("the log's last line is unfinished: its process was killed while it wrote it")


def _with_executor(loaded: Study, kind: str | None) -> Study:
    """Return the study with another executor."""
    from dataclasses import replace

    from mohsearch.core.cards import validate
    from mohsearch.study.spec import ExecutorEntry

    if kind is None:
        return loaded
    workers = loaded.spec.executor.workers
    entry = validate(ExecutorEntry, {"workers": workers, "kind": kind}, source="--executor")
    return replace(loaded, spec=loaded.spec.model_copy(update={"executor": entry}))


def _with_storage(loaded: Study, url: str | None) -> Study:
    """Return the study with its trials in another storage."""
    from dataclasses import replace

    from mohsearch.core.cards import validate
    from mohsearch.study.spec import StorageEntry

    if url is None:
        return loaded
    before = loaded.spec.storage or StorageEntry()
    data = {"url": url, "heartbeat_s": before.heartbeat_s}
    entry = validate(StorageEntry, data, source="--storage")
    return replace(loaded, spec=loaded.spec.model_copy(update={"storage": entry}))


def _with_seeds(loaded: Study, text: str) -> Study:
    from dataclasses import replace

    from mohsearch.core.cards import validate
    from mohsearch.study.spec import StudySpec

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of numbers, such as 1,2,3")
    data = loaded.spec.model_dump() | {"seeds": tuple(int(part) for part in parts)}
    return replace(loaded, spec=validate(StudySpec, data, source="--seeds"))


def _carry_out(loaded: Study, folder: Path, workers: int | None, quiet: bool) -> None:
    from mohsearch.analysis.quantities import count_text
    from mohsearch.cli.progress import make_reporter
    from mohsearch.study.plan import plan_study
    from mohsearch.study.run import run_study

    planned = plan_study(loaded)
    if not quiet:
        say(f"{loaded.spec.title}")
        runs = count_text(len(planned.runs), "run")
        say(f"{runs}, {planned.evaluations:,} evaluations at most, in {folder}")

    def how_to_go_on(code: int) -> None:
        ended = "terminated" if code == TERMINATED else "interrupted"
        say(f"{ended}; completed generations are kept. Go on with:")
        say(f"  mohsearch study resume {folder}")

    with ends_on_request(how_to_go_on):
        try:
            with make_reporter(len(planned.runs), quiet=quiet) as reporter:
                outcome = run_study(loaded, folder, workers=workers, progress=reporter)
        except KeyboardInterrupt as interruption:
            how_to_go_on(exit_code_of(interruption))
            raise click.exceptions.Exit(exit_code_of(interruption)) from None
    if not quiet:
        _report(outcome, folder)
    if outcome.failed:
        runs = count_text(len(outcome.runs), "run")
        say(f"{len(outcome.failed)} of {runs} failed; what was done is kept.")
        say(f"Once the cause is mended: mohsearch study resume {folder}")
    raise click.exceptions.Exit(outcome.exit_code)


def _report(outcome: StudyOutcome, folder: Path) -> None:
    """Print what was found, where it is, and what can be done with it."""
    from mohsearch.analysis.fronts import highlights
    from mohsearch.analysis.results import read_fronts
    from mohsearch.cli.front import print_front
    from mohsearch.study.ablation import is_ablation
    from mohsearch.study.files import OutputFolder
    from mohsearch.study.run import stored_study

    complete = [run for run in outcome.runs if run.status != "failed"]
    if not complete:
        return
    if outcome.already_complete:
        say("nothing left to do: every run was complete")
    few = len(complete) <= _FULL_TABLES
    fronts = [f for f in read_fronts(folder, designs=few) if f.attrs.get("status") == "complete"]
    if few:
        for item in fronts:
            click.echo()
            print_front(item, list(highlights(item)), bounds=True)
    else:
        for alike in _by_problem(fronts):
            click.echo()
            _print_runs(alike)
    click.echo(f"\nresults  {folder / 'results.zarr'} (open with xarray.open_datatree)")
    click.echo("next     " + f"mohsearch front show {folder}")
    click.echo("         " + f"mohsearch plot front {folder}")
    pictures = {_PICTURES.get(str(item.attrs["problem"])) for item in fronts if item.designs}
    for picture in sorted(name for name in pictures if name):
        click.echo("         " + f"mohsearch plot {picture} {folder} --solution knee")
    click.echo("         " + f"mohsearch plot convergence {folder}")
    if len(complete) > 1:
        click.echo("         " + f"mohsearch compare {folder}")
    if is_ablation(stored_study(OutputFolder(folder)).spec):
        click.echo("         " + f"mohsearch ablate {folder}")


def _by_problem(fronts: list[Any]) -> list[list[Any]]:
    """Return the fronts in groups that have the same metrics, in order of appearance."""
    groups: dict[frozenset[str], list[Any]] = {}
    for item in fronts:
        groups.setdefault(frozenset(item.values), []).append(item)
    return list(groups.values())


def _print_runs(fronts: list[Any]) -> None:
    """Print one row per run: size of the front and the best value of each objective.

    The runs have the same metrics.
    """
    import numpy as np

    from mohsearch.analysis.fronts import common_objectives
    from mohsearch.analysis.quantities import scale_for, short_name

    names = common_objectives(fronts)
    scales = {}
    for name in names:
        values = np.concatenate([item.values[name] for item in fronts])
        scales[name] = scale_for(np.median(values), fronts[0].metric(name).unit)
    headers = ["run", "solutions"]
    headers += [f"best {short_name(n)} ({scales[n].unit})".replace(" ()", "") for n in names]
    table = []
    for item in fronts:
        row = [item.run, str(len(item))]
        for name in names:
            sign = item.metric(name).sign
            best = float((item.values[name] * sign).min() * sign) if len(item) else float("nan")
            row.append(scales[name].text(best))
        table.append(row)
    print_table(headers, table, numeric=range(1, len(headers)))


@study.command(epilog=example("mohsearch study status results/smoke"))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(folder: Path, as_json: bool) -> None:
    """Show how far the study in the output folder DIR is."""
    from dataclasses import asdict

    from mohsearch.study.results import status as read_status

    state = read_status(folder)
    if as_json:
        runs = [asdict(item) for item in state.runs]
        click.echo(to_json({"study": state.study, "complete": state.complete, "runs": runs}))
        return
    table = [
        [item.run_id, item.status, f"{item.generation}/{item.generations}",
         f"{item.evaluations:,}", *_speed(item), item.message]
        for item in state.runs
    ]  # fmt: skip
    headers = ["run", "status", "generations", "evaluations", "per s", "left", "memory", ""]
    print_table(headers, table, title=f"{state.study}: {state.title}", numeric=[2, 3, 4, 5, 6])
    if not state.complete:
        click.echo(f"\nGo on with: mohsearch study resume {folder}")


def _speed(run: RunStatus) -> list[str]:
    """Return evaluations per second, time left and memory as texts."""
    rate, left, memory = run.evaluations_per_s, run.remaining_s, run.memory_bytes
    return [
        "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}",
        "-" if left is None else f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s",
        "-" if memory is None else f"{memory / 2**20:,.0f} MiB",
    ]
