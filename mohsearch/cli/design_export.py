"""One design of a front as a file: YAML that evaluates again, or a folder for Timeloop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mohsearch.cli.output import say
from mohsearch.core.files import write_text

if TYPE_CHECKING:
    from mohsearch.analysis.fronts import Front


def export_design(folder: Path, item: Front, index: int, form: str, output: Path | None) -> None:
    """Write one design: YAML to a file or standard output, or a folder of Timeloop files."""
    if form == "timeloop":
        if output is None:
            raise click.UsageError("--as timeloop writes a folder: give --output DIR")
        _write_timeloop(folder, item, index, output)
        return
    text = _yaml(folder, item, index)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
        say(f"wrote solution {index} of {item.run} to {output}")


def _yaml(folder: Path, item: Front, index: int) -> str:
    from mohsearch.analysis.results import read_genome
    from mohsearch.core.cards import yaml_text
    from mohsearch.study.design import design_card

    card = design_card(
        item.attrs,
        read_genome(folder, item.run, index),
        source=f"solution {index} of run {item.run}",
        metrics={name: float(column[index]) for name, column in item.values.items()},
        design=dict(item.designs[index]) if item.designs else {},
    )
    return yaml_text(card)


def _write_timeloop(folder: Path, item: Front, index: int, output: Path) -> None:
    from mohsearch.analysis.timeloop import timeloop_files
    from mohsearch.core.cards import validate
    from mohsearch.core.errors import InputError
    from mohsearch.problems.moham import load_architectures
    from mohsearch.problems.moham_options import MohamOptions
    from mohsearch.study.files import OutputFolder
    from mohsearch.study.run import stored_study
    from mohsearch.workloads.zoo import load_application

    if item.attrs.get("problem") != "moham":
        raise InputError(
            f"Timeloop describes accelerators of the moham problem, not {item.attrs['problem']}"
        )
    options = validate(MohamOptions, dict(item.attrs.get("options") or {}))
    study = stored_study(OutputFolder(folder))
    workload = str(item.attrs["workload"])
    files = timeloop_files(
        item.designs[index],
        load_application(workload, study.catalog, base=study.base),
        load_architectures(options, study.catalog),
    )
    for name, text in files.items():
        write_text(output / name, text)
    say(f"wrote {len(files)} files of solution {index} of {item.run} to {output}")
