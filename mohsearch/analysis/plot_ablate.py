"""Picture of an ablation: shares dominated and hypervolumes without each operator."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.ablate import Ablation, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_ablate(ablation: Ablation, *, heading: str = "") -> Figure:
    """Draw one row per operator switched off, the control on top.

    On the left the paper's measure: the first pair of runs as a bar, quartiles over all pairs as a
    line. On the right the hypervolume of every seed as a dot, the median as a stroke.
    """
    steps = (ablation.control, *ablation.steps)
    figure = style.new_figure(10.4, 2.0 + 0.34 * len(steps))
    left, right = figure.subplots(1, 2, sharey=True)
    _shares(left, ablation, steps)
    _hypervolumes(right, steps)
    names = ["control: nothing off", *(f"without {step.name}" for step in ablation.steps)]
    left.set_yticks(range(len(steps)), names)
    left.set_ylim(len(steps) - 0.4, -0.6)
    note = (
        "Left: final populations; bars: first run of each variant against the first run of the "
        "whole portfolio; lines: quartiles over all pairs of runs"
        + ("; diamonds: published" if any(s.published is not None for s in steps) else "")
        + ". Right: all non-dominated solutions that each seed's run found, median and quartiles; "
        f"{ablation.box.rule}."
    )
    title = heading or f"Ablation of {ablation.portfolio}" + (
        f": {ablation.case}" if ablation.case else ""
    )
    style.title(figure, title, textwrap.fill(note, 140))
    return figure


def _colour(step: Step, control: Step) -> str:
    return style.PALETTE[1] if step is control else style.PALETTE[0]


def _shares(axes: Axes, ablation: Ablation, steps: tuple[Step, ...]) -> None:
    style.style_axes(axes, grid="x")
    for place, step in enumerate(steps):
        low, _, high = step.quartiles()
        colour = _colour(step, ablation.control)
        axes.barh(place, 100 * step.share, height=0.62, color=colour, alpha=0.85)
        if len(step.shares) > 1:
            axes.plot([100 * low, 100 * high], [place, place], color=style.INK, linewidth=1.2)
        if step.published is not None:
            diamond = style.PALETTE[2]
            axes.plot(100 * step.published, place, marker="D", color=diamond, linestyle="none")
    control = 100 * ablation.control.share
    axes.axvline(control, color=style.PALETTE[1], linewidth=1.2, linestyle="--")
    axes.set_xlabel("solutions that the baseline dominates (%)")


def _hypervolumes(axes: Axes, steps: tuple[Step, ...]) -> None:
    """Draw each seed and the median, and name the operators that a test shows to matter."""
    style.style_axes(axes, grid="x")
    for place, step in enumerate(steps):
        colour = _colour(step, steps[0])
        low, middle, high = np.quantile(step.hypervolumes, [0.25, 0.5, 0.75])
        offsets = np.linspace(-0.15, 0.15, len(step.hypervolumes))
        axes.plot([low, high], [place, place], color=colour, linewidth=7, alpha=0.25)
        axes.plot([middle, middle], [place - 0.28, place + 0.28], color=colour, linewidth=2.5)
        axes.scatter(step.hypervolumes, place + offsets, s=12, color=colour, zorder=3)
        if step.conclusion in {"needed", "harmful"}:
            axes.annotate(
                f" {step.conclusion}",
                (1.0, place),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=style.TICK_SIZE,
                color=style.INK,
                annotation_clip=False,
            )
    middle = float(np.median(steps[0].hypervolumes))
    axes.axvline(middle, color=style.PALETTE[1], linewidth=1.2, linestyle="--")
    axes.set_xlabel("hypervolume")
