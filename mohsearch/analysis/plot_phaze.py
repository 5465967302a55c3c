"""Pictures of a training design: a layer's operator schedule, and the pipeline with its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mohsearch.analysis import style
from mohsearch.analysis.designs import is_training
from mohsearch.analysis.quantities import Scale, scale_for
from mohsearch.core.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENGINES = ("tensor", "vector", "fused", "collective")
"""Kinds of operators, with the same colour in every picture."""

GIB = 2**30
_MOST_TIMELINE_STAGES = 16
_LABEL_SHARE = 0.0058
"""A bar carries its name when it is wider than this share of the axis per letter."""


def choose_model(design: Mapping[str, Any], model: str | None = None) -> Mapping[str, Any]:
    """Return one model of a design, the first by default.

    Raises
    ------
    InputError
        If the design trains nothing, or the model could not be placed.
    UnknownNameError
        If it has no such model.
    """
    if not is_training(design) or not design["models"]:
        raise InputError("this design trains no model, so there is nothing to draw")
    models = {part["model"]: part for part in design["models"]}
    name = model or next(iter(models))
    if name not in models:
        raise UnknownNameError("model", name, models)
    if not models[name]["placed"]:
        raise InputError(f"{name} could not be placed on this design")
    chosen: Mapping[str, Any] = models[name]
    return chosen


def plot_layer_schedule(
    design: Mapping[str, Any], *, model: str | None = None, heading: str = "", note: str = ""
) -> Figure:
    """Draw when the operators of the repeated layer run, forward and backward.

    The upper row of each panel holds operators that take all cores, the others one core each.

    Parameters
    ----------
    design
        A decoded phaze design.
    model
        Which of its models (default: the first).
    heading, note
        Title, and a line of small print below the figure.

    Raises
    ------
    InputError
        If the design has no schedule.
    """
    from matplotlib.patches import Patch

    part = choose_model(design, model)
    layer = max(part["layers"], key=lambda one: int(one["count"]))
    rows = {name: _rows(layer[name]["ops"]) for name in ("forward", "backward")}
    heights = [len(rows[name]) for name in rows]
    figure = style.new_figure(12.0, 2.0 + 0.34 * sum(heights))
    axes = figure.subplots(2, 1, height_ratios=heights)
    used: set[str] = set()
    for panel, (name, names) in zip(axes, rows.items(), strict=True):
        _draw_pass(panel, layer[name], names, name)
        used |= {op["engine"] for op in layer[name]["ops"]}
    colours = style.colours(ENGINES, ENGINES)
    patches = [Patch(color=colours[name], label=name) for name in ENGINES if name in used]
    title = heading or (
        f"{part['model']}: one {layer['name']} layer, microbatch {part['microbatch']}, "
        f"tensor parallel {part['tensor']}"
    )
    style.title(figure, title, note, [patches])
    return figure


def _rows(ops: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rows of a panel: all cores, then every single core in use."""
    names = ["all cores"]
    for kind in ("tensor", "vector"):
        cores = sorted({op[f"{kind}_core"] for op in ops if op[f"{kind}_core"] is not None})
        names += [f"{kind} core {core}" for core in cores]
    return names


def _draw_pass(axes: Axes, one: Mapping[str, Any], names: Sequence[str], name: str) -> None:
    colours = style.colours(ENGINES, ENGINES)
    time = scale_for([one["makespan_s"]], "s")
    end = one["makespan_s"] * time.factor
    for op in one["ops"]:
        start, stop = op["start_s"] * time.factor, op["end_s"] * time.factor
        places = [0] if op["all_cores"] else []
        for kind in ("tensor", "vector"):
            if op[f"{kind}_core"] is not None:
                places.append(names.index(f"{kind} core {op[f'{kind}_core']}"))
        for place in places:
            colour = colours[op["engine"]]
            axes.barh(
                place, stop - start, left=start, height=0.7, color=colour,
                edgecolor="white" if stop - start > 0.004 * end else colour, linewidth=0.4,
            )  # fmt: skip
            if (stop - start) / end > _LABEL_SHARE * len(op["name"]):
                axes.text(
                    (start + stop) / 2, place, op["name"], ha="center", va="center",
                    fontsize=6.5, color="white", clip_on=True,
                )  # fmt: skip
    style.style_axes(axes, grid="x")
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, end)
    gain = 1 - one["makespan_s"] / one["serial_s"] if one["serial_s"] else 0.0
    proof = "optimal" if one["makespan_s"] <= one["bound_s"] * (1 + 1e-9) else "not proven optimal"
    axes.set_xlabel(f"{name} pass, time ({time.unit}); {gain:.1%} shorter than in turn, {proof}")


def plot_pipeline(
    design: Mapping[str, Any], *, model: str | None = None, heading: str = "", note: str = ""
) -> Figure:
    """Draw the stages of one pipeline: how the first microbatches pass, and memory by stage.

    Parameters
    ----------
    design
        A decoded phaze design.
    model
        Which of its models (default: the first).
    heading, note
        Title, and a line of small print below the figure.

    Raises
    ------
    InputError
        If the design has no placement.
    """
    part = choose_model(design, model)
    stages = part["stages"]
    count = len(stages)
    figure = style.new_figure(12.0, 3.4 + 0.16 * min(count, 40))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.2, 1.0])
    if count <= _MOST_TIMELINE_STAGES:
        _draw_timeline(left, stages)
    else:
        _draw_loads(left, stages)
    _draw_memory(right, stages, design, part["recompute"])
    left.set_ylabel("stage")
    left.set_ylim(count - 0.4, -0.6)
    ticks = range(0, count, 1 if count <= _MOST_TIMELINE_STAGES else 10)
    left.set_yticks(list(ticks), [str(k + 1) for k in ticks])
    title = heading or (
        f"{part['model']}: pipeline {count}, data {part['data']}, tensor {part['tensor']}, "
        f"microbatch {part['microbatch']}, recompute {part['recompute']}"
    )
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    style.title(figure, title, note, [handles])
    return figure


def one_forward_one_backward(
    forward: Sequence[float], backward: Sequence[float], microbatches: int
) -> list[tuple[int, int, bool, float, float]]:
    """Return the passes of a 1F1B pipeline as (stage, microbatch, is forward, start, end).

    Stage k of s runs up to s - k forward passes ahead, then one backward and one forward in turn.

    Examples
    --------
    >>> one_forward_one_backward([1.0, 1.0], [2.0, 2.0], 1)[-1]
    (0, 0, False, 4.0, 6.0)
    """
    count = len(forward)
    queues: list[list[tuple[int, bool]]] = []
    for k in range(count):
        ahead = min(count - k, microbatches)
        order = [(m, True) for m in range(ahead)]
        for m in range(microbatches):
            order.append((m, False))
            if ahead + m < microbatches:
                order.append((ahead + m, True))
        queues.append(order)
    done: dict[tuple[int, int, bool], float] = {}
    free = [0.0] * count
    result = []
    while any(queues):
        for k in range(count):
            while queues[k]:
                m, ahead_pass = queues[k][0]
                needs = _needs(k, m, ahead_pass, count)
                if any(need not in done for need in needs):
                    break
                start = max([free[k], *(done[need] for need in needs)])
                end = start + (forward[k] if ahead_pass else backward[k])
                done[k, m, ahead_pass] = free[k] = end
                result.append((k, m, ahead_pass, start, end))
                queues[k].pop(0)
    return sorted(result, key=lambda one: (one[3], one[0]))


def _needs(k: int, m: int, is_forward: bool, count: int) -> list[tuple[int, int, bool]]:
    """Return the passes that must be over before this one."""
    if is_forward:
        return [(k - 1, m, True)] if k else []
    return [(k, m, True)] + ([(k + 1, m, False)] if k + 1 < count else [])


def _draw_timeline(axes: Axes, stages: Sequence[Mapping[str, Any]]) -> None:
    forward = [stage["forward_s"] for stage in stages]
    backward = [stage["load_s"] - stage["forward_s"] for stage in stages]
    passes = one_forward_one_backward(forward, backward, len(stages) + 3)
    end = max(one[4] for one in passes)
    time = scale_for([end], "s")
    shown = {True: style.PALETTE[0], False: style.PALETTE[1]}
    labels = {True: "forward", False: "backward, transfers and repetition"}
    seen: set[bool] = set()
    for k, m, is_forward, start, stop in passes:
        axes.barh(
            k, (stop - start) * time.factor, left=start * time.factor, height=0.72,
            color=style.shade(shown[is_forward], 1.0 if m % 2 else 0.72),
            label=None if is_forward in seen else labels[is_forward],
        )  # fmt: skip
        seen.add(is_forward)
    style.style_axes(axes, grid="x")
    axes.set_xlim(0, end * time.factor)
    axes.set_xlabel(f"time ({time.unit}), the first {len(stages) + 3} microbatches of a batch")


def _draw_loads(axes: Axes, stages: Sequence[Mapping[str, Any]]) -> None:
    loads = np.array([stage["load_s"] for stage in stages])
    forward = np.array([stage["forward_s"] for stage in stages])
    time = scale_for([float(loads.max())], "s")
    places = np.arange(len(stages))
    axes.barh(places, forward * time.factor, height=0.8, color=style.PALETTE[0], label="forward")
    axes.barh(
        places, (loads - forward) * time.factor, left=forward * time.factor, height=0.8,
        color=style.PALETTE[1], label="backward, transfers and repetition",
    )  # fmt: skip
    style.style_axes(axes, grid="x")
    axes.set_xlabel(f"time of one microbatch ({time.unit})")


def _draw_memory(
    axes: Axes, stages: Sequence[Mapping[str, Any]], design: Mapping[str, Any], recompute: str
) -> None:
    places = np.arange(len(stages))
    unit = Scale(1 / GIB, "GiB")
    state = np.array([stage["state_bytes"] for stage in stages]) * unit.factor
    own = np.array([stage["activation_bytes"] for stage in stages]) * unit.factor
    total = np.array([stage["memory_bytes"] for stage in stages]) * unit.factor
    parts = (
        ("weights, gradients, optimizer", state, style.PALETTE[2]),
        ("activations of one microbatch", own, style.PALETTE[4]),
        ("kept for microbatches in flight", total - state - own, style.PALETTE[3]),
    )
    left = np.zeros(len(stages))
    for label, values, colour in parts:
        axes.barh(places, values, left=left, height=0.72, color=colour, label=label)
        left = left + values
    hbm = design["training"]["hbm_bytes"] * unit.factor
    axes.axvline(hbm, color=style.INK, linewidth=1.2, linestyle="--", label="memory of a device")
    style.style_axes(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, max(hbm, float(total.max())) * 1.06)
    axes.set_xlabel(f"memory ({unit.unit}), activations {_kept(recompute)}")


def _kept(recompute: str) -> str:
    return {"none": "kept", "full": "repeated", "selective": "of attention repeated"}[recompute]
