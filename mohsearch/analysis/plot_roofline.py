"""Picture of a chip's roofline with the kernels of a training iteration on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mohsearch.analysis import style
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = {"L3": "main memory", "L2": "L2", "L1": "L1", "L0": "registers"}
_BOUNDS = ("compute", "L3", "L2", "L1", "L0")
_WORDS = {"compute": "arithmetic", **LEVELS}
_PARTS = {"C": "cell", "S": "softmax", "E": "embedding", "T": "hand-over"}
_DIRECTIONS = {"f": "forward", "b": "backward"}
LABELLED = 6
"""The longest kernels carry their name."""


def plot_roofline(design: Mapping[str, Any], *, heading: str = "", note: str = "") -> Figure:
    """Draw a design's roofline: operations per second against operations per byte of main memory.

    The heavy line is what arithmetic and main memory allow; each dot is a kernel, as large as its
    share of the time and coloured by what bounds it. Only kernels that read main memory and compute
    are on it; the note says how much of the time the others take.

    Parameters
    ----------
    design
        A decoded deepflow design with ``chip`` and ``kernels``.

    Raises
    ------
    InputError
        If the design has no kernels.
    """
    kernels = [k for k in design.get("kernels", ()) if "flop_per_s" in k]
    if not kernels:
        raise InputError(
            "this design has no kernels to draw; the picture is for designs of the problem deepflow"
        )
    chip = design["chip"]
    peak = float(chip["flop_per_s"])
    bandwidth = float(chip["L3_bandwidth_bytes_per_s"])
    whole = sum(float(k["time_s"]) for k in design["kernels"])
    figure = style.new_figure(9.0, 5.6)
    axes = figure.subplots()
    intensity = np.array([k["flop_per_dram_byte"] for k in kernels])
    low = min(intensity.min(), peak / bandwidth) / 3.0
    high = max(intensity.max(), peak / bandwidth) * 3.0
    xs = np.geomspace(low, high, 200)
    axes.plot(xs, np.minimum(peak, xs * bandwidth), color=style.INK, lw=2.0, zorder=2)
    _dots(axes, kernels, whole)
    _labels(axes, kernels, low, high, peak / bandwidth)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    style.style_axes(axes)
    axes.set_xlabel("operations per byte of main memory")
    axes.set_ylabel("operations per second")
    axes.annotate(
        f"{peak / 1e12:,.3g} Tflop/s", (high, peak), (-6, 5), textcoords="offset points",
        ha="right", fontsize=style.TICK_SIZE, color=style.INK,
    )  # fmt: skip
    axes.annotate(
        f"{bandwidth / 1e12:,.3g} TB/s", (1.5 * low, 1.5 * low * bandwidth), (10, -4),
        color=style.INK, textcoords="offset points", fontsize=style.TICK_SIZE, va="top",
    )  # fmt: skip
    shown = sum(float(k["time_s"]) for k in kernels)
    rest = "" if shown >= whole else f"; {1 - shown / whole:.0%} of the kernels' time is elsewhere"
    small = f"dot size: share of one pass over the kernels{rest}"
    style.title(figure, heading or "Roofline", f"{note}    {small}".strip(), _legend(kernels))
    return figure


def _dots(axes: Axes, kernels: Sequence[Mapping[str, Any]], whole: float) -> None:
    colours = style.colours(_BOUNDS, _BOUNDS)
    for kernel in sorted(kernels, key=lambda k: -float(k["time_s"])):
        axes.scatter(
            [kernel["flop_per_dram_byte"]],
            [kernel["flop_per_s"]],
            s=18.0 + 900.0 * float(kernel["time_s"]) / whole,
            color=colours[str(kernel["bound"])],
            alpha=0.75,
            edgecolors="white",
            linewidths=0.8,
            zorder=3,
        )


def _labels(
    axes: Axes, kernels: Sequence[Mapping[str, Any]], low: float, high: float, ridge: float
) -> None:
    """Name the longest kernels: below the line, or above it where the right has no room."""
    longest = sorted(kernels, key=lambda k: -float(k["time_s"]))[:LABELLED]
    placed: dict[tuple[float, float], list[str]] = {}
    for kernel in longest:
        x, y = float(kernel["flop_per_dram_byte"]), float(kernel["flop_per_s"])
        name = kernel_name(kernel)
        close = [
            spot for spot in placed
            if abs(np.log10(x / spot[0])) < 0.15 and abs(np.log10(y / spot[1])) < 0.15
        ]  # fmt: skip
        names = placed.setdefault(close[0] if close else (x, y), [])
        if name not in names:
            names.append(name)
    for (x, y), names in placed.items():
        tight = np.log(x / low) > 0.62 * np.log(high / low)
        above = tight and x < ridge
        axes.annotate(
            "\n".join(part for name in names for part in name.split(", ", 1)) if tight
            else "\n".join(names),
            (x, y), (-10 if above else 9 if not tight else 0, 8 if above else -10),
            textcoords="offset points", ha="right" if above else "center" if tight else "left",
            va="bottom" if above else "top", fontsize=style.NOTE_SIZE, color=style.INK,
        )  # fmt: skip


def kernel_name(kernel: Mapping[str, Any]) -> str:
    """Return a kernel's name as people read it.

    Examples
    --------
    >>> kernel_name({"part": "Cf", "kind": "gemm", "m": 32.0, "k": 8.0, "n": 16.0})
    'cell forward, 32 x 8 x 16'
    """
    part = str(kernel["part"])
    words = part
    if part in ("Rc", "Rs", "Re"):
        words = f"{_PARTS[part[1].upper()]} update"
    elif part[:1] in _PARTS and len(part) == 2:
        words = f"{_PARTS[part[0]]} {_DIRECTIONS.get(part[1], '')}".strip()
    if kernel["kind"] != "gemm":
        return f"{words}, element-wise"
    return f"{words}, {kernel['m']:.0f} x {kernel['k']:.0f} x {kernel['n']:.0f}"


def _legend(kernels: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    from matplotlib.lines import Line2D

    colours = style.colours(_BOUNDS, _BOUNDS)
    used = [bound for bound in _BOUNDS if any(k["bound"] == bound for k in kernels)]
    return [
        [
            Line2D(
                [], [], marker="o", ls="", color=colours[bound], label=f"bound by {_WORDS[bound]}"
            )
            for bound in used
        ]
    ]
