"""Picture of an ablation: the share dominated without each operator, beside the control."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from mohsearch.analysis import style
from mohsearch.analysis.ablate import Ablation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_ablate(ablation: Ablation, *, heading: str = "") -> Figure:
    """Draw one bar per operator switched off, quartiles over pairs of runs, and the control."""
    steps = (ablation.control, *ablation.steps)
    figure = style.new_figure(8.4, 1.8 + 0.34 * len(steps))
    axes = figure.subplots()
    style.style_axes(axes, grid="x")
    blue, orange, green, *_ = style.PALETTE
    for place, step in enumerate(steps):
        low, _, high = step.quartiles()
        colour = orange if step is ablation.control else blue
        axes.barh(place, 100 * step.share, height=0.62, color=colour, alpha=0.85)
        if len(step.shares) > 1:
            axes.plot([100 * low, 100 * high], [place, place], color=style.INK, linewidth=1.2)
        if step.published is not None:
            axes.plot(100 * step.published, place, marker="D", color=green, linestyle="none")
    axes.axvline(100 * ablation.control.share, color=orange, linewidth=1.2, linestyle="--")
    names = ["control: nothing off", *(f"without {step.name}" for step in ablation.steps)]
    axes.set_yticks(range(len(steps)), names)
    axes.set_ylim(len(steps) - 0.4, -0.6)
    axes.set_xlabel("solutions that the baseline dominates (%)")
    note = (
        "Bars: first run of each variant against the first run of the whole portfolio, final "
        "populations; lines: quartiles over all pairs of runs"
        + ("; diamonds: published." if any(s.published is not None for s in steps) else ".")
    )
    title = heading or f"Ablation of {ablation.portfolio}" + (
        f": {ablation.case}" if ablation.case else ""
    )
    style.title(figure, title, textwrap.fill(note, 115))
    return figure
