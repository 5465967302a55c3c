"""Picture of one schedule: who runs what and when, and what each instance costs in area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.designs import buffer_bytes, is_package
from mohsearch.analysis.quantities import Scale, count_text, scale_for, size_text
from mohsearch.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.62
_STALL_BAR = 0.13
_OPACITY = (0.38, 1.0)
"""Opacities of the first and last network; the others lie evenly between."""

_FAMILIAR = ("eyeriss", "shidiannao", "simba")
"""Templates with the same colour in every picture."""

_LABELLED_SHARE = 0.035
"""Bars wider than this share of the schedule carry the layer's name, if it fits."""


@dataclass(frozen=True)
class _Row:
    """One instance of the package with its layers in order of start."""

    instance: Mapping[str, Any]
    layers: tuple[Mapping[str, Any], ...]
    place: float
    colour: str

    @property
    def busy_s(self) -> float:
        return float(sum(layer["end_s"] - layer["start_s"] for layer in self.layers))


def plot_gantt(design: Mapping[str, Any], *, heading: str = "", note: str = "") -> Figure:
    """Draw a package's schedule as in MOHaM figure 6.

    Rows are instances, grouped by template (colour); bars are layers, networks told apart by
    opacity; black marks below a bar say how much of its time the layer lost to shared bandwidth.
    Beside it stands the area of each instance.

    Parameters
    ----------
    design
        A decoded moham design (``instances`` and ``layers``).
    heading, note
        Title, and a line of small print below the figure.

    Raises
    ------
    InputError
        If the design is no package with a schedule.
    """
    if not is_package(design) or not design["layers"]:
        raise InputError("this design has no schedule to draw (no instances or no layers)")
    rows = _rows(design)
    end = max(float(layer["end_s"]) for layer in design["layers"])
    time = scale_for([end], "s")
    networks = list(dict.fromkeys(str(layer.get("network", "")) for layer in design["layers"]))
    figure = style.new_figure(12.0, max(3.4, 1.9 + 0.52 * len(rows)))
    schedule, area = figure.subplots(1, 2, sharey=True, width_ratios=[4.2, 1.0])
    for row in rows:
        _draw_row(schedule, row, _opacities(networks), time, end)
    _finish_schedule(schedule, rows, time, end)
    _draw_areas(area, rows)
    stalls = any(_stalled(layer) for layer in design["layers"])
    if stalls:
        note = f"{note}    " if note else ""
        note += "black: the part of a layer's time that it lost to shared memory bandwidth"
    style.title(figure, heading or "Schedule", note, _legend(rows, networks, stalls))
    return figure


def _rows(design: Mapping[str, Any]) -> list[_Row]:
    instances = sorted(design["instances"], key=lambda i: (str(i["template"]), str(i["id"])))
    instances = sorted(instances, key=lambda i: str(i["template"]))
    colours = style.colours((str(i["template"]) for i in instances), _FAMILIAR)
    rows, place, previous = [], 0.0, None
    for instance in instances:
        if previous is not None and previous != instance["template"]:
            place += 0.35
        layers = [item for item in design["layers"] if item["instance"] == instance["id"]]
        layers.sort(key=lambda item: float(item["start_s"]))
        rows.append(_Row(instance, tuple(layers), place, colours[str(instance["template"])]))
        previous = instance["template"]
        place += 1.0
    return rows


def _opacities(networks: Sequence[str]) -> dict[str, float]:
    values = np.linspace(*_OPACITY, len(networks)) if len(networks) > 1 else [0.85]
    return {name: float(v) for name, v in zip(networks, values, strict=True)}


def _draw_row(axes: Axes, row: _Row, opacity: Mapping[str, float], time: Scale, end: float) -> None:
    spans, faces, stalls = [], [], []
    for layer in row.layers:
        start, width = float(layer["start_s"]), float(layer["end_s"] - layer["start_s"])
        spans.append((start * time.factor, width * time.factor))
        faces.append(style.shade(row.colour, opacity[str(layer.get("network", ""))]))
        for low, high in _stalled(layer):
            stalls.append((low * time.factor, (high - low) * time.factor))
    # a white edge would swallow the shortest layers
    edges = [
        "white" if width > 0.004 * end * time.factor else face
        for (_, width), face in zip(spans, faces, strict=True)
    ]
    axes.broken_barh(
        spans, (row.place - _BAR / 2, _BAR), facecolors=faces, edgecolors=edges, linewidths=0.4
    )
    below = row.place + _BAR / 2
    axes.broken_barh(stalls, (below, _STALL_BAR), facecolors=style.STALL, linewidths=0)
    for layer, (start, width), face in zip(row.layers, spans, faces, strict=True):
        name = str(layer["name"]).rpartition("/")[2]
        if width / (end * time.factor) < max(_LABELLED_SHARE, 0.0085 * len(name)):
            continue
        luminance = float(np.dot(face, (0.3, 0.59, 0.11)))
        axes.text(
            start + width / 2,
            row.place,
            name,
            ha="center",
            va="center",
            clip_on=True,
            fontsize=6.5,
            color="white" if luminance < 0.6 else style.INK,
        )


def _stalled(layer: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return stalled segments; where only their sum is known, it is put at the layer's end."""
    segments = layer.get("stalls")
    if segments:
        return [(float(low), float(high)) for low, high in segments]
    stalled = float(layer.get("stalled_s", 0.0))
    return [(float(layer["end_s"]) - stalled, float(layer["end_s"]))] if stalled > 0 else []


def _finish_schedule(axes: Axes, rows: Sequence[_Row], time: Scale, end: float) -> None:
    style.style_axes(axes, grid="x")
    axes.set_yticks([row.place for row in rows], [_row_name(row) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(rows[-1].place + 0.62, rows[0].place - 0.62)
    axes.set_xlim(0, end * time.factor)
    axes.set_xlabel(f"time ({time.unit})")


def _row_name(row: _Row) -> str:
    instance = row.instance
    tile = instance.get("tile")
    place = f"({', '.join(map(str, tile))})" if isinstance(tile, (list, tuple)) else str(tile)
    first = f"{instance['template']} · tile {place}" if tile is not None else instance["template"]
    details = []
    if "macs" in instance:
        details.append(count_text(int(instance["macs"]), "MAC"))
    if instance.get("levels"):
        details.append(size_text(buffer_bytes(instance)))
    return "\n".join(part for part in (str(first), ", ".join(details)) if part)


def _draw_areas(axes: Axes, rows: Sequence[_Row]) -> None:
    areas = [float(row.instance.get("area_mm2", 0.0)) for row in rows]
    total = sum(areas)
    axes.barh([row.place for row in rows], areas, height=_BAR, color=[row.colour for row in rows])
    scale = Scale(1.0, "mm²")
    for row, value in zip(rows, areas, strict=True):
        share = f" ({value / total:.0%})" if total else ""
        axes.annotate(
            scale.text(value, 3) + share,
            (value, row.place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=style.NOTE_SIZE,
            color=style.INK,
        )
    style.style_axes(axes, grid=None)
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, (max(areas) or 1.0) * 1.75)
    axes.set_xlabel(f"area (mm²), {scale.text(total, 3)} in all")
    axes.locator_params(axis="x", nbins=3)


def _legend(rows: Sequence[_Row], networks: Sequence[str], stalls: bool) -> list[list[Artist]]:
    from matplotlib.patches import Patch

    colours = {str(row.instance["template"]): row.colour for row in rows}
    first: list[Artist] = [Patch(color=colour, label=name) for name, colour in colours.items()]
    opacity = _opacities(networks)
    second: list[Artist] = [
        Patch(color=style.shade(style.INK, 0.85 * opacity[name]), label=name) for name in networks
    ]
    rows_shown = [first, second] if second[1:] else [first]
    if stalls:
        rows_shown[-1].append(Patch(color=style.STALL, label="stalled"))
    return rows_shown
