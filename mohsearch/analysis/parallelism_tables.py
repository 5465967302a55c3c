"""Error of the predicted training runs, and how far the measured configurations are from the best.

They take the runs of the study ``megatron_a100`` or of one like it: problem ``parallelism`` with
measured runs as workloads, one label that keeps the measured configuration and others that search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mohsearch.analysis.fronts import Front

Section = tuple[str, list[str]]


@dataclass(frozen=True)
class Outcome:
    """The fastest configuration of one run of the study.

    Attributes
    ----------
    label, workload
        Which one.
    seconds
        Predicted time of an iteration.
    design
        Decoded.
    """

    label: str
    workload: str
    seconds: float
    design: Mapping[str, Any]

    @property
    def run(self) -> Mapping[str, Any]:
        """What is trained and what was measured."""
        found: Mapping[str, Any] = self.design["run"]
        return found


def outcomes(fronts: Sequence[Front]) -> list[Outcome]:
    """Return the fastest configuration of every run that has one."""
    found = []
    for front in fronts:
        if not len(front) or not front.designs:
            continue
        k = int(front.values["iteration_s"].argmin())
        seconds = float(front.values["iteration_s"][k])
        label, workload = str(front.attrs["problem_label"]), str(front.attrs["workload"])
        found.append(Outcome(label, workload, seconds, front.designs[k]))
    return found


def accuracy(rows: Sequence[Outcome]) -> list[str]:
    """Return mean and greatest absolute error by set of measurements, the peer's beside ours."""
    lines = [
        "| set | runs | mean | greatest | bias | peer: mean | peer: greatest |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[Outcome]] = {}
    for row in rows:
        groups.setdefault(str(row.run["set"]), []).append(row)
    if len(groups) > 1:
        groups["all"] = list(rows)
    for name, members in groups.items():
        errors = np.array([row.run["error"] for row in members])
        peers = [_peer_error(row) for row in members]
        cells = ["-", "-"]
        if None not in peers:
            size = np.abs(np.array(peers, dtype=float))
            cells = [f"{size.mean():.1%}", f"{size.max():.1%}"]
        lines.append(
            f"| {name} | {len(members)} | {np.abs(errors).mean():.1%} | "
            f"{np.abs(errors).max():.1%} | {errors.mean():+.1%} | {cells[0]} | {cells[1]} |"
        )
    return lines


def _peer_error(row: Outcome) -> float | None:
    peer = row.run["peer_s"]
    return None if peer is None else float(peer) / float(row.run["measured_s"]) - 1


def predictions(rows: Sequence[Outcome]) -> list[str]:
    """Return predicted beside measured time, run by run."""
    lines = [
        "| run | layers x hidden | devices | configuration | measured, s | predicted, s | error | "
        "peer |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peer = _peer_error(row)
        lines.append(
            f"| {row.workload} | {row.run['layers']} x {row.run['hidden']} | {row.run['devices']} "
            f"| {configuration(row.design)} | {row.run['measured_s']:.4g} | {row.seconds:.4g} | "
            f"{row.run['error']:+.1%} | {'-' if peer is None else f'{peer:+.1%}'} |"
        )
    return lines


def configuration(design: Mapping[str, Any]) -> str:
    """Return a configuration in a few words.

    Examples
    --------
    >>> plan = {"tensor": 8, "pipeline": 4, "data": 2, "microbatch": 1, "interleaving": 3}
    >>> configuration(plan | {"technique": "recompute full"})
    't8 p4 d2, microbatch 1, interleaved 3, recompute full'
    """
    degrees = f"t{design['tensor']} p{design['pipeline']} d{design['data']}"
    split = design["interleaving"]
    interleaved = [f"interleaved {split}"] if split > 1 else []
    parts = [degrees, f"microbatch {design['microbatch']}", *interleaved, design["technique"]]
    return ", ".join(str(part) for part in parts)


def gains(kept: Sequence[Outcome], searched: Sequence[Outcome]) -> list[str]:
    """Return by how much the best predicted configuration is faster than the measured one.

    Both times are predicted, so that an error of the model common to both falls out.
    """
    before = {row.workload: row for row in kept}
    lines = [
        "| run | measured configuration, predicted s | best predicted, s | faster by | best |",
        "|---|---|---|---|---|",
    ]
    for row in searched:
        if row.workload not in before:
            continue
        old = before[row.workload].seconds
        same = row.design["remark"] == "as measured"
        best = "the measured one" if same else configuration(row.design)
        lines.append(
            f"| {row.workload} | {old:.4g} | {row.seconds:.4g} | {old / row.seconds - 1:.1%} | "
            f"{best} |"
        )
    return lines


def sections(fronts: Sequence[Front]) -> list[Section]:
    """Return all tables that the runs have something for."""
    found = outcomes(fronts)
    kept = [row for row in found if _keeps(row, fronts)]
    made: list[Section] = []
    if kept:
        made.append(("Error of the predicted iteration time", accuracy(kept)))
        made.append(("Predicted and measured iteration time", predictions(kept)))
    for label in dict.fromkeys(row.label for row in found if row not in kept):
        lines = gains(kept, [row for row in found if row.label == label])
        if len(lines) > 2:
            made.append((f"The best configuration ({label})", lines))
    return made


def _keeps(row: Outcome, fronts: Sequence[Front]) -> bool:
    """Return whether a run kept the measured configuration, and its time is known."""
    options = next(
        dict(front.attrs.get("options") or {})
        for front in fronts
        if (front.attrs["problem_label"], front.attrs["workload"]) == (row.label, row.workload)
    )
    fixed = options.get("degrees") == options.get("techniques") == "measured"
    return fixed and row.run["error"] is not None
