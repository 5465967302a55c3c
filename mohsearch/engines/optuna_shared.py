"""One Optuna study searched by several processes, on any number of machines.

Each process asks for trials, evaluates them and tells their values until the study has as many
complete trials as the budget; the storage counts, so that the budget holds over all processes. A
trial carries its genome, the process that works on it and, in the end, all its metrics, so that the
whole search can be read from the storage by anyone.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import TrialState

from mohsearch.core.errors import MohsearchError
from mohsearch.engines.archive import Archive
from mohsearch.engines.engine import Engine, FloatArray
from mohsearch.engines.optuna_engine import GENOME, OptunaEngine, quietly
from mohsearch.engines.optuna_storage import OWNER, RETRIES

OUTCOME, REASON = "outcome", "reason"
POLL_S = 0.2
"""How often a process that has nothing to do looks whether others are done or gone."""

Evaluated = tuple[Mapping[str, FloatArray], Mapping[int, str]]
"""Metrics of some genomes, and by position why one could not be evaluated."""


class StorageLost(MohsearchError):
    """The storage failed in the middle of a search; what was told to it is kept."""

    exit_code = 1


class SharedStopped(MohsearchError):
    """A genome cannot be evaluated, and the study says to stop then."""

    exit_code = 1


@dataclass(frozen=True)
class SharedRecord:
    """A complete shared search, as its storage has it.

    Attributes
    ----------
    genomes
        Shape (n, n_var), by trial number; n is the budget.
    metrics
        Every metric and constraint, each of shape (n,).
    wall_s, cpu_s
        Seconds from the first trial's start to the end of the last one so far, and processor
        seconds of the evaluations so far, each of shape (n,).
    failures
        Genome and reason of each trial that failed for good or was given up.
    processes
        How many took part.
    retried
        Trials that were begun by a process that then ended, and finished by another.
    repeated
        Complete trials whose genome was evaluated in another trial, at the same time.
    """

    genomes: NDArray[Any]
    metrics: Mapping[str, FloatArray]
    wall_s: FloatArray
    cpu_s: FloatArray
    failures: tuple[tuple[list[float], str], ...]
    processes: int
    retried: int
    repeated: int

    def report(self) -> dict[str, Any]:
        """Return what the results say about how they came about."""
        return {
            "storage": "shared",
            "reproducible": False,
            "processes": self.processes,
            "trials_retried_after_a_process_ended": self.retried,
            "trials_given_up": len(self.failures),
            "genomes_evaluated_twice": self.repeated,
        }


class SharedSearch:
    """One process's part in a search of an Optuna study.

    Parameters
    ----------
    engine
        Engine of this process; it draws the genomes.
    archive
        Its archive; only the index of genomes and the order of objectives are used.
    storage
        As :func:`mohsearch.engines.optuna_storage.open_storage` returns it.
    name
        Name of the study, the same in all processes.
    evaluations
        Complete trials that the search consists of.
    """

    def __init__(
        self, engine: OptunaEngine, archive: Archive, storage: Any, name: str, evaluations: int
    ) -> None:
        self._engine = engine
        self._archive = archive
        self._storage = storage
        self._evaluations = evaluations
        with _named_losses():
            self._study = engine.share(storage, name, storage.owner)
        self._mine: set[int] = set()
        self._known: dict[bytes, int] = {}
        self._learnt: set[int] = set()
        self._latest: list[Any] = []
        self._buried_at = 0.0
        self._unclaimed: dict[int, float] = {}

    def take_part(
        self,
        evaluate: Callable[[NDArray[Any]], Evaluated],
        *,
        at_once: int,
        stop_on_failure: bool,
        tell: Callable[[int], None],
    ) -> None:
        """Work until the study is complete, whoever completes it.

        Parameters
        ----------
        evaluate
            Called with genomes of shape (n, n_var); has values also for those that failed.
        at_once
            Genomes to ask for at a time.
        stop_on_failure
            Whether a genome that cannot be evaluated ends the search, here and in the others.
        tell
            Called with the number of complete trials now and then.

        Raises
        ------
        SharedStopped
            If a genome cannot be evaluated and ``stop_on_failure``.
        StorageLost
            If the storage fails.
        """
        with _named_losses(), self._signs_of_life(), quietly():
            old = {t.number for t in self._trials() if REASON in t.user_attrs}
            while True:
                trials = self._after_burials()
                states = [t.state for t in trials]
                complete = states.count(TrialState.COMPLETE)
                tell(complete)
                if complete >= self._evaluations:
                    return
                if stop_on_failure:
                    _stop_at_failure(trials, old)
                left = self._evaluations - complete - states.count(TrialState.RUNNING)
                if left <= 0:
                    time.sleep(POLL_S)
                    continue
                self._work(min(at_once, left), evaluate, stop_on_failure)

    def record(self) -> SharedRecord:
        """Return the complete search; the same from whatever process.

        Raises
        ------
        StorageLost
            If the storage fails.
        """
        with _named_losses():
            trials = self._trials()
        complete = [t for t in trials if t.state == TrialState.COMPLETE][: self._evaluations]
        outcomes = [t.user_attrs[OUTCOME] for t in complete]
        began = min(t.datetime_start for t in complete)
        ends = np.array([(t.datetime_complete - began).total_seconds() for t in complete])
        genomes = np.array([t.user_attrs[GENOME] for t in complete], dtype=self._archive.dtype)
        evaluated = [
            key
            for key, o in zip(self._archive.index.keys(genomes), outcomes, strict=True)
            if "same_as" not in o
        ]
        return SharedRecord(
            genomes=genomes,
            metrics={
                name: np.array([o["metrics"][name] for o in outcomes])
                for name in self._archive.metric_names
            },
            wall_s=np.maximum.accumulate(ends),
            cpu_s=np.cumsum([o["cpu_s"] for o in outcomes]),
            failures=_failures(trials),
            processes=len({t.user_attrs.get(OWNER) for t in trials} - {None}),
            retried=sum("failed_trial" in t.system_attrs for t in complete),
            repeated=len(evaluated) - len(set(evaluated)),
        )

    def failures(self) -> tuple[tuple[list[float], str], ...]:
        """Return genome and reason of each trial that was given up so far."""
        with _named_losses():
            return _failures(self._trials())

    def _trials(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    def _work(
        self, count: int, evaluate: Callable[[NDArray[Any]], Evaluated], stop_on_failure: bool
    ) -> None:
        """Ask for trials, evaluate them and tell their values."""
        try:
            mine = self._within_budget([self._claimed() for _ in range(count)])
            if not mine:
                return
            rows = self._engine.rows_of(mine)
            for trial, row in zip(mine, rows, strict=True):
                trial.set_user_attr(GENOME, row.tolist())
            keys = self._learn(rows)
            fresh = [i for i, key in enumerate(keys) if key not in self._known]
            before = time.process_time()
            metrics, reasons = evaluate(rows[fresh]) if fresh else ({}, {})
            cpu_s = (time.process_time() - before) / max(1, len(fresh))
            for place, i in enumerate(fresh):
                values = {name: float(metrics[name][place]) for name in metrics}
                outcome = {"metrics": values, "cpu_s": cpu_s}
                self._tell(mine[i], outcome, reasons.get(place), stop_on_failure)
            self._tell_known([(mine[i], keys[i]) for i in range(len(mine)) if i not in set(fresh)])
        finally:
            self._give_back()

    def _claimed(self) -> Any:
        """Return a new trial, or one that waits for another try, marked as this process's."""
        trial = self._study.ask()
        self._mine.add(trial._trial_id)
        self._storage.record_heartbeat(trial._trial_id)
        trial.set_user_attr(OWNER, self._storage.owner)
        return trial

    def _within_budget(self, mine: Sequence[Any]) -> list[Any]:
        """Return the trials that count; others asked at the same time and were first.

        A trial counts if fewer than the budget before it have not failed. Trials never come back
        from failure, so that no more than the budget can ever count.
        """
        self._latest = self._trials()
        ahead = sorted(t.number for t in self._latest if t.state != TrialState.FAIL)
        kept = []
        for trial in mine:
            if int(np.searchsorted(ahead, trial.number)) < self._evaluations:
                kept.append(trial)
            else:
                trial.set_user_attr("beyond_budget", True)
                self._finish(trial, None)
        return kept

    def _learn(self, rows: NDArray[Any]) -> list[bytes]:
        """Note which genomes others have had; return the keys of ``rows``."""
        index = self._archive.index
        for trial in self._latest:
            genome = trial.user_attrs.get(GENOME)
            if trial.number in self._learnt or genome is None or trial.state == TrialState.FAIL:
                continue
            (key,) = index.keys(np.array([genome], dtype=index.dtype))
            index.add(key)
            if trial.state == TrialState.COMPLETE:
                self._learnt.add(trial.number)
                if "same_as" not in trial.user_attrs[OUTCOME]:
                    self._known.setdefault(key, trial.number)
        return index.keys(rows)

    def _tell(self, trial: Any, outcome: Any, reason: str | None, stop: bool) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr(OUTCOME, outcome)
            if reason is not None:
                trial.set_user_attr(REASON, reason)
            self._finish(trial, None if reason is not None and stop else outcome["metrics"])

    def _tell_known(self, trials: Sequence[tuple[Any, bytes]]) -> None:
        """Tell genomes that had been evaluated before what came out then."""
        if not trials:
            return
        by_number = {t.number: t for t in self._latest}
        for trial, key in trials:
            first = by_number[self._known[key]]
            same = {"same_as": first.number, "cpu_s": 0.0}
            self._tell(trial, {**first.user_attrs[OUTCOME], **same}, None, False)

    def _finish(self, trial: Any, metrics: Mapping[str, float] | None) -> None:
        """Complete a trial, or let it fail where there are no metrics."""
        try:
            if metrics is None:
                self._study.tell(trial, state=TrialState.FAIL)
            else:
                F, G = self._objectives(metrics)
                for number, excess in enumerate(G):
                    trial.set_constraint(f"g{number}", excess)
                self._study.tell(trial, F)
        except optuna.exceptions.UpdateFinishedTrialError:
            pass  # others took this process for dead; another trial has the genome
        except ValueError:
            if self._storage.get_trial(trial._trial_id).state == TrialState.RUNNING:
                raise
        self._mine.discard(trial._trial_id)

    def _objectives(self, metrics: Mapping[str, float]) -> tuple[list[float], list[float]]:
        problem = self._engine.problem
        signs = np.asarray(problem.signs, dtype=np.float64)
        values = np.array([metrics[m.name] for m in problem.objective_cards]) * signs
        return values.tolist(), [metrics[m.name] for m in problem.card.constraints]

    def _after_burials(self) -> list[Any]:
        """Return all trials; those of processes that are gone have failed and are queued again."""
        now = time.monotonic()
        pause = self._study._storage.get_heartbeat_interval() or 1
        if now - self._buried_at < pause:
            return self._trials()
        self._buried_at = now
        optuna.storages.fail_stale_trials(self._study)
        self._bury_unclaimed(now, 3 * pause)
        return self._trials()

    def _bury_unclaimed(self, now: float, grace: float) -> None:
        current = {
            t._trial_id
            for t in self._trials()
            if t.state == TrialState.RUNNING and OWNER not in t.user_attrs
        }
        # a process may end between asking and showing that it lives
        self._unclaimed = {i: self._unclaimed.get(i, now) for i in current - self._mine}
        for trial_id, since in self._unclaimed.items():
            if now - since > grace:
                self._fail_and_queue(trial_id)

    def _give_back(self) -> None:
        """Queue what this process leaves unfinished: others need not wait for its heartbeat."""
        for trial_id in list(self._mine):
            with suppress(optuna.exceptions.OptunaError):
                self._fail_and_queue(trial_id)
            self._mine.discard(trial_id)

    def _fail_and_queue(self, trial_id: int) -> None:
        try:
            failed = self._storage.set_trial_state_values(trial_id, TrialState.FAIL)
        except optuna.exceptions.UpdateFinishedTrialError:
            return
        if failed:
            again = self._storage.get_heartbeat_stale_trial_callback()
            again(self._study, copy.deepcopy(self._storage.get_trial(trial_id)))

    @contextmanager
    def _signs_of_life(self) -> Iterator[None]:
        """Show that this process lives while the block runs."""
        ended = threading.Event()
        pause = self._study._storage.get_heartbeat_interval() or 1

        def beat() -> None:
            while not ended.wait(pause):
                for trial_id in list(self._mine):
                    # a server that does not answer now may answer the next time
                    with suppress(Exception):
                        self._storage.record_heartbeat(trial_id)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class StoredTrials(Engine):
    """Asks for the genomes of a complete shared search, in the order of their trials."""

    algorithms: ClassVar = {}
    default_algorithm: ClassVar = ""

    def __init__(self, engine: Engine, record: SharedRecord) -> None:
        super().__init__(
            engine.problem,
            engine.portfolio,
            algorithm=engine.algorithm,
            population=engine.population_size,
            seed=engine.seed,
            options=engine.options,
            seen=engine.seen,
        )
        self._record = record
        self._at = 0
        self._batch = record.genomes[:0]

    def ask(self, k: int) -> NDArray[Any]:
        """Return the next ``k`` genomes."""
        self._batch = self._record.genomes[self._at : self._at + k]
        self._at += len(self._batch)
        return self._batch

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Do nothing: the search is over."""

    def population(self) -> NDArray[Any]:
        """Return what was asked for in this generation."""
        return self._batch

    def report(self) -> dict[str, Any]:
        """Return how the search came about."""
        return self._record.report()


def _failures(trials: Sequence[Any]) -> tuple[tuple[list[float], str], ...]:
    found = []
    for trial in trials:
        genome, reason = trial.user_attrs.get(GENOME), trial.user_attrs.get(REASON)
        tries = 1 + len(trial.system_attrs.get("retry_history", []))
        if genome is None or trial.user_attrs.get("beyond_budget"):
            continue
        if reason is None and trial.state == TrialState.FAIL and tries > RETRIES:
            reason = f"the process that evaluated it ended ({tries} tries)"
        if reason is not None:
            found.append((genome, reason))
    return tuple(found)


def _stop_at_failure(trials: Sequence[Any], old: set[int]) -> None:
    for trial in trials:
        if REASON in trial.user_attrs and trial.number not in old:
            genome = np.array2string(
                np.array(trial.user_attrs.get(GENOME)), threshold=32, max_line_width=10**6
            )
            raise SharedStopped(f"genome {genome} cannot be evaluated: {trial.user_attrs[REASON]}")


@contextmanager
def _named_losses() -> Iterator[None]:
    """Turn what a storage raises when it fails into an error of ours."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, OSError) as error:
        cause = error.__cause__ or error
        reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()
        raise StorageLost(
            f"the storage of trials failed ({reason[0] if reason else type(cause).__name__}); what "
            "was told to it is kept"
        ) from error
