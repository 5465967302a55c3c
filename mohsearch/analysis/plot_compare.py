"""Picture of a comparison: hypervolume over evaluations, and at the end over seeds."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.compare import Comparison
from mohsearch.analysis.convergence import Curve, bands

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LineStyle = Literal["-", "--", ":"]
_LINES: tuple[LineStyle, ...] = ("-", "--", ":")


def plot_compare(comparison: Comparison, runs: Sequence[Curve], *, heading: str = "") -> Figure:
    """Draw one row per case: curves with median and quartiles, and final values with every seed.

    Parameters
    ----------
    comparison
        What the final values come from.
    runs
        Curves of the same runs in the same boxes; cases without any have the right half only.
    """
    cases = comparison.cases
    figure = style.new_figure(10.0, 1.6 + 3.4 * len(cases))
    grid = figure.subplots(len(cases), 2, squeeze=False, width_ratios=[3, 2])
    colours = style.colours(s.contender for s in comparison.standings)
    lines = _lines(colours)
    for row, case in zip(grid, cases, strict=True):
        members = {r for s in comparison.standings if s.case == case for r in s.runs}
        _curves(row[0], [c for c in runs if c.run in members], colours, lines)
        _finals(row[1], comparison, case, colours)
        if case:
            row[0].set_title(case, loc="left", fontsize=style.LABEL_SIZE, color=style.INK)
    note = textwrap.fill("Hypervolume: " + comparison.rule + ".", 130)
    notes = [textwrap.fill(text + ".", 130) for text in comparison.notes]
    style.title(figure, heading or "Comparison", "\n".join([note, *notes]), _legend(colours, lines))
    return figure


def _lines(colours: dict[str, str]) -> dict[str, LineStyle]:
    """Return a line style by contender: another one where the colours begin again."""
    count = len(style.PALETTE)
    return {name: _LINES[k // count % len(_LINES)] for k, name in enumerate(colours)}


def _legend(colours: dict[str, str], lines: dict[str, LineStyle]) -> list[list[Artist]]:
    """Return one entry for each contender; none where there is one only."""
    from matplotlib.lines import Line2D

    if len(colours) < 2:
        return []
    return [
        [
            Line2D([], [], color=colour, linewidth=2, linestyle=lines[name], label=name)
            for name, colour in colours.items()
        ]
    ]


def _curves(
    axes: Axes, runs: Sequence[Curve], colours: dict[str, str], lines: dict[str, LineStyle]
) -> None:
    style.style_axes(axes)
    for band in bands(runs):
        colour = colours[band.contender]
        axes.fill_between(
            band.evaluations,
            band.low,
            band.high,
            step="post",
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        axes.plot(
            band.evaluations,
            band.median,
            drawstyle="steps-post",
            color=colour,
            linestyle=lines[band.contender],
            linewidth=2,
        )
    axes.set_xlabel("evaluations")
    axes.set_ylabel("hypervolume: median, quartiles")


def _finals(axes: Axes, comparison: Comparison, case: str, colours: dict[str, str]) -> None:
    """Draw the final hypervolume of each seed as a dot, the median as a bar, best on top."""
    style.style_axes(axes, grid="x")
    standings = [s for s in comparison.standings if s.case == case]
    for place, standing in enumerate(standings):
        colour = colours[standing.contender]
        low, middle, high = standing.quartiles()
        offsets = np.linspace(-0.15, 0.15, len(standing.hypervolumes))
        if len(standing.hypervolumes) == 1:
            offsets = np.zeros(1)
        axes.plot([low, high], [place, place], color=colour, linewidth=7, alpha=0.25)
        axes.plot([middle, middle], [place - 0.28, place + 0.28], color=colour, linewidth=2.5)
        axes.scatter(standing.hypervolumes, place + offsets, s=14, color=colour, zorder=3)
    axes.set_yticks(range(len(standings)), [s.contender or "runs" for s in standings])
    axes.set_ylim(len(standings) - 0.5, -0.5)
    axes.set_xlabel("final hypervolume of each seed")
