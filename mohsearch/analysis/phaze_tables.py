"""Tables 2 and 5 of PHAZE from this project's studies, our figures beside the paper's.

They take the runs of ``phaze_tpuv4_expert``, ``phaze_table2`` and ``phaze_table5`` (or their
``_compat`` forms), ``phaze_common`` and ``phaze_hysteresis``; what is missing is shown as a dash.
Runs of different cost models (such as ``compat: paper``) never meet in one table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mohsearch.analysis.fronts import Front
from mohsearch.analysis.phaze_hysteresis import hysteresis, hysteresis_rows
from mohsearch.core.cards import validate
from mohsearch.problems.phaze_options import COST_SWITCHES, PhazeOptions
from mohsearch.problems.phaze_published import PublishedModel, published

Section = tuple[str, list[str]]
"""A heading and the lines below it."""

EXPERT, SOLVER = "tpuv4-expert", "tpuv4-solver"
OTHERS = ("spotlight-expert", "spotlight-solver", "paper-found", "paper-common", "searched")
PER_MODEL = (EXPERT, SOLVER, *OTHERS)
SWITCHES = (
    *COST_SWITCHES,
    "sequence_parallel",
    "sequence_length",
    "devices",
    "global_batch",
)
"""Options that make figures of two runs incomparable where they differ."""


@dataclass(frozen=True)
class Best:
    """The fastest design of one run.

    Attributes
    ----------
    throughput
        Samples per second.
    mfu
        Model FLOPs utilisation.
    design
        Decoded.
    """

    throughput: float
    mfu: float
    design: Mapping[str, Any]


def best_designs(fronts: Sequence[Front]) -> dict[tuple[str, str], Best]:
    """Return the fastest design by (problem label, model)."""
    found: dict[tuple[str, str], Best] = {}
    for front in fronts:
        if not len(front) or not front.designs:
            continue
        key = (str(front.attrs["problem_label"]), str(front.attrs["workload"]))
        values = front.values["throughput_samples_per_s"]
        k = int(values.argmax())
        best = Best(float(values[k]), float(front.values["mfu"][k]), front.designs[k])
        if key not in found or best.throughput > found[key].throughput:
            found[key] = best
    return found


def table2(found: Mapping[tuple[str, str], Best]) -> list[str]:
    """Return the lines of Table 2: accelerator, placement and setting, ours and the paper's."""
    lines = [
        "| model | | accelerator {tc, vc, x, y}, GLB MiB | {p, d, t} | mbs | recompute | HBM GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in published().models.items():
        best = found.get(("searched", name))
        ours = "| - | - | - | - | - |" if best is None else _design_cells(best.design)
        lines.append(f"| {row.title} | ours {ours}")
        lines.append(f"| | paper {_paper_cells(row)}")
    return lines


def _design_cells(design: Mapping[str, Any]) -> str:
    part = design["models"][0]
    plan = [part["pipeline"], part["data"], part["tensor"]]
    hbm = design["training"]["hbm_bytes"] // 2**30
    return (
        f"| {_accelerator(design)} | {_braces(plan)} | {part['microbatch']} "
        f"| {part['recompute']} | {hbm} |"
    )


def _accelerator(design: Mapping[str, Any]) -> str:
    arch = design["architecture"]
    cores = [arch[key] for key in ("tensor_cores", "vector_cores", "width", "depth")]
    return f"{_braces(cores)}, {arch['global_buffer_mib']}"


def _paper_cells(row: PublishedModel) -> str:
    return (
        f"| {_braces(row.found[:4])}, {row.found[4]} | {_braces(row.placement)} | {row.microbatch} "
        f"| {row.recompute} | {row.hbm_gib} |"
    )


def _braces(values: Sequence[int]) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"


def speedups(found: Mapping[tuple[str, str], Best]) -> list[str]:
    """Return throughputs over TPUv4 with expert placement, and their geometric means."""
    columns = [SOLVER, *OTHERS]
    lines = [
        "| model | tpuv4-expert, samples/s | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    ratios: dict[str, list[float]] = {name: [] for name in columns}
    for name, row in published().models.items():
        expert = found.get((EXPERT, name))
        cells = []
        for column in columns:
            best = found.get((column, name))
            if expert is None or best is None:
                cells.append("-")
                continue
            ratios[column].append(best.throughput / expert.throughput)
            cells.append(f"{ratios[column][-1]:.2f}")
        first = "-" if expert is None else f"{expert.throughput:.4g}"
        lines.append(f"| {row.title} | {first} | " + " | ".join(cells) + " |")
    means = [_geometric(ratios[column]) for column in columns]
    lines.append("| geometric mean | | " + " | ".join(means) + " |")
    paper = published().averages
    lines.append("")
    lines.append(
        f"paper: per-model accelerators {paper['per_model_over_expert']} and common accelerator "
        f"{paper['common_over_expert']} over TPUv4 with expert placement, common "
        f"{paper['common_over_solver']} over TPUv4 and "
        f"{paper['common_over_spotlight_solver']:.1f} over Spotlight with its solver"
    )
    return lines


def _geometric(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = math.exp(math.fsum(math.log(value) for value in values) / len(values))
    return f"{mean:.2f} ({len(values)})"


def table5(found: Mapping[tuple[str, str], Best]) -> list[str]:
    """Return the lines of Table 5: utilisation in percent, ours / the paper's."""
    columns = (EXPERT, SOLVER, "paper-common")
    lines = ["| model | " + " | ".join(columns) + " |", "|---|---|---|---|"]
    for name, row in published().models.items():
        cells = []
        for k, column in enumerate(columns):
            best = found.get((column, name))
            ours = "-" if best is None else f"{100 * best.mfu:.1f}"
            paper = "-" if row.mfu_percent is None else f"{row.mfu_percent[k]:.1f}"
            cells.append(f"{ours} / {paper}")
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return lines


def modelling(front: Front) -> str:
    """Return how a run models training: the default, ``compat: paper``, or what differs.

    Examples
    --------
    >>> modelling(Front("a", {"options": {"compat": "paper"}}, (), {}, ()))
    'compat: paper'
    """
    own = _switches(validate(PhazeOptions, dict(front.attrs.get("options") or {})))
    if own == _switches(PhazeOptions()):
        return "this project's model"
    if own == _switches(PhazeOptions(compat="paper")):
        return "compat: paper"
    default = _switches(PhazeOptions())
    changed = [f"{name} {own[name]}" for name in SWITCHES if own[name] != default[name]]
    return ", ".join(changed)


def _switches(options: PhazeOptions) -> dict[str, Any]:
    resolved = options.resolved()
    return {name: getattr(resolved, name) for name in SWITCHES}


def common(fronts: Sequence[Front], found: Mapping[tuple[str, str], Best]) -> list[str]:
    """Return the accelerators found for several models at once, and each model's throughput.

    The ratio is to TPUv4 with the expert's placement, where that is among the runs.
    """
    lines: list[str] = []
    for front in fronts:
        if not len(front) or not front.designs or len(front.designs[0]["models"]) < 2:
            continue
        k = int(front.values["throughput_samples_per_s"].argmax())
        design = front.designs[k]
        mean = front.values["throughput_samples_per_s"][k]
        accelerator = _accelerator(design)
        hbm = design["training"]["hbm_bytes"] // 2**30
        lines += [f"{front.attrs['problem_label']}: {accelerator} MiB, {hbm} GiB; mean {mean:.4g}"]
        lines += ["", "| model | samples/s | over TPUv4, expert |", "|---|---|---|"]
        ratios: list[float] = []
        for part in design["models"]:
            expert = found.get((EXPERT, part["model"]))
            value, ratio = part["throughput_samples_per_s"], "-"
            if expert is not None:
                ratios.append(value / expert.throughput)
                ratio = f"{ratios[-1]:.2f}"
            lines.append(f"| {part['model']} | {value:.4g} | {ratio} |")
        lines += [f"| geometric mean | | {_geometric(ratios)} |", ""]
    return lines


def sections(fronts: Sequence[Front]) -> list[Section]:
    """Return all tables that the runs have something for, by cost model."""
    groups: dict[str, list[Front]] = {}
    for front in fronts:
        groups.setdefault(modelling(front), []).append(front)
    made: list[Section] = []
    for name, members in groups.items():
        found = best_designs([f for f in members if f.attrs["problem_label"] in PER_MODEL])
        labels = {label for label, _ in found}
        if labels & {EXPERT}:
            made.append((f"Throughput over TPUv4 with expert placement ({name})", speedups(found)))
        if "searched" in labels:
            made.append((f"Table 2 ({name})", table2(found)))
        if labels & {EXPERT, SOLVER, "paper-common"}:
            title = f"Table 5: model FLOPs utilisation in percent, ours / paper ({name})"
            made.append((title, table5(found)))
        lines = common(members, found)
        if lines:
            made.append((f"One accelerator for several models ({name})", lines))
        rows = hysteresis_rows(members)
        if rows:
            made.append((f"Levels of hysteresis beside the proof ({name})", hysteresis(rows)))
    return made
