"""Runs of several studies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mohsearch.analysis.fronts import Front
from mohsearch.analysis.results import (
    History,
    open_tree,
    read_fronts,
    read_histories,
    run_names,
    select_runs,
)
from mohsearch.core.errors import UnknownNameError


def gather(
    folders: Sequence[Path], patterns: Sequence[str] = (), *, designs: bool = False
) -> tuple[Front, ...]:
    """Return the fronts of several studies together; runs are named after their folder as well.

    Raises
    ------
    InputError
        If no folder holds a front, or a folder holds no results.
    UnknownNameError
        If a pattern matches no run of any folder.
    """
    return tuple(
        _located(front, folder, folders)
        for folder, names in _matching(folders, patterns)
        for front in read_fronts(folder, names, designs=designs)
    )


def gather_histories(folders: Sequence[Path], patterns: Sequence[str] = ()) -> tuple[History, ...]:
    """Return the histories of several studies together (see :func:`gather`)."""
    return tuple(
        replace(history, front=_located(history.front, folder, folders))
        for folder, names in _matching(folders, patterns)
        for history in read_histories(folder, names)
    )


def _matching(folders: Sequence[Path], patterns: Sequence[str]) -> list[tuple[Path, list[str]]]:
    """Return the folders with runs that match, and the patterns that match in each."""
    if not patterns:
        return [(folder, []) for folder in folders]
    names = {folder: run_names(open_tree(folder)) for folder in folders}
    everything = [name for found in names.values() for name in found]
    for pattern in patterns:
        select_runs(everything, [pattern])
    chosen = []
    for folder, found in names.items():
        mine = [n for p in patterns for n in found if n in _hits(found, p)]
        if mine:
            chosen.append((folder, list(dict.fromkeys(mine))))
    return chosen


def _hits(names: Sequence[str], pattern: str) -> list[str]:
    try:
        return select_runs(names, [pattern])
    except UnknownNameError:
        return []


def _located(front: Front, folder: Path, folders: Sequence[Path]) -> Front:
    if len(folders) == 1:
        return front
    return replace(front, run=f"{Path(folder).name}/{front.run}")
