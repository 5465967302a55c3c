"""Storages that several processes share: a journal file, or a PostgreSQL server.

Whoever works on a trial shows that it lives. On a journal it holds a lock on a file of its own,
which the operating system frees when the process ends, however it ends. On PostgreSQL it sends
heartbeats, timed by the server's clock. A trial whose process is gone fails and is queued once
more.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.storages import JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.trial import TrialState

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require

RETRIES = 1
"""How often a trial is queued again after the process that worked on it ended."""

OWNER = "owner"
"""Attribute of a trial: the process that works on it."""

_SCHEMA_LOCK = 0x6D6F6873
"""Key of the server's lock under which tables are made; Optuna itself makes them without one."""


def without_password(url: str) -> str:
    """Return a URL without its password.

    Examples
    --------
    >>> without_password("postgresql://ann:secret@db:5432/studies")
    'postgresql://ann@db:5432/studies'
    """
    return re.sub(r"^(\w[\w+]*://[^:/@\s]*):[^@\s]*@", r"\1@", url)


def open_storage(url: str, *, journal: Path, heartbeat_s: int) -> Any:
    """Open a storage, made if it is not there.

    Parameters
    ----------
    url
        ``journal`` (the file of that argument), ``journal:///PATH`` or
        ``postgresql://USER@HOST:PORT/DATABASE``.
    heartbeat_s
        Seconds between signs of life on PostgreSQL; a process that sends none for three times as
        long counts as dead.

    Raises
    ------
    InputError
        If the file cannot be written or the server does not answer.
    """
    if url.startswith("journal"):
        path = journal if url == "journal" else Path(url[len("journal://") :])
        try:
            return Journal(path)
        except OSError as error:
            raise InputError(error.strerror or str(error), source=path) from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"is no journal of Optuna: {error}", source=path) from error
    return _postgresql(url, heartbeat_s)


def _again(study: Any, trial: Any) -> None:
    """Queue a trial whose process is gone once more, unless it was queued already."""
    trial.user_attrs.pop(OWNER, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)(study, trial)


class Journal(JournalStorage, BaseHeartbeat):
    """Optuna's journal file, with a lock and signs of life that end with the process.

    A line that a killed process left unfinished is cut off before the next is written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(JournalFileBackend(str(path), lock_obj=_JournalLock(path)))
        self._owners = path.with_name(path.name + ".owners")
        self._owners.mkdir(exist_ok=True)
        self.owner = _owner()
        self._life = (self._owners / self.owner).open("w", encoding="utf-8")
        fcntl.flock(self._life, fcntl.LOCK_EX)

    def record_heartbeat(self, trial_id: int) -> None:
        """Do nothing: the lock is the sign of life."""

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        running = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,))
        owners = {trial._trial_id: trial.user_attrs.get(OWNER) for trial in running}
        gone = {owner for owner in set(owners.values()) if owner and self._is_gone(str(owner))}
        return [trial for trial, owner in owners.items() if owner in gone]

    def _is_gone(self, owner: str) -> bool:
        if owner == self.owner:
            return False
        try:
            with (self._owners / owner).open(encoding="utf-8") as life:
                fcntl.flock(life, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def get_heartbeat_interval(self) -> int | None:
        """Return a number: there are signs of life."""
        return 1

    def get_heartbeat_stale_trial_callback(self) -> Callable[[Any, Any], None] | None:
        """Return what happens to trials whose process is gone."""
        return _again

    def remove_session(self) -> None:
        """Say that this process has ended its work."""
        with suppress(OSError):
            (self._owners / self.owner).unlink()
        self._life.close()


class _JournalLock(BaseJournalFileLock):
    """The lock under which the journal is written."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._file = journal.with_name(journal.name + ".lock")
        self._held: IO[str] | None = None

    def acquire(self) -> bool:
        """Wait for the lock; cut off what a killed process left of a line."""
        self._held = self._file.open("a", encoding="utf-8")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        cut_torn_line(self._journal)
        return True

    def release(self) -> None:
        """Let the next one write."""
        if self._held is not None:
            self._held.close()
            self._held = None


def cut_torn_line(journal: Path) -> None:
    """Cut the end of a file after its last complete line."""
    if not journal.exists():
        return
    with journal.open("rb+") as stream:
        end = stream.seek(0, os.SEEK_END)
        position, tail = end, b""
        while position and b"\n" not in tail:
            step = min(position, 65_536)
            position -= step
            stream.seek(position)
            tail = stream.read(step) + tail
            if tail.endswith(b"\n"):
                return
        if end:
            stream.truncate(position + tail.rfind(b"\n") + 1)


def _postgresql(url: str, heartbeat_s: int) -> Any:
    require("psycopg", "postgresql")
    import sqlalchemy

    shown = without_password(url)
    try:
        place = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        engine = sqlalchemy.create_engine(place, poolclass=sqlalchemy.NullPool)
        with engine.connect() as connection, warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            connection.execute(sqlalchemy.text(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})"))
            storage = PostgreSQL(
                place.render_as_string(hide_password=False),
                engine_kwargs={"pool_pre_ping": True},
                heartbeat_interval=heartbeat_s,
                grace_period=3 * heartbeat_s,
                heartbeat_stale_trial_callback=_again,
            )
    except sqlalchemy.exc.ArgumentError as error:
        raise InputError(f"not a URL: {error}", source=shown, field="storage") from error
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InputError(f"no such database: {reason}", source=shown, field="storage") from error
    except RuntimeError as error:  # tables of another version of Optuna
        reason = " ".join(str(error).split())
        raise InputError(reason, source=shown, field="storage") from error
    return storage


class PostgreSQL(RDBStorage):
    """Optuna's tables on a PostgreSQL server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.owner = _owner()

    def remove_session(self) -> None:
        """Close the connections of this process."""
        super().remove_session()
        self.engine.dispose()


def _owner() -> str:
    """Return a name for this process that no other has."""
    host = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())[:60]
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
