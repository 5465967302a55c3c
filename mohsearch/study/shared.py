"""Runs whose trials are kept in a storage that several processes share (``study.storage``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import read_json
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.engines.driver import Generation, Search
from mohsearch.problems.base import SearchProblem
from mohsearch.study.evaluation import Workers
from mohsearch.study.events import Progress, StudyEvent
from mohsearch.study.failure_log import log_failures, logged
from mohsearch.study.failures import Metrics, going_on
from mohsearch.study.files import OutputFolder, write_json
from mohsearch.study.integrity import is_sealed, sealed
from mohsearch.study.objects import build_search
from mohsearch.study.plan import PlannedRun, Study

if TYPE_CHECKING:
    from mohsearch.engines.optuna_state import StorageState


class SharedRun:
    """A run that other processes carry out too, each with its own output folder or all with one.

    Parameters
    ----------
    workers
        What evaluates genomes; this process where there are none.

    Raises
    ------
    InputError
        If the storage cannot be opened.
    """

    def __init__(
        self,
        study: Study,
        run: PlannedRun,
        folder: OutputFolder,
        problem: SearchProblem,
        workers: Workers | None,
    ) -> None:
        from mohsearch.engines.optuna_shared import SharedSearch

        entry = study.spec.storage
        if entry is None:
            raise InputError("the study names no storage", source=str(study.source))
        self._study, self._run, self._folder = study, run, folder
        self._problem, self._workers = problem, workers
        search = build_search(study, run, problem)
        self._storage = _open(entry.url, folder.journal, entry.heartbeat_s)
        name = study_name(run, problem)
        write_json(folder.search_name(run.id), sealed({"name": name}))
        self._shared = SharedSearch(
            search.engine,  # type: ignore[arg-type]  # the plan allows no other engine
            search.archive,
            self._storage,
            name,
            search.budget.evaluations,
        )

    def take_part(self, progress: Progress) -> None:
        """Work on the run until it is complete, whoever completes it.

        Raises
        ------
        MohsearchError
            If a genome cannot be evaluated and the study is to stop then, or the storage fails.
        """
        budget = self._study.spec.budget
        told = -1

        def tell(complete: int) -> None:
            nonlocal told
            generation = min(complete // budget.population, budget.generations)
            if generation != told:
                kind: Any = "generation" if told >= 0 else "resumed" if complete else "started"
                progress(StudyEvent(kind, self._run.id, generation, budget.generations, complete))
                told = generation

        evaluate = self._problem.metrics if self._workers is None else self._workers.metrics
        try:
            self._shared.take_part(
                _telling_reasons(evaluate, self._problem),
                at_once=1 if self._workers is None else self._workers.count,
                stop_on_failure=self._study.spec.evaluation.on_failure == "stop",
                tell=tell,
            )
        finally:
            self._note_failures()

    def search(self) -> tuple[Search, Callable[[Generation], Generation]]:
        """Return the complete run as a search that evaluates nothing, and how to time it.

        The second gives a generation the times of its trials instead of those of this process.
        """
        from mohsearch.engines.optuna_shared import StoredTrials

        record = self._shared.record()
        search = build_search(self._study, self._run, self._problem)
        search.engine = StoredTrials(search.engine, record)
        search.reuse(record.genomes, record.metrics)

        def timed(generation: Generation) -> Generation:
            last = generation.evaluations - 1
            wall_s, cpu_s = float(record.wall_s[last]), float(record.cpu_s[last])
            return replace(generation, wall_s=wall_s, cpu_s=cpu_s)

        return search, timed

    def close(self) -> None:
        """Leave the storage."""
        self._storage.remove_session()

    def _note_failures(self) -> None:
        """Write what was given up, by whatever process, into this folder."""
        path, run_id = self._folder.failures, self._run.id
        before = logged(path, run_id)
        missing = [f for f in self._shared.failures() if (json.dumps(f[0]), f[1]) not in before]
        if missing:
            log_failures(path, run_id, missing)


def storage_state_of(study: Study, folder: OutputFolder, run_id: str) -> StorageState | None:
    """Return what the storage holds of a run that this folder has taken part in.

    None where it has not, or where the storage has nothing of it.

    Raises
    ------
    InputError
        If the storage cannot be read, or does not answer at once.
    """
    from mohsearch.engines.optuna_state import storage_state

    entry = study.spec.storage
    try:
        noted = read_json(folder.search_name(run_id))
    except InputError:
        return None
    if entry is None or not isinstance(noted, dict) or not is_sealed(noted):
        return None
    return storage_state(
        entry.url, str(noted["name"]), journal=folder.journal, heartbeat_s=entry.heartbeat_s
    )


def study_name(run: PlannedRun, problem: SearchProblem) -> str:
    """Return the name of a run in the storage: the same wherever run and problem are the same."""
    return f"mohsearch {run.id} {content_digest(run.digest, problem.digest())[:16]}"


def _open(url: str, journal: Path, heartbeat_s: int) -> Any:
    from mohsearch.engines.optuna_storage import open_storage

    return open_storage(url, journal=journal, heartbeat_s=heartbeat_s)


def _telling_reasons(
    evaluate: Callable[[NDArray[Any]], Metrics], problem: SearchProblem
) -> Callable[[NDArray[Any]], tuple[Metrics, dict[int, str]]]:
    """Return an evaluation that has values for all genomes, and reasons for those that failed."""

    def telling(rows: NDArray[Any]) -> tuple[Metrics, dict[int, str]]:
        failed: dict[bytes, str] = {}

        def record(genome: NDArray[Any], reason: str) -> None:
            failed[np.ascontiguousarray(genome).tobytes()] = reason

        metrics = going_on(evaluate, problem, record)(rows)
        keys = [np.ascontiguousarray(row).tobytes() for row in rows]
        return metrics, {i: failed[key] for i, key in enumerate(keys) if key in failed}

    return telling
