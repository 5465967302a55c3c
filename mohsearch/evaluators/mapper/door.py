"""Evaluator ``layer-mapper``: Pareto-optimal mappings of layers on templates, from a JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from mohsearch.core.cards import Card, read_json, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.mapper.exact import MappingFront, search_layer
from mohsearch.evaluators.mapper.translate import MapperOptions, Objective
from mohsearch.evaluators.report import EvaluationReport
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

Bound = Annotated[int, Field(ge=1, lt=2**31)]


class LayerCard(Card):
    """Bounds, strides and dilations of a layer; K and C are per group."""

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


class OptionsCard(Card):
    """See :class:`mohsearch.evaluators.mapper.translate.MapperOptions`."""

    objective: Objective = "pareto"
    padding: bool = True
    zero_fill: bool = True
    double_buffered: bool = False
    sizing: Literal["minimal", "full"] = "minimal"
    max_evaluations: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    effort: Annotated[int, Field(ge=2)] | None = None


class CaseCard(Card):
    """One layer on one template."""

    id: str | None = None
    layer: LayerCard
    template: str
    variant: str | None = None
    options: OptionsCard = OptionsCard()


class _File(Card):
    cases: Annotated[tuple[CaseCard, ...], Field(min_length=1)]


def evaluate(path: Path) -> EvaluationReport:
    """Search the mappings of every case of a JSON file.

    Parameters
    ----------
    path
        JSON: one case, a list of cases, or an object with a list ``cases``. A case holds ``layer``
        (bounds ``N G K C P Q R S``, ``stride_h``, ``stride_w``, ``dilation_h``, ``dilation_w``, all
        1 where left out; K and C per group), ``template`` (name, or path relative to the file),
        and optionally ``id``, ``variant`` and ``options`` (``objective``: pareto, edp, energy or
        cycles; ``padding``, ``zero_fill``, ``double_buffered``, ``sizing``, ``max_evaluations``,
        ``effort``).

    Returns
    -------
    EvaluationReport
        One row per mapping. The document holds, by case id (default: its number), ``mappings``
        with ``cycles``, ``energy_pj``, ``area_um2`` and ``notation``, and the ``certificate``; a
        layer without any mapping has none and says why under ``infeasible``.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    document: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for index, (case, where) in enumerate(_read_cases(path)):
        name = case.id if case.id is not None else str(index)
        if name in document:
            raise InputError(f"a second case with id {name!r}", source=path, field=f"{where}id")
        document[name] = result = _search(case, path, where)
        rows.extend({"case": name, **mapping} for mapping in result["mappings"])
    return EvaluationReport(rows=tuple(rows), document=document, natural_format="json")


def _read_cases(path: Path) -> list[tuple[CaseCard, str]]:
    data = read_json(path)
    if isinstance(data, dict) and "cases" not in data:
        return [(validate(CaseCard, data, source=path), "")]
    if isinstance(data, list):
        data = {"cases": data}
    cases = validate(_File, data, source=path).cases
    return [(case, f"cases[{index}].") for index, case in enumerate(cases)]


def _search(case: CaseCard, path: Path, where: str) -> dict[str, Any]:
    catalog = Catalog.around(path)
    template = case.template
    if "/" in template or template.endswith(".yaml"):
        template = str(path.resolve().parent / template)
    try:
        architecture = load_template(template, case.variant, catalog=catalog)
    except InputError as error:
        if error.source is not None and Path(error.source) != path:
            raise
        raise InputError(error.message, source=path, field=f"{where}template") from error
    layer = LayerShape(**case.layer.model_dump())
    options = MapperOptions(**case.options.model_dump())
    try:
        front = search_layer(layer, architecture, options)
    except InfeasibleError as error:
        return {"mappings": [], "certificate": {"complete": True}, "infeasible": str(error)}
    return {"mappings": _mappings(front), "certificate": front.certificate}


def _mappings(front: MappingFront) -> list[dict[str, Any]]:
    return [
        {
            "cycles": int(front.cycles[i]),
            "energy_pj": float(front.energy_pj[i]),
            "area_um2": float(front.area_um2[i]),
            "notation": front.notation[i],
        }
        for i in range(len(front))
    ]
