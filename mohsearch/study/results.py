"""Reading what a study has left: its state, the tree, the designs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.study.card import damaged_card
from mohsearch.study.failure_log import FailureLog, read_failures
from mohsearch.study.files import OutputFolder, holder
from mohsearch.study.integrity import DamagedRunError, DamagedStudyError, damage
from mohsearch.study.plan import Study, plan_study
from mohsearch.study.run import stored_study
from mohsearch.study.shared import storage_state_of
from mohsearch.study.store import run_attributes

if TYPE_CHECKING:
    import xarray as xr


LOOKS, LOOK_S = 5, 0.1
"""How often to look at a storage where no process is at a trial: it may be between two."""


@dataclass(frozen=True)
class RunStatus:
    """State of one run.

    Attributes
    ----------
    status
        ``pending``, ``running``, ``interrupted`` (begun, and no process is at it), ``complete``,
        ``failed`` or ``damaged``. On a shared storage also ``searched`` (all trials are there, no
        process has written them into this folder) and ``unknown`` (it does not answer).
    generation, generations
        Complete generations and the most there can be.
    evaluations
        Evaluations in the complete generations.
    message
        Why it failed, what is damaged, or why it stopped (``budget``, ``converged``,
        ``exhausted``).
    evaluations_per_s
        Evaluations per second of wall time so far.
    remaining_s
        Seconds to the end of the budget at this rate; None unless a process is at it.
    memory_bytes
        Memory of the process that carries it out now, or its peak where it is complete.
    trials
        On a shared storage: how many are ``complete``, ``running``, ``waiting`` and ``failed``, and
        ``processes`` that work on one now, on whatever machine.
    """

    run_id: str
    status: str
    generation: int
    generations: int
    evaluations: int
    message: str = ""
    evaluations_per_s: float | None = None
    remaining_s: float | None = None
    memory_bytes: int | None = None
    trials: Mapping[str, int] | None = None


@dataclass(frozen=True)
class StudyStatus:
    """State of a study's output folder."""

    study: str
    title: str
    output: Path
    runs: tuple[RunStatus, ...]

    @property
    def complete(self) -> bool:
        """Whether every run is complete."""
        return all(run.status == "complete" for run in self.runs)


def status(output: str | Path) -> StudyStatus:
    """Return the state of every run of the study in an output folder.

    Raises
    ------
    InputError
        If the folder holds no study.
    """
    folder = OutputFolder(output)
    study = stored_study(folder)
    away: list[str] = []
    runs = tuple(_run_status(folder, run.id, study, away) for run in plan_study(study).runs)
    return StudyStatus(study.spec.name, study.spec.title, folder.root, runs)


def _shared_status(folder: OutputFolder, run_id: str, study: Study, away: list[str]) -> RunStatus:
    """Return the state of a run that is not written yet, as its shared storage has it.

    ``away`` gets the reason where the storage does not answer: it is not asked again.
    """
    budget = study.spec.budget
    if away and folder.search_name(run_id).is_file():
        return RunStatus(run_id, "unknown", 0, budget.generations, 0, away[0])
    total = budget.population * budget.generations
    try:
        for _ in range(LOOKS):
            found = storage_state_of(study, folder, run_id)
            if found is None or found.processes or found.complete >= total:
                break
            time.sleep(LOOK_S)
    except InputError as error:
        away.append(str(error))
        return RunStatus(run_id, "unknown", 0, budget.generations, 0, str(error))
    if found is None:
        return RunStatus(run_id, "pending", 0, budget.generations, 0)
    state = "running" if found.processes else "interrupted"
    if found.complete >= total:
        state = "searched"
    trials = {
        name: getattr(found, name)
        for name in ("complete", "running", "waiting", "failed", "processes")
    }
    rate, left = found.evaluations_per_s, max(0, total - found.complete)
    return RunStatus(
        run_id,
        state,
        min(found.complete // budget.population, budget.generations),
        budget.generations,
        found.complete,
        ", ".join(f"{count:,} {name}" for name, count in trials.items()),
        evaluations_per_s=rate,
        remaining_s=left / rate if rate and state == "running" else None,
        trials=trials,
    )


def _run_status(folder: OutputFolder, run_id: str, study: Study, away: list[str]) -> RunStatus:
    import zarr

    most = study.spec.budget.generations
    path = folder.run(run_id)
    broken = damage(folder, run_id, thorough=False)
    if broken is not None:
        return RunStatus(run_id, "damaged", 0, most, 0, broken)
    attributes = run_attributes(path)
    if study.spec.storage is not None and attributes.get("status") != "complete":
        return _shared_status(folder, run_id, study, away)
    if not attributes:
        return RunStatus(run_id, "pending", 0, most, 0)
    generation = evaluations = 0
    wall_s = 0.0
    if (path / "history" / "done" / "zarr.json").is_file():
        history: Any = zarr.open_group(path / "history", mode="r", zarr_format=3)
        done = np.asarray(history["done"][:])
        generation = len(done) if done.all() else int(done.argmin())
        if generation:
            evaluations = int(history["evaluations"][generation - 1])
            wall_s = float(history["wall_s"][generation - 1])
    owner = holder(folder.locks / run_id)
    state = str(attributes.get("status", "running"))
    if state == "running" and owner is None:
        state = "interrupted"
    message = str(attributes.get("failure") or attributes.get("stopped") or "")
    rate = evaluations / wall_s if wall_s > 0 else None
    left = (most - generation) * wall_s / generation if generation else None
    return RunStatus(
        run_id,
        state,
        generation,
        most,
        evaluations,
        message,
        evaluations_per_s=rate,
        remaining_s=left if state == "running" else None,
        memory_bytes=_memory_bytes(owner, attributes),
    )


def _memory_bytes(owner: int | None, attributes: Mapping[str, Any]) -> int | None:
    """Return the memory of the process that is at a run, or the peak of a complete run."""
    if attributes.get("status") == "complete":
        peak = json.loads(str(attributes.get("provenance", "{}"))).get("peak_memory_bytes")
        return None if peak is None else int(peak)
    try:
        pages = int(Path(f"/proc/{owner}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_results(output: str | Path, *, only: str = "") -> xr.DataTree:
    """Open the results in an output folder as one lazy tree of labelled arrays.

    With ``only="front"``, complete runs have the fronts alone, which takes the same time however
    long the study was.

    The same as ``xarray.open_datatree(output / "results.zarr", engine="zarr",
    consolidated=False)``.

    Raises
    ------
    InputError
        If the folder holds no results, or damaged ones: nothing is read from these.
    """
    import xarray as xr

    folder = OutputFolder(output)
    if not (folder.results / "zarr.json").is_file():
        raise InputError("holds no results", source=folder.root)
    check_results(folder, only=only)
    try:
        if only:
            return _tree_of(folder, only)
        return xr.open_datatree(folder.results, engine="zarr", consolidated=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"not readable as results: {error}", source=folder.results) from error


def _tree_of(folder: OutputFolder, group: str) -> xr.DataTree:
    """Return a tree with one group of every run that has it; runs without it are bare."""
    import xarray as xr
    import zarr

    root = zarr.open_group(folder.results, mode="r", zarr_format=3)
    found = {"/": xr.Dataset(attrs=dict(root.attrs))}
    for name in _runs(folder):
        path = folder.results / name
        found[f"/{name}"] = xr.Dataset(attrs=run_attributes(path))
        if (path / group / "zarr.json").is_file():
            found[f"/{name}/{group}"] = xr.open_zarr(path / group, consolidated=False, chunks=None)
    return xr.DataTree.from_dict(found)


def _runs(folder: OutputFolder) -> list[str]:
    return [path.name for path in sorted(folder.results.iterdir()) if path.is_dir()]


def check_results(folder: OutputFolder, *, only: str = "") -> int:
    """Compare every run with the digests of what was written; return how many there are.

    ``only`` as in :func:`open_results`.

    Raises
    ------
    DamagedRunError, DamagedStudyError
        Naming the first damaged run or file, and how to mend it.
    """
    if not folder.results.is_dir():
        raise InputError("holds no results", source=folder.root)
    changed = damaged_card(folder)
    if changed is not None:
        raise DamagedStudyError(changed, folder)
    runs = _runs(folder)
    for name in runs:
        broken = damage(folder, name, only=only)
        if broken is not None and not broken.startswith("an early version"):
            raise DamagedRunError(name, broken, folder)
    return len(runs)


def check_failures(folder: OutputFolder) -> FailureLog:
    """Compare the log of failed evaluations with what was written, and return what it holds.

    Raises
    ------
    InputError
        If a line has changed, or lines of a complete run are missing.
    """
    log = read_failures(folder.failures)
    for name in _runs(folder):
        attributes = run_attributes(folder.run(name))
        count = attributes.get("genomes_given_up", 0)
        if attributes.get("status") == "complete" and log.by_run.get(name, 0) < count:
            raise InputError(
                f"lines of run {name} are missing: there were {count:,}; "
                "results do not depend on them",
                source=folder.failures,
            )
    return log


def read_designs(output: str | Path, run_id: str) -> list[dict[str, Any]]:
    """Return the decoded designs of a run's front, in the order of the front.

    Raises
    ------
    UnknownNameError
        If there is no such run.
    InputError
        If the run has no front yet.
    """
    tree = open_results(output)
    if run_id not in tree.children:
        raise UnknownNameError("run", run_id, tree.children, source=str(output))
    node = tree[run_id]
    if "front" not in node.children:
        state = node.attrs.get("status", "unknown")
        raise InputError(f"run {run_id} has no front (status: {state})", source=str(output))
    texts = node["front"].to_dataset()["design"].to_numpy()
    return [json.loads(str(text)) for text in texts]
