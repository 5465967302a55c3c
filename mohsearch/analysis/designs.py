"""Decoded designs in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mohsearch.analysis.quantities import count_text, listed, size_text


def is_package(design: Mapping[str, Any]) -> bool:
    """Return whether a design is a package of sub-accelerators with a schedule."""
    return isinstance(design.get("instances"), list) and isinstance(design.get("layers"), list)


def buffer_bytes(instance: Mapping[str, Any]) -> float:
    """Return all on-chip memory of one sub-accelerator instance."""
    return float(
        sum(level["size_bytes"] * level.get("instances", 1) for level in instance["levels"])
    )


def describe_instance(instance: Mapping[str, Any]) -> str:
    """Return one instance in words.

    Examples
    --------
    >>> level = {"name": "buffer", "size_bytes": 65536, "instances": 2}
    >>> describe_instance({"template": "simba", "macs": 1024, "levels": [level]})
    'simba, 1,024 MACs, 128 KiB'
    """
    parts = [str(instance["template"])]
    if "macs" in instance:
        parts.append(count_text(int(instance["macs"]), "MAC"))
    if instance.get("levels"):
        parts.append(size_text(buffer_bytes(instance)))
    return ", ".join(parts)


def describe(design: Mapping[str, Any]) -> str:
    """Return a design in one line.

    Designs of a form unknown here are given by their scalar entries.

    Examples
    --------
    >>> part = {"template": "simba", "macs": 64, "levels": []}
    >>> describe({"instances": [part, part], "layers": []})
    '2 simba; 128 MACs'
    >>> describe({"depth": 4, "kind": "ring", "table": [1, 2]})
    'depth 4, kind ring'
    """
    if not is_package(design):
        scalars = [f"{k} {v}" for k, v in design.items() if isinstance(v, (str, int, float))]
        return listed(scalars, 8)
    instances = design["instances"]
    counts = Counter(str(instance["template"]) for instance in instances)
    text = " + ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    macs = sum(int(instance.get("macs", 0)) for instance in instances)
    memory = sum(buffer_bytes(instance) for instance in instances if "levels" in instance)
    extra = [count_text(macs, "MAC")] if macs else []
    extra += [size_text(memory)] if memory else []
    return "; ".join([text or "no instance", *extra])
