"""Running and resuming studies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mohsearch.core.cards import validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.problems.base import SearchProblem
from mohsearch.study.card import check_folder, forget_other_study, stored_card, write_card
from mohsearch.study.carry_out import RunOutcome, describe_failure, note_failure
from mohsearch.study.events import Progress, StudyEvent, silent
from mohsearch.study.executor import key_digest, run_divided, run_here, run_in_processes
from mohsearch.study.files import OutputFolder, locked
from mohsearch.study.objects import build_problem, check_search
from mohsearch.study.plan import Plan, PlannedRun, Study, plan_study
from mohsearch.study.spec import StudySpec
from mohsearch.study.store import is_complete

CARD_WAIT_S = 30.0


@dataclass(frozen=True)
class StudyOutcome:
    """How a study ended.

    Attributes
    ----------
    output
        Its folder.
    runs
        One outcome per run, in the order of the plan.
    """

    output: Path
    runs: tuple[RunOutcome, ...]

    @property
    def already_complete(self) -> bool:
        """Whether there was nothing left to do."""
        return all(run.status == "skipped" for run in self.runs)

    @property
    def failed(self) -> tuple[RunOutcome, ...]:
        """The runs that failed."""
        return tuple(run for run in self.runs if run.status == "failed")

    @property
    def exit_code(self) -> int:
        """Return 0 if every run is complete, else 1."""
        return 1 if self.failed else 0


def run_study(
    study: Study,
    output: str | Path,
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    progress: Progress = silent,
) -> StudyOutcome:
    """Carry out the runs of a study that its output folder does not hold yet.

    Results do not depend on ``workers``. The folder may be new, or hold this very study: then what
    is complete stays, what was interrupted continues, what failed is tried again.

    Parameters
    ----------
    output
        Folder of the results.
    workers
        Runs carried out at the same time, and processes that build a problem (default: the
        study's, else one per core).
    cache_dir
        Where problems keep what is costly to compute (default: theirs).
    progress
        Called with each :class:`~mohsearch.study.events.StudyEvent`, in this process.

    Raises
    ------
    InputError
        If the study is wrong, the folder holds another study or anything else, or another process
        is writing to it. Failures of single runs do not raise; they are in the outcome.

    Notes
    -----
    Problems and runs may start processes. They import this package alone, so that the calling
    script needs no ``if __name__ == "__main__"``.
    """
    plan = plan_study(study)
    if study.spec.evaluation.limit_s is not None and study.spec.executor.kind == "runs":
        raise InputError(
            "a limit needs workers that can be ended: executor kind evaluations or dask",
            source=str(study.source),
            field="evaluation.limit_s",
        )
    folder = OutputFolder(output)
    shared = study.spec.storage is not None  # several processes may work on it at the same time
    if not shared:
        check_folder(folder, plan)
    with locked(folder.root / ".lock", "this folder", shared=shared):
        try:
            with locked(folder.root / ".lock.card", "this folder", wait_s=CARD_WAIT_S):
                check_folder(folder, plan, strict=shared)
                if not shared:
                    forget_other_study(folder, plan)
                write_card(folder, plan)
            return _run_plan(plan, folder, workers, cache_dir, progress)
        except OSError as error:  # a full disk, say
            raise InputError(error.strerror or str(error), source=folder.root) from error


def resume_study(
    output: str | Path,
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    progress: Progress = silent,
) -> StudyOutcome:
    """Continue the study that an output folder holds (see :func:`run_study`).

    Raises
    ------
    InputError
        If the folder holds no study.
    """
    study = stored_study(OutputFolder(output))
    return run_study(study, output, workers=workers, cache_dir=cache_dir, progress=progress)


def stored_study(folder: OutputFolder) -> Study:
    """Return the study that an output folder holds.

    Raises
    ------
    InputError
        If there is none.
    """
    card = stored_card(folder)
    spec, source, roots = card["spec"], Path(card["source"]), card["roots"]
    return Study(
        validate(StudySpec, spec, source=folder.card), source, Catalog([Path(r) for r in roots])
    )


def _run_plan(
    plan: Plan,
    folder: OutputFolder,
    workers: int | None,
    cache_dir: Path | None,
    progress: Progress,
) -> StudyOutcome:
    study = plan.study
    outcomes: dict[str, RunOutcome] = {}
    for run in plan.runs:
        if is_complete(folder, run.id):
            progress(StudyEvent("skipped", run.id))
            outcomes[run.id] = RunOutcome(run.id, "skipped")
    open_runs = [run for run in plan.runs if run.id not in outcomes]
    asked = workers or study.spec.executor.workers
    problems, broken = _build(study, open_runs, cache_dir, progress, _builders(study, asked))
    runnable: list[PlannedRun] = []
    for run in open_runs:
        reason = broken.get(key_digest(run.key))
        if reason is None:
            runnable.append(run)
        else:
            note_failure(study, run, folder, reason)
            progress(StudyEvent("failed", run.id, message=reason))
            outcomes[run.id] = RunOutcome(run.id, "failed", reason)
    wanted = asked or os.cpu_count() or 1
    count = min(wanted, len(runnable))
    if study.spec.executor.kind != "runs":
        done = run_divided(study, runnable, folder, problems, wanted, cache_dir, progress)
    elif count > 1:
        done = run_in_processes(study, runnable, folder, count, cache_dir, progress)
    else:
        done = run_here(study, runnable, folder, problems, progress)
    outcomes.update((outcome.run_id, outcome) for outcome in done)
    return StudyOutcome(folder.root, tuple(outcomes[run.id] for run in plan.runs))


def _builders(study: Study, asked: int | None) -> int | None:
    """Return how many processes of this machine may build a problem, None for one per core."""
    if asked is None or study.spec.executor.kind.startswith("dask://"):  # those are elsewhere
        return None
    return asked


def _build(
    study: Study,
    runs: Sequence[PlannedRun],
    cache_dir: Path | None,
    progress: Progress,
    workers: int | None,
) -> tuple[dict[str, SearchProblem], dict[str, str]]:
    """Build each problem once, which also fills its cache for other processes.

    Returns the problems, and the reasons of those that cannot be built, by key digest. Wrong input
    ends the study before any run.
    """
    built: dict[str, SearchProblem] = {}
    broken: dict[str, str] = {}
    checked: set[tuple[str, str, str]] = set()
    for run in runs:
        digest = key_digest(run.key)
        if digest not in built and digest not in broken:
            tell = _teller(f"{run.problem.title}-{run.workload}", progress)
            tell(0, 0, "building the problem")
            try:
                built[digest] = build_problem(study, run.key, cache_dir, tell, workers)
            except InputError:
                raise
            except Exception as error:
                broken[digest] = describe_failure(error)
        cell = (digest, run.engine.title, run.portfolio.title)
        if digest in built and cell not in checked:
            check_search(study, run, built[digest])
            checked.add(cell)
    return built, broken


def _teller(label: str, progress: Progress) -> Callable[[int, int, str], None]:
    def tell(done: int, total: int, message: str) -> None:
        progress(StudyEvent("building", label, done, total, message=message))

    return tell
