"""A package in Timeloop's terms: architecture of each instance, problem and mapping of each layer.

The files follow Timeloop's version 0.3 input. Dimension K is Timeloop's M; groups G are a dimension
of their own, so that depthwise and grouped layers and batched products are told as they are. All
loops over space stand on the X axis, which has no influence on access counts. A bound that a
mapping pads to a multiple is padded in its problem as well, and a comment says so.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from typing import Any

from mohsearch.core.cards import yaml_text
from mohsearch.core.errors import InputError
from mohsearch.evaluators.mapper.notation import Mapping, MappingLevel, parse_mapping
from mohsearch.hardware.architecture import Architecture, Level
from mohsearch.workloads.application import Application
from mohsearch.workloads.layer import DIMS, LayerShape

DIMENSIONS = tuple("M" if d == "K" else d for d in DIMS)
TENSORS = {"W": "Weights", "I": "Inputs", "O": "Outputs"}
CLASSES = {
    "dram": "DRAM",
    "sram": "smartbuffer_SRAM",
    "register_file": "smartbuffer_RF",
    "register": "reg_storage",
}


def timeloop_files(
    design: Dict[str, Any], application: Application, architectures: Sequence[Architecture]
) -> dict[str, str]:
    """Return the files of a package by relative path.

    ``arch/instance_<id>.yaml``, and for each layer ``prob/<layer>.yaml`` and ``map/<layer>.yaml``;
    slashes in names of layers become dots.

    Parameters
    ----------
    design
        A decoded moham design.
    application
        The workload it runs.
    architectures
        Its templates.

    Raises
    ------
    InputError
        If the design is no package, or does not belong to the workload or templates.
    """
    if "instances" not in design or "layers" not in design:
        raise InputError("only packages of sub-accelerators can be written for Timeloop")
    templates = {a.name: a for a in architectures}
    shapes = {layer.name: layer.shape for layer in application.layers}
    files = {}
    for instance in design["instances"]:
        name = str(instance["template"])
        if name not in templates:
            raise InputError(f"no template {name!r}; the problem has {', '.join(templates)}")
        text = yaml_text(architecture_document(instance, templates[name]))
        files[f"arch/instance_{instance['id']}.yaml"] = text
    for layer in design["layers"]:
        name = str(layer["name"])
        if name not in shapes:
            raise InputError(f"the workload has no layer {name!r}")
        mapping = parse_mapping(layer["mapping"])
        stem = name.replace("/", ".")
        comment = f"# {name} on instance {layer['instance']}{_padding(mapping, shapes[name])}\n"
        files[f"prob/{stem}.yaml"] = comment + yaml_text(problem_document(mapping, shapes[name]))
        files[f"map/{stem}.yaml"] = comment + yaml_text(mapping_document(mapping))
    return files


def _padding(mapping: Mapping, shape: LayerShape) -> str:
    real = dict(zip(DIMS, shape.bounds(), strict=True))
    padded = [f"{d} {real[d]} -> {n}" for d, n in mapping.bounds().items() if n != real[d]]
    return f"; padded: {', '.join(padded)}" if padded else ""


def problem_document(mapping: Mapping, shape: LayerShape) -> dict[str, Any]:
    """Return Timeloop's problem of a layer, with the bounds that its mapping covers."""
    bounds = mapping.bounds()
    instance: dict[str, int] = {
        name: bounds.get(d, 1) for d, name in zip(DIMS, DIMENSIONS, strict=True)
    }
    instance |= {
        "Hstride": shape.stride_h,
        "Wstride": shape.stride_w,
        "Hdilation": shape.dilation_h,
        "Wdilation": shape.dilation_w,
    }
    spaces = [
        {"name": "Weights", "projection": [[[d]] for d in ("G", "M", "C", "R", "S")]},
        {
            "name": "Inputs",
            "projection": [
                *([[d]] for d in ("N", "G", "C")),
                [["P", "Hstride"], ["R", "Hdilation"]],
                [["Q", "Wstride"], ["S", "Wdilation"]],
            ],
        },
        {
            "name": "Outputs",
            "projection": [[[d]] for d in ("N", "G", "M", "P", "Q")],
            "read-write": True,
        },
    ]
    coefficients = [
        {"name": name, "default": 1} for name in ("Hstride", "Wstride", "Hdilation", "Wdilation")
    ]
    described = {
        "name": "GroupedConvolution",
        "dimensions": list(DIMENSIONS),
        "coefficients": coefficients,
        "data-spaces": spaces,
    }
    return {"problem": {"shape": described, "instance": instance}}


def mapping_document(mapping: Mapping) -> dict[str, Any]:
    """Return Timeloop's mapping: for each level what it keeps and its loops over time and space."""
    entries: list[dict[str, Any]] = []
    for level in mapping.levels:
        kept = [TENSORS[t] for t in level.keeps]
        bypassed = [name for name in TENSORS.values() if name not in kept]
        entry = {"target": level.name, "type": "bypass", "keep": kept, "bypass": bypassed}
        entries.append({k: v for k, v in entry.items() if v or k not in {"keep", "bypass"}})
        entries.append({"target": level.name, "type": "temporal"} | _loops(level, spatial=False))
        if level.spatial:
            spatial = {"target": level.name, "type": "spatial"} | _loops(level, spatial=True)
            entries.append(spatial | {"split": len(DIMENSIONS)})
    return {"mapping": entries}


def _loops(level: MappingLevel, *, spatial: bool) -> dict[str, str]:
    """Return factors, and the permutation, innermost loop first."""
    loops = level.spatial if spatial else level.temporal
    factors = dict.fromkeys(DIMS, 1)
    for loop in loops:
        factors[loop.dim] *= loop.bound
    inside_out = list(dict.fromkeys(loop.dim for loop in reversed(loops)))
    order = [*(d for d in DIMS if d not in inside_out), *inside_out]
    return {
        "factors": " ".join(
            f"{name}={factors[d]}" for d, name in zip(DIMS, DIMENSIONS, strict=True)
        ),
        "permutation": "".join("M" if d == "K" else d for d in order),
    }


def architecture_document(instance: Dict[str, Any], template: Architecture) -> dict[str, Any]:
    """Return Timeloop's architecture of one instance: its levels at their merged sizes."""
    sizes = {part["name"]: part for part in instance["levels"]}
    counts = [1, *(int(sizes[level.name]["instances"]) for level in template.levels[1:])]
    macs = {
        "name": f"MAC[0..{int(instance['macs']) - 1}]",
        "class": "intmac",
        "attributes": {"datawidth": template.mac_bits, "meshX": int(instance["macs"])},
    }
    storage = [
        _storage(level, None if k == 0 else sizes[level.name], counts[k])
        for k, level in enumerate(template.levels)
    ]
    chip = {
        "name": "chip",
        "attributes": {"technology": f"{template.technology.node_nm:g}nm"},
        "local": [*storage[1:], macs],
    }
    system = {"name": "system", "local": [storage[0]], "subtree": [chip]}
    return {"architecture": {"version": 0.3, "subtree": [system]}}


def _storage(level: Level, part: Dict[str, Any] | None, count: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "width": level.words_per_access * level.word_bits,
        "word-bits": level.word_bits,
        "block-size": level.words_per_access,
    }
    if part is not None:
        words = round(part["size_bytes"] * 8 / level.word_bits)
        attributes |= {"depth": int(level.rows(words)), "meshX": count}
    if level.memory.kind == "dram":
        attributes["type"] = level.memory.dram_type
    if level.memory.kind == "sram":
        attributes["n_ports"] = level.memory.ports
    if level.read_words_per_cycle is not None:
        attributes["read_bandwidth"] = level.read_words_per_cycle
    if level.write_words_per_cycle is not None:
        attributes["write_bandwidth"] = level.write_words_per_cycle
    name = level.name if count == 1 else f"{level.name}[0..{count - 1}]"
    return {"name": name, "class": CLASSES[level.memory.kind], "attributes": attributes}
