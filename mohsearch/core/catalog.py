"""The shelves: where declarations are found by name.

A shelf is one of the folders ``problems``, ``operators``, ``evaluators``, ``studies``. Built-in
shelves stand in the root of a checkout and, once installed, inside the package under
``mohsearch/catalog``. A user's project may have folders of the same names; what stands there is
found by name too, and comes first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mohsearch.core.errors import InputError, UnknownNameError

SHELVES = ("problems", "operators", "evaluators", "studies")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")


def builtin_root() -> Path:
    """Return the folder that holds the built-in shelves (checkout or installed package)."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "catalog"
    return installed if installed.is_dir() else package.parent


def shown(text: str, longest: int = 80) -> str:
    """Return a text as a message quotes it, cut where it is very long.

    Examples
    --------
    >>> shown("x" * 9, longest=4)
    "'xxxx...'"
    """
    return repr(text if len(text) <= longest else f"{text[:longest]}...")


class Catalog:
    """Files found by shelf, folder and name over several roots; earlier roots win.

    Parameters
    ----------
    roots
        Folders that may hold shelves, most specific first. The built-in shelves come last and
        need not be named.
    """

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        ordered = [*(Path(r).resolve() for r in roots), builtin_root()]
        self.roots = tuple(dict.fromkeys(ordered))

    @classmethod
    def around(cls, file: Path | None = None) -> Catalog:
        """Return the catalogue of the project around ``file`` and of the working directory.

        A study at ``PROJECT/studies/x.yaml`` sees the shelves of ``PROJECT``; any other file sees
        those beside it.
        """
        roots = []
        if file is not None:
            folder = Path(file).resolve().parent
            roots.append(folder.parent if folder.name in SHELVES else folder)
        roots.append(Path.cwd())
        return cls(roots)

    def _folders(self, shelf: str, folder: str) -> list[Path]:
        if shelf not in SHELVES:
            raise ValueError(f"no shelf {shelf!r}; shelves: {', '.join(SHELVES)}")
        return [d for root in self.roots if _is_folder(d := root / shelf / folder)]

    def names(
        self, shelf: str, folder: str = "", suffixes: Sequence[str] = (".yaml",)
    ) -> list[str]:
        """Return the sorted names on a shelf: file names without their suffix."""
        return sorted(
            {
                entry.name.removesuffix(suffix)
                for directory in self._folders(shelf, folder)
                for entry in _entries(directory)
                for suffix in suffixes
                if entry.name.endswith(suffix) and entry.is_file()
            }
        )

    def find(
        self,
        shelf: str,
        name: str,
        *,
        folder: str = "",
        kind: str | None = None,
        suffixes: Sequence[str] = (".yaml",),
        source: str | Path | None = None,
        field: str | None = None,
    ) -> Path:
        """Return the file that ``name`` stands for.

        ``kind`` is the word for such a thing in messages (default: the shelf's name).

        Raises
        ------
        UnknownNameError
            If no root holds it; the message lists what exists.
        InputError
            If the name is not a plain name (a path, say).
        """
        kind = kind or shelf
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{shown(name)} is no {kind} name (letters, digits, '_', '-', '.' and '+')",
                source=source,
                field=field,
            )
        for directory in self._folders(shelf, folder):
            for suffix in suffixes:
                path = directory / f"{name}{suffix}"
                if path.is_file():
                    return path
        known = self.names(shelf, folder, suffixes)
        raise UnknownNameError(kind, name, known, source=source, field=field)

    def resolve(
        self,
        shelf: str,
        name_or_path: str,
        *,
        folder: str = "",
        kind: str | None = None,
        suffixes: Sequence[str] = (".yaml",),
        base: Path | None = None,
        source: str | Path | None = None,
        field: str | None = None,
    ) -> Path:
        """Return the file for a name, or for a path when the text looks like one.

        A text with a path separator or ending in one of ``suffixes`` is a path, relative to
        ``base`` (default: the working directory).
        """
        looks_like_path = os.sep in name_or_path or name_or_path.endswith(tuple(suffixes))
        if not looks_like_path:
            return self.find(
                shelf,
                name_or_path,
                folder=folder,
                kind=kind,
                suffixes=suffixes,
                source=source,
                field=field,
            )
        try:
            path = Path(base or Path.cwd()) / Path(name_or_path).expanduser()
            if path.is_file():
                return path
            problem = "is a directory" if path.is_dir() else "no such file"
        except (OSError, RuntimeError) as error:  # too long, or the home of an unknown user
            problem = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{problem}: {shown(name_or_path)}", source=source, field=field)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # in a folder that may not be entered
        raise InputError(error.strerror or str(error), source=path) from error


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise InputError(error.strerror or str(error), source=folder) from error
