"""Picture of attainment: what half of the runs reach, and the quartiles, plane by plane."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis import style
from mohsearch.analysis.attainment import LEVELS, attainment
from mohsearch.analysis.fronts import Front, common_objectives
from mohsearch.analysis.labels import label, varying_fields
from mohsearch.analysis.quantities import scale_for, short_name
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
"""Planes beside each other in the picture."""


def plot_attainment(
    fronts: Sequence[Front],
    objectives: Sequence[str] | None = None,
    *,
    by: str | None = None,
    heading: str = "",
) -> Figure:
    """Draw the attainment surfaces of each contender on each plane of two objectives.

    The bold line is attained by half of the runs, the thin ones by a quarter and three quarters. On
    a plane, what counts is the runs' best in its two objectives, whatever the others are.

    Raises
    ------
    InputError
        If there are fewer than two objectives.
    """
    names = tuple(objectives or common_objectives(fronts))
    if len(names) < 2:
        raise InputError("attainment is drawn over two objectives or more")
    planes = list(combinations(names, 2))
    columns = min(len(planes), _COLUMNS)
    rows = -(-len(planes) // columns)
    figure = style.new_figure(0.8 + 4.2 * columns, 0.8 + 4.0 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    fields = (by,) if by else varying_fields(fronts)
    contenders = list(dict.fromkeys(label(front.attrs, fields) for front in fronts))
    colours = style.colours(contenders)
    for axes in grid[len(planes) :]:
        axes.set_axis_off()
    for axes, plane in zip(grid[: len(planes)], planes, strict=True):
        style.style_axes(axes)
        _draw_plane(axes, fronts, plane, by, colours)
    from matplotlib.lines import Line2D

    legend = [Line2D([], [], color=colours[n], linewidth=2, label=n or "runs") for n in contenders]
    note = "Bold: attained by half of the runs; thin: by a quarter and by three quarters."
    style.title(figure, heading or "Attainment over seeds", note, [legend])
    return figure


def _draw_plane(
    axes: Axes,
    fronts: Sequence[Front],
    plane: tuple[str, str],
    by: str | None,
    colours: dict[str, str],
) -> None:
    found = attainment(fronts, plane, LEVELS, by)
    points = [p for item in found for p in item.surfaces.values() if len(p)]
    metrics = [fronts[0].metric(name) for name in plane]
    scales = [scale_for(np.concatenate([p[:, k] for p in points]), metrics[k].unit) for k in (0, 1)]
    for item in found:
        for level, surface in item.surfaces.items():
            if not len(surface):
                continue
            x, y = _staircase(surface, metrics[0].sign, metrics[1].sign)
            bold = level == 50.0
            axes.plot(
                x * scales[0].factor,
                y * scales[1].factor,
                color=colours[item.contender],
                linewidth=2.2 if bold else 0.9,
                alpha=1.0 if bold else 0.6,
                marker="o" if len(surface) == 1 else "",  # no line goes through a single point
            )
    for axis, name, scale in zip((axes.xaxis, axes.yaxis), plane, scales, strict=True):
        axis.set_label_text(short_name(name) + (f" ({scale.unit})" if scale.unit else ""))


def _staircase(
    surface: NDArray[np.float64], x_sign: float, y_sign: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the region a surface dominates, in natural signs."""
    losses = surface * [x_sign, y_sign]
    losses = losses[np.lexsort((losses[:, 1], losses[:, 0]))]
    x = np.repeat(losses[:, 0], 2)[1:]
    y = np.repeat(losses[:, 1], 2)[:-1]
    return x * x_sign, y * y_sign
