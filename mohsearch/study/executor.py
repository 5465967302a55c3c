"""Carrying runs out: here, or in several processes that survive each other's deaths."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from mohsearch.core.digest import content_digest
from mohsearch.problems.base import SearchProblem
from mohsearch.study.carry_out import RunOutcome, carry_out, note_failure
from mohsearch.study.events import Progress, StudyEvent
from mohsearch.study.files import OutputFolder
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import PlannedRun, ProblemKey, Study

ATTEMPTS = 2
"""How often a run may be under way when a process dies before it counts as the cause."""

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


def run_in_processes(
    study: Study,
    runs: Sequence[PlannedRun],
    folder: OutputFolder,
    workers: int,
    cache_dir: Path | None,
    progress: Progress,
) -> list[RunOutcome]:
    """Carry runs out in ``workers`` processes.

    When a process dies (out of memory, killed), the pool is built anew and the runs that were under
    way continue from their last complete generation; one that was under way at two deaths is
    recorded as failed.
    """
    outcomes: dict[str, RunOutcome] = {}
    attempts = dict.fromkeys((run.id for run in runs), 0)
    context = multiprocessing.get_context("spawn")
    while left := [run for run in runs if run.id not in outcomes]:
        events: Any = context.Queue()
        # After a death only as many runs as processes are under way, so that few share the blame.
        with ProcessPoolExecutor(
            workers, context, _start_worker, (study, folder, cache_dir, events)
        ) as pool:
            try:
                for outcome in _drain(pool, left, workers, attempts, events, progress):
                    outcomes[outcome.run_id] = outcome
            except BrokenProcessPool:
                for run in left:
                    if run.id not in outcomes and attempts[run.id] >= ATTEMPTS:
                        reason = "its process died (killed, or out of memory)"
                        note_failure(study, run, folder, reason)
                        progress(StudyEvent("failed", run.id, message=reason))
                        outcomes[run.id] = RunOutcome(run.id, "failed", reason)
            except BaseException:
                _end(pool)
                raise
            finally:
                _forward(events, progress)
    return [outcomes[run.id] for run in runs]


def _drain(
    pool: ProcessPoolExecutor,
    runs: Sequence[PlannedRun],
    workers: int,
    attempts: dict[str, int],
    events: Any,
    progress: Progress,
) -> Any:
    """Yield outcomes as they come, never more runs under way than processes."""
    waiting = list(runs)
    active: dict[Future[RunOutcome], str] = {}
    while waiting or active:
        while waiting and len(active) < workers:
            run = waiting.pop(0)
            attempts[run.id] += 1
            active[pool.submit(_work, run)] = run.id
        finished, _ = wait(active, timeout=POLL_S, return_when=FIRST_COMPLETED)
        _forward(events, progress)
        broken: BaseException | None = None
        for future in finished:
            run_id = active.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, BrokenProcessPool):
                broken = error
            else:
                yield RunOutcome(run_id, "failed", f"{type(error).__name__}: {error}")
        if broken is not None:
            raise broken


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.update(study=study, folder=folder, cache_dir=cache_dir, events=events, problems={})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent ends, so that a killed study leaves no writer behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(run: PlannedRun) -> RunOutcome:
    def problem() -> SearchProblem:
        digest = key_digest(run.key)
        if digest not in _worker["problems"]:
            built = build_problem(_worker["study"], run.key, _worker["cache_dir"])
            _worker["problems"] = {digest: built}
        found: SearchProblem = _worker["problems"][digest]
        return found

    return carry_out(_worker["study"], run, _worker["folder"], problem, _worker["events"].put)
