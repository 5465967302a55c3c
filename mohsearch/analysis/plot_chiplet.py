"""Picture of a partition: the graph coloured by chip, load per chip, traffic on the ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis import style
from mohsearch.analysis.quantities import Scale, count_text, scale_for, size_text
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mohsearch.workloads.op_graph import PartitionGraph

_COMPUTE, _TRANSFER = "#0072B2", "#E69F00"

NUMBER_WIDTH = 0.019
"""Room for a chip's number, as a share of the axis."""

LINE_HEIGHT = 0.28
"""Height of a line of chip numbers, as a share of the graph's."""


def plot_partition(
    design: Mapping[str, Any],
    graph: PartitionGraph | None = None,
    *,
    heading: str = "",
    note: str = "",
) -> Figure:
    """Draw a partition.

    Above, the ops by level of the graph (longest path from the inputs), coloured by chip, if the
    graph is given. Below, the time of every chip by computing and sending and receiving, with the
    interval and its proven bound; and the ring: chips coloured by load, links as wide as their
    traffic.

    Parameters
    ----------
    design
        A decoded chiplet design (``chips``, ``links``, ``labels``).
    graph
        The graph it partitions.
    heading, note
        Title, and a line of small print below the figure.

    Raises
    ------
    InputError
        If the design is no partition, or of another graph.
    """
    _require_partition(design)
    if graph is not None and graph.n != len(design["labels"]):
        raise InputError(f"the graph has {graph.n} ops, the design {len(design['labels'])}")
    figure = style.new_figure(12.0, 7.0 if graph is not None else 4.6)
    rows = 1 if graph is None else 2
    heights = [0.6, 1.0][2 - rows :]
    grid = figure.add_gridspec(rows, 2, width_ratios=[2.0, 1.0], height_ratios=heights)
    if graph is not None:
        _draw_graph(figure.add_subplot(grid[0, :]), graph, np.asarray(design["labels"]))
    load, ring = (figure.add_subplot(grid[rows - 1, column]) for column in (0, 1))
    time = scale_for([chip["load_s"] for chip in design["chips"]], "s")
    _draw_load(load, design, time)
    _draw_ring(ring, design)
    style.title(figure, heading or "Partition", note)
    return figure


def chip_colours(count: int) -> list[str]:
    """Return one colour per chip; neighbours on the ring always differ."""
    return [style.PALETTE[c % len(style.PALETTE)] for c in range(count)]


def op_places(levels: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return positions of ops: level along x, ops of one level spread around y = 0.

    Examples
    --------
    >>> x, y = op_places(np.array([0, 1, 1]))
    >>> x.tolist(), y.tolist()
    ([0.0, 1.0, 1.0], [0.0, -0.5, 0.5])
    """
    order = np.argsort(levels, kind="stable")
    starts = np.searchsorted(levels[order], levels)
    rank = np.empty(len(levels))
    rank[order] = np.arange(len(levels))
    width = np.bincount(levels)[levels]
    return levels.astype(np.float64), rank - starts - (width - 1) / 2


def _draw_graph(axes: Axes, graph: PartitionGraph, labels: NDArray[np.integer]) -> None:
    from matplotlib.collections import LineCollection

    x, y = op_places(np.asarray(graph.levels, dtype=np.int64))
    ends = np.stack([np.stack([x, y], axis=1)[e] for e in (graph.edge_src, graph.edge_dst)], axis=1)
    crossing = labels[graph.edge_src] != labels[graph.edge_dst]
    for mine, colour, width in ((~crossing, style.GRID, 0.6), (crossing, style.INK, 0.9)):
        axes.add_collection(
            LineCollection(list(ends[mine]), colors=colour, linewidths=width, zorder=1)
        )
    colours = np.array(chip_colours(int(labels.max()) + 1))
    size = float(np.clip(9000 / graph.n, 5, 60))
    axes.scatter(x, y, s=size, c=colours[labels], linewidths=0, zorder=2)
    more = LINE_HEIGHT * (_number_chips(axes, x, y, labels) - 1)
    style.style_axes(axes, grid=None)
    axes.set_xlim(-1, x.max() + 1)
    reach = max(2.0, float(np.abs(y).max()))
    axes.set_ylim(-1.15 * reach, (1.4 + more) * reach)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("level of the op (longest path from the inputs); dark edges cross chips")


def _number_chips(
    axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], labels: NDArray[np.integer]
) -> int:
    """Write each chip's number above the middle of its ops; return the lines that this takes."""
    count = int(labels.max()) + 1
    reach = max(2.0, float(np.abs(y).max()))
    used = np.flatnonzero(np.bincount(labels, minlength=count))
    middles = np.array([np.median(x[labels == chip]) for chip in used])
    lines = label_lines(middles, NUMBER_WIDTH * (float(x.max()) + 2.0))
    for chip, middle, line in zip(used.tolist(), middles.tolist(), lines.tolist(), strict=True):
        axes.text(
            middle, (1.1 + LINE_HEIGHT * line) * reach, str(chip), ha="center", va="bottom",
            fontsize=style.NOTE_SIZE if count > 20 else style.TICK_SIZE, fontweight="bold",
            color=chip_colours(count)[chip],
        )  # fmt: skip
    return int(lines.max()) + 1


def label_lines(places: NDArray[np.float64], gap: float) -> NDArray[np.int64]:
    """Return the line of text of each label, so that labels of one line are a gap apart.

    Examples
    --------
    >>> label_lines(np.array([0.0, 5.0, 0.5, 1.2]), gap=1.0).tolist()
    [0, 0, 1, 0]
    """
    lines = np.zeros(len(places), np.int64)
    ends: list[float] = []
    for i in np.argsort(places, kind="stable").tolist():
        free = [line for line, end in enumerate(ends) if places[i] - end >= gap]
        if not free:
            ends.append(-np.inf)
        lines[i] = free[0] if free else len(ends) - 1
        ends[lines[i]] = places[i]
    return lines


def _draw_load(axes: Axes, design: Mapping[str, Any], time: Scale) -> None:
    from matplotlib.ticker import MaxNLocator

    chips = design["chips"]
    place = np.arange(len(chips))
    compute = np.array([chip["compute_s"] for chip in chips]) * time.factor
    whole = np.array([chip["load_s"] for chip in chips]) * time.factor
    axes.bar(place, compute, color=_COMPUTE, width=0.75, label="computing")
    axes.bar(
        place, whole - compute, bottom=compute, color=_TRANSFER, width=0.75,
        label="sending and receiving",
    )  # fmt: skip
    interval = float(design["metrics"]["interval_s"])
    axes.axhline(
        interval * time.factor, color=style.INK, linewidth=1.2,
        label=f"interval {time.text(interval, 4)} {time.unit}",
    )  # fmt: skip
    bound = design.get("bound") or {}
    if "interval_s" in bound:
        text = f"proven bound {time.text(bound['interval_s'], 4)} {time.unit} ({bound['gap']:+.1%})"
        axes.axhline(
            bound["interval_s"] * time.factor, color=style.INK, linewidth=1.2, linestyle=":",
            label=text,
        )  # fmt: skip
    style.style_axes(axes, grid="y")
    axes.set_xlim(-0.7, len(chips) - 0.3)
    axes.set_ylim(0, interval * time.factor * 1.28)
    axes.set_xlabel("chip")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel(f"time per sample ({time.unit})")
    axes.legend(
        loc="upper center", ncols=2, frameon=False, fontsize=style.NOTE_SIZE, labelcolor=style.INK
    )


def _draw_ring(axes: Axes, design: Mapping[str, Any]) -> None:
    from matplotlib.patches import Circle

    chips, links = design["chips"], design["links"]
    count = len(chips)
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / max(count + 1, 3)
    at = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    radius = float(min(0.16, 2.2 / max(count, 6)))
    most = max([float(link["bytes"]) for link in links] or [1.0]) or 1.0
    for link in links:
        a, b = at[link["from"]], at[link["to"]]
        width = 0.6 + 7.0 * float(link["bytes"]) / most
        axes.plot([a[0], b[0]], [a[1], b[1]], color=_TRANSFER, linewidth=width, zorder=1)
    busiest = max(float(chip["load_s"]) for chip in chips)
    for c, chip in enumerate(chips):
        share = float(chip["load_s"]) / busiest
        face = style.shade(_COMPUTE, 0.1 + 0.9 * share)
        axes.add_patch(Circle((at[c][0], at[c][1]), radius, facecolor=face, zorder=2))
        axes.text(
            at[c][0], at[c][1], str(c), ha="center", va="center", zorder=3,
            fontsize=_number_size(count), color="white" if share > 0.45 else style.INK,
        )  # fmt: skip
    lines = [f"{count_text(count, 'chip')}, {count_text(len(links), 'link')}", "shade: load"]
    if links:
        lines[1:] = [
            f"busiest link {size_text(most)} per sample",
            "width: traffic   shade: load",
        ]
    aside = -0.55 if count < 4 else 0.0  # the inside of a ring of few chips is too narrow
    axes.text(aside, 0, "\n".join(lines), ha="center", va="center", fontsize=style.TICK_SIZE)
    axes.set_xlim(-1.25, 1.25)
    axes.set_ylim(-1.25, 1.25)
    axes.set_aspect("equal")
    axes.axis("off")


def _number_size(count: int) -> float:
    return float(np.clip(190 / max(count, 1), 5.5, 10))


def _require_partition(design: Mapping[str, Any]) -> None:
    if not {"chips", "links", "labels"} <= set(design):
        raise InputError("this design is no partition (no chips, links or labels)")


def partition_facts(design: Mapping[str, Any]) -> Sequence[str]:
    """Return the heading's parts: chips used, interval, and how it compares with the heuristics.

    Examples
    --------
    >>> partition_facts({"chips": [{}], "links": [], "labels": [0],
    ...                  "metrics": {"interval_s": 2e-6},
    ...                  "baselines_interval_s": {"equal-time": 3e-6}})
    ['1 chip', 'interval 2.000 µs', '1.50x equal-time']
    """
    _require_partition(design)
    interval = float(design["metrics"]["interval_s"])
    scale = scale_for([interval], "s")
    facts = [count_text(len(design["chips"]), "chip"), f"interval {scale.quantity(interval)}"]
    for name, value in (design.get("baselines_interval_s") or {}).items():
        facts.append(f"{value / interval:.2f}x {name}")
    return facts
