"""Graphs of ops by name or file: columnar JSON (plain or gzipped) and ONNX."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mohsearch.core.cards import MAX_CARD_BYTES, Card, read_json, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.core.files import write_text
from mohsearch.workloads.op_graph import PartitionGraph

SHELF = "problems"
FOLDER = "workloads/graphs"
SUFFIXES = (".json.gz", ".json", ".onnx")

Index = Annotated[int, Field(ge=0)]
Size = Annotated[float, Field(ge=0, lt=1e30)]


class GraphCard(Card):
    """A graph in columns: one entry an op in ``node_*``, one an edge in ``edge_*``."""

    name: str
    source: str = ""
    torch: str = ""
    level: int = 0
    fold_views: bool = False
    float_bytes: Annotated[float, Field(gt=0, le=16)] = 2
    ops: tuple[str, ...] = Field(min_length=1)
    param_bytes: tuple[Size, ...] = ()
    node_op: tuple[Index, ...] = Field(min_length=1)
    node_out: tuple[Size, ...]
    node_flops: tuple[Size, ...]
    node_params: tuple[tuple[Index, ...], ...] = ()
    edge_src: tuple[Index, ...] = ()
    edge_dst: tuple[Index, ...] = ()
    edge_bytes: tuple[Size, ...] | None = None
    extract_s: float = 0.0


def list_graphs(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all graphs on the shelves, sorted."""
    return (catalog or Catalog.around()).names(SHELF, FOLDER, SUFFIXES)


def load_graph(
    name_or_path: str | Path,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> PartitionGraph:
    """Load a graph by name, or from a ``.json``, ``.json.gz`` or ``.onnx`` file.

    Raises
    ------
    InputError
        If nothing answers to the name, or the file holds no graph.

    Examples
    --------
    >>> graph = load_graph("hf_bert_large_op")
    >>> graph.n, graph.n_edges, round(float(graph.flops.sum()) / 1e9, 1)
    (390, 485, 79.1)
    """
    path = (catalog or Catalog.around()).resolve(
        SHELF, str(name_or_path), folder=FOLDER, kind="graph", suffixes=SUFFIXES, base=base,
        source=source, field=field,
    )  # fmt: skip
    return read_graph(path)


def read_graph(path: Path, dims: Mapping[str, int] | None = None) -> PartitionGraph:
    """Read a graph file; files that did not change are read once.

    Parameters
    ----------
    path
        A ``.json``, ``.json.gz`` or ``.onnx`` file.
    dims
        Sizes of symbolic dimensions, which only an ONNX file has.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("is a directory" if path.is_dir() else "no such file", source=path)
    if path.suffix == ".pt2":
        problem = "loading a saved torch.export program may run code that it carries"
        remedy = "export the module with graph_from_torch and keep it by write_graph (JSON)"
        raise InputError(f"{problem}; {remedy}, or export it to ONNX", source=path)
    if dims and path.suffix != ".onnx":
        raise InputError("only an ONNX file has symbolic dimensions", source=path, field="dims")
    stamp = path.stat()
    sizes = tuple(sorted((dims or {}).items()))
    return _read(path.resolve(), sizes, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=128)
def _read(
    path: Path, dims: tuple[tuple[str, int], ...], _changed: int, _size: int
) -> PartitionGraph:
    if path.suffix == ".onnx":
        from mohsearch.workloads.op_graph_onnx import graph_from_onnx

        return graph_from_onnx(path, dims=dict(dims))
    data = _unpacked(path) if path.suffix == ".gz" else read_json(path)
    return graph_from_json(data, origin=path)


def graph_from_json(data: Any, *, origin: str | Path) -> PartitionGraph:
    """Build a graph from the parsed columns of :class:`GraphCard`.

    Raises
    ------
    InputError
        Naming ``origin`` and the wrong field.
    """
    card = validate(GraphCard, data, source=origin)
    if len(card.edge_src) != len(card.edge_dst):
        problem = f"has {len(card.edge_src)} entries, edge_dst {len(card.edge_dst)}"
        raise InputError(problem, source=origin, field="edge_src")
    wrong = [i for i, code in enumerate(card.node_op) if code >= len(card.ops)]
    if wrong:
        problem = f"must be below {len(card.ops)}, the number of op types"
        raise InputError(problem, source=origin, field=f"node_op[{wrong[0]}]")
    try:
        return PartitionGraph.from_columns(
            card.name,
            [card.ops[code] for code in card.node_op],
            flops=card.node_flops,
            out_bytes=card.node_out,
            edges=list(zip(card.edge_src, card.edge_dst, strict=True)),
            edge_bytes=card.edge_bytes,
            weights=card.node_params or None,
            weight_bytes=card.param_bytes,
            element_bytes=card.float_bytes,
            source=card.source,
            origin=origin,
        )
    except InputError as error:
        columns = {"flops": "node_flops", "out_bytes": "node_out", "weights": "node_params"}
        stem, bracket, rest = (error.field or "").partition("[")
        field = columns.get(stem, stem) + bracket + rest
        raise InputError(error.message, source=origin, field=field or None) from None


def _unpacked(path: Path) -> Any:
    try:
        with gzip.open(path, "rb") as stream:
            text = stream.read(MAX_CARD_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"not a gzip file: {error}", source=path) from error
    if len(text) > MAX_CARD_BYTES:
        raise InputError(f"larger than {MAX_CARD_BYTES // 2**20} MiB", source=path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {error}", source=path) from error


def graph_columns(graph: PartitionGraph) -> dict[str, Any]:
    """Return the columns of :class:`GraphCard` as plain JSON types."""
    weights = [
        graph.weight_ids[a:b].tolist()
        for a, b in zip(graph.weight_starts[:-1], graph.weight_starts[1:], strict=True)
    ]
    return {
        "name": graph.name,
        "source": graph.source,
        "float_bytes": graph.element_bytes,
        "ops": list(graph.op_types),
        "param_bytes": graph.weight_bytes.tolist(),
        "node_op": graph.op_type.tolist(),
        "node_out": graph.out_bytes.tolist(),
        "node_flops": graph.flops.tolist(),
        "node_params": weights,
        "edge_src": graph.edge_src.tolist(),
        "edge_dst": graph.edge_dst.tolist(),
        "edge_bytes": graph.edge_bytes.tolist(),
    }


def write_graph(graph: PartitionGraph, path: Path) -> None:
    """Write a graph as columnar JSON; :func:`read_graph` reads the same graph back.

    Raises
    ------
    InputError
        If the file cannot be written or its name does not end in ``.json``.
    """
    if path.suffix != ".json":
        raise InputError("a graph is written as .json", source=path)
    write_text(path, json.dumps(graph_columns(graph), separators=(",", ":")) + "\n")
