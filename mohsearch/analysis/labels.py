"""Which runs are repetitions of each other: names for contenders and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mohsearch.analysis.fronts import Front, merge
from mohsearch.core.errors import UnknownNameError

FIELDS = ("problem", "engine", "portfolio", "workload")
"""What runs of a study can differ in, besides the seed."""


def field_value(attrs: Mapping[str, Any], name: str) -> str:
    """Return a run's value of one of :data:`FIELDS`, as a person would name it.

    Examples
    --------
    >>> field_value({"engine": "pymoo", "algorithm": "nsga2"}, "engine")
    'pymoo nsga2'
    """
    if name == "problem":
        return str(attrs.get("problem_label") or attrs.get("problem", ""))
    if name == "engine" and attrs.get("engine_label"):
        return str(attrs["engine_label"])
    if name == "engine":
        engine, algorithm = str(attrs.get("engine", "")), str(attrs.get("algorithm") or "")
        return engine if algorithm in {"", engine, "None"} else f"{engine} {algorithm}"
    return str(attrs.get(name) or "")


def varying_fields(fronts: Sequence[Front]) -> tuple[str, ...]:
    """Return the fields that tell the runs apart, without those that others imply.

    Where each problem variant has its own portfolio, say, the problem says it all.
    """

    def parts(fields: Sequence[str]) -> int:
        return len({tuple(field_value(r.attrs, f) for f in fields) for r in fronts})

    varying = [f for f in FIELDS if parts([f]) > 1]
    for field in ("portfolio", "engine", "problem"):
        others = [f for f in varying if f != field]
        if field in varying and parts(others) == parts(varying):
            varying = others
    return tuple(varying)


def by_workload(fronts: Sequence[Front]) -> dict[str, list[Front]]:
    """Return the fronts of each workload, in order of first appearance."""
    groups: dict[str, list[Front]] = {}
    for front in fronts:
        groups.setdefault(field_value(front.attrs, "workload"), []).append(front)
    return groups


def contender_fields(fronts: Sequence[Front], by: str | None = None) -> tuple[str, ...]:
    """Return the fields that tell contenders apart; the other varying ones tell cases apart.

    Without ``by`` everything that varies but the workload does.

    Raises
    ------
    UnknownNameError
        If ``by`` is none of :data:`FIELDS`.
    """
    if by is not None:
        if by not in FIELDS:
            raise UnknownNameError("field", by, FIELDS)
        return (by,)
    varying = varying_fields(fronts)
    return tuple(f for f in varying if f != "workload") or varying or ("engine",)


def label(attrs: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return the run's values of ``fields``, joined."""
    return ", ".join(value for f in fields if (value := field_value(attrs, f)))


def labels(fronts: Sequence[Front]) -> list[str]:
    """Return one short distinct label per front: what varies, the seed if that varies too."""
    fields = varying_fields(fronts)
    names = [label(front.attrs, fields) for front in fronts]
    if len(set(names)) < len(names):
        seeds = [f"seed {front.attrs.get('seed', '?')}" for front in fronts]
        names = [", ".join(p for p in pair if p) for pair in zip(names, seeds, strict=True)]
    if len(set(names)) < len(names) or (len(fronts) == 1 and not names[0]):
        return [front.run for front in fronts]
    return names


def pool_seeds(fronts: Sequence[Front]) -> tuple[list[Front], list[str]]:
    """Return one front per contender and the contenders' labels: seeds are pooled.

    A pooled front holds the solutions that no solution of a repetition dominates; its run is named
    after the contender, with the number of runs. Its solutions carry no design.
    """
    fields = varying_fields(fronts)
    groups: dict[str, list[Front]] = {}
    for front in fronts:
        groups.setdefault(label(front.attrs, fields), []).append(front)
    pooled, names = [], []
    for name, group in groups.items():
        if len(group) == 1:
            pooled.append(group[0])
            names.append(name or group[0].run)
            continue
        parts = merge(group)
        pooled.append(
            replace(
                group[0],
                run=name or "all runs",
                values={
                    m.name: np.concatenate([part.values[m.name] for part in parts])
                    for m in group[0].metrics
                },
                designs=(),
            )
        )
        names.append(f"{name} ({len(group)} seeds)" if name else f"{len(group)} seeds")
    return pooled, names
