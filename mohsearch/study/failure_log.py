"""The log of genomes that could not be evaluated: one JSON object a line, each line sealed.

The digest of a line covers the line before it too, so that a changed, removed or inserted line
shows. A line that a killed process left unfinished is no damage: its genome was not counted yet and
is logged again when its generation is repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError

_FIELDS = ("run", "genome", "reason")
_BLOCK = 65_536


@dataclass(frozen=True)
class FailureLog:
    """What a log holds.

    Attributes
    ----------
    by_run
        Lines of each run.
    torn
        Whether its last line is unfinished.
    """

    by_run: Mapping[str, int]
    torn: bool = False


def log_failures(path: Path, run_id: str, failures: Iterable[tuple[list[Any], str]]) -> None:
    """Append genomes and reasons to a log, made if it is not there; processes take turns.

    Raises
    ------
    OSError
        If it cannot be written: a full disk, say.
    """
    with path.open("ab+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        before = _digest_of(_last_line(stream))
        lines = []
        for genome, reason in failures:
            line = {"run": run_id, "genome": genome, "reason": reason}
            before = _seal(before, line)
            lines.append(json.dumps({**line, "digest": before}) + "\n")
        stream.write("".join(lines).encode())


def read_failures(path: Path) -> FailureLog:
    """Read a log and compare every line with its digest.

    Lines of early versions, which have none, may stand at the beginning.

    Raises
    ------
    InputError
        Naming the first line that is not what was written.
    """
    counts: Counter[str] = Counter()
    before = ""
    try:
        with path.open("rb") as stream:
            for number, text in enumerate(stream, 1):
                if not text.endswith(b"\n"):
                    return FailureLog(counts, torn=True)
                line = _parsed(text)
                early = line is not None and tuple(line) == _FIELDS and not before
                if not early:
                    if line is None or line.pop("digest", None) != _seal(before, line):
                        raise InputError(
                            f"line {number} is not what was written; results do not depend on it",
                            source=path,
                        )
                    before = _seal(before, line)
                counts[str(line["run"])] += 1  # type: ignore[index]
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path) from error
    return FailureLog(counts)


def logged(path: Path, run_id: str) -> set[tuple[str, str]]:
    """Return genome (as JSON) and reason of what a log holds of a run."""
    found = set()
    if path.is_file():
        with path.open("rb") as stream:
            for text in stream:
                line = _parsed(text)
                if line is not None and line.get("run") == run_id:
                    found.add((json.dumps(line.get("genome")), str(line.get("reason"))))
    return found


def _seal(before: str, line: Mapping[str, Any]) -> str:
    return content_digest(before, dict(line))[:16]


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _digest_of(text: bytes) -> str:
    line = _parsed(text)
    return "" if line is None else str(line.get("digest", ""))


def _last_line(stream: IO[bytes]) -> bytes:
    """Return the last complete line; cut off what a killed process left behind it."""
    position = stream.seek(0, os.SEEK_END)
    blocks: list[bytes] = []
    ends = 0
    while position and ends < 2:
        step = min(position, _BLOCK)
        position -= step
        stream.seek(position)
        blocks.append(stream.read(step))
        ends += blocks[-1].count(b"\n")
    tail = b"".join(reversed(blocks))
    end = tail.rfind(b"\n") + 1
    if end < len(tail):
        stream.truncate(position + end)
    stream.seek(0, os.SEEK_END)
    return tail[:end].rstrip(b"\n").rpartition(b"\n")[2]
