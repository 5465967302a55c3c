"""Picture of two cost models on the same designs (Figure 7 of Xie et al., MLSys 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mohsearch.analysis import style
from mohsearch.analysis.correlation import Pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_correlation(pairs: Sequence[Pair], *, heading: str = "") -> Figure:
    """Draw each pair's values, normalised to the least of each model, with Pearson's R.

    Parameters
    ----------
    pairs
        See :func:`mohsearch.analysis.correlation.matched_pairs`.
    heading
        Title.
    """
    figure = style.new_figure(4.9 * len(pairs) + 0.6, 5.0)
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    for axes, pair, colour in zip(panels, pairs, style.PALETTE, strict=False):
        x, y = pair.x / pair.x.min(), pair.y / pair.y.min()
        axes.scatter(x, y, s=8, color=colour, alpha=0.35, linewidths=0)
        most = float(max(x.max(), y.max()))
        axes.plot([1, most], [1, most], color=style.SOFT, linewidth=0.9, linestyle=":")
        style.style_axes(axes)
        axes.set_title(
            f"{pair.name}\nR = {pair.pearson:.2f}, {len(x):,} designs",
            fontsize=style.LABEL_SIZE, color=style.INK,
        )  # fmt: skip
        axes.set_xlabel(f"{pair.first}, over its least")
        axes.set_ylabel(f"{pair.second}, over its least")
    style.title(figure, heading or "Two cost models on the same designs")
    return figure
