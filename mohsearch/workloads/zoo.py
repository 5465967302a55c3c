"""Networks and applications by name or path."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.cards import read_card, read_yaml, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.files import write_text
from mohsearch.workloads.application import Application, Tenant
from mohsearch.workloads.card import ApplicationCard, NetworkCard
from mohsearch.workloads.graph import OpGraph
from mohsearch.workloads.table import (
    DEFAULTS,
    FOLLOWERS,
    graph_from_rows,
    read_table,
    rows_of,
    write_table,
)
from mohsearch.workloads.transformer import encoder_stack

SHELF = "problems"
NETWORKS = "workloads/networks"
APPLICATIONS = "workloads/applications"
SUFFIXES = (".yaml", ".csv", ".onnx")
"""A network is a card, a bare layer table or a bare ONNX file."""


def list_networks(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all networks on the shelves, sorted."""
    return (catalog or Catalog.around()).names(SHELF, NETWORKS, SUFFIXES)


def list_applications(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all applications on the shelves, sorted."""
    return (catalog or Catalog.around()).names(SHELF, APPLICATIONS)


def find_network(
    name_or_path: str,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> Path:
    """Return the file of a network given by name or path.

    ``base`` is the folder that paths are relative to (default: the working directory); ``source``
    and ``field`` say in errors where the name was written.
    """
    path = (catalog or Catalog.around()).resolve(
        SHELF,
        str(name_or_path),
        folder=NETWORKS,
        kind="network",
        suffixes=SUFFIXES,
        base=base,
        source=source,
        field=field,
    )
    if path.suffix not in SUFFIXES:
        problem = f"{path} is no network file; they end in {', '.join(SUFFIXES)}"
        raise InputError(problem, source=source, field=field)
    return path


def load_network(
    name_or_path: str | Path,
    catalog: Catalog | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    vector_ops: Collection[str] = (),
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> OpGraph:
    """Load a network by name, or from a card, CSV layer table or ONNX file.

    Parameters
    ----------
    name_or_path
        A name on the shelf, or a path ending in ``.yaml``, ``.csv`` or ``.onnx``.
    catalog
        Where names are looked up (default: the working directory's project, then the built-in
        shelves).
    dims
        Sizes for the symbolic dimensions of an ONNX file, such as ``{"batch": 1}``.
    vector_ops
        Op types of an ONNX file, otherwise unknown, to take as element-wise.
    base, source, field
        See :func:`find_network`.

    Raises
    ------
    InputError
        If nothing answers to the name, or the file does not hold a network.

    Examples
    --------
    >>> load_network("resnet50").macs
    4089184256
    """
    path = find_network(str(name_or_path), catalog, base=base, source=source, field=field)
    if path.suffix == ".yaml":
        card = read_card(NetworkCard, path)
        return _from_card(card, path, dims or {}, vector_ops)
    if path.suffix == ".onnx":
        return _from_onnx(path, path.stem, "", dims or {}, vector_ops)
    _refuse_onnx_options(path, dims or {}, vector_ops)
    return read_table(path)


def describe_network(
    name_or_path: str | Path, catalog: Catalog | None = None, **options: Any
) -> dict[str, Any]:
    """Return the summary of a network, with its card's title, licence and literature figure.

    Takes the options of :func:`load_network`. ``literature`` holds the published MACs, their
    source, the tolerance, and ``ratio``, ours to published.

    Examples
    --------
    >>> round(describe_network("resnet50")["literature"]["ratio"], 2)
    1.0
    """
    place = {key: options.get(key) for key in ("base", "source", "field")}
    path = find_network(str(name_or_path), catalog, **place)
    graph = load_network(name_or_path, catalog, **options)
    facts = {**graph.summary(), "path": str(path)}
    if path.suffix == ".yaml":
        card = read_card(NetworkCard, path)
        facts |= {"title": card.title, "description": card.description, "licence": card.licence}
        if card.literature is not None:
            facts["literature"] = {
                **card.literature.model_dump(),
                "ratio": graph.macs / card.literature.macs,
            }
    return facts


def load_application(
    name_or_path: str | Path,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> Application:
    """Load an application by name or from its card; a network alone is an application of one.

    Parameters
    ----------
    name_or_path
        The name of an application, else of a network; or a path to a card, layer table or ONNX
        file.
    catalog, base, source, field
        See :func:`find_network`.

    Raises
    ------
    InputError
        If nothing answers to the name, or a network of the application cannot be loaded.

    Examples
    --------
    >>> arvr = load_application("arvr")
    >>> arvr.n_layers, arvr.n_unique, arvr.longest_chain
    (199, 105, 71)
    """
    catalog = catalog or Catalog.around()
    text = str(name_or_path)
    place: dict[str, Any] = {"base": base, "source": source, "field": field}
    path = _find_application(text, catalog, place)
    data = read_yaml(path) if path.suffix == ".yaml" else None
    if not (isinstance(data, dict) and "networks" in data):
        return _alone(load_network(text, catalog, **place))
    card = validate(ApplicationCard, data, source=path)
    tenants = [
        Tenant(
            load_network(
                tenant.network,
                catalog,
                base=path.parent,
                source=path,
                field=f"networks[{i}].network",
            ),
            tenant.batch,
            tenant.replicas,
        )
        for i, tenant in enumerate(card.networks)
    ]
    return Application.merge(path.stem, tenants, source=card.source)


def save_network(
    graph: OpGraph, path: Path, *, title: str | None = None, licence: str = ""
) -> None:
    """Write the mapped ops of a network as a CSV layer table or a YAML card, by the suffix.

    Vector ops are contracted. :func:`load_network` reads the same loop nests and dependencies
    back.

    Raises
    ------
    InputError
        If the suffix is neither ``.csv`` nor ``.yaml``, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix == ".csv":
        write_table(graph, path)
    elif path.suffix == ".yaml":
        write_text(path, _card_text(graph, title or graph.name, licence))
    else:
        raise InputError("a network is written as .csv or .yaml", source=path)


def _card_text(graph: OpGraph, title: str, licence: str) -> str:
    """Return a network card with its layers in place; JSON scalars and rows are YAML, too."""
    lines = [f"title: {json.dumps(title, ensure_ascii=False)}"]
    lines.append(f"source: {json.dumps(graph.source or 'unknown', ensure_ascii=False)}")
    if licence:
        lines.append(f"licence: {json.dumps(licence, ensure_ascii=False)}")
    lines.append("layers:")
    for row in rows_of(graph):
        kept = {
            column: value
            for column, value in row.items()
            if value != DEFAULTS.get(column)
            and not (column in FOLLOWERS and value == row[FOLLOWERS[column]])
        }
        cells = ", ".join(f"{k}: {json.dumps(v, ensure_ascii=False)}" for k, v in kept.items())
        lines.append(f"  - {{{cells}}}")
    return "\n".join(lines) + "\n"


def _alone(network: OpGraph) -> Application:
    return Application.merge(network.name, [Tenant(network)], source=network.source)


def _find_application(text: str, catalog: Catalog, place: Mapping[str, Any]) -> Path:
    """Return the file of an application, else of a network, of that name or path."""
    try:
        return catalog.resolve(
            SHELF, text, folder=APPLICATIONS, kind="application", suffixes=SUFFIXES, **place
        )
    except UnknownNameError as error:
        networks = list_networks(catalog)
        if text in networks:
            return find_network(text, catalog, **place)
        known = [*list_applications(catalog), *networks]
        raise UnknownNameError(
            "application or network", text, known, source=error.source, field=error.field
        ) from None


def _from_card(
    card: NetworkCard, path: Path, dims: Mapping[str, int], vector_ops: Collection[str]
) -> OpGraph:
    name = path.stem
    if card.onnx is not None:
        file = _beside(card.onnx, path, "onnx")
        known = {*card.vector_ops, *vector_ops}
        return _from_onnx(file, name, card.source, {**card.dims, **dims}, known)
    _refuse_onnx_options(path, dims, vector_ops)
    if card.table is not None:
        file = _beside(card.table, path, "table")
        return read_table(file, name=name, source=card.source)
    if card.transformer is not None:
        return encoder_stack(card.transformer, name, source=card.source)
    rows = [(f"layers[{i}]", row.columns()) for i, row in enumerate(card.layers or ())]
    return graph_from_rows(rows, name=name, source=card.source, origin=path)


def _from_onnx(
    path: Path, name: str, source: str, dims: Mapping[str, int], vector_ops: Collection[str]
) -> OpGraph:
    from mohsearch.workloads.onnx_import import read_onnx

    return read_onnx(path, name=name, source=source, dims=dims, vector_ops=vector_ops)


def _beside(name: str, card: Path, field: str) -> Path:
    """Return a file named in a card, relative to it."""
    path = card.parent / name
    if not path.is_file():
        raise InputError(f"no such file: {path}", source=card, field=field)
    return path


def _refuse_onnx_options(path: Path, dims: Mapping[str, int], vector_ops: Collection[str]) -> None:
    if dims or vector_ops:
        raise InputError(
            "dims and vector_ops are for ONNX files (so are --dim and --vector-op)", source=path
        )
