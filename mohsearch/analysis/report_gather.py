"""Everything a report shows, gathered from the results of one or more studies."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.ablate import Ablation, ablate
from mohsearch.analysis.compare import Comparison, compare
from mohsearch.analysis.convergence import Band, bands, curves
from mohsearch.analysis.fronts import Front, Metric, highlights, knee, spread
from mohsearch.analysis.gather import gather_histories
from mohsearch.analysis.indicators import nondominated
from mohsearch.analysis.labels import label, labels, varying_fields
from mohsearch.analysis.report_sheets import Names, Sheet, sheet_of
from mohsearch.analysis.results import (
    History,
    open_tree,
    plain,
    read_front,
    read_fronts,
    run_names,
    select_runs,
)
from mohsearch.core.errors import InputError

MOST_POINTS = 200
"""Points of a convergence curve."""


@dataclass(frozen=True)
class Member:
    """One front of a case, and where its results lie.

    Attributes
    ----------
    folder
        Output folder of the study, as it was given.
    run
        The run's name in that folder.
    label, contender
        What tells it from the other fronts of the case, with and without the seed.
    front
        Without designs.
    sheets
        By solution, what a click shows; solutions left out have none.
    """

    folder: Path
    run: str
    label: str
    contender: str
    front: Front
    sheets: dict[int, Sheet] = field(default_factory=dict)

    def command(self, solution: int | None = None) -> str:
        """Return the command that prints this front, or one design of it."""
        words = ["mohsearch", "front", "show", str(self.folder), "--run", self.run]
        if solution is not None:
            words += ["--solution", str(solution)]
        return shlex.join(words)


@dataclass(frozen=True)
class Case:
    """Fronts of one problem on one workload: what may stand in one picture.

    Attributes
    ----------
    metrics
        Those that all fronts have.
    objectives
        Metrics that some front optimises.
    best
        One mask per member: solutions that no solution of another member dominates.
    knee
        Member and solution.
    bands
        Hypervolume over evaluations, median and quartiles over seeds.
    """

    problem: str
    workload: str
    metrics: tuple[Metric, ...]
    objectives: tuple[str, ...]
    members: tuple[Member, ...]
    best: tuple[NDArray[np.bool_], ...]
    knee: tuple[int, int]
    bands: tuple[Band, ...]

    @property
    def name(self) -> str:
        """Problem and workload."""
        return f"{self.problem}: {self.workload}"

    @property
    def solutions(self) -> int:
        """Number of solutions of all fronts together."""
        return sum(len(m.front) for m in self.members)


@dataclass(frozen=True)
class Report:
    """What the page and its printable copy show.

    Attributes
    ----------
    comparisons
        By problem.
    ablations
        With the folder of each.
    runs
        One flat record per run: state, effort, versions, the command that made it.
    certificates
        By run, what its problem proves.
    names
        Names of layers and ops in the sheets.
    notes
        What is missing, as sentences.
    """

    title: str
    folders: tuple[Path, ...]
    cases: tuple[Case, ...]
    comparisons: Mapping[str, Comparison]
    ablations: tuple[tuple[Path, Ablation], ...]
    runs: tuple[dict[str, Any], ...]
    certificates: Mapping[str, Any]
    names: Names
    notes: tuple[str, ...]


def gather_report(
    folders: Sequence[Path], *, title: str = "", patterns: Sequence[str] = (), designs: int = 3000
) -> Report:
    """Read results and work out all tables and pictures of a report.

    Parameters
    ----------
    folders
        Output folders of studies.
    title
        Heading (default: the studies' titles).
    patterns
        Runs, as in :func:`mohsearch.analysis.results.select_runs`.
    designs
        Most designs to keep over all runs. Where there are more solutions, every front keeps its
        extremes, its knee and a spread of others.

    Raises
    ------
    InputError
        If a folder holds no results, or no run of it has a front yet.
    """
    fronts = [
        (Path(folder), front)
        for folder in folders
        for front in read_fronts(Path(folder), patterns, designs=False)
    ]
    names = Names()
    kept = _quotas([len(front) for _, front in fronts], designs)
    groups: dict[tuple[str, str], list[tuple[Path, Front, int]]] = {}
    for (folder, front), quota in zip(fronts, kept, strict=True):
        attrs = front.attrs
        key = (str(attrs.get("problem", "")), str(attrs.get("workload", "")))
        groups.setdefault(key, []).append((folder, front, quota))
    notes: list[str] = []
    cases = tuple(
        _case(problem, workload, members, len(folders) > 1, names, notes)
        for (problem, workload), members in groups.items()
    )
    total, held = sum(len(f) for _, f in fronts), sum(kept)
    if held < total:
        notes.append(
            f"{held:,} of {total:,} designs are in this page, every front's extremes and knee "
            "among them; the command beside a point prints the others"
        )
    runs, certificates = _provenance(folders, patterns)
    return Report(
        title=title or _title(folders),
        folders=tuple(Path(folder) for folder in folders),
        cases=cases,
        comparisons=_comparisons(cases),
        ablations=_ablations(folders, patterns),
        runs=runs,
        certificates=certificates,
        names=names,
        notes=tuple(notes),
    )


def _title(folders: Sequence[Path]) -> str:
    titles = [str(open_tree(Path(f)).attrs.get("title") or Path(f).name) for f in folders]
    return "; ".join(dict.fromkeys(titles))


def _quotas(sizes: Sequence[int], most: int) -> list[int]:
    """Return how many designs each front keeps: small fronts all, large ones equal shares.

    Examples
    --------
    >>> _quotas([3, 100, 200], 43)
    [3, 20, 20]
    """
    left, quotas = most, [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for position, index in enumerate(order):
        share = max(left, 0) // (len(order) - position)
        quotas[index] = min(sizes[index], share)
        left -= quotas[index]
    return quotas


def _case(
    problem: str,
    workload: str,
    items: Sequence[tuple[Path, Front, int]],
    several: bool,
    names: Names,
    notes: list[str],
) -> Case:
    fronts = [front for _, front, _ in items]
    shared = [m for m in fronts[0].metrics if all(m.name in f.values for f in fronts)]
    wanted = dict.fromkeys(name for front in fronts for name in front.objectives)
    objectives = tuple(name for name in wanted if name in {m.name for m in shared})
    fields = varying_fields(fronts)
    members = tuple(
        Member(
            folder=folder,
            run=front.run,
            label=f"{folder.name}/{text}" if several else text,
            contender=_contender(folder, front, fields, several),
            front=front,
            sheets=_sheets(folder, front, quota, names),
        )
        for (folder, front, quota), text in zip(items, labels(fronts), strict=True)
    )
    return Case(
        problem=problem,
        workload=workload,
        metrics=tuple(shared),
        objectives=objectives,
        members=members,
        **_best(fronts, objectives),
        bands=_bands(problem, workload, members, objectives, notes),
    )


def _contender(folder: Path, front: Front, fields: tuple[str, ...], several: bool) -> str:
    text = label(front.attrs, fields) or label(front.attrs, ("engine", "portfolio"))
    return f"{folder.name}: {text}" if several else text


def _best(fronts: Sequence[Front], objectives: Sequence[str]) -> dict[str, Any]:
    """Return ``best`` and ``knee`` of a case."""
    losses = np.concatenate([front.losses(objectives) for front in fronts])
    usable = np.isfinite(losses).all(axis=1)
    mask = np.zeros(len(losses), dtype=bool)
    mask[usable] = nondominated(losses[usable])
    ends = np.cumsum([len(front) for front in fronts])
    parts = np.split(mask, ends[:-1])
    if not usable.any():
        return {"best": tuple(parts), "knee": (0, 0)}
    candidates = np.flatnonzero(mask)
    chosen = int(candidates[knee(losses[candidates])])
    member = int(np.searchsorted(ends, chosen, side="right"))
    return {"best": tuple(parts), "knee": (member, chosen - int(ends[member] - len(parts[member])))}


def _sheets(folder: Path, front: Front, quota: int, names: Names) -> dict[int, Sheet]:
    if not quota:
        return {}
    designs = read_front(open_tree(folder), front.run).designs
    if not designs:
        return {}
    chosen: Sequence[int] = range(len(front))
    if quota < len(front):
        chosen = spread(front.losses(), quota, keep=list(highlights(front, 0)))
    return {int(i): sheet_of(designs[int(i)], names) for i in sorted(chosen)}


def _bands(
    problem: str,
    workload: str,
    members: Sequence[Member],
    objectives: Sequence[str],
    notes: list[str],
) -> tuple[Band, ...]:
    folders = list(dict.fromkeys(member.folder for member in members))
    found: list[History] = []
    for folder in folders:
        runs = [member.run for member in members if member.folder == folder]
        try:
            found += gather_histories([folder], runs)
        except InputError as error:
            notes.append(f"{problem}, {workload}: no convergence curves ({error})")
            return ()
    return tuple(_thinned(band) for band in bands(curves(found, objectives=objectives)))


def _thinned(band: Band) -> Band:
    rows = np.unique(np.linspace(0, len(band.evaluations) - 1, MOST_POINTS).round().astype(int))
    return Band(
        band.contender,
        band.runs,
        band.evaluations[rows],
        band.low[rows],
        band.median[rows],
        band.high[rows],
    )


def _comparisons(cases: Sequence[Case]) -> dict[str, Comparison]:
    """Return one comparison per problem that has something to compare."""
    by_problem: dict[str, list[Front]] = {}
    for case in cases:
        by_problem.setdefault(case.problem, []).extend(m.front for m in case.members)
    return {name: compare(fronts) for name, fronts in by_problem.items() if len(fronts) > 1}


def _ablations(
    folders: Sequence[Path], patterns: Sequence[str]
) -> tuple[tuple[Path, Ablation], ...]:
    found = []
    for folder in folders:
        spec = plain(open_tree(Path(folder)).attrs.get("spec"))
        entries = spec.get("portfolios", []) if isinstance(spec, dict) else []
        if not any(entry.get("without") or entry.get("only") for entry in entries):
            continue
        try:
            found += [(Path(folder), item) for item in ablate(folder, patterns)]
        except InputError:  # a single seed of the whole portfolio, say: there is no control
            continue
    return tuple(found)


def _provenance(
    folders: Sequence[Path], patterns: Sequence[str]
) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    certificates: dict[str, Any] = {}
    for folder in folders:
        tree = open_tree(Path(folder))
        for run in select_runs(run_names(tree), patterns):
            attrs = {str(k): plain(v) for k, v in tree[run].attrs.items()}
            origin = attrs.get("provenance")
            origin = origin if isinstance(origin, dict) else {}
            versions = origin.get("versions") or {}
            rows.append(
                {
                    "folder": str(folder),
                    "run": run,
                    "status": str(attrs.get("status", "unknown")),
                    "seed": str(attrs.get("seed", "")),
                    "evaluations": attrs.get("evaluations"),
                    "distinct": attrs.get("distinct_genomes"),
                    "wall_s": origin.get("wall_s"),
                    "cpu_s": origin.get("cpu_s"),
                    "command": str(origin.get("command", "")),
                    "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
                    "python": str(origin.get("python", "")),
                    "machine": str(origin.get("platform", "")),
                    "digest": str(attrs.get("digest", ""))[:16],
                }
            )
            if attrs.get("certificate"):
                certificates[f"{folder}: {run}"] = attrs["certificate"]
    return tuple(rows), certificates
