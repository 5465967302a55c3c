"""Picture of convergence: hypervolume against evaluations, median and quartiles over seeds."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.convergence import Curve, bands
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_convergence(runs: Sequence[Curve], *, heading: str = "") -> Figure:
    """Draw hypervolume curves: the median over seeds in bold, quartiles as a band.

    The rule by which objectives are scaled and the reference point is set stands below.

    Raises
    ------
    InputError
        If there is no curve.
    """
    if not runs:
        raise InputError("no run has completed a generation: there is nothing to draw")
    figure = style.new_figure(8.4, 5.2)
    axes = figure.subplots()
    groups = bands(runs)
    colours = style.colours(curve.contender for curve in runs)
    for curve in runs:
        axes.plot(
            curve.evaluations,
            curve.hypervolumes,
            drawstyle="steps-post",
            color=colours[curve.contender],
            linewidth=0.7,
            alpha=0.35,
            zorder=2,
        )
    for band in groups:
        seeds = f" (median of {band.runs} runs)" if band.runs > 1 else ""
        colour = colours[band.contender]
        if band.runs > 1:
            axes.fill_between(
                band.evaluations,
                band.low,
                band.high,
                step="post",
                color=colour,
                alpha=0.18,
                linewidth=0,
                zorder=1,
            )
        axes.plot(
            band.evaluations,
            band.median,
            drawstyle="steps-post",
            color=colour,
            linewidth=2.2,
            label=f"{band.contender or 'run'}{seeds}",
            zorder=3,
        )
    _finish(axes, runs)
    rule = textwrap.fill("Hypervolume: " + runs[0].box.rule + ".", 118)
    style.title(figure, heading or "Convergence", rule)
    return figure


def _finish(axes: Axes, runs: Sequence[Curve]) -> None:
    from matplotlib.ticker import FuncFormatter

    style.style_axes(axes)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("share of the box dominated (hypervolume)")
    axes.set_xlim(0, 1.01 * max(int(curve.evaluations[-1]) for curve in runs))
    lowest = min(float(np.min(curve.hypervolumes)) for curve in runs)
    if lowest < 0.3:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(
        loc="lower right",
        frameon=True,
        framealpha=0.9,
        edgecolor="none",
        fontsize=style.TICK_SIZE,
        labelcolor=style.INK,
    )
