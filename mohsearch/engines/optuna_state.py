"""What a shared storage holds of a search, read without taking part in it or waiting for it."""

from __future__ import annotations

import fcntl
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.engines.optuna_engine import quietly
from mohsearch.engines.optuna_storage import OWNER, PostgreSQL, without_password

CONNECT_S = 3
"""How long to wait for a server that does not answer."""


@dataclass(frozen=True)
class StorageState:
    """Trials of one search.

    Attributes
    ----------
    complete, running, waiting, failed
        Trials by state; those of processes that ended are among the failed ones, and so are genomes
        that cannot be evaluated where the study stops at them; where it goes on they are complete.
    processes
        Processes that work on a trial now and show that they live.
    evaluations_per_s
        Complete trials per second between the start of the first and the end of the last.
    """

    complete: int
    running: int
    waiting: int
    failed: int
    processes: int
    evaluations_per_s: float | None


def storage_state(url: str, name: str, *, journal: Path, heartbeat_s: int) -> StorageState | None:
    """Return what a storage holds of a search; None if it has none of that name.

    Parameters
    ----------
    url, journal, heartbeat_s
        As of :func:`mohsearch.engines.optuna_storage.open_storage`; nothing is written or made.
    name
        Name of the search in the storage.

    Raises
    ------
    InputError
        If the storage is not there, cannot be read, or does not answer in :data:`CONNECT_S`.
    """
    if url.startswith("journal"):
        path = journal if url == "journal" else Path(url[len("journal://") :])
        return _state_of_journal(path, name)
    return _state_of_server(url, name, heartbeat_s)


def _state_of_journal(path: Path, name: str) -> StorageState | None:
    if not path.is_file():
        return None
    try:
        with quietly():
            storage = JournalStorage(JournalFileBackend(str(path), lock_obj=_NoLock()))  # type: ignore[arg-type]
            trials = _trials(storage, name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot be read: {error}", source=path) from error
    owners = {str(t.user_attrs[OWNER]) for t in trials or () if _is_owned(t)}
    folder = path.with_name(path.name + ".owners")
    return None if trials is None else _counted(trials, sum(_lives(folder / o) for o in owners))


class _NoLock:
    """Stands for the journal's lock where nothing is written."""

    def acquire(self) -> bool:
        raise PermissionError("the journal is only read")

    def release(self) -> None:
        """Do nothing."""


def _state_of_server(url: str, name: str, heartbeat_s: int) -> StorageState | None:
    require("psycopg", "postgresql")
    import sqlalchemy

    shown = without_password(url)
    try:
        place = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        with warnings.catch_warnings(), quietly():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = PostgreSQL(
                place.render_as_string(hide_password=False),
                engine_kwargs={
                    "poolclass": sqlalchemy.NullPool,
                    "connect_args": {
                        "connect_timeout": CONNECT_S,
                        "options": f"-c statement_timeout={10_000 * CONNECT_S} "
                        "-c default_transaction_read_only=on",
                    },
                },
                heartbeat_interval=heartbeat_s,
                grace_period=3 * heartbeat_s,
                skip_compatibility_check=True,
                skip_table_creation=True,
            )
            try:
                trials = _trials(storage, name)
                if trials is None:
                    return None
                study_id = storage.get_study_id_from_name(name)
                gone = set(storage._get_stale_trial_ids(study_id))
            finally:
                storage.remove_session()
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error.__cause__ or error
        reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        raise InputError(f"no answer: {reason}", source=shown) from error
    owners = {str(t.user_attrs[OWNER]) for t in trials if _is_owned(t) and t._trial_id not in gone}
    return _counted(trials, len(owners))


def _trials(storage: Any, name: str) -> list[Any] | None:
    try:
        study_id = storage.get_study_id_from_name(name)
    except KeyError:
        return None
    return list(storage.get_all_trials(study_id, deepcopy=False))


def _is_owned(trial: Any) -> bool:
    return trial.state == optuna.trial.TrialState.RUNNING and OWNER in trial.user_attrs


def _lives(life: Path) -> bool:
    """Tell whether a process holds the lock that is its sign of life."""
    try:
        with life.open(encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _counted(trials: Sequence[Any], processes: int) -> StorageState:
    states = Counter(trial.state.name for trial in trials)
    began = [t.datetime_start for t in trials if t.datetime_start is not None]
    ended = [t.datetime_complete for t in trials if t.state.name == "COMPLETE"]
    return StorageState(
        complete=states["COMPLETE"],
        running=states["RUNNING"],
        waiting=states["WAITING"],
        failed=states["FAIL"],
        processes=processes,
        evaluations_per_s=_rate(began, ended),
    )


def _rate(began: Sequence[datetime], ended: Sequence[datetime]) -> float | None:
    if not began or not ended:
        return None
    seconds = (max(ended) - min(began)).total_seconds()
    return len(ended) / seconds if seconds > 0 else None
