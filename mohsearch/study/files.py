"""Files of an output folder: where they stand, atomic writing, locks."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.files import write_text


class OutputFolder:
    """Paths inside one study's output folder.

    ``results.zarr`` holds the results, ``study.json`` the study they belong to, ``.manifests`` the
    digests of the results' files; ``.staging`` and ``.locks`` are scratch.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().resolve()
        self.results = self.root / "results.zarr"
        self.card = self.root / "study.json"
        self.staging = self.root / ".staging"
        self.locks = self.root / ".locks"
        self.manifests = self.root / ".manifests"
        self.failures = self.root / "failures.jsonl"
        self.journal = self.root / "optuna.journal"

    def run(self, run_id: str) -> Path:
        """Return the group of one run."""
        return self.results / run_id

    def manifest(self, run_id: str) -> Path:
        """Return the file with the digests of one run's files."""
        return self.manifests / f"{run_id}.json"

    def search_name(self, run_id: str) -> Path:
        """Return the file with the name that a run has in a shared storage."""
        return self.manifests / f"{run_id}.storage.json"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that a reader sees the old content or the new, never a part."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def locked(path: Path, what: str, wait_s: float = 0.0, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock file for the duration of the block.

    The lock belongs to the process and is gone when it ends, however it ends.

    Parameters
    ----------
    path
        The lock file; it stays behind, empty of meaning.
    what
        What is locked, for the message.
    wait_s
        How long to wait for another holder.
    shared
        Whether others may hold it too, if they also say so.

    Raises
    ------
    InputError
        If another process holds the lock; the message has its process id. Or if there may be no
        lock file: the folder is read-only, or another's.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path.parent) from error
    deadline = time.monotonic() + wait_s
    with opened as handle:
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    handle.seek(0)
                    owner = handle.read().strip() or "unknown"
                    message = f"process {owner} is writing to {what}; wait for it or end it"
                    raise InputError(message, source=path.parent) from error
                time.sleep(0.05)
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def holder(path: Path) -> int | None:
    """Return the process that holds a lock file (see :func:`locked`), None if none does."""
    try:
        with path.open(encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return int(handle.read())
    except (OSError, ValueError):
        pass
    return None
