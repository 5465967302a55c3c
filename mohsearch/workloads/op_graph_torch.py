"""PyTorch modules as graphs of ops, by ``torch.export``; the extra ``torch`` brings PyTorch.

Export runs on the ``meta`` device if the module and its inputs stand there: no weights are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.workloads.op_graph import PartitionGraph

ELEMENT_BYTES = 2

VIEWS = frozenset(
    {
        "view", "reshape", "permute", "transpose", "t", "expand", "clone", "contiguous", "detach",
        "dropout", "feature_dropout", "flatten", "unflatten", "squeeze", "unsqueeze", "getitem",
        "slice", "select", "alias", "to", "_to_copy", "type_as", "chunk", "split",
        "split_with_sizes", "unbind", "lift_fresh_copy", "_assert_tensor_metadata",
    }
)  # fmt: skip
"""Op types that move nothing: they are passed through."""

FLOPS_PER_ELEMENT = {
    "layer_norm": 8, "native_layer_norm": 8, "batch_norm": 8, "group_norm": 8, "rms_norm": 8,
    "softmax": 5, "_softmax": 5, "log_softmax": 5, "gelu": 5, "silu": 5, "silu_": 5, "sigmoid": 5,
    "tanh": 5, "exp": 5, "erf": 5, "embedding": 0, "gather": 0, "index": 0, "cat": 0, "stack": 0,
    "pad": 0, "roll": 0,
}  # fmt: skip
"""Operations an output element; 1 for types not named."""


def graph_from_torch(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    decompose: bool = False,
) -> PartitionGraph:
    """Export a module and return its graph; sizes are those of two-byte numbers.

    Ops that depend on no input are constants: they are folded away, and the parameters they read
    are charged to their consumers. Views and ops whose result is not used are left out.

    Parameters
    ----------
    module
        A ``torch.nn.Module``.
    args, kwargs
        Example inputs of its ``forward``.
    name
        Name of the graph (default: the module's class).
    decompose
        Break composite ops into primitive ones first (``run_decompositions``).

    Raises
    ------
    InputError
        If the module cannot be exported, or no op depends on an input.
    MissingExtraError
        If PyTorch is not installed.
    """
    export = require("torch.export", "torch")
    try:
        program = export.export(module, tuple(args), dict(kwargs or {}), strict=False)
        if decompose:
            program = program.run_decompositions()
    except Exception as error:  # torch raises classes of many kinds
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"the module cannot be exported: {first}", source=name or None) from error
    return _Walk(program, name or type(module).__name__).graph()


class _Walk:
    """The nodes of an exported program, from inputs to outputs.

    A node becomes an op if it depends on an input and computes something. Any other is looked
    through: a view to what it shows, a function of parameters alone to those parameters.

    Attributes
    ----------
    parameters
        Name of the parameter, buffer or constant behind a placeholder.
    numbers, sizes
        Number of each weight tensor, and bytes by that number.
    varies
        Whether a node depends on an input of the program.
    makers
        Ops whose output a node stands for: itself, or those that it looks through to.
    weights
        Weight tensors that a node reads, or stands for where it is none.
    """

    def __init__(self, program: Any, name: str) -> None:
        self.program = program
        self.name = name
        signature = program.graph_signature
        self.parameters = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **getattr(signature, "inputs_to_lifted_tensor_constants", {}),
        }
        self.sizes: list[float] = []
        self.numbers: dict[Any, int] = {}
        self.varies: dict[Any, bool] = {}
        self.makers: dict[Any, tuple[Any, ...]] = {}
        self.weights: dict[Any, tuple[int, ...]] = {}
        self.ops: list[Any] = []

    def graph(self) -> PartitionGraph:
        """Return the graph of the ops that the outputs need."""
        for node in self.program.graph.nodes:
            self._visit(node)
        output = next(n for n in self.program.graph.nodes if n.op == "output")
        needed: set[Any] = set()
        stack = [m for n in output.all_input_nodes for m in self.makers.get(n, ())]
        while stack:
            op = stack.pop()
            if op not in needed:
                needed.add(op)
                stack.extend(self._before(op))
        ops = [op for op in self.ops if op in needed]
        if not ops:
            raise InputError("no op depends on an input", source=self.name)
        place = {op: i for i, op in enumerate(ops)}
        return PartitionGraph.from_columns(
            self.name,
            [_kind(op) for op in ops],
            flops=[_flops(op) for op in ops],
            out_bytes=[_elements(op) * ELEMENT_BYTES for op in ops],
            edges=[(place[u], place[op]) for op in ops for u in self._before(op)],
            weights=[self.weights[op] for op in ops],
            weight_bytes=self.sizes,
            element_bytes=ELEMENT_BYTES,
            source="torch.export",
        )

    def _visit(self, node: Any) -> None:
        if node.op == "placeholder":
            parameter = self.parameters.get(node.name)
            self.varies[node] = parameter is None
            self.makers[node] = ()
            self.weights[node] = () if parameter is None else (self._number(node, parameter),)
            return
        if node.op != "call_function":
            return
        inputs = node.all_input_nodes
        self.varies[node] = any(self.varies.get(i, False) for i in inputs)
        # An op's own weights end with it; those behind a view or a cast go on to the reader.
        read = {w for i in inputs if not self._is_op(i) for w in self.weights.get(i, ())}
        self.weights[node] = tuple(sorted(read))
        if self._is_op(node):
            self.ops.append(node)
            self.makers[node] = (node,)
        else:
            self.makers[node] = tuple(dict.fromkeys(self._before(node)))

    def _is_op(self, node: Any) -> bool:
        work = node.op == "call_function" and self.varies.get(node, False)
        return work and _kind(node) not in VIEWS

    def _before(self, node: Any) -> list[Any]:
        """Return the ops whose output a node reads, views passed through."""
        found = [m for i in node.all_input_nodes for m in self.makers.get(i, ())]
        return list(dict.fromkeys(found))

    def _number(self, node: Any, parameter: str) -> int:
        if parameter not in self.numbers:
            self.numbers[parameter] = len(self.sizes)
            self.sizes.append(float(_elements(node) * ELEMENT_BYTES))
        return self.numbers[parameter]


def _kind(node: Any) -> str:
    target = node.target
    name = getattr(target, "_schema", None)
    text = name.name if name is not None else getattr(target, "__name__", str(target))
    return str(text).rpartition("::")[2].partition(".")[0]


def _shapes(node: Any) -> list[tuple[int, ...]]:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return [tuple(int(s) for s in v.shape) for v in values if hasattr(v, "shape")]


def _elements(node: Any) -> int:
    return sum(math.prod(shape) for shape in _shapes(node))


def _flops(node: Any) -> float:
    """Return the operations of a node: two a multiply-accumulate of products, else by element."""
    kind, out = _kind(node), _elements(node)
    shapes = [shape for i in node.all_input_nodes for shape in _shapes(i)]
    if kind in ("linear", "mm", "matmul", "bmm") and len(shapes) > 1:
        return 2.0 * out * shapes[0][-1]
    if kind in ("addmm", "baddbmm") and len(shapes) > 2:
        return 2.0 * out * shapes[1][-1]
    if kind.startswith("conv_transpose") and len(shapes) > 1:
        return 2.0 * math.prod(shapes[0]) * math.prod(shapes[1][1:])
    if kind.startswith("conv") and len(shapes) > 1:
        return 2.0 * out * math.prod(shapes[1][1:])
    if kind.startswith("scaled_dot_product") and len(shapes) > 2:
        query, key = shapes[0], shapes[1]
        scores = math.prod(query[:-1]) * key[-2]
        return 2.0 * scores * (query[-1] + shapes[2][-1]) + 5.0 * scores
    return float(FLOPS_PER_ELEMENT.get(kind, 1) * out)
