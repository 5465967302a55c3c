"""`mohsearch ablate`: what each operator of a portfolio is worth."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from mohsearch.cli.output import print_table, say, to_csv, to_json
from mohsearch.cli.program import example
from mohsearch.core.files import write_text

if TYPE_CHECKING:
    from mohsearch.analysis.ablate import Ablation, Step


@click.command(
    epilog=example(
        "mohsearch ablate smoke --output results/smoke-ablation --seeds 5",
        "mohsearch ablate results/moham_fig12 -o bars.png -o bars.csv",
    )
)
@click.argument("study", metavar="STUDY")
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the results. Default: results/NAME.",
)
@click.option("--portfolio", metavar="LABEL", help="What to ablate. Default: the study's first.")
@click.option(
    "--ladder",
    metavar="NAME",
    help="Series of steps from the operators' shelf. Default: every operator alone.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    help="Seeds of each variant. Default: the study's, but two at least.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Runs carried out at the same time. Default: the study's, else one per core.",
)
@click.option(
    "-o",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write: .csv, .json or a picture (.png, .svg, .pdf). Repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def ablate(
    study: str,
    folder: Path | None,
    portfolio: str | None,
    ladder: str | None,
    seeds: int | None,
    workers: int | None,
    outputs: tuple[Path, ...],
    quiet: bool,
) -> None:
    """Switch the operators of a portfolio off one by one.

    STUDY is a study by name or file: it is run with its whole portfolio and once without each
    operator; or the output folder of a study that holds such runs already. What is complete is
    never run again.

    Printed is the share of each variant's final solutions that the whole portfolio dominates,
    beside the control (the whole portfolio with another seed), as MOHaM has it, and the
    hypervolume of all that was found with a test over seeds. An operator is needed where the whole
    portfolio is significantly better than without it, harmful where it is significantly worse.
    """
    from mohsearch.analysis.ablate import ablate as read_ablations

    _check_outputs(outputs)
    if (Path(study) / "results.zarr").is_dir():
        given = {"--portfolio": portfolio, "--ladder": ladder, "--seeds": seeds, "--output": folder}
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise click.UsageError(f"{study} holds results: {named[0]} has no meaning for them")
        done = Path(study)
    else:
        done = _run(study, folder, portfolio, ladder, seeds, workers, quiet)
    found = read_ablations(done)
    for k, item in enumerate(found):
        if k:
            click.echo()
        _print(item)
    for path in outputs:
        _write(path, found)


def _run(
    name: str,
    folder: Path | None,
    portfolio: str | None,
    ladder: str | None,
    seeds: int | None,
    workers: int | None,
    quiet: bool,
) -> Path:
    from mohsearch.analysis.quantities import count_text
    from mohsearch.cli.interruption import ends_on_request, exit_code_of
    from mohsearch.cli.progress import make_reporter
    from mohsearch.study.ablation import ablation_study
    from mohsearch.study.plan import load_study, plan_study
    from mohsearch.study.run import run_study

    study = ablation_study(load_study(name), portfolio, ladder, seeds)
    output = folder or Path("results") / study.spec.name
    plan = plan_study(study)
    if not quiet:
        runs = count_text(len(plan.runs), "run")
        say(f"{study.spec.title}\n{runs}, {plan.evaluations:,} evaluations at most, in {output}")

    def how_to_go_on(code: int) -> None:
        say("stopped; completed generations are kept: give the same command again to go on")

    with ends_on_request(how_to_go_on):
        try:
            with make_reporter(len(plan.runs), quiet=quiet) as reporter:
                outcome = run_study(study, output, workers=workers, progress=reporter)
        except KeyboardInterrupt as interruption:
            how_to_go_on(exit_code_of(interruption))
            raise click.exceptions.Exit(exit_code_of(interruption)) from None
    if outcome.failed:
        first = outcome.failed[0]
        say(f"{len(outcome.failed)} runs failed, the first: {first.run_id}: {first.message}")
        raise click.exceptions.Exit(1)
    return output


def _check_outputs(outputs: tuple[Path, ...]) -> None:
    known = (".csv", ".json", ".png", ".svg", ".pdf")
    for path in outputs:
        if path.suffix.lower() not in known:
            raise click.UsageError(
                f"cannot tell a format from {path.name!r}: end it in {', '.join(known)}"
            )


def _write(path: Path, found: tuple[Ablation, ...]) -> None:
    suffix = path.suffix.lower()
    records = [row for item in found for row in item.records()]
    if suffix == ".csv":
        write_text(path, to_csv(records))
    elif suffix == ".json":
        write_text(path, to_json(records) + "\n")
    else:
        from mohsearch.analysis.plot_ablate import plot_ablate
        from mohsearch.analysis.style import save

        for k, item in enumerate(found):
            place = path if len(found) == 1 else path.with_stem(f"{path.stem}-{k + 1}")
            say(f"wrote {save(plot_ablate(item), place)}")
        return
    say(f"wrote {path}")


def _print(item: Ablation) -> None:
    published = any(s.published is not None for s in (item.control, *item.steps))
    headers = ["switched off", "dominated", "quartiles of pairs", "hypervolume", "p (Holm)", "A"]
    headers += ["conclusion"]
    if published:
        headers.insert(2, "published")

    def row(step: Step) -> list[str]:
        low, middle, high = step.quartiles()
        pairs = f"{low:.1%} {middle:.1%} {high:.1%}" if len(step.shares) > 1 else ""
        volume = median(step.hypervolumes)
        cells = ["nothing (control)" if step is item.control else step.name, f"{step.share:.1%}"]
        if published:
            cells.append("" if step.published is None else f"{step.published:.1%}")
        cells += [pairs, f"{volume:.4f}"]
        if step.test is None:
            return [*cells, "", "", step.conclusion]
        return [*cells, f"{step.test.p_holm:.3g}", f"{step.test.a12:.2f}", step.conclusion]

    title = f"Portfolio {item.portfolio}" + (f", {item.case}" if item.case else "")
    table = [row(step) for step in (item.control, *item.steps)]
    print_table(headers, table, title=title, numeric=range(1, len(headers) - 1))
    _print_facts(item)


def _print_facts(item: Ablation) -> None:
    above, count = len(item.above_control), len(item.steps)
    control = item.control
    dominated, volume = item.rules
    click.echo(f"{dominated}; {above} of {count} variants lie above the control")
    if control.published is not None:
        click.echo(f"control: {control.share:.1%} here, {control.published:.1%} published")
    click.echo(volume)
    for note in item.notes:
        click.echo(f"note: {note}")
