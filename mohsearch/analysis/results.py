"""From the results store to fronts and histories, the only place here that knows its layout."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.fronts import Design, Front, Metric, subset
from mohsearch.analysis.indicators import nondominated
from mohsearch.core.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class History:
    """What one run evaluated, generation by generation.

    Attributes
    ----------
    front
        The run's declarations and attributes; an empty front.
    evaluations
        int64, shape (generations,): evaluations spent after each completed generation.
    distinct
        int64, shape (generations,): how many of ``values`` were known after each generation.
    values
        Metric values of every distinct genome by name, natural signs, in the order of evaluation,
        each of shape (genomes,).
    """

    front: Front
    evaluations: NDArray[np.int64]
    distinct: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]


def select_runs(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match any of ``patterns``; all of them without patterns.

    A pattern is a name, a shell pattern (``*nsga2*``) or a part of a name.

    Raises
    ------
    UnknownNameError
        If a pattern matches nothing.

    Examples
    --------
    >>> select_runs(["a-nsga2-1", "a-random-1"], ["nsga2"])
    ['a-nsga2-1']
    """
    if not patterns:
        return list(names)
    chosen: set[str] = set()
    for pattern in patterns:
        hits = [n for n in names if n == pattern]
        hits = hits or [n for n in names if fnmatch.fnmatchcase(n, pattern)]
        hits = hits or [n for n in names if pattern in n]
        if not hits:
            raise UnknownNameError("run", pattern, names)
        chosen.update(hits)
    return [n for n in names if n in chosen]


def results_path(folder: Path) -> Path:
    """Return the results tree in a study's output folder (or the tree itself).

    Raises
    ------
    InputError
        If there is none.
    """
    folder = Path(folder)
    path = folder if folder.name == "results.zarr" else folder / "results.zarr"
    if (path / "zarr.json").is_file():
        return path
    if not folder.exists():
        raise InputError("no such folder", source=folder)
    raise InputError("holds no results.zarr; give the --output of a study run", source=folder)


def plain(value: Any) -> Any:
    """Return an attribute as JSON value: texts that hold JSON objects or lists are parsed."""
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def open_tree(folder: Path, *, only: str = "") -> xr.DataTree:
    """Open the results tree of a study's output folder, lazily.

    ``only="front"`` opens the fronts alone.

    Raises
    ------
    InputError
        If there is none or it is damaged.
    """
    from mohsearch.study.results import open_results

    return open_results(results_path(folder).parent, only=only)


def run_names(tree: xr.DataTree) -> list[str]:
    """Return the names of all runs in the tree, sorted, numbers in them by value."""
    names = [name for name, node in tree.children.items() if "objectives" in node.attrs]
    return sorted(
        names, key=lambda name: [(len(t) * t.isdigit(), t) for t in re.split(r"(\d+)", name)]
    )


def _metrics(dataset: xr.Dataset, attrs: Mapping[Any, Any]) -> tuple[Metric, ...]:
    """Return the metrics of a group in the order of their declaration.

    The order of arrays in a Zarr group is that of the file system: it means nothing.
    """
    declared = [*_names(attrs.get("metrics") or []), *_names(attrs.get("constraints") or [])]
    found = {
        str(name): Metric(
            str(name),
            str(variable.attrs.get("units", "1")),
            str(variable.attrs["sense"]),
            str(variable.attrs.get("long_name", name)),
        )
        for name, variable in dataset.data_vars.items()
        if "sense" in variable.attrs
    }
    order = [*(n for n in declared if n in found), *sorted(found.keys() - set(declared))]
    return tuple(found[name] for name in order)


def _names(value: Any) -> tuple[str, ...]:
    value = plain(value)
    items = value.split(",") if isinstance(value, str) else list(value)
    return tuple(str(item).strip() for item in items)


def read_front(tree: xr.DataTree, run: str, *, designs: bool = True) -> Front:
    """Return the front of one run.

    Raises
    ------
    InputError
        If the run has not written a front yet.
    """
    node = tree[run]
    if "front" not in node.children:
        status = node.attrs.get("status", "unknown")
        raise InputError(f"has no front yet (status: {status})", source=f"run {run}")
    data = node["front"].to_dataset()
    metrics = _metrics(data, tree[run].attrs)
    values = {m.name: np.asarray(data[m.name].values, dtype=np.float64) for m in metrics}
    return _front(tree, run, metrics, values, _designs(data) if designs else ())


def _front(
    tree: xr.DataTree,
    run: str,
    metrics: tuple[Metric, ...],
    values: Mapping[str, NDArray[np.float64]],
    designs: Sequence[Design] = (),
) -> Front:
    node = tree[run]
    attrs = {str(key): plain(value) for key, value in node.attrs.items()}
    attrs |= _declared_options(plain(tree.attrs.get("spec")), attrs)
    bounds = attrs.get("ideal_point") or {}
    return Front(
        run=run,
        attrs=attrs,
        metrics=metrics,
        values=values,
        objectives=_names(node.attrs["objectives"]),
        ideal_point={str(k): float(v) for k, v in bounds.items()},
        designs=designs,
    )


def _declared_options(spec: Any, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problem options that a study's file gives a run; empty where it has no spec."""
    entries = spec.get("problems", []) if isinstance(spec, dict) else []
    title = attrs.get("problem_label") or attrs.get("problem")
    for entry in entries:
        if (entry.get("label") or entry.get("name")) == title:
            return {"options": entry.get("options") or {}}
    return {}


class Designs(Sequence[Design]):
    """Decoded designs, parsed one by one when they are asked for.

    A front of hundreds of solutions over hundreds of layers is megabytes of JSON, of which a table
    or a Gantt chart needs little.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> Design: ...

    @overload
    def __getitem__(self, index: slice) -> Designs: ...

    def __getitem__(self, index: int | slice) -> Design | Designs:
        """Parse one design, or take some without parsing them."""
        if isinstance(index, slice):
            return Designs(self._texts[index])
        design: Design = json.loads(self._texts[index])
        return design


def _designs(data: xr.Dataset) -> Sequence[Design]:
    return Designs([str(text) for text in data["design"].values]) if "design" in data else ()


def read_fronts(
    folder: Path, patterns: Sequence[str] = (), *, designs: bool = True
) -> tuple[Front, ...]:
    """Return the fronts of the runs in a study's output folder that match ``patterns``.

    Runs without a front yet are left out unless a pattern names them alone.

    Raises
    ------
    InputError
        If there is no result, no such run, or no run has a front yet.
    """
    tree = open_tree(folder, only="front")
    names = select_runs(run_names(tree), patterns)
    ready = [name for name in names if "front" in tree[name].children]
    if not ready:
        if not names:
            raise InputError("holds no run yet", source=folder)
        states = ", ".join(f"{n}: {tree[n].attrs.get('status', 'unknown')}" for n in names[:6])
        raise InputError(f"no run has a front yet ({states})", source=folder)
    return tuple(read_front(tree, name, designs=designs) for name in ready)


def read_histories(folder: Path, patterns: Sequence[str] = ()) -> tuple[History, ...]:
    """Return the histories of the runs that match ``patterns``: completed generations only.

    Raises
    ------
    InputError
        If no run has completed a generation yet.
    """
    tree = open_tree(folder)
    found = []
    for name in select_runs(run_names(tree), patterns):
        if "history" not in tree[name].children:
            continue
        ledger = tree[name]["history"].to_dataset()
        done = np.asarray(ledger["done"].values, dtype=bool)
        count = len(done) if done.all() else int(done.argmin())
        if not count:
            continue
        distinct = np.asarray(ledger["distinct"].values[:count], dtype=np.int64)
        data = tree[name]["archive"].to_dataset().isel(genome_id=slice(0, int(distinct[-1])))
        metrics = _metrics(data, tree[name].attrs)
        values = {m.name: np.asarray(data[m.name].values, dtype=np.float64) for m in metrics}
        front = _front(tree, name, metrics, {m.name: np.zeros(0) for m in metrics})
        evaluations = np.asarray(ledger["evaluations"].values[:count], dtype=np.int64)
        found.append(History(front, evaluations, distinct, values))
    if not found:
        raise InputError("no run has completed a generation yet", source=folder)
    return tuple(found)


def read_final_front(folder: Path, run: str) -> Front:
    """Return the non-dominated feasible solutions of a run's final population, without designs.

    The run's own front is drawn from all that it evaluated; this one is what the population held
    at the end, as publications report it. Equal objective vectors are kept once.

    Raises
    ------
    InputError
        If the run has not completed a generation.
    """
    return _final_front(open_tree(folder), run)


def read_final_fronts(folder: Path, patterns: Sequence[str] = ()) -> tuple[Front, ...]:
    """Return the final populations' fronts of the completed runs that match ``patterns``.

    Raises
    ------
    InputError
        If no run is complete.
    """
    tree = open_tree(folder)
    names = select_runs(run_names(tree), patterns)
    complete = [name for name in names if "front" in tree[name].children]
    if not complete:
        raise InputError("no run is complete yet", source=folder)
    return tuple(_final_front(tree, name) for name in complete)


def _final_front(tree: xr.DataTree, run: str) -> Front:
    node = tree[run]
    done = 0
    if "history" in node.children:
        flags = np.asarray(node["history"]["done"].values, dtype=bool)
        done = len(flags) if flags.all() else int(flags.argmin())
    if not done:
        raise InputError("has not completed a generation", source=f"run {run}")
    data = node["history"].to_dataset().isel(generation=done - 1)
    metrics = _metrics(data, node.attrs)
    members = np.asarray(data["archive_index"].values) >= 0
    values = {m.name: np.asarray(data[m.name].values, dtype=np.float64)[members] for m in metrics}
    whole = _front(tree, run, metrics, values)
    losses = whole.losses()
    usable = np.isfinite(losses).all(axis=1)
    for name in _names(node.attrs.get("constraints") or []):
        if name in values:
            usable &= values[name] <= 0
    candidates = np.flatnonzero(usable)
    best = candidates[nondominated(losses[candidates])]
    _, first = np.unique(losses[best], axis=0, return_index=True)
    return subset(whole, best[np.sort(first)])


def read_genome(folder: Path, run: str, solution: int) -> NDArray[Any]:
    """Return the decision variables of one solution of a run's front, shape (n_var,)."""
    data = open_tree(folder)[run]["front"].to_dataset()
    return np.asarray(data["genome"].isel(solution=solution).values)
