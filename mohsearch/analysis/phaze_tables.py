"""Tables 2 and 5 of PHAZE from this project's studies, our figures beside the paper's.

``python -m mohsearch.analysis.phaze_tables FOLDER...`` takes output folders of the studies
``phaze_tpuv4_expert``, ``phaze_table2`` and ``phaze_table5`` (or their ``_compat`` forms); they may
still be running; what is missing is shown as a dash.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohsearch.analysis.fronts import Front
from mohsearch.analysis.results import read_fronts
from mohsearch.core.errors import MohsearchError
from mohsearch.problems.phaze_published import PublishedModel, published

EXPERT, SOLVER = "tpuv4-expert", "tpuv4-solver"
OTHERS = ("spotlight-expert", "spotlight-solver", "paper-found", "paper-common", "searched")


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
    arch, part = design["architecture"], design["models"][0]
    cores = [arch[key] for key in ("tensor_cores", "vector_cores", "width", "depth")]
    plan = [part["pipeline"], part["data"], part["tensor"]]
    hbm = design["training"]["hbm_bytes"] // 2**30
    return (
        f"| {_braces(cores)}, {arch['global_buffer_mib']} | {_braces(plan)} | {part['microbatch']} "
        f"| {part['recompute']} | {hbm} |"
    )


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


def main(folders: Sequence[str]) -> int:
    """Print both tables for the studies in some folders; return the exit code."""
    fronts: list[Front] = []
    try:
        for folder in folders:
            fronts += read_fronts(Path(folder))
    except MohsearchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    found = best_designs(fronts)
    for heading, lines in (
        ("Throughput over TPUv4 with expert placement", speedups(found)),
        ("Table 2", table2(found)),
        ("Table 5: model FLOPs utilisation in percent, ours / paper", table5(found)),
    ):
        print(f"\n{heading}\n")
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("error: name at least one results folder", file=sys.stderr)
        raise SystemExit(2)
    raise SystemExit(main(sys.argv[1:]))
