"""One run from beginning to end, or from where it was interrupted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError, MohsearchError
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Generation, Search
from mohsearch.engines.engine import FloatArray
from mohsearch.problems.base import SearchProblem
from mohsearch.study.evaluation import Workers
from mohsearch.study.events import Progress, StudyEvent
from mohsearch.study.failure_log import log_failures, logged
from mohsearch.study.failures import EvaluationFailed, WorkersLost, attempt, going_on
from mohsearch.study.files import OutputFolder, locked
from mohsearch.study.integrity import (
    READING,
    damage,
    drop_set_aside,
    has_chunks,
    problem_of,
    salvaged,
    set_aside,
)
from mohsearch.study.objects import build_search, portfolio_of
from mohsearch.study.plan import PlannedRun, Study
from mohsearch.study.provenance import provenance
from mohsearch.study.shared import SharedRun
from mohsearch.study.store import RunStore, is_complete, record_failure

REPORT_S = 0.1
"""Progress is told at most this often."""

ORPHAN_WAIT_S = 30.0
"""How long to wait for a process of a killed session to notice its parent's end."""

WRITING_WAIT_S = 600.0
"""How long to wait for another process that writes the results of a shared run."""


@dataclass(frozen=True)
class RunOutcome:
    """How one run ended.

    ``complete``, ``failed`` with the reason in ``message``, or ``skipped`` because an earlier
    session had completed it.
    """

    run_id: str
    status: Literal["complete", "failed", "skipped"]
    message: str = ""


def carry_out(
    study: Study,
    run: PlannedRun,
    folder: OutputFolder,
    get_problem: Callable[[], SearchProblem],
    progress: Progress,
    workers: Workers | None = None,
) -> RunOutcome:
    """Carry a run out and record how it ended; only interruptions escape.

    A run that failed before is tried again from its last complete generation. Genomes are evaluated
    by ``workers``, here where there are none.
    """
    try:
        if study.spec.storage is not None:
            return _carry_out_shared(study, run, folder, get_problem, progress, workers)
        with locked(folder.locks / run.id, f"run {run.id}", wait_s=ORPHAN_WAIT_S):
            if is_complete(folder, run.id):
                progress(StudyEvent("skipped", run.id))
                return RunOutcome(run.id, "skipped")
            _search(study, run, folder, get_problem(), progress, workers)
    except Exception as error:
        reason = describe_failure(error)
        if study.spec.storage is None:
            note_failure(study, run, folder, reason)
        progress(StudyEvent("failed", run.id, message=reason))
        return RunOutcome(run.id, "failed", reason)
    return RunOutcome(run.id, "complete")


def _carry_out_shared(
    study: Study,
    run: PlannedRun,
    folder: OutputFolder,
    get_problem: Callable[[], SearchProblem],
    progress: Progress,
    workers: Workers | None,
) -> RunOutcome:
    """Take part in a run until its storage has all of it, then write it unless another has.

    A failure is not recorded in the folder: other processes may be about to complete the run.
    """
    if is_complete(folder, run.id):
        progress(StudyEvent("skipped", run.id))
        return RunOutcome(run.id, "skipped")
    problem = get_problem()
    shared = SharedRun(study, run, folder, problem, workers)
    try:
        shared.take_part(progress)
        with locked(folder.locks / run.id, f"run {run.id}", wait_s=WRITING_WAIT_S):
            if not is_complete(folder, run.id):
                _search(study, run, folder, problem, progress, workers, shared)
            return RunOutcome(run.id, "complete")
    finally:
        shared.close()


def describe_failure(error: BaseException) -> str:
    """Return why something failed: the message of our errors, type and message of others."""
    if isinstance(error, MohsearchError):
        return str(error)
    return ": ".join(filter(None, [type(error).__name__, str(error)]))


def note_failure(study: Study, run: PlannedRun, folder: OutputFolder, reason: str) -> None:
    """Record a failure in the results; what is damaged or cannot be written is left as it is."""
    try:
        record_failure(folder, run.id, reason, identity(study, run))
    except READING:
        pass


def identity(study: Study, run: PlannedRun) -> dict[str, Any]:
    """Return the attributes that say what a run is."""
    engine = run.engine
    return {
        "problem": run.problem.name,
        "problem_label": run.problem.title,
        "workload": run.workload,
        "engine": engine.engine,
        "engine_label": engine.title,
        "algorithm": engine.algorithm or "",
        "portfolio": run.portfolio.title,
        "seed": run.seed,
        "run_digest": run.digest,
        "population": study.spec.budget.population,
        "generations_planned": study.spec.budget.generations,
    }


def _search(
    study: Study,
    run: PlannedRun,
    folder: OutputFolder,
    problem: SearchProblem,
    progress: Progress,
    workers: Workers | None,
    shared: SharedRun | None = None,
) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    folder.staging.mkdir(parents=True, exist_ok=True)
    if shared is None:
        search = build_search(study, run, problem, folder.staging)
        search.evaluate = _evaluation(study, run, folder, problem, workers)
    else:
        search, timed = shared.search()
    store = _open(study, run, folder, problem, search, progress)
    recorded = store.recorded()
    known = 0 if recorded is None else len(recorded.evaluations)
    most = search.budget.generations
    kind: Literal["resumed", "started"] = "resumed" if known else "started"
    progress(StudyEvent(kind, run.id, known, most))
    reporter = _Reporter(run.id, most, problem, progress)
    last: Generation | None = None
    try:
        for generation in search.generations(recorded):
            last = generation if shared is None else timed(generation)
            if not generation.replayed:
                store.add(last, search.archive)
            reporter.tell(generation, search.archive)
    finally:
        store.flush(search.archive)
    if last is None:
        raise InputError("the engine asked for no genome: the portfolio's sampling found none")
    ids = search.archive.front()
    store.write_front(problem, search.archive, ids, last.population)
    used = provenance() | {
        "wall_s": last.wall_s,
        "cpu_s": last.cpu_s,
        "session_wall_s": time.perf_counter() - wall,
        "session_cpu_s": time.process_time() - cpu,
    }
    store.complete(
        {
            "digest": store.digest(ids),
            "provenance": json.dumps(used),
            "engine_report": json.dumps(search.engine.report()),
            "stopped": search.stopped or "",
            "generations": last.number + 1,
            "evaluations": last.evaluations,
            "distinct_genomes": last.distinct,
            "genomes_given_up": len(logged(folder.failures, run.id)),
        }
    )
    drop_set_aside(folder, run.id)
    progress(StudyEvent("complete", run.id, last.number + 1, most, last.evaluations, reporter.best))


def _evaluation(
    study: Study,
    run: PlannedRun,
    folder: OutputFolder,
    problem: SearchProblem,
    workers: Workers | None,
) -> Callable[[NDArray[Any]], Mapping[str, FloatArray]]:
    """Return how genomes are evaluated; those that cannot be are recorded with their reason."""

    def record(genome: NDArray[Any], reason: str) -> None:
        log_failures(folder.failures, run.id, [(genome.tolist(), reason)])

    evaluate = problem.metrics if workers is None else workers.metrics
    if study.spec.evaluation.on_failure == "go-on":
        return going_on(evaluate, problem, record)

    def recorded(rows: NDArray[Any]) -> Mapping[str, FloatArray]:
        try:
            metrics = evaluate(rows)
            for name, column in metrics.items():
                for place in np.flatnonzero(~np.isfinite(column)):
                    record(rows[place], f"metric {name!r} is {column[place]}")
            return metrics
        except EvaluationFailed as error:
            for genome, reason in error.failures:
                record(genome, reason)
            raise
        except WorkersLost:
            raise
        except Exception:
            for row in rows:
                result, reason = attempt(problem.metrics, row[None])
                if result is None:
                    record(row, reason)
                    break
            raise

    return recorded


def _open(
    study: Study,
    run: PlannedRun,
    folder: OutputFolder,
    problem: SearchProblem,
    search: Search,
    progress: Progress,
) -> RunStore:
    """Open a run's store, creating it if this is the run's first session.

    A damaged one is made anew; the genomes whose values are sound are not evaluated again.
    """
    content = problem.digest()
    broken = damage(folder, run.id)
    before = problem_of(folder, run.id)
    empty = not has_chunks(folder.run(run.id))
    if before not in (None, content) and not empty:
        raise InputError(
            "the problem has changed since this run began (its cards, workload or program "
            "differ); start the study anew in another folder",
            source=f"run {run.id}",
        )
    if before not in (None, content) or broken is not None:
        set_aside(folder, run.id, None if empty else before)
    if RunStore.exists(folder, run.id):
        store = RunStore(folder, run.id)
        store.reopen()
    else:
        attributes = _attributes(study, run, problem, search.engine.algorithm, content)
        store = RunStore.create(folder, run.id, problem, search.budget, attributes)
    genomes, metrics = salvaged(folder, run.id, content)
    if len(genomes):
        search.reuse(genomes, metrics)
    if broken is not None:
        message = f"results were damaged ({broken}); {len(genomes):,} evaluations saved"
        progress(StudyEvent("repaired", run.id, evaluations=len(genomes), message=message))
    return store


def _attributes(
    study: Study, run: PlannedRun, problem: SearchProblem, algorithm: str, content: str
) -> dict[str, Any]:
    """Return the attributes of a new run."""
    return {
        **identity(study, run),
        "algorithm": algorithm,
        "objectives": [m.name for m in problem.objective_cards],
        "metrics": [m.name for m in problem.card.metrics],
        "constraints": [m.name for m in problem.card.constraints],
        "problem_digest": content,
        "operators": json.dumps(portfolio_of(study, run, problem).record()),
        "ideal_point": json.dumps(problem.ideal_point()),
        "certificate": json.dumps(problem.certificate()),
    }


class _Reporter:
    """Tells progress now and then, with the best feasible value of each objective so far."""

    def __init__(self, run_id: str, most: int, problem: SearchProblem, progress: Progress) -> None:
        self.best: dict[str, float] = {}
        self._run_id = run_id
        self._most = most
        self._progress = progress
        self._objectives = [(m.name, m.sense == "min") for m in problem.objective_cards]
        self._seen = 0
        self._told_at = 0.0

    def tell(self, generation: Generation, archive: Archive) -> None:
        """Take one generation in and report it, if the last report is a while ago."""
        fresh = slice(self._seen, None)
        metrics = archive.metrics_of(fresh)
        feasible = (archive.constraints(fresh) <= 0.0).all(axis=1)
        for name, smaller in self._objectives:
            self._improve(name, metrics[name][feasible], smaller)
        self._seen = len(archive)
        count, now = generation.number + 1, time.monotonic()
        if generation.replayed or (now - self._told_at < REPORT_S and count < self._most):
            return
        self._told_at = now
        self._progress(
            StudyEvent(
                "generation",
                self._run_id,
                count,
                self._most,
                generation.evaluations,
                dict(self.best),
            )
        )

    def _improve(self, name: str, values: FloatArray, smaller: bool) -> None:
        if not len(values):
            return
        best = float(np.min(values) if smaller else np.max(values))
        known = self.best.get(name)
        if known is None or (best < known if smaller else best > known):
            self.best[name] = best
