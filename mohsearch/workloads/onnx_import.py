"""Import of ONNX models as operator graphs; the only door to the ``onnx`` package."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.workloads.graph import Op, OpGraph
from mohsearch.workloads.onnx_file import read_model
from mohsearch.workloads.onnx_node import Node, Piece, attribute_values
from mohsearch.workloads.onnx_rules import RULES
from mohsearch.workloads.onnx_shapes import Shapes, infer, normal_domain
from mohsearch.workloads.onnx_vector import (
    CONTROL_FLOW,
    DATA_DEPENDENT,
    KNOWN,
    SEQUENCES,
    SHAPE_QUERIES,
    VIEWS,
)


def read_onnx(
    path: Path,
    *,
    name: str | None = None,
    source: str = "",
    dims: Mapping[str, int] | None = None,
    vector_ops: Collection[str] = (),
) -> OpGraph:
    """Import an ONNX file.

    Weights are neither needed nor read: constants may be inputs without data, external data files
    may be missing. Shape computations are folded and make no dependencies; model functions are
    inlined.

    Parameters
    ----------
    path
        The file.
    name
        Name of the network (default: the file's).
    source
        Where the network comes from.
    dims
        Sizes of symbolic dimensions: ``{"batch": 1}``, or ``{"input[0]": 1}`` for an unnamed one.
    vector_ops
        Op types, otherwise unknown, to take as element-wise.

    Raises
    ------
    InputError
        If the file is no ONNX model, or a node cannot be imported: an unknown op type, control
        flow, a convolution over three axes, a shape that is not static. Names the node and why.
    MissingExtraError
        If the package ``onnx`` is not installed.
    """
    model = read_model(path)
    return import_model(
        model, name=name or path.stem, source=source, origin=path, dims=dims, vector_ops=vector_ops
    )


def import_model(
    model: Any,
    *,
    name: str,
    source: str = "",
    origin: str | Path = "ONNX model",
    dims: Mapping[str, int] | None = None,
    vector_ops: Collection[str] = (),
) -> OpGraph:
    """Import an ``onnx.ModelProto``, which is left unchanged; see :func:`read_onnx`."""
    onnx = require("onnx", "onnx")
    working = onnx.ModelProto()
    working.CopyFrom(model)
    _refuse_broken_text(working, origin)
    if working.functions:
        inliner = require("onnx.inliner", "onnx")
        try:
            working = inliner.inline_local_functions(working)
        except Exception as error:  # the class depends on the version of onnx
            raise InputError(f"functions cannot be inlined: {error}", source=origin) from error
    _sort(working.graph, origin)
    known = infer(working, origin=origin, dims=dims or {}, vector_ops=frozenset(vector_ops))
    return _Importer(known, origin, frozenset(vector_ops)).run(working.graph, name, source)


class _Importer:
    """The walk over a model's nodes."""

    def __init__(self, known: Shapes, origin: str | Path, vector_ops: frozenset[str]) -> None:
        self.known = known
        self.origin = origin
        self.vector_ops = vector_ops
        self.constants = set(known.weights)
        self.data_dependent: set[str] = set()
        self.producers: dict[str, tuple[str, ...]] = {}
        self.ops: dict[str, Op] = {}
        self.before: dict[str, list[str]] = {}

    def run(self, graph: Any, name: str, source: str) -> OpGraph:
        for node in self._nodes(graph):
            self._add(node)
        if not self.ops:
            raise InputError("the model has no op that is not a constant", source=self.origin)
        return OpGraph(name, self.ops.values(), self.before, source=source, origin=self.origin)

    def _nodes(self, graph: Any) -> list[Node]:
        """Return the nodes with unique names, their inputs checked to exist."""
        nodes: list[Node] = []
        taken: set[str] = set()
        made = {name for node in graph.node for name in node.output if name}
        given = {value.name for value in graph.input} | self.constants
        described = {value.name for value in graph.value_info}
        for index, proto in enumerate(graph.node):
            node = Node(
                name=_unique_name(proto, index, taken),
                op_type=proto.op_type,
                domain=normal_domain(proto.domain),
                inputs=tuple(proto.input),
                outputs=tuple(proto.output),
                attributes=attribute_values(proto),
                shapes=self.known.shapes,
                constants=self.constants,
                origin=self.origin,
                unbound=self.known.unbound,
            )
            for tensor in node.inputs:
                if not tensor or tensor in made or tensor in given:
                    continue
                if tensor not in described:
                    raise node.fail(f"reads the tensor {tensor!r}, which nothing produces")
                self.constants.add(tensor)
            nodes.append(node)
        return nodes

    def _add(self, node: Node) -> None:
        """Enter one node: as ops, as a view, or as a constant."""
        key = (node.domain, node.op_type)
        plain = not node.domain
        if not any(node.outputs):
            raise node.fail("has no output")
        if plain and node.op_type in CONTROL_FLOW:
            raise node.fail(
                "control flow is not supported; export the model without it, or simplify it so "
                "that its conditions are constant"
            )
        if all(not tensor or tensor in self.constants for tensor in node.inputs):
            self.constants.update(tensor for tensor in node.outputs if tensor)
            return
        if plain and node.op_type in SHAPE_QUERIES:
            return
        if plain and node.op_type in VIEWS:
            self._pass_on(node, self.producers.get(node.inputs[0], ()))
            if node.inputs[0] in self.data_dependent:
                self.data_dependent.update(t for t in node.outputs if t)
            return
        rule = RULES.get(key)
        if rule is not None:
            self._enter(node, self._mapped(node))
        elif key in KNOWN or node.op_type in self.vector_ops:
            self._enter(node, [self._vector(node)])
        elif plain and node.op_type in SEQUENCES:
            raise node.fail("sequences, optionals and strings are not supported")
        else:
            raise node.fail(
                f"unknown op type; if it is element-wise, say so: --vector-op {node.op_type}"
                f" (in Python vector_ops={{{node.op_type!r}}})"
            )

    def _mapped(self, node: Node) -> list[Piece]:
        """Apply the rule of a node, whatever is wrong with it said with its name."""
        for index, tensor in enumerate(node.inputs):
            if tensor in self.data_dependent:
                raise node.fail(f"the size of input {index} ({tensor!r}) depends on the data")
        try:
            pieces = RULES[node.domain, node.op_type](node)
        except InputError:
            raise
        except (ValueError, IndexError, TypeError) as error:
            raise node.fail(str(error)) from error
        expected = node.known_output()
        if len(pieces) == 1 and node.op_type != "ConvTranspose" and expected is not None:
            counted = pieces[0].op.output_elements
            if counted != math.prod(expected):
                raise node.fail(
                    f"yields {counted} elements, but its output is declared as {expected}"
                )
        return pieces

    def _vector(self, node: Node) -> Piece:
        """Return the piece of a node that runs on no MAC array."""
        depends = node.op_type in DATA_DEPENDENT or any(
            tensor in self.data_dependent for tensor in node.inputs
        )
        if depends:
            self.data_dependent.update(
                t for i, t in enumerate(node.outputs) if t and node.known_output(i) is None
            )
        elements: int | None = None
        sizes = [node.known_output(i) for i, tensor in enumerate(node.outputs) if tensor]
        if sizes and sizes[0] is not None:
            elements = sum(math.prod(size) for size in sizes if size is not None)
        elif not depends:
            node.output_shape()
        op = Op(node.name, "vector", op_type=node.op_type, elements=elements)
        return Piece(op, tuple(range(len(node.inputs))))

    def _enter(self, node: Node, pieces: list[Piece]) -> None:
        for piece in pieces:
            producers: dict[str, None] = {}
            for read in piece.reads:
                if isinstance(read, str):
                    producers[read] = None
                elif node.has(read):
                    producers |= dict.fromkeys(self.producers.get(node.inputs[read], ()))
            if piece.op.name in self.ops:
                raise node.fail(f"a second op would be called {piece.op.name!r}")
            self.ops[piece.op.name] = piece.op
            self.before[piece.op.name] = list(producers)
        inner = {read for piece in pieces for read in piece.reads if isinstance(read, str)}
        last = tuple(piece.op.name for piece in pieces if piece.op.name not in inner)
        self._pass_on(node, last)

    def _pass_on(self, node: Node, producers: tuple[str, ...]) -> None:
        for tensor in node.outputs:
            if tensor:
                self.producers[tensor] = producers


def _unique_name(proto: Any, index: int, taken: set[str]) -> str:
    """Return the node's name, or one made from its type, without blanks and not yet taken."""
    stem = "_".join(proto.name.split()) or f"{proto.op_type}_{index}"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name


def _refuse_broken_text(model: Any, origin: str | Path) -> None:
    """Raise if a name is not text: protobuf hands such names over as bytes."""
    for node in model.graph.node:
        for text in (node.name, node.op_type, node.domain, *node.input, *node.output):
            if not isinstance(text, str):
                raise InputError(f"a node's name is not UTF-8: {text!r}", source=origin)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        symbols = (dim.dim_param for dim in value.type.tensor_type.shape.dim)
        for text in (value.name, *symbols):
            if not isinstance(text, str):
                raise InputError(f"a tensor's name is not UTF-8: {text!r}", source=origin)
    for tensor in model.graph.initializer:
        if not isinstance(tensor.name, str):
            raise InputError(f"a tensor's name is not UTF-8: {tensor.name!r}", source=origin)


def _sort(graph: Any, origin: str | Path) -> None:
    """Put the nodes into the topological order nearest to the given one."""
    nodes = list(graph.node)
    maker: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for tensor in filter(None, node.output):
            if tensor in maker:
                raise InputError(
                    f"produces the tensor {tensor!r}, as does another node",
                    source=origin,
                    field=_label(node),
                )
            maker[tensor] = index
    followers: list[list[int]] = [[] for _ in nodes]
    waiting = []
    for index, node in enumerate(nodes):
        producers = {maker[tensor] for tensor in node.input if tensor in maker}
        waiting.append(len(producers))
        for producer in producers:
            followers[producer].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for follower in followers[index]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, follower)
    if len(order) < len(nodes):
        stuck = nodes[min(set(range(len(nodes))) - set(order))]
        problem = "depends on its own output: the graph has a cycle"
        raise InputError(problem, source=origin, field=_label(stuck))
    if order != list(range(len(nodes))):
        del graph.node[:]
        graph.node.extend(nodes[index] for index in order)


def _label(node: Any) -> str:
    """Return how errors call a ``NodeProto``."""
    return f"node {node.name or ', '.join(node.output)!r} ({node.op_type})"
