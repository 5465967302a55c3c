"""Carrying runs out: here, or in several processes that survive each other's deaths."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from mohsearch.core.digest import content_digest
from mohsearch.core.processes import follow_parent, worker_context
from mohsearch.problems.base import SearchProblem
from mohsearch.study.carry_out import RunOutcome, carry_out, note_failure
from mohsearch.study.evaluation import LocalWorkers, Workers
from mohsearch.study.evaluation_process import Recipe
from mohsearch.study.events import Progress, StudyEvent
from mohsearch.study.files import OutputFolder
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import PlannedRun, ProblemKey, Study

POLL_S = 0.1


def key_digest(key: ProblemKey) -> str:
    """Return a text that stands for a problem on a workload."""
    return content_digest(key.entry.model_dump(mode="json"), key.workload)


def run_here(
    study: Study,
    runs: Sequence[PlannedRun],
    folder: OutputFolder,
    problems: Mapping[str, SearchProblem],
    progress: Progress,
) -> list[RunOutcome]:
    """Carry runs out one after the other in this process."""
    return [
        carry_out(study, run, folder, lambda r=run: problems[key_digest(r.key)], progress)  # type: ignore[misc]
        for run in runs
    ]


def run_divided(
    study: Study,
    runs: Sequence[PlannedRun],
    folder: OutputFolder,
    problems: Mapping[str, SearchProblem],
    workers: int,
    cache_dir: Path | None,
    progress: Progress,
) -> list[RunOutcome]:
    """Carry runs out one after the other, each generation divided over workers."""
    outcomes = []
    held: tuple[str, Workers] | None = None
    try:
        for run in runs:
            digest = key_digest(run.key)
            problem = problems[digest]
            if held is None or held[0] != digest:
                if held is not None:
                    held[1].close()
                recipe = Recipe(study, run.key, cache_dir, problem.digest())
                held = digest, start_workers(recipe, workers)
            outcomes.append(
                carry_out(study, run, folder, lambda p=problem: p, progress, held[1])  # type: ignore[misc]
            )
    finally:
        if held is not None:
            held[1].close()
    return outcomes


def start_workers(recipe: Recipe, count: int) -> Workers:
    """Start the workers that a study asks for."""
    kind = recipe.study.spec.executor.kind
    if kind == "evaluations":
        return LocalWorkers(recipe, count)
    from mohsearch.study.dask_workers import DaskWorkers, scheduler_of

    return DaskWorkers(recipe, count, address=scheduler_of(kind))


class _ProcessDied(Exception):
    """A process of the pool died; the pool is of no use any more."""

    def __init__(self, under_way: set[str]) -> None:
        self.under_way = under_way
        super().__init__(", ".join(sorted(under_way)))


def run_in_processes(
    study: Study,
    runs: Sequence[PlannedRun],
    folder: OutputFolder,
    workers: int,
    cache_dir: Path | None,
    progress: Progress,
) -> list[RunOutcome]:
    """Carry runs out in ``workers`` processes.

    When a process dies (out of memory, killed), the runs that were under way are suspects: each is
    continued in a process of its own once the others are done, and failed if that dies too.
    """
    outcomes: dict[str, RunOutcome] = {}
    suspects: set[str] = set()
    while left := [run for run in runs if run.id not in outcomes]:
        batch = [run for run in left if run.id not in suspects]
        alone = not batch
        batch = batch or left[:1]
        count = 1 if alone else min(workers, len(batch))
        try:
            for outcome in _run_pool(study, batch, folder, count, cache_dir, progress):
                outcomes[outcome.run_id] = outcome
        except _ProcessDied as death:
            time.sleep(POLL_S)  # a signal to all processes must reach this one before it goes on
            suspects |= death.under_way
            if alone:
                run, reason = batch[0], "its process died (killed, or out of memory)"
                note_failure(study, run, folder, reason)
                progress(StudyEvent("failed", run.id, message=reason))
                outcomes[run.id] = RunOutcome(run.id, "failed", reason)
    return [outcomes[run.id] for run in runs]


def _run_pool(
    study: Study,
    runs: Sequence[PlannedRun],
    folder: OutputFolder,
    workers: int,
    cache_dir: Path | None,
    progress: Progress,
) -> Iterator[RunOutcome]:
    """Yield outcomes as they come, never more runs under way than processes."""
    context = worker_context()
    events: Any = context.Queue()
    arguments = (study, folder, cache_dir, events)
    with ProcessPoolExecutor(workers, context, _start_worker, arguments) as pool:
        try:
            yield from _drain(pool, runs, workers, events, progress)
        except _ProcessDied:
            raise
        except BaseException:
            _end(pool)
            raise
        finally:
            _forward(events, progress)


def _drain(
    pool: ProcessPoolExecutor,
    runs: Sequence[PlannedRun],
    workers: int,
    events: Any,
    progress: Progress,
) -> Iterator[RunOutcome]:
    waiting = list(runs)
    active: dict[Future[RunOutcome], str] = {}
    while waiting or active:
        while waiting and len(active) < workers:
            run = waiting.pop(0)
            try:
                active[pool.submit(_work, run)] = run.id
            except BrokenProcessPool as broken:
                raise _ProcessDied({run.id, *active.values()}) from broken
        finished, _ = wait(active, timeout=POLL_S, return_when=FIRST_COMPLETED)
        _forward(events, progress)
        died: set[str] = set()
        for future in finished:
            run_id = active.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, BrokenProcessPool):
                died.add(run_id)
            else:
                yield RunOutcome(run_id, "failed", f"{type(error).__name__}: {error}")
        if died:
            raise _ProcessDied(died | set(active.values()))


def _forward(events: Any, progress: Progress) -> None:
    while True:
        try:
            event = events.get_nowait()
        except (queue.Empty, EOFError, OSError):
            return
        progress(event)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the pool's processes at once: an interruption must not wait for runs."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


# What follows runs in the worker processes.

_worker: dict[str, Any] = {}


def _start_worker(study: Study, folder: OutputFolder, cache_dir: Path | None, events: Any) -> None:
    follow_parent()
    _worker.update(study=study, folder=folder, cache_dir=cache_dir, events=events, problems={})


def _work(run: PlannedRun) -> RunOutcome:
    def problem() -> SearchProblem:
        digest = key_digest(run.key)
        if digest not in _worker["problems"]:
            built = build_problem(_worker["study"], run.key, _worker["cache_dir"], workers=1)
            _worker["problems"] = {digest: built}
        found: SearchProblem = _worker["problems"][digest]
        return found

    return carry_out(_worker["study"], run, _worker["folder"], problem, _worker["events"].put)
