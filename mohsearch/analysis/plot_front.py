"""Picture of fronts: projections on pairs of objectives, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis import style
from mohsearch.analysis.fronts import Front, Metric, common_objectives, knee
from mohsearch.analysis.indicators import Box, nondominated
from mohsearch.analysis.labels import labels
from mohsearch.analysis.quantities import Scale, scale_for, short_name
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_LINES = 600
"""Solutions drawn in the parallel-coordinates panel, at most, shared by all fronts."""


@dataclass(frozen=True)
class _Axis:
    """One objective as an axis: declaration, scale, range, proven bound, whether it counts."""

    metric: Metric
    scale: Scale
    log: bool
    ideal: float | None
    whole: bool

    @property
    def label(self) -> str:
        name = short_name(self.metric.name)
        better = "higher is better" if self.metric.sense == "max" else ""
        unit = ", ".join(part for part in (self.scale.unit, better) if part)
        return f"{name} ({unit})" if unit else name


@dataclass(frozen=True)
class _Series:
    """One front, ready to draw."""

    label: str
    colour: str
    marker: str
    values: dict[str, NDArray[np.float64]]
    signs: dict[str, float]
    knee: int


def plot_front(
    fronts: Sequence[Front],
    objectives: Sequence[str] | None = None,
    *,
    names: Sequence[str] | None = None,
    heading: str = "",
    log: bool | None = None,
) -> Figure:
    """Draw fronts as projections on pairs of objectives.

    Two objectives give one panel; three or more give the three planes of the first three and a
    panel of parallel coordinates over all. In each plane the line joins the solutions that are
    not dominated in that plane; the star is the knee over all objectives; the black cross is the
    proven ideal point.

    Parameters
    ----------
    fronts
        At least one with a solution.
    objectives
        Metrics to draw (default: all objectives of all fronts), two or more.
    names
        Labels of the fronts (default: what tells them apart).
    heading
        Title of the figure (default: the problem and workload).
    log
        Force log axes on or off (default: log where an axis spans more than a factor of 8).

    Raises
    ------
    InputError
        If there is nothing to draw.
    """
    fronts = [front for front in fronts if len(front)]
    if not fronts:
        raise InputError("all fronts are empty: there is nothing to draw")
    chosen = tuple(objectives or common_objectives(fronts))
    if len(chosen) < 2:
        raise InputError("a front picture needs two objectives or more", field="objectives")
    axes = [_axis(fronts, name, log) for name in chosen]
    series = _series(fronts, chosen, names or labels(fronts))
    if len(chosen) == 2:
        figure = style.new_figure(7.2, 5.4)
        _plane(figure.subplots(), axes[1], axes[0], series)
    else:
        figure = style.new_figure(11.0, 8.6)
        grid = figure.subplots(2, 2)
        first, second, third = axes[:3]
        _plane(grid[0, 0], second, first, series)
        _plane(grid[0, 1], third, first, series)
        _plane(grid[1, 0], second, third, series)
        _parallel(grid[1, 1], axes, series)
        grid[0, 0].sharex(grid[1, 0])
        grid[0, 1].sharey(grid[0, 0])
    legend = _legend(series, any(axis.ideal is not None for axis in axes))
    note = "In each plane the line bounds what its front dominates there; fainter solutions earn "
    note += "their place by the other objectives."
    style.title(figure, heading or _heading(fronts), note, legend)
    return figure


def _heading(fronts: Sequence[Front]) -> str:
    def shared(key: str) -> str:
        values = {str(front.attrs.get(key) or "") for front in fronts}
        return values.pop() if len(values) == 1 else ""

    what = " · ".join(
        p for p in (shared("problem_label") or shared("problem"), shared("workload")) if p
    )
    total = sum(len(front) for front in fronts)
    return (
        f"Pareto front{'s' if len(fronts) > 1 else ''}: {what or 'several'} ({total:,} solutions)"
    )


def _axis(fronts: Sequence[Front], name: str, log: bool | None) -> _Axis:
    metric = fronts[0].metric(name)
    values = np.concatenate([front.values[name] for front in fronts])
    values = values[np.isfinite(values)]
    bounds = {front.ideal_point.get(name) for front in fronts}
    ideal = bounds.pop() if len(bounds) == 1 else None
    shown = values if ideal is None else np.append(values, ideal)
    positive = bool(shown.size and shown.min() > 0)
    use_log = style.wants_log(shown) if log is None else log and positive
    scale = scale_for(np.median(values) if use_log else values, metric.unit)
    whole = not scale.unit and bool((values == np.round(values)).all())
    return _Axis(metric, scale, use_log, ideal, whole)


def _series(
    fronts: Sequence[Front], objectives: tuple[str, ...], names: Sequence[str]
) -> list[_Series]:
    colours, marks = style.colours(names), style.markers(names)
    return [
        _Series(
            label=name,
            colour=colours[name],
            marker=marks[name],
            values={o: front.values[o] for o in objectives},
            signs={o: front.metric(o).sign for o in objectives},
            knee=knee(front.losses(objectives)),
        )
        for name, front in zip(names, fronts, strict=True)
    ]


def _plane(axes: Axes, x: _Axis, y: _Axis, series: Sequence[_Series]) -> None:
    style.style_axes(axes)
    total = sum(len(s.values[x.metric.name]) for s in series)
    crowded = total > 300
    faint = min(0.35, max(0.05, 150 / max(total, 1)))
    for item in series:
        xs = item.values[x.metric.name] * x.scale.factor
        ys = item.values[y.metric.name] * y.scale.factor
        losses = np.column_stack([xs * item.signs[x.metric.name], ys * item.signs[y.metric.name]])
        usable = np.isfinite(losses).all(axis=1)
        best = np.zeros(len(xs), dtype=bool)
        best[usable] = nondominated(losses[usable])
        look: dict[str, Any] = {"marker": item.marker, "color": item.colour, "linewidths": 0}
        axes.scatter(
            xs[~best],
            ys[~best],
            s=13 if crowded else 20,
            alpha=faint,
            rasterized=total > 2000,
            zorder=2,
            **look,
        )
        line = np.flatnonzero(best)[np.argsort(xs[best], kind="stable")]
        steps = "steps-post" if x.metric.sign == 1 else "steps-pre"  # what the points dominate
        axes.plot(
            xs[line],
            ys[line],
            color=item.colour,
            linewidth=1.2,
            alpha=0.8,
            drawstyle=steps,
            zorder=3,
        )
        axes.scatter(xs[line], ys[line], s=22 if crowded else 30, zorder=4, **look)
        axes.scatter(
            xs[[item.knee]],
            ys[[item.knee]],
            marker="*",
            s=190,
            color=item.colour,
            edgecolors=style.INK,
            linewidths=0.9,
            zorder=6,
        )
    if x.ideal is not None and y.ideal is not None:
        axes.scatter(
            [x.ideal * x.scale.factor],
            [y.ideal * y.scale.factor],
            marker="P",
            s=80,
            color="black",
            linewidths=0,
            zorder=7,
        )
    axes.set_xlabel(x.label)
    axes.set_ylabel(y.label)
    _scales(axes, x, y)


def _scales(axes: Axes, x: _Axis, y: _Axis) -> None:
    for which, axis in (("x", x), ("y", y)):
        if axis.log:
            (axes.set_xscale if which == "x" else axes.set_yscale)("log")
            style.log_ticks(axes, which)
        else:
            axes.ticklabel_format(axis=which, style="plain", useOffset=False)  # type: ignore[arg-type]
            if axis.whole:
                style.count_ticks(axes, which)


def _parallel(axes: Axes, columns: Sequence[_Axis], series: Sequence[_Series]) -> None:
    from matplotlib.collections import LineCollection

    stacked = [
        np.column_stack([_position(item.values[c.metric.name], c) for c in columns])
        for item in series
    ]
    signs = np.array([c.metric.sign for c in columns])
    every = np.concatenate([part * signs for part in stacked])
    every = every[np.isfinite(every).all(axis=1)]
    box = Box(every.min(axis=0), every.max(axis=0))
    places = np.arange(len(columns), dtype=float)
    for item, part in zip(series, stacked, strict=True):
        shares = box.normalise(part * signs)
        keep = np.unique(
            np.linspace(0, len(shares) - 1, min(len(shares), _MAX_LINES // len(series))).astype(int)
        )
        lines = np.stack([np.broadcast_to(places, shares[keep].shape), shares[keep]], axis=-1)
        alpha = float(np.clip(40 / max(len(keep) * len(series), 1), 0.08, 0.5))
        axes.add_collection(
            LineCollection(list(lines), colors=item.colour, linewidths=0.9, alpha=alpha)
        )
        axes.plot(places, shares[item.knee], color=style.INK, linewidth=3.6, zorder=4)
        axes.plot(places, shares[item.knee], color=item.colour, linewidth=2.2, zorder=5)
    axes.set_xlim(-0.15, len(columns) - 0.85)
    axes.set_ylim(-0.03, 1.03)
    style.style_axes(axes, grid=None)
    for place in places:
        axes.axvline(place, color=style.SOFT, linewidth=0.9, zorder=1)
    axes.set_xticks(places, [_range_text(c, box, k) for k, c in enumerate(columns)])
    axes.set_yticks([0, 1], ["best", "worst"])
    axes.spines["left"].set_visible(False)
    axes.set_title(
        "every solution across the objectives, the knee in bold",
        fontsize=style.TICK_SIZE,
        color=style.SOFT,
        loc="left",
    )


def _position(values: NDArray[np.float64], axis: _Axis) -> NDArray[np.float64]:
    return np.log10(values) if axis.log else values


def _range_text(axis: _Axis, box: Box, column: int) -> str:
    ends = [side[column] * axis.metric.sign for side in (box.ideal, box.nadir)]
    # Twelve digits: a count stays whole through its logarithm.
    ends = [float(f"{10**e:.12g}") if axis.log else float(e) for e in ends]
    low, high = (axis.scale.text(e, 3) for e in ends)
    name = short_name(axis.metric.name)
    return f"{name}\n{low} to {high} {axis.scale.unit}".rstrip()


def _legend(series: Sequence[_Series], ideal: bool) -> list[list[Artist]]:
    from matplotlib.lines import Line2D

    entries: list[Artist] = [
        Line2D([], [], color=s.colour, marker=s.marker, markersize=6, linewidth=1.2, label=s.label)
        for s in series
    ]
    extra: dict[str, Any] = {
        "color": "none",
        "markerfacecolor": "#FFFFFF",
        "markeredgecolor": style.INK,
    }
    entries.append(Line2D([], [], marker="*", markersize=12, label="knee", **extra))
    if ideal:
        extra["markerfacecolor"] = "black"
        entries.append(
            Line2D([], [], marker="P", markersize=8, label="ideal point (proven bound)", **extra)
        )
    return [entries]
