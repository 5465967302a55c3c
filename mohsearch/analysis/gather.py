"""Runs of several studies together: every folder and every run once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mohsearch.analysis.fronts import Front
from mohsearch.analysis.results import (
    History,
    open_tree,
    read_fronts,
    read_histories,
    results_path,
    run_names,
    select_runs,
)
from mohsearch.core.errors import UnknownNameError

Tell = Callable[[str], None]
"""Takes a sentence about what was left out."""

_IDENTITY = ("run_digest", "problem_label", "workload", "engine_label", "portfolio", "seed")
"""With what was found, these tell whether two runs are one."""


def gather(
    folders: Sequence[Path],
    patterns: Sequence[str] = (),
    *,
    designs: bool = False,
    tell: Tell | None = None,
) -> tuple[Front, ...]:
    """Return the fronts of several studies together; runs are named after their folder as well.

    A folder that is named twice (through a link, say) and a run of which another folder holds a
    copy count once: they would pass for repetitions with other seeds.

    Parameters
    ----------
    tell
        Is told, in sentences, what was named twice (default: nobody is).

    Raises
    ------
    InputError
        If no folder holds a front, or a folder holds no results.
    UnknownNameError
        If a pattern matches no run of any folder.
    """
    kept = distinct_folders(folders, tell)
    found = [
        (folder, front)
        for folder, names in _matching(kept, patterns)
        for front in read_fronts(folder, names, designs=designs)
    ]
    copies = copied_runs([(folder, front.run, front.attrs) for folder, front in found], tell)
    titles = folder_titles(kept)
    return tuple(
        _located(front, folder, titles)
        for folder, front in found
        if (folder, front.run) not in copies
    )


def gather_histories(folders: Sequence[Path], patterns: Sequence[str] = ()) -> tuple[History, ...]:
    """Return the histories of several studies together (see :func:`gather`)."""
    kept = distinct_folders(folders)
    found = [
        (folder, history)
        for folder, names in _matching(kept, patterns)
        for history in read_histories(folder, names)
    ]
    copies = copied_runs([(folder, h.front.run, h.front.attrs) for folder, h in found])
    titles = folder_titles(kept)
    return tuple(
        replace(history, front=_located(history.front, folder, titles))
        for folder, history in found
        if (folder, history.front.run) not in copies
    )


def distinct_folders(folders: Sequence[Path], tell: Tell | None = None) -> tuple[Path, ...]:
    """Return the folders without those that are one of the earlier ones under another name.

    Raises
    ------
    InputError
        If a folder holds no results.
    """
    kept: dict[Path, Path] = {}
    for folder in map(Path, folders):
        place = results_path(folder).resolve()
        if place not in kept:
            kept[place] = folder
        elif tell is not None:
            again = kept[place]
            same = "is named twice" if folder == again else f"is {again} under another name"
            tell(f"{folder} {same}: its runs count once")
    return tuple(kept.values())


def copied_runs(
    runs: Sequence[tuple[Path, str, Mapping[str, Any]]], tell: Tell | None = None
) -> frozenset[tuple[Path, str]]:
    """Return which of ``runs`` (folder, name, attributes) are an earlier one again.

    Two runs are one where they searched the same with the same seed under the same names, and the
    content digests of what they found are equal. Without a digest a run is like no other.
    """
    first: dict[tuple[str, ...], Path] = {}
    copies: dict[tuple[Path, str], Path] = {}
    for folder, run, attrs in runs:
        if not attrs.get("digest"):
            continue
        key = (str(attrs["digest"]), *(str(attrs.get(name, "")) for name in _IDENTITY))
        other = first.setdefault(key, folder)
        if other != folder:
            copies[folder, run] = other
    if tell is not None:
        held = Counter(folder for folder, _, _ in runs)
        counted = Counter((folder, other) for (folder, _), other in copies.items())
        for (folder, other), count in counted.items():
            tell(
                f"{count} of {held[folder]} runs in {folder} are copies of runs in {other}: "
                "they count once"
            )
    return frozenset(copies)


def folder_titles(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what to call each folder: its own name, the whole path where two have the same."""
    times = Counter(folder.name for folder in folders)
    return {f: f.name if times[f.name] == 1 else str(f) for f in folders}


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


def _located(front: Front, folder: Path, titles: Mapping[Path, str]) -> Front:
    if len(titles) == 1:
        return front
    return replace(front, run=f"{titles[folder]}/{front.run}")
