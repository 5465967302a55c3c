"""Everything a report shows, gathered from the results of one or more studies."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.ablate import Ablation, ablate
from mohsearch.analysis.compare import Comparison, compare
from mohsearch.analysis.convergence import Curve, curves
from mohsearch.analysis.fronts import Front, Metric, highlights, knee, spread
from mohsearch.analysis.gather import copied_runs, distinct_folders, folder_titles
from mohsearch.analysis.indicators import nondominated
from mohsearch.analysis.labels import label, labels, varying_fields
from mohsearch.analysis.report_sheets import Names, Sheet, sheet_of
from mohsearch.analysis.results import (
    History,
    open_tree,
    plain,
    read_front,
    read_fronts,
    read_histories,
    run_names,
    select_runs,
)
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    import xarray as xr


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
    curves
        Hypervolume over evaluations, one curve per run.
    """

    problem: str
    workload: str
    metrics: tuple[Metric, ...]
    objectives: tuple[str, ...]
    members: tuple[Member, ...]
    best: tuple[NDArray[np.bool_], ...]
    knee: tuple[int, int]
    curves: tuple[Curve, ...]

    @property
    def name(self) -> str:
        """Problem and workload."""
        return f"{self.problem}: {self.workload}"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of its fronts, each once."""
        return tuple(dict.fromkeys(m.folder for m in self.members))


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

    def command(self, words: str, problem: str = "") -> str:
        """Return a command over all folders, or over those with fronts of one problem."""
        folders = self.folders
        if problem:
            mine = [f for case in self.cases if case.problem == problem for f in case.folders]
            folders = tuple(dict.fromkeys(mine))
        return shlex.join(["mohsearch", *words.split(), *map(str, folders)])


def gather_report(
    folders: Sequence[Path], *, title: str = "", patterns: Sequence[str] = (), designs: int = 3000
) -> Report:
    """Read results and work out all tables and pictures of a report.

    Parameters
    ----------
    folders
        Output folders of studies. A folder named twice, and a run of which an earlier folder holds
        a copy, count once, as a note says.
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
    notes: list[str] = []
    trees = {folder: open_tree(folder) for folder in distinct_folders(folders, notes.append)}
    found = [
        (folder, front)
        for folder, tree in trees.items()
        for front in _ready(folder, tree, patterns)
    ]
    copies = copied_runs([(folder, f.run, f.attrs) for folder, f in found], notes.append)
    fronts = [(folder, front) for folder, front in found if (folder, front.run) not in copies]
    trees = {f: t for f, t in trees.items() if any(f == folder for folder, _ in fronts)}
    histories = _histories(trees, patterns)
    names = Names()
    kept = _quotas([len(front) for _, front in fronts], designs)
    groups: dict[tuple[str, str], list[Member]] = {}
    titles = folder_titles(tuple(trees))
    for (folder, front), quota in zip(fronts, kept, strict=True):
        key = (str(front.attrs.get("problem", "")), str(front.attrs.get("workload", "")))
        sheets = _sheets(trees[folder], front, quota, names)
        groups.setdefault(key, []).append(Member(folder, front.run, "", "", front, sheets))
    cases = tuple(
        _case(problem, workload, members, titles, histories)
        for (problem, workload), members in groups.items()
    )
    total, held = sum(len(f) for _, f in fronts), sum(kept)
    if held < total:
        notes.append(
            f"{held:,} of {total:,} designs are in this page, every front's extremes and knee "
            "among them; the command beside a point prints the others"
        )
    runs, certificates = _provenance(trees, patterns, copies)
    notes += [
        f"made with {made}" for made in dict.fromkeys(str(run["made"]) for run in runs) if made
    ]
    return Report(
        title=title or _title(trees),
        folders=tuple(trees),
        cases=cases,
        comparisons=_comparisons(cases),
        ablations=_ablations(trees, patterns),
        runs=runs,
        certificates=certificates,
        names=names,
        notes=tuple(notes),
    )


def _ready(folder: Path, tree: xr.DataTree, patterns: Sequence[str]) -> tuple[Front, ...]:
    """Return the fronts of a tree that is open already, without designs."""
    names = select_runs(run_names(tree), patterns)
    ready = [name for name in names if "front" in tree[name].children]
    if not ready:
        return read_fronts(folder, patterns, designs=False)  # which says what is wrong
    return tuple(read_front(tree, name, designs=False) for name in ready)


def _histories(
    trees: Mapping[Path, xr.DataTree], patterns: Sequence[str]
) -> dict[tuple[Path, str], History]:
    """Return what each run evaluated, by folder and run."""
    found: dict[tuple[Path, str], History] = {}
    for folder in trees:
        try:
            histories = read_histories(folder, patterns)
        except InputError:  # fronts without a history: another program's results, say
            continue
        found |= {(folder, history.front.run): history for history in histories}
    return found


def _title(trees: Mapping[Path, xr.DataTree]) -> str:
    titles = [str(tree.attrs.get("title") or folder.name) for folder, tree in trees.items()]
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
    items: Sequence[Member],
    titles: Mapping[Path, str],
    histories: Mapping[tuple[Path, str], History],
) -> Case:
    fronts = [member.front for member in items]
    shared = [m for m in fronts[0].metrics if all(m.name in f.values for f in fronts)]
    wanted = dict.fromkeys(name for front in fronts for name in front.objectives)
    objectives = tuple(name for name in wanted if name in {m.name for m in shared})
    fields = varying_fields(fronts)
    members = tuple(
        replace(
            member,
            label=f"{titles[member.folder]}/{text}" if len(titles) > 1 else text,
            contender=_contender(member, fields, titles),
        )
        for member, text in zip(items, labels(fronts), strict=True)
    )
    known = [m for m in members if (m.folder, m.run) in histories]
    found = [histories[m.folder, m.run] for m in known]
    made = curves(found, objectives=objectives) if found else ()
    return Case(
        problem=problem,
        workload=workload,
        metrics=tuple(shared),
        objectives=objectives,
        members=members,
        **_best(fronts, objectives),
        curves=tuple(replace(c, contender=m.contender) for c, m in zip(made, known, strict=True)),
    )


def _contender(member: Member, fields: tuple[str, ...], titles: Mapping[Path, str]) -> str:
    attrs = member.front.attrs
    text = label(attrs, fields) or label(attrs, ("engine", "portfolio"))
    return f"{titles[member.folder]}: {text}" if len(titles) > 1 else text


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


def _sheets(tree: xr.DataTree, front: Front, quota: int, names: Names) -> dict[int, Sheet]:
    if not quota:
        return {}
    designs = read_front(tree, front.run).designs
    if not designs:
        return {}
    chosen: Sequence[int] = range(len(front))
    if quota < len(front):
        chosen = spread(front.losses(), quota, keep=list(highlights(front, 0)))
    return {int(i): sheet_of(designs[int(i)], names) for i in sorted(chosen)}


def _comparisons(cases: Sequence[Case]) -> dict[str, Comparison]:
    """Return one comparison per problem that has something to compare."""
    by_problem: dict[str, list[Front]] = {}
    for case in cases:
        by_problem.setdefault(case.problem, []).extend(m.front for m in case.members)
    return {name: compare(fronts) for name, fronts in by_problem.items() if len(fronts) > 1}


def _ablations(
    trees: Mapping[Path, xr.DataTree], patterns: Sequence[str]
) -> tuple[tuple[Path, Ablation], ...]:
    found = []
    for folder, tree in trees.items():
        spec = plain(tree.attrs.get("spec"))
        entries = spec.get("portfolios", []) if isinstance(spec, dict) else []
        if not any(entry.get("without") or entry.get("only") for entry in entries):
            continue
        try:
            found += [(folder, item) for item in ablate(folder, patterns)]
        except InputError:  # a single seed of the whole portfolio, say: there is no control
            continue
    return tuple(found)


def _provenance(
    trees: Mapping[Path, xr.DataTree],
    patterns: Sequence[str],
    copies: Collection[tuple[Path, str]],
) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    certificates: dict[str, Any] = {}
    for folder, tree in trees.items():
        for run in select_runs(run_names(tree), patterns):
            if (folder, run) in copies:
                continue
            attrs = {str(k): plain(v) for k, v in tree[run].attrs.items()}
            origin = attrs.get("provenance")
            origin = origin if isinstance(origin, dict) else {}
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
                    "made": _made(origin),
                    "digest": str(attrs.get("digest", ""))[:16],
                }
            )
            if attrs.get("certificate"):
                certificates[f"{folder}: {run}"] = attrs["certificate"]
    return tuple(rows), certificates


def _made(origin: Mapping[str, Any]) -> str:
    """Return versions and machine of a run in words; empty where nothing is known."""
    versions = origin.get("versions") or {}
    parts = [f"{name} {version}" for name, version in versions.items()]
    parts += [f"Python {origin['python']}"] if origin.get("python") else []
    parts += [str(origin["platform"])] if origin.get("platform") else []
    return ", ".join(parts)
