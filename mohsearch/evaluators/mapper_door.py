"""Evaluator ``layer-mapper``: Pareto-optimal mappings of layers on a sub-accelerator template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mohsearch.core.cards import Card, read_json, validate
from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.mapper.exact import MappingFront, search_layer
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.evaluators.report import EvaluationReport
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

Bound = Annotated[int, Field(ge=1, le=2**31)]


class LayerCard(Card):
    """Bounds, strides and dilations of a layer; what is not given is 1."""

    N: Bound = 1
    G: Bound = 1
    K: Bound = 1
    C: Bound = 1
    P: Bound = 1
    Q: Bound = 1
    R: Bound = 1
    S: Bound = 1
    stride_h: Bound = 1
    stride_w: Bound = 1
    dilation_h: Bound = 1
    dilation_w: Bound = 1


class MappingCase(Card):
    """One layer on one template."""

    id: str | int | None = None
    layer: LayerCard
    template: str
    variant: str | None = None
    effort: Annotated[int, Field(ge=1000)] | None = None


class MappingCases(Card):
    """A file of cases."""

    cases: tuple[MappingCase, ...]


def evaluate(path: Path) -> EvaluationReport:
    """Map the layers of a JSON file: one case, a list of cases, or ``{"cases": [...]}``.

    A case is ``{"id", "layer": {"N", "G", "K", "C", "P", "Q", "R", "S", "stride_h", ...},
    "template", "variant", "effort"}``; all but layer and template may be left out. ``effort`` is
    the most lower bounds to work out; without it the Pareto set is always complete.

    Raises
    ------
    InputError
        If the file is malformed.
    InfeasibleError
        If a layer has no mapping, naming the case and the constraint.
    """
    data = read_json(path)
    if isinstance(data, list):
        data = {"cases": data}
    elif isinstance(data, dict) and "cases" not in data:
        data = {"cases": [data]}
    cases = validate(MappingCases, data, source=path).cases
    rows: list[dict[str, Any]] = []
    document: dict[str, Any] = {}
    for index, case in enumerate(cases):
        name = str(index if case.id is None else case.id)
        if name in document:
            raise InputError(f"id {name!r} stands twice", source=path, field=f"cases[{index}].id")
        front = _search(case, path, index)
        document[name] = _record(case, front)
        rows += [{"id": name, **mapping} for mapping in document[name]["front"]]
    return EvaluationReport(tuple(rows), document, "json")


def _search(case: MappingCase, path: Path, index: int) -> MappingFront:
    architecture = load_template(case.template, case.variant)
    try:
        return search_layer(
            LayerShape(**case.layer.model_dump()), architecture, MapperOptions(effort=case.effort)
        )
    except InfeasibleError as error:
        raise InfeasibleError(f"{path}: cases[{index}]: {error}") from error


def _record(case: MappingCase, front: MappingFront) -> dict[str, Any]:
    mappings = [
        {
            "cycles": int(front.cycles[i]),
            "energy_pj": float(front.energy_pj[i]),
            "area_um2": float(front.area_um2[i]),
            "mapping": front.notation[i],
        }
        for i in range(len(front))
    ]
    return {
        "template": case.template,
        "variant": case.variant,
        "front": mappings,
        "certificate": front.certificate,
    }
