"""The tables of a publication from the results of this project's studies, theirs beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mohsearch.analysis import measured_tables, parallelism_tables, phaze_tables
from mohsearch.analysis.fronts import Front
from mohsearch.analysis.gather import Tell, gather
from mohsearch.core.errors import InputError

Section = tuple[str, list[str]]

MAKERS: dict[str, Callable[[Sequence[Front]], list[Section]]] = {
    "measured": measured_tables.sections,
    "parallelism": parallelism_tables.sections,
    "phaze": phaze_tables.sections,
}
"""By problem: what turns its fronts into tables."""


def published_tables(
    folders: Sequence[Path], patterns: Sequence[str] = (), *, tell: Tell | None = None
) -> list[Section]:
    """Return headings and Markdown lines of all tables that the results have something for.

    Parameters
    ----------
    folders
        Output folders of studies.
    patterns
        Runs to take, by name.
    tell
        Is told which folders and runs were named twice; they count once.

    Raises
    ------
    InputError
        If a folder holds no results, or no table is made of what they hold.
    """
    fronts = gather(folders, patterns, designs=True, tell=tell)
    made: list[Section] = []
    for problem, maker in MAKERS.items():
        mine = [front for front in fronts if front.attrs["problem"] == problem]
        if mine:
            made += maker(mine)
    if not made:
        held = ", ".join(sorted({str(front.attrs["problem"]) for front in fronts}))
        raise InputError(
            f"no published table is made of these runs (problem {held}); there are some for the "
            f"studies of {' and '.join(MAKERS)} that name a table, for phaze_common, "
            "phaze_hysteresis and megatron_a100"
        )
    return made
