"""Writing text files: whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mohsearch.core.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file so that a reader sees the old content or the new, never a part.

    The folder is created. A link is followed; a device or pipe is written to as it is.

    Raises
    ------
    InputError
        If the file or its folder cannot be written.
    """
    make_folder(path)
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(target, text)
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path) from error


def make_folder(path: Path) -> None:
    """Create the folder that a file will stand in.

    Raises
    ------
    InputError
        If it cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path.parent) from error


def _replace(target: Path, text: str) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
