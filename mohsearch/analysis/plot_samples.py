"""Picture of best results against samples: mean over seeds, standard deviation as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.samples import SampleCurve, common_baselines, improvements
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", "--", ":")


def plot_samples(
    curves: Sequence[SampleCurve], baseline: str | None = None, *, heading: str = ""
) -> Figure:
    """Draw the improvement over a named heuristic against samples (Figures 5 and 6 of the paper).

    Parameters
    ----------
    curves
        Runs of one study.
    baseline
        Which heuristic (default: the first that all runs state).
    heading
        Title.

    Raises
    ------
    InputError
        If the runs state no heuristic to compare with.
    """
    known = common_baselines(curves)
    if not known:
        raise InputError("these runs state no baseline to compare with")
    chosen = baseline or known[0]
    grid = np.unique(np.concatenate([curve.samples for curve in curves]))
    table = improvements(curves, chosen, grid)
    order = sorted(table, key=lambda name: -np.nan_to_num(table[name].mean(axis=0)[-1]))
    colours = style.colours(order)
    figure = style.new_figure(9.6, 5.4)
    axes = figure.subplots()
    for i, name in enumerate(order):
        mean, spread = table[name].mean(axis=0), table[name].std(axis=0)
        if len(table[name]) > 1:
            low, high = mean - spread, mean + spread
            axes.fill_between(
                grid, low, high, step="post", color=colours[name], alpha=0.15, linewidth=0
            )
        dash = _DASHES[(i // len(style.PALETTE)) % len(_DASHES)]
        axes.plot(
            grid, mean, dash, drawstyle="steps-post", linewidth=1.8, color=colours[name], label=name
        )
    style.style_axes(axes)
    axes.set_xscale("log")
    style.log_ticks(axes, "x")
    axes.set_xlim(grid[0], grid[-1])
    axes.set_xlabel("samples (partitions evaluated)")
    axes.set_ylabel(f"times better than {chosen}")
    axes.legend(
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        frameon=False,
        fontsize=style.TICK_SIZE,
        labelcolor=style.INK,
    )
    workloads = sorted({curve.workload for curve in curves})
    where = workloads[0] if len(workloads) == 1 else f"geometric mean over {len(workloads)} graphs"
    seeds = len({curve.seed for curve in curves})
    note = f"{where}; mean and standard deviation over {seeds} seeds" if seeds > 1 else where
    style.title(figure, heading or "Improvement against samples", note)
    return figure
