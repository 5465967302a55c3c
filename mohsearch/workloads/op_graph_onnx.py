"""ONNX models as graphs of ops for partitioning; built on the import of loop nests."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.workloads.graph import Op, OpGraph
from mohsearch.workloads.onnx_file import read_model
from mohsearch.workloads.onnx_import import import_model
from mohsearch.workloads.op_graph import PartitionGraph

ELEMENT_BYTES = 2

FLOPS_PER_ELEMENT = {
    "LayerNormalization": 8, "BatchNormalization": 8, "GroupNormalization": 8,
    "InstanceNormalization": 8, "RMSNormalization": 8, "LpNormalization": 8, "Softmax": 5,
    "LogSoftmax": 5, "Gelu": 5, "Sigmoid": 5, "Tanh": 5, "Exp": 5, "Erf": 5, "Swish": 5,
    "Gather": 0, "GatherND": 0, "GatherElements": 0, "Concat": 0, "Slice": 0, "Split": 0, "Pad": 0,
    "Transpose": 0,
}  # fmt: skip
"""Operations an output element of a vector op; 1 for types not named."""


def graph_from_onnx(
    path: Path,
    *,
    dims: Mapping[str, int] | None = None,
    vector_ops: Collection[str] = (),
) -> PartitionGraph:
    """Import an ONNX file; nodes without work, such as reshapes, are passed through.

    Sizes are those of two-byte numbers. An initialiser read by several nodes is one weight. Weights
    inside model functions, and those computed from other constants, are not seen.

    Parameters
    ----------
    path
        The file.
    dims, vector_ops
        As for :func:`mohsearch.workloads.onnx_import.read_onnx`.

    Raises
    ------
    InputError
        If the file cannot be imported, or the size of an op's output depends on the data.
    MissingExtraError
        If the package ``onnx`` is not installed.
    """
    model = read_model(path)
    _name_nodes(model)
    reads, sizes = _weights(model)
    graph = import_model(model, name=path.stem, origin=path, dims=dims, vector_ops=vector_ops)
    return _columns(graph, path, reads, sizes)


def _name_nodes(model: Any) -> None:
    """Give every node a name of its own, its given one where that is possible."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        name = "_".join(node.name.split()) if isinstance(node.name, str) else ""
        if not name or name in taken:
            name = f"{node.op_type}_{index}"
        taken.add(name)
        node.name = name


def _weights(model: Any) -> tuple[dict[str, list[int]], list[float]]:
    """Return the weights that each node reads, by its name, and the bytes of each."""
    onnx = require("onnx", "onnx")
    kinds = onnx.TensorProto
    floats = {kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16, kinds.DOUBLE, kinds.INT8, kinds.UINT8}
    tensors = [(t.name, t) for t in model.graph.initializer]
    for node in model.graph.node:
        if node.op_type == "Constant":
            tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    number: dict[str, int] = {}
    sizes: list[float] = []
    for name, tensor in tensors:
        if tensor.data_type in floats and len(tensor.dims) > 0 and name not in number:
            number[name] = len(sizes)
            sizes.append(float(math.prod(tensor.dims) * ELEMENT_BYTES))
    reads = {n.name: [number[t] for t in n.input if t in number] for n in model.graph.node}
    return reads, sizes


def _node_of(op: str, reads: Mapping[str, list[int]]) -> list[int]:
    """Return the weights of the node that an op, or a piece of one, comes from."""
    while op not in reads and "." in op:
        op = op.rpartition(".")[0]
    return reads.get(op, [])


def _columns(
    graph: OpGraph, path: Path, reads: Mapping[str, list[int]], sizes: list[float]
) -> PartitionGraph:
    place = {op.name: i for i, op in enumerate(graph.ops)}
    edges = [(place[u], place[v]) for u, v in graph.digraph.edges]
    return PartitionGraph.from_columns(
        graph.name,
        [_type(op) for op in graph.ops],
        flops=[_flops(op, path) for op in graph.ops],
        out_bytes=[_elements(op, path) * ELEMENT_BYTES for op in graph.ops],
        edges=edges,
        weights=[_node_of(op.name, reads) for op in graph.ops],
        weight_bytes=sizes,
        element_bytes=ELEMENT_BYTES,
        source=str(path.name),
        origin=path,
    )


def _type(op: Op) -> str:
    return op.op_type or op.kind


def _elements(op: Op, path: Path) -> int:
    if op.output_elements is None:
        raise InputError(
            f"the output size of {op.name} ({_type(op)}) depends on the data", source=path
        )
    return op.output_elements


def _flops(op: Op, path: Path) -> float:
    if op.mapped:
        return 2.0 * op.macs
    return float(FLOPS_PER_ELEMENT.get(op.op_type, 1) * _elements(op, path))
