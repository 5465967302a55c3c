"""How far the published search of PHAZE goes at each level of hysteresis (its figures 8 and 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis import style
from mohsearch.analysis.fronts import Front
from mohsearch.analysis.results import History, plain
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENGINE, PROOF = "phaze-hysteresis", "exhaustive"
METRIC = "throughput_samples_per_s"


@dataclass(frozen=True)
class Level:
    """One search at one level.

    Attributes
    ----------
    problem, workload
        What was searched.
    level
        Bins in a row without a rise that end a search.
    throughput
        The best found, samples per second.
    proven
        The proven best of the same space; not a number where no proof is there.
    evaluated, bins
        Designs evaluated, and area bins visited, over all settings.
    """

    problem: str
    workload: str
    level: int
    throughput: float
    proven: float
    evaluated: int
    bins: int

    @property
    def share(self) -> float:
        """The best found over the proven best."""
        return self.throughput / self.proven


def hysteresis_rows(fronts: Sequence[Front]) -> list[Level]:
    """Return the searches by problem, workload and level; none where no run is one."""
    proven = {_key(front): _best(front) for front in fronts if _proves(front)}
    rows = []
    for front in fronts:
        if front.attrs.get("engine") != ENGINE or not len(front):
            continue
        report = _report(front)
        rows.append(
            Level(
                *_key(front),
                level=int(report["level"]),
                throughput=_best(front),
                proven=proven.get(_key(front), float("nan")),
                evaluated=int(front.attrs["evaluations"]),
                bins=sum(report["bins_explored"]),
            )
        )
    return sorted(rows, key=lambda row: (row.problem, row.workload, row.level))


def _key(front: Front) -> tuple[str, str]:
    return str(front.attrs["problem_label"]), str(front.attrs["workload"])


def _best(front: Front) -> float:
    return float(np.max(front.values[METRIC]))


def _report(front: Front) -> Mapping[str, Any]:
    report = plain(front.attrs.get("engine_report", {}))
    return report if isinstance(report, Mapping) else {}


def _proves(front: Front) -> bool:
    return (
        front.attrs.get("engine") == PROOF
        and len(front) > 0
        and _report(front).get("status") == "optimal"
    )


def hysteresis(rows: Sequence[Level]) -> list[str]:
    """Return the lines of a table: every level beside the proven optimum."""
    lines = [
        "| model | level | samples/s | of the proven best | designs evaluated | area bins |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = "-" if np.isnan(row.proven) else f"{row.share:.1%}"
        lines.append(
            f"| {row.workload} | {row.level} | {row.throughput:,.4g} | {share} | "
            f"{row.evaluated:,} | {row.bins:,} |"
        )
    return lines


def plot_hysteresis(histories: Sequence[History], *, heading: str = "") -> Figure:
    """Draw the best throughput so far against designs evaluated, and where each level stops.

    One curve a model, of its highest level; all lower levels stop on the same curve, since the
    order of exploration does not depend on the level. Dots carry the levels that stop there.

    Parameters
    ----------
    histories
        Runs of ``phaze_hysteresis`` or a study like it.
    heading
        Title.

    Raises
    ------
    InputError
        If no run is such a search, or none has a proven optimum beside it.
    """
    searches = [h for h in histories if h.front.attrs["engine"] in (ENGINE, PROOF)]
    rows = hysteresis_rows([_with_best(h) for h in searches if METRIC in h.values])
    known = [row for row in rows if not np.isnan(row.proven)]
    if not known:
        raise InputError(
            "no search of the engine phaze-hysteresis with a proven optimum beside it; the study "
            "phaze_hysteresis has both"
        )
    curves = {
        (*_key(h.front), _level(h)): h for h in histories if h.front.attrs["engine"] == ENGINE
    }
    figure = style.new_figure(8.8, 5.2)
    axes = figure.subplots()
    names = list(dict.fromkeys((row.problem, row.workload) for row in known))
    colours = style.colours(" ".join(name) for name in names)
    several = len({problem for problem, _ in names}) > 1
    stops: dict[str, Sequence[Level]] = {}
    for name in names:
        mine = [row for row in known if (row.problem, row.workload) == name]
        best = _running_best(curves[(*name, mine[-1].level)]) / mine[-1].proven
        colour = colours[" ".join(name)]
        axes.plot(
            np.arange(1, len(best) + 1),
            best,
            drawstyle="steps-post",
            color=colour,
            linewidth=1.8,
            label=" ".join(name) if several else name[1],
        )
        stops[colour] = mine
    _mark_stops(axes, stops)
    axes.axhline(1.0, color=style.INK, linewidth=1.0, linestyle="--", label="proven optimum")
    style.style_axes(axes)
    axes.set_xscale("log")
    style.log_ticks(axes, "x")
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("designs evaluated, largest area first")
    axes.set_ylabel("best throughput so far over the proven best")
    note = "dots and numbers: where a search of that level stops; all levels walk the same way"
    style.title(
        figure,
        heading or "The published search at every level of hysteresis",
        note,
        [axes.get_legend_handles_labels()[0]],
    )
    return figure


def _mark_stops(axes: Any, by_model: Mapping[str, Sequence[Level]]) -> None:
    """Draw dots where levels stop, and their numbers: once where all models stop together."""
    groups = {colour: _together(rows) for colour, rows in by_model.items()}
    first = next(iter(groups.values()))
    shared = all(
        [(r.level, r.evaluated) for m in group for r in m]
        == [(r.level, r.evaluated) for m in first for r in m]
        for group in groups.values()
    )
    for colour, group in groups.items():
        for members in group:
            last = members[-1]
            axes.plot(last.evaluated, last.share, "o", color=colour, markersize=5, zorder=4)
            if not shared:
                _write_levels(axes, members, last.share, colour, -11)
    if shared:
        for members in first:
            _write_levels(axes, members, 1.0, style.INK, 6)


def _together(rows: Sequence[Level]) -> list[list[Level]]:
    """Return the levels in groups that stop at nearly the same place."""
    groups: list[list[Level]] = []
    for row in rows:
        if groups and row.evaluated <= 1.08 * groups[-1][0].evaluated:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _write_levels(
    axes: Any, members: Sequence[Level], height: float, colour: str, offset: int
) -> None:
    levels = [row.level for row in members]
    text = str(levels[0]) if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"
    axes.annotate(
        text,
        (members[-1].evaluated, height),
        xytext=(0, offset),
        textcoords="offset points",
        ha="center",
        fontsize=style.TICK_SIZE,
        color=colour,
    )


def _running_best(history: History) -> NDArray[np.float64]:
    """Return the best feasible throughput after every evaluation, shape (distinct genomes,)."""
    values = np.where(_feasible(history), history.values[METRIC], 0.0)
    return np.maximum.accumulate(values)


def _feasible(history: History) -> NDArray[np.bool_]:
    names = plain(history.front.attrs.get("constraints", [])) or []
    good = np.ones(len(history.values[METRIC]), dtype=np.bool_)
    for name in names:
        good &= history.values[name] <= 0
    return good


def _with_best(history: History) -> Front:
    """Return the run's front with the best throughput of its history alone."""
    best = _running_best(history)[-1:]
    return replace(history.front, values={METRIC: best})


def _level(history: History) -> int:
    return int(_report(history.front)["level"])
