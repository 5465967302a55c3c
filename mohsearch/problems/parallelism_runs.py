"""Workloads of the parallelism problem: measured training runs by name, and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mohsearch.core.catalog import Catalog, builtin_root
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.tables import read_records
from mohsearch.workloads.hf_config import find_model, list_models, load_model

_MARK = "#"


@dataclass(frozen=True)
class RunRecord:
    """A training run as the evaluator ``training`` reads it.

    Attributes
    ----------
    name
        Of the run or model.
    record
        By column.
    source
        Where it stands.
    measured
        Whether the record has a configuration of its own; a model has none.
    """

    name: str
    record: Mapping[str, str]
    source: Path
    measured: bool


def measured_runs_file() -> Path:
    """Return the measured runs that come with the package."""
    return builtin_root() / "evaluators" / "reference" / "phaze" / "training_runs.csv"


@lru_cache(maxsize=16)
def _records(path: Path) -> dict[str, dict[str, str]]:
    return {
        (row.get("id") or str(number)).strip(): row
        for number, row in enumerate(read_records(path), start=1)
    }


def run_names(split: str | None = "test") -> list[str]:
    """Return the names of the measured runs of one split, or of all.

    Examples
    --------
    >>> run_names()[0], len(run_names()), len(run_names(None))
    ('korth_t5_1', 25, 321)
    """
    records = _records(measured_runs_file())
    return [name for name, row in records.items() if split in {None, row["split"]}]


def load_run(
    name: str,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> RunRecord:
    """Return a measured run by name, by ``FILE.csv#NAME``, or a model to be trained.

    Parameters
    ----------
    name
        A run of the package, a row of a file as ``mohsearch evaluate training`` reads it (by its
        ``id``, or its number where it has none), or a model as
        :func:`mohsearch.workloads.hf_config.load_model` takes it.
    catalog
        Where models are looked up.
    base, source, field
        For relative paths and messages.

    Raises
    ------
    InputError
        If nothing answers to the name.

    Examples
    --------
    >>> load_run("korth_t5_3").record["layers"]
    '96'
    """
    place: dict[str, Any] = {"source": source, "field": field}
    path, mark, row = str(name).rpartition(_MARK)
    if mark:
        file = Path(path).expanduser()
        return _row(file if base is None else base / file, row, place)
    if name in _records(measured_runs_file()):
        return _row(measured_runs_file(), name, place)
    try:
        card = find_model(name, catalog, base=base, **place)
    except UnknownNameError as error:
        known = [*run_names(), *list_models(catalog)]
        raise UnknownNameError("measured run or model", name, known, **place) from error
    model = load_model(str(card), catalog)
    return RunRecord(model.name, {"model": str(card)}, card, measured=False)


def _row(path: Path, name: str, place: Mapping[str, Any]) -> RunRecord:
    if not path.is_file():
        raise InputError(f"no such file: {path}", **place)
    records = _records(path.resolve())
    if name not in records:
        raise UnknownNameError(f"training run of {path.name}", name, records, **place)
    return RunRecord(name, records[name], path, measured=True)
