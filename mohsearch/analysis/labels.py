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

BY = (*FIELDS, "template", "seed")
"""What runs can be compared by."""


def field_value(attrs: Mapping[str, Any], name: str) -> str:
    """Return a run's value of one of :data:`BY`, as a person would name it.

    A run's templates are those that its problem's options allow.

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
    if name == "template":
        return _templates(attrs)
    if name == "seed":
        return f"seed {attrs.get('seed', '?')}"
    return str(attrs.get(name) or "")


def _templates(attrs: Mapping[str, Any]) -> str:
    """Return the hardware templates that a run may use, joined; its problem where it has none."""
    from mohsearch.core.cards import validate
    from mohsearch.problems import PROBLEM_OPTIONS

    problem, options = str(attrs.get("problem", "")), dict(attrs.get("options") or {})
    names = options.get("templates") or options.get("template")
    if problem in PROBLEM_OPTIONS.names():
        card = validate(PROBLEM_OPTIONS.load(problem), options)
        names = getattr(card, "template_names", None) or getattr(card, "templates", names)
    if not names:
        return field_value(attrs, "problem")
    return names if isinstance(names, str) else "+".join(str(n) for n in names)


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
        If ``by`` is none of :data:`BY`.
    """
    if by is not None:
        if by not in BY:
            raise UnknownNameError("field", by, BY)
        return (by,)
    varying = varying_fields(fronts)
    return tuple(f for f in varying if f != "workload") or varying or ("engine",)


def case_fields(fronts: Sequence[Front], fields: Sequence[str]) -> tuple[str, ...]:
    """Return the fields that tell cases apart when ``fields`` tell contenders apart.

    What a contender implies anyway (the problem entry of a set of templates, say) is no case. Runs
    of different workloads are never in one case, unless workloads are the contenders.
    """

    def parts(names: Sequence[str]) -> int:
        return len({tuple(field_value(f.attrs, n) for n in names) for f in fronts})

    rest = [f for f in varying_fields(fronts) if f not in fields]
    return tuple(f for f in rest if f == "workload" or parts([*fields, f]) > parts(fields))


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
