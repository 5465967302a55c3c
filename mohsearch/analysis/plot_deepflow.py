"""Pictures of deepflow results: shares of the budgets along a front, and scaling over nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.fronts import Front
from mohsearch.analysis.quantities import scale_for, short_name
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPONENTS = ("core", "reg_mem", "L1", "L2", "DRAM", "intra", "inter", "unspent")
"""Bottom to top, from the arithmetic outwards."""
_NAMES = {
    "core": "cores",
    "reg_mem": "registers",
    "DRAM": "main memory",
    "intra": "links in the package",
    "inter": "links between packages",
    "unspent": "not given out",
}
_TITLES = {
    "area": "Die area",
    "power": "Power",
    "perimeter": "Die edge",
}
_COLOURS = (
    "#0072B2", "#56B4E9", "#009E73", "#7F6A00", "#E69F00", "#CC79A7", "#D55E00", "#E3E6EA",
)  # fmt: skip
MOST_BARS = 60


def plot_fractions(front: Front, *, heading: str = "", sort_by: str | None = None) -> Figure:
    """Draw how each design of a front splits its area, power and edge: stacked bars.

    Parameters
    ----------
    front
        Of a deepflow run, with its designs. Of more than 60 solutions evenly spaced ones are drawn.
    sort_by
        Metric along the horizontal axis (default: the first objective), best first.

    Raises
    ------
    InputError
        If the designs have no fractions.
    """
    if not len(front.designs) or "fractions" not in front.designs[0]:
        raise InputError("these designs have no fractions; the picture is for the problem deepflow")
    metric = front.metric(sort_by or front.objectives[0])
    order = np.argsort(metric.sign * front.values[metric.name], kind="stable")
    if len(order) > MOST_BARS:
        order = order[np.linspace(0, len(order) - 1, MOST_BARS).round().astype(int)]
    designs = [front.designs[int(i)] for i in order]
    others = [name for name in front.objectives if name != metric.name]
    rows = len(_TITLES) + 1
    figure = style.new_figure(10.0, 8.2)
    panels = figure.subplots(rows, 1, sharex=True, height_ratios=[1.0, 1.0, 1.0, 0.8])
    place = np.arange(len(designs))
    for axes, (name, title) in zip(panels, _TITLES.items(), strict=False):
        _stack(axes, place, [design["fractions"][name] for design in designs])
        axes.set_ylabel(title)
    _curves(panels[-1], front, [metric.name, *others], order)
    panels[-1].set_xlabel(f"designs of the front, by {short_name(metric.name)}, best first")
    panels[-1].set_xlim(-0.6, len(designs) - 0.4)
    style.title(figure, heading or "Shares along the front", f"run {front.run}", _legend(designs))
    return figure


def _stack(axes: Axes, place: Any, shares: Sequence[Mapping[str, float]]) -> None:
    base = np.zeros(len(shares))
    for component, colour in zip(COMPONENTS, _COLOURS, strict=True):
        height = np.array([share.get(component, 0.0) for share in shares])
        if height.any():
            axes.bar(place, height, 0.9, bottom=base, color=colour, linewidth=0)
            base += height
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    style.style_axes(axes, grid=None)


def _curves(axes: Axes, front: Front, names: Sequence[str], order: Any) -> None:
    """Draw each objective relative to its best value on the front, on a log axis."""
    place = np.arange(len(order))
    worst = 1.0
    for name, colour, marker in zip(names, style.PALETTE, style.MARKERS, strict=False):
        values = front.values[name][order]
        best = values.min() if front.metric(name).sign > 0 else values.max()
        ratio = values / best if front.metric(name).sign > 0 else best / values
        worst = max(worst, float(ratio.max()))
        scale = scale_for([best], front.metric(name).unit)
        label = f"{short_name(name)} (best {scale.quantity(best, 3)})"
        axes.plot(place, ratio, marker=marker, markersize=3, color=colour, lw=1.2, label=label)
    style.style_axes(axes)
    axes.set_ylabel("times the best")
    if style.wants_log([1.0, worst], 4.0):
        axes.set_yscale("log")
        axes.set_ylim(0.8, worst * 4.0)  # room for the legend
        style.log_ticks(axes, "y")
    else:
        axes.set_ylim(1 - 0.06 * (worst - 1), max(1.1, 1 + 1.45 * (worst - 1)))
    axes.legend(loc="upper center", ncols=3, frameon=False, fontsize=style.TICK_SIZE)


def _legend(designs: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    from matplotlib.patches import Patch

    used = {
        name for design in designs for part in design["fractions"].values()
        for name, share in part.items() if share > 0
    }  # fmt: skip
    return [
        [
            Patch(color=colour, label=_NAMES.get(component, component))
            for component, colour in zip(COMPONENTS, _COLOURS, strict=True)
            if component in used
        ]
    ]


def plot_scaling(rows: Sequence[Mapping[str, Any]], *, heading: str = "", note: str = "") -> Figure:
    """Draw time against logic nodes: a panel per label and network, a line per memory.

    Rows of one technology whose labels end in sizes, such as ``switch-4``, are drawn as time
    against that size, a line per rest of the label.

    Parameters
    ----------
    rows
        As :func:`mohsearch.analysis.deepflow_tables.by_technology` returns them, of several runs.
        Where data parallelism was evaluated and beaten, a dashed line shows it.

    Raises
    ------
    InputError
        If no row has a feasible design.
    """
    good = [row for row in rows if np.isfinite(row["best"])]
    if not good:
        raise InputError("no technology has a feasible design to draw")
    families = _families(good)
    if families:
        return _by_size(families, heading or "Time over accelerators per package", note)
    labels = list(dict.fromkeys(str(row["label"]) for row in good))
    networks = list(dict.fromkeys(str(row["network"]) for row in good))
    memories = list(dict.fromkeys(str(row["memory"]) for row in good))
    figure = style.new_figure(1.2 + 3.1 * len(networks), 1.5 + 2.5 * len(labels))
    panels = figure.subplots(len(labels), len(networks), sharey="row", sharex=True, squeeze=False)
    colours = style.colours(memories)
    markers = style.markers(memories)
    dashed = False
    for i, label in enumerate(labels):
        for j, network in enumerate(networks):
            mine = [r for r in good if (r["label"], r["network"]) == (label, network)]
            for memory in memories:
                line = [r for r in mine if r["memory"] == memory]
                dashed |= _line(panels[i, j], line, colours[memory], markers[memory])
            _finish(panels[i, j], i, j, label, network)
    style.title(
        figure, heading or "Time over logic nodes", note,
        _scaling_legend(memories, colours, markers, dashed),
    )  # fmt: skip
    return figure


def _families(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return time by size by rest of the label; empty where rows are not of that kind."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        name, _, size = str(row["label"]).rpartition("-")
        if not (name and size.isdigit()):
            return {}
        found.setdefault(name, {})[int(size)] = float(row["best"])
    technologies = {(row["logic"], row["memory"], row["network"]) for row in rows}
    several = len(technologies) == 1 and max(len(times) for times in found.values()) > 1
    return found if several and sum(map(len, found.values())) == len(rows) else {}


def _by_size(families: Mapping[str, Mapping[int, float]], heading: str, note: str) -> Figure:
    from matplotlib.lines import Line2D

    figure = style.new_figure(6.4, 4.4)
    axes = figure.subplots()
    sizes = sorted({size for times in families.values() for size in times})
    names = list(families)
    colours, markers = style.colours(names), style.markers(names)
    for name, times in families.items():
        at = sorted(times)
        axes.plot(
            [sizes.index(size) for size in at], [times[size] for size in at], lw=1.6,
            marker=markers[name], color=colours[name], markersize=5,
        )  # fmt: skip
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("accelerators per package")
    axes.set_ylabel("time (s)")
    axes.set_ylim(bottom=0)
    style.style_axes(axes)
    legend = [
        Line2D([], [], color=colours[n], marker=markers[n], markersize=5, label=n) for n in names
    ]
    style.title(figure, heading, note, [legend])
    return figure


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], colour: str, marker: str) -> bool:
    if not rows:
        return False
    nodes = [str(row["logic"]) for row in rows]
    axes.plot(nodes, [r["best"] for r in rows], marker=marker, color=colour, lw=1.6, markersize=4.5)
    flat = np.array([row["data_parallel"] for row in rows])
    beaten = any(row["gain"] > 1.0 + 1e-9 for row in rows)  # NaN where nothing can be compared
    if beaten:
        axes.plot(nodes, flat, color=colour, lw=1.0, ls=(0, (4, 3)))
    return beaten


def _finish(axes: Axes, row: int, column: int, label: str, network: str) -> None:
    style.style_axes(axes)
    axes.set_ylim(bottom=0)
    if row == 0:
        axes.set_title(network, fontsize=style.LABEL_SIZE, color=style.INK)
    if column == 0:
        axes.set_ylabel(f"{label}\ntime (s)")
    axes.tick_params(axis="x", labelrotation=0)


def _scaling_legend(
    memories: Sequence[str], colours: Mapping[str, str], markers: Mapping[str, str], dashed: bool
) -> list[list[Any]]:
    from matplotlib.lines import Line2D

    row = [
        Line2D([], [], color=colours[m], marker=markers[m], markersize=4.5, label=m)
        for m in memories
    ]
    if dashed:
        row.append(Line2D([], [], color=style.SOFT, ls=(0, (4, 3)), label="data parallelism"))
    return [row]


def plot_intensity(rows: Sequence[Mapping[str, Any]], *, heading: str = "") -> Figure:
    """Draw compute intensity against the number of devices, and by strategy on the most devices.

    Parameters
    ----------
    rows
        As :func:`mohsearch.analysis.deepflow_tables.compute_intensity` returns them.

    Raises
    ------
    InputError
        If there are none.
    """
    if not rows:
        raise InputError("no design reads main memory: there is no intensity to draw")
    devices = sorted({int(row["devices"]) for row in rows})
    spread = [[float(r["flop_per_dram_byte"]) for r in rows if r["devices"] == n] for n in devices]
    figure = style.new_figure(12.0, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=[1.0, 1.3], sharey=True)
    place = range(len(devices))
    left.boxplot(
        spread, positions=list(place), widths=0.55, whis=(0, 100),
        medianprops={"color": style.PALETTE[5]},
    )  # fmt: skip
    left.set_xticks(list(place), [f"{n:,}" for n in devices])
    left.set_xlabel("devices")
    left.set_ylabel("operations per byte of main memory")
    most = sorted(
        (r for r in rows if r["devices"] == devices[-1]), key=lambda r: -r["flop_per_dram_byte"]
    )
    names = [str(row["strategy"]).removesuffix("-d1-p1") for row in most]
    right.bar(names, [row["flop_per_dram_byte"] for row in most], color=style.PALETTE[0])
    right.set_xlabel(f"strategy on {devices[-1]:,} devices")
    right.tick_params(axis="x", labelrotation=60)
    for axes in (left, right):
        axes.set_yscale("log")
        style.style_axes(axes, grid="y")
    right.tick_params(axis="x", labelsize=style.NOTE_SIZE)
    style.title(
        figure, heading or "Compute intensity", "whiskers: least and most of all strategies"
    )
    return figure
