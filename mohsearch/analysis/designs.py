"""Decoded designs in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mohsearch.analysis.quantities import count_text, listed, size_text


def is_package(design: Mapping[str, Any]) -> bool:
    """Return whether a design is a package of sub-accelerators with a schedule."""
    return isinstance(design.get("instances"), list) and isinstance(design.get("layers"), list)


def is_training(design: Mapping[str, Any]) -> bool:
    """Return whether a design is a training accelerator with its placements."""
    return "architecture" in design and isinstance(design.get("models"), list)


def describe_training(design: Mapping[str, Any]) -> str:
    """Return a training accelerator and its placements in one line.

    Examples
    --------
    >>> chip = {"tensor_cores": 8, "vector_cores": 2, "width": 128, "depth": 128}
    >>> plan = {"placed": True, "pipeline": 4, "data": 16, "tensor": 2, "microbatch": 1}
    >>> describe_training(
    ...     {
    ...         "architecture": chip | {"global_buffer_mib": 128},
    ...         "training": {"hbm_bytes": 2**36},
    ...         "models": [plan | {"model": "toy", "recompute": "full"}],
    ...     }
    ... )
    '8 x 128x128 + 2 vector cores, 128 MiB, 64 GiB; toy p4 d16 t2, microbatch 1, recompute full'
    """
    chip = design["architecture"]
    cores = f"{chip['tensor_cores']} x {chip['width']}x{chip['depth']}"
    text = (
        f"{cores} + {chip['vector_cores']} vector cores, {chip['global_buffer_mib']} MiB, "
        f"{design['training']['hbm_bytes'] // 2**30} GiB"
    )
    plans = [
        f"{part['model']} p{part['pipeline']} d{part['data']} t{part['tensor']}, "
        f"microbatch {part['microbatch']}, recompute {part['recompute']}"
        if part["placed"]
        else f"{part['model']} not placed"
        for part in design["models"]
    ]
    return "; ".join([text, *plans])


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
    if is_training(design):
        return describe_training(design)
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
