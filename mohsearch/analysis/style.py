"""One look for all pictures, without touching matplotlib's global state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F6A00", "#5B4B8A")
"""Colours that stay apart under the common colour-vision deficiencies (Okabe and Ito 2008, without
its black and yellow, and two darker ones for the rare seventh and eighth)."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
INK = "#22262B"
SOFT = "#6B737C"
GRID = "#E3E6EA"
STALL = "#000000"
TITLE_SIZE = 12.5
LABEL_SIZE = 10.0
TICK_SIZE = 9.0
NOTE_SIZE = 8.0
FORMATS = (".png", ".svg", ".pdf")


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure with constrained layout; no window, no global registry."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=150, layout="constrained")
    figure.set_facecolor("white")
    return figure


def style_axes(axes: Axes, *, grid: str | None = "both") -> None:
    """Give axes the house look: two thin spines, quiet grid below the data, small ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(SOFT)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(labelsize=TICK_SIZE, colors=INK, width=0.8, length=3)
    axes.tick_params(which="minor", length=1.5, width=0.5, colors=SOFT)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.8)  # type: ignore[arg-type]
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)
        axis.label.set_color(INK)


def title(
    figure: Figure, text: str, note: str = "", legend: Sequence[Sequence[Artist]] = ()
) -> None:
    """Write a title with a legend in rows right below it, and a quiet note at the foot.

    Rows of the legend that are too long for the figure are broken.
    """
    from matplotlib.lines import Line2D

    rows = [part for row in legend for part in _broken(row, float(figure.get_figwidth()))]
    columns = max((len(row) for row in rows), default=1)
    blank = Line2D([], [], color="none", label=" ")
    # matplotlib fills legends by columns: rows are padded and transposed
    padded = [[*row, *[blank] * (columns - len(row))] for row in rows]
    figure.legend(
        handles=[entry for column in zip(*padded, strict=True) for entry in column],
        title=text,
        title_fontproperties={"size": TITLE_SIZE, "weight": "bold"},
        loc="outside upper left",
        alignment="left",
        ncols=columns,
        frameon=False,
        fontsize=TICK_SIZE,
        labelcolor=INK,
        borderpad=0.1,
        borderaxespad=0.3,
        columnspacing=1.6,
        handlelength=1.5,
    )
    if note:
        figure.supxlabel(note, x=0.01, ha="left", fontsize=NOTE_SIZE, color=SOFT)


def _broken(row: Sequence[Artist], width_in: float) -> list[list[Artist]]:
    """Break a legend row so that its columns, as wide as their longest entry, fit a figure."""
    if not row:
        return []
    longest = max(len(str(entry.get_label())) for entry in row)
    entry_in = 0.55 + longest * TICK_SIZE * 0.56 / 72
    count = max(1, min(len(row), int(width_in / entry_in)))
    return [list(row[k : k + count]) for k in range(0, len(row), count)]


def shade(colour: str, opacity: float) -> tuple[float, float, float]:
    """Return a colour laid over white with an opacity, as an opaque colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - opacity + opacity * part for part in to_rgb(colour))
    return red, green, blue


def colours(names: Iterable[str], fixed: Sequence[str] = ()) -> dict[str, str]:
    """Return one colour per distinct name, in order of first appearance (repeating after 8).

    Names in ``fixed`` have the same colour in every picture, whether all of them appear or not.

    Examples
    --------
    >>> colours(["b"], fixed=["a", "b"])["b"] == colours(["a", "b"])["b"]
    True
    """
    wanted = list(dict.fromkeys(names))
    places = list(dict.fromkeys([*fixed, *wanted]))
    return {name: PALETTE[places.index(name) % len(PALETTE)] for name in wanted}


def markers(names: Iterable[str]) -> dict[str, str]:
    """Return one marker per distinct name, so that colour is never the only cue."""
    distinct = list(dict.fromkeys(names))
    return {name: MARKERS[(i + i // 8) % len(MARKERS)] for i, name in enumerate(distinct)}


def wants_log(values: Sequence[float] | Any, ratio: float = 8.0) -> bool:
    """Return whether positive values span so wide a range that a log axis reads better."""
    import numpy as np

    numbers = np.asarray(values, dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    return bool(numbers.size and numbers.min() > 0 and numbers.max() / numbers.min() > ratio)


def count_ticks(axes: Axes, which: str) -> None:
    """Put the ticks of a linear axis on whole numbers: there is no half a chip."""
    from matplotlib.ticker import MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def log_ticks(axes: Axes, which: str) -> None:
    """Use plain decimal numbers on a log axis, a few of them labelled."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high / max(low, 1e-300) < 1e3 else (1.0,)
    axis.set_major_locator(LogLocator(base=10, subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, SVG or PDF by the path's suffix, without the date of writing.

    Raises
    ------
    InputError
        If the suffix is another one, or the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(
            f"cannot write {suffix or 'a picture without suffix'!r}; use {', '.join(FORMATS)}",
            source=path,
        )
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path) from error
    return path
