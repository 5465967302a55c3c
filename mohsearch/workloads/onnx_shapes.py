"""Tensor shapes of an ONNX model: bound dimensions, inference and folded shape computations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.optional import require
from mohsearch.workloads.onnx_constants import MAX_ELEMENTS, Value, fold
from mohsearch.workloads.onnx_node import Shape, attribute_values, static, tensor_value
from mohsearch.workloads.onnx_vector import SAME_SHAPE, broadcast

MAX_ROUNDS = 50
"""Rounds of inference and folding; each finds more or is the last."""


@dataclass
class Shapes:
    """What is known about the tensors of a model.

    Attributes
    ----------
    shapes
        Dimensions of each tensor.
    values
        Small constants, among them the results of shape computations.
    weights
        Tensors that stand in the file as constants.
    unbound
        Symbolic dimensions of the network's inputs that no size was given for.
    """

    shapes: dict[str, Shape]
    values: dict[str, Value]
    weights: set[str]
    unbound: tuple[str, ...] = ()
    same_shape: frozenset[tuple[str, str]] = field(default=SAME_SHAPE)


def infer(
    model: Any,
    *,
    origin: str | Path,
    dims: Mapping[str, int],
    vector_ops: frozenset[str] = frozenset(),
) -> Shapes:
    """Find the shapes of a model's tensors.

    Parameters
    ----------
    model
        An ``onnx.ModelProto``; changed in place.
    dims
        Sizes of symbolic dimensions by name, or of unnamed ones as ``input[axis]``.
    vector_ops
        Further op types whose output has the shape of their first input.

    Raises
    ------
    InputError
        If a dimension in ``dims`` does not exist, or inference finds a contradiction.
    """
    shape_inference = require("onnx.shape_inference", "onnx")
    # Before IR version 4 an initialiser had to be an input as well; inference ignores others.
    model.ir_version = max(model.ir_version, 4)
    unbound = _bind(model, dims, origin)
    known = Shapes({}, {}, _lift_weights(model), unbound)
    known.values.update(_small_constants(model))
    known.same_shape = SAME_SHAPE | {
        (normal_domain(n.domain), n.op_type) for n in model.graph.node if n.op_type in vector_ops
    }
    for _ in range(MAX_ROUNDS):
        try:
            inferred = shape_inference.infer_shapes(model, data_prop=True)
        except Exception as error:  # the class depends on the version of onnx
            text = str(error).strip().splitlines() or ["unknown problem"]
            raise InputError(f"shape inference fails: {text[0]}", source=origin) from error
        known.shapes = {
            name: shape
            for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
            for name, shape in _named_shape(value)
        }
        known.shapes |= {t.name: tuple(t.dims) for t in model.graph.initializer}
        known.shapes |= {name: value.shape for name, value in known.values.items()}
        progress = _fold_round(model, known)
        progress |= _fill_round(model, known)
        if not progress:
            break
    return known


def normal_domain(domain: str) -> str:
    """Return the domain with both spellings of the default one made equal."""
    return "" if domain == "ai.onnx" else domain


def _named_shape(value: Any) -> Iterator[tuple[str, Shape]]:
    """Yield the name and shape of a ``ValueInfoProto``, if it has a shape."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return
    sizes: list[int | str | None] = []
    for dim in value.type.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            sizes.append(int(dim.dim_value) if dim.dim_value >= 0 else None)
        else:
            sizes.append(dim.dim_param or None)
    yield value.name, tuple(sizes)


def _bind(model: Any, dims: Mapping[str, int], origin: str | Path) -> tuple[str, ...]:
    """Give symbolic dimensions their sizes; return the names of inputs' that stay open."""
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(
                f"must be a positive integer, got {size!r}", source=origin, field=f"dims[{name!r}]"
            )
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initial]
    known: dict[str, None] = {}
    unbound: dict[str, None] = {}
    for value in inputs:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            # Exporters write an open dimension as a name, as nothing, or as 0 or -1.
            if dim.dim_value > 0:
                continue
            label = dim.dim_param or f"{value.name}[{axis}]"
            known[label] = None
            if label in dims:
                dim.dim_value = dims[label]
            else:
                unbound[label] = None
                if not dim.dim_param:
                    dim.Clear()
    for value in (*model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                known[dim.dim_param] = None
                if dim.dim_param in dims:
                    dim.dim_value = dims[dim.dim_param]
    for name in dims:
        if name not in known:
            raise UnknownNameError("symbolic dimension", name, known, source=origin, field="dims")
    return tuple(unbound)


def _lift_weights(model: Any) -> set[str]:
    """Turn constants without data into inputs with a shape; return the names of all constants."""
    onnx = require("onnx", "onnx")
    graph = model.graph
    names = {tensor.name for tensor in graph.initializer}
    names |= {tensor.values.name for tensor in graph.sparse_initializer}
    declared = {value.name for value in graph.input}
    for tensor in list(graph.initializer):
        if tensor_value(tensor) is not None:
            continue
        if tensor.name not in declared:
            info = onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type or onnx.TensorProto.FLOAT, list(tensor.dims)
            )
            graph.input.append(info)
        graph.initializer.remove(tensor)
    for sparse in graph.sparse_initializer:
        if sparse.values.name not in declared:
            info = onnx.helper.make_tensor_value_info(
                sparse.values.name, sparse.values.data_type, list(sparse.dims)
            )
            graph.input.append(info)
    del graph.sparse_initializer[:]
    return names


def _small_constants(model: Any) -> dict[str, Value]:
    """Return the data of initialisers that may describe shapes."""
    values = {}
    for tensor in model.graph.initializer:
        if int(np.prod(tensor.dims, dtype=np.float64)) <= MAX_ELEMENTS:
            value = tensor_value(tensor)
            if value is not None:
                values[tensor.name] = value
    return values


def _fold_round(model: Any, known: Shapes) -> bool:
    """Compute what is computable once through the nodes; results become initialisers."""
    onnx = require("onnx", "onnx")
    progress = False
    for node in list(model.graph.node):
        if normal_domain(node.domain) or not node.output or node.output[0] in known.values:
            continue
        outputs = _fold_node(node, known)
        if outputs is None:
            continue
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                known.values[name] = value
                known.shapes[name] = value.shape
                model.graph.initializer.append(
                    onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
                )
        model.graph.node.remove(node)
        known.weights.update(name for name in node.output if name)
        progress = True
    return progress


def _fold_node(node: Any, known: Shapes) -> list[Value] | None:
    """Return a node's outputs if they follow from what is known."""
    if node.op_type in {"Shape", "Size"}:
        if not node.input:
            return None
        shape = static(known.shapes.get(node.input[0]))
        if shape is None:
            return None
        if node.op_type == "Size":
            return [np.asarray(np.prod(shape, dtype=np.int64))]
        attributes = attribute_values(node)
        window = slice(attributes.get("start", 0), attributes.get("end"))
        return [np.asarray(shape[window], dtype=np.int64)]
    if any(name and name not in known.values for name in node.input):
        return None
    inputs = [known.values[name] if name else None for name in node.input]
    try:
        return fold(node.op_type, inputs, attribute_values(node))
    except (ValueError, IndexError, TypeError, KeyError):
        return None


def _fill_round(model: Any, known: Shapes) -> bool:
    """Add the shapes of ops that ONNX's own inference does not know."""
    onnx = require("onnx", "onnx")
    progress = False
    for node in model.graph.node:
        if not node.output or node.output[0] in known.shapes or not node.input:
            continue
        inputs = [known.shapes.get(name) for name in node.input]
        shape = _outside_shape(node, (normal_domain(node.domain), node.op_type), inputs, known)
        if shape is None:
            continue
        model.graph.value_info.append(
            onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, list(shape))
        )
        known.shapes[node.output[0]] = shape
        progress = True
    return progress


def _outside_shape(
    node: Any, key: tuple[str, str], inputs: list[Shape | None], known: Shapes
) -> Shape | None:
    """Return the first output's shape of an op outside ONNX, if it can be told."""
    first = inputs[0]
    if first is None:
        return None
    if key in known.same_shape:
        return first
    if key[0] != "com.microsoft":
        return None
    if key[1] in {"QLinearAdd", "QLinearMul"}:
        second = inputs[3]
        return None if second is None else broadcast(first, second)
    return _microsoft_shape(node, key[1], inputs, first)


def _microsoft_shape(
    node: Any, op_type: str, inputs: list[Shape | None], first: Shape
) -> Shape | None:
    """Return the first output's shape of a com.microsoft op that multiplies."""
    attributes = attribute_values(node)
    if op_type == "MatMulNBits":
        return (*first[:-1], attributes.get("N"))
    if op_type == "MultiHeadAttention":
        value = inputs[2] if len(inputs) > 2 else None
        return None if value is None else (*first[:-1], value[-1])
    weights = inputs[3] if op_type == "QGemm" else inputs[1] if len(inputs) > 1 else None
    if weights is None:
        return None
    if op_type == "Attention":
        sizes = attributes.get("qkv_hidden_sizes")
        columns = weights[-1]
        third = columns // 3 if isinstance(columns, int) else None
        return (*first[:-1], sizes[2] if sizes else third)
    if op_type in {"FusedMatMul", "FusedGemm", "QGemm", "MatMulIntegerToFloat",
                   "DynamicQuantizeMatMul"}:  # fmt: skip
        left, right = list(first), list(weights)
        if len(left) < 2 or len(right) < 2:
            return None
        if attributes.get("transA"):
            left[-2:] = left[:-3:-1]
        if attributes.get("transB"):
            right[-2:] = right[:-3:-1]
        batch = broadcast(tuple(left[:-2]), tuple(right[:-2])) if left[:-2] or right[:-2] else ()
        return None if batch is None else (*batch, left[-2], right[-1])
    return None
