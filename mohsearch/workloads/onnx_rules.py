"""How ONNX nodes that multiply and accumulate become mapped ops.

A rule takes a node and returns its pieces: ops, each with what it reads, numbers for inputs of the
node and names for other pieces. :data:`RULES` says which rule is whose; rules with parameters are
made by a function, because variants of an ONNX op differ in where their operands stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mohsearch.workloads.graph import Op
from mohsearch.workloads.layers import bmm_op, conv_op, gemm_op, transposed_conv_ops
from mohsearch.workloads.onnx_node import Node, Piece
from mohsearch.workloads.windows import auto_pads

Rule: TypeAlias = Callable[[Node], list[Piece]]

MAX_STEPS = 8192
"""Longest sequence a recurrent node is unrolled for."""


def _pair(values: Sequence[int], default: int = 1) -> tuple[int, int]:
    """Return (rows, columns) of one- or two-dimensional values; one dimension is columns."""
    return (default, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def _window(node: Node, x: int, w: int) -> dict[str, Any]:
    """Return image, kernel, stride, dilation and groups of a one- or two-dimensional window."""
    image, weights = node.shape(x), node.shape(w)
    axes = len(image) - 2
    if axes not in {1, 2}:
        raise node.fail(f"a convolution over {axes} axes is not supported; 1 and 2 are")
    if len(weights) != axes + 2:
        raise node.fail(f"weights of shape {weights} do not fit an input of shape {image}")
    kernel = weights[2:]
    given = tuple(node.attribute("kernel_shape", kernel))
    if given != kernel:
        raise node.fail(f"kernel_shape is {given} but the weights have {kernel}")
    settings = {
        "stride": node.attribute("strides", [1] * axes),
        "dilation": node.attribute("dilations", [1] * axes),
    }
    for name, values in settings.items():
        if len(values) != axes or min(values) < 1:
            raise node.fail(f"{name} {list(values)} does not fit {axes} axes")
    return {
        "batch": image[0],
        "image": _pair(image[2:]),
        "kernel": _pair(kernel),
        "groups": node.attribute("group", 1),
        **{name: _pair(values) for name, values in settings.items()},
    }


def _given_pads(node: Node, axes: int) -> tuple[int, int, int, int]:
    """Return the ``pads`` attribute as top, left, bottom, right."""
    pads = node.attribute("pads", [0] * (2 * axes))
    if len(pads) != 2 * axes:
        raise node.fail(f"pads {list(pads)} does not fit {axes} axes")
    return (*_pair(pads[:axes], 0), *_pair(pads[axes:], 0))


def _convolution(x: int = 0, w: int = 1, extra: tuple[int, ...] = ()) -> Rule:
    """Return the rule of convolutions: one op, of input ``x`` and weights ``w``.

    ``extra`` are other inputs that it reads at run time, such as the summand of FusedConv.
    """

    def rule(node: Node) -> list[Piece]:
        window = _window(node, x, w)
        image, weights = node.shape(x), node.shape(w)
        groups = window["groups"]
        if image[1] != weights[1] * groups:
            raise node.fail(
                f"{image[1]} input channels, but weights for {weights[1]} in {groups} groups"
            )
        mode = node.attribute("auto_pad", "NOTSET")
        if mode in {"NOTSET", ""}:
            pads = _given_pads(node, len(image) - 2)
        else:
            settings = zip(
                window["image"], window["kernel"], window["stride"], window["dilation"], strict=True
            )
            rows, columns = (auto_pads(mode, *axis) for axis in settings)
            pads = (rows[0], columns[0], rows[1], columns[1])
        op = conv_op(
            node.name, filters=weights[0], channels=image[1], pads=pads, op_type=node.op_type,
            **window,
        )  # fmt: skip
        return [Piece(op, (x, w, *extra))]

    return rule


def _transposed(node: Node) -> list[Piece]:
    """ConvTranspose: convolutions of stride 1, like phases of the stride together."""
    window = _window(node, 0, 1)
    image, weights = node.shape(0), node.shape(1)
    if image[1] != weights[0]:
        raise node.fail(f"{image[1]} input channels, but weights for {weights[0]}")
    axes = len(image) - 2
    output_padding = _pair(node.attribute("output_padding", [0] * axes), 0)
    mode = node.attribute("auto_pad", "NOTSET")
    wanted = node.attribute("output_shape", None)
    if wanted is not None:
        wanted = _pair(list(wanted)[-axes:])
    elif mode in {"SAME_UPPER", "SAME_LOWER"}:
        wanted = tuple(n * s for n, s in zip(window["image"], window["stride"], strict=True))
    pads = (0, 0, 0, 0) if mode == "VALID" else _given_pads(node, axes)
    if wanted is not None:
        pads = _pads_for(window, wanted, output_padding, upper=mode == "SAME_UPPER")
    ops = transposed_conv_ops(
        node.name, filters=weights[1] * window["groups"], channels=image[1], pads=pads,
        output_padding=output_padding, **window,
    )  # fmt: skip
    return [Piece(op, (0, 1)) for op in ops]


def _pads_for(
    window: dict[str, Any], wanted: Sequence[int], output_padding: Sequence[int], *, upper: bool
) -> tuple[int, int, int, int]:
    """Return the padding for which a transposed convolution has the wanted output size."""
    begin, end = [], []
    for axis in (0, 1):
        size, kernel = window["image"][axis], window["kernel"][axis]
        span = (kernel - 1) * window["dilation"][axis] + 1
        total = window["stride"][axis] * (size - 1) + output_padding[axis] + span - wanted[axis]
        small = total // 2
        begin.append(small if upper else total - small)
        end.append(total - begin[-1])
    return (begin[0], begin[1], end[0], end[1])


def matrix_product(node: Node, a: Sequence[int], b: Sequence[int], *, swap: bool = False) -> Op:
    """Return the op of a product ``a @ b`` with NumPy's broadcasting.

    Batch axes that both operands have are independent products; an axis only the first has adds
    rows, one only the second has adds columns. With ``swap`` the first operand holds the weights.
    """
    first = [1, *a] if len(a) == 1 else list(a)
    second = [*b, 1] if len(b) == 1 else list(b)
    if not a or not b or first[-1] != second[-2]:
        raise node.fail(f"shapes {tuple(a)} and {tuple(b)} do not multiply")
    rank = max(len(first), len(second))
    left = [1] * (rank - len(first)) + first
    right = [1] * (rank - len(second)) + second
    products, rows, columns = 1, left[-2], right[-1]
    for x, y in zip(left[:-2], right[:-2], strict=True):
        if x == y:
            products *= x
        elif y == 1:
            rows *= x
        elif x == 1:
            columns *= y
        else:
            raise node.fail(f"shapes {tuple(a)} and {tuple(b)} do not broadcast")
    if swap:
        rows, columns = columns, rows
    return product_op(node, products, rows, columns, first[-1])


def product_op(
    node: Node, products: int, rows: int, columns: int, inner: int, name: str = ""
) -> Op:
    """Return a batched product, or a plain one where there is only one product."""
    label = name or node.name
    if min(products, rows, columns, inner) < 1:
        raise node.fail("an operand is empty")
    if products == 1:
        return gemm_op(label, rows=rows, columns=columns, inner=inner, op_type=node.op_type)
    return bmm_op(
        label, products=products, rows=rows, columns=columns, inner=inner, op_type=node.op_type
    )


def _flipped(shape: Sequence[int], flip: bool) -> list[int]:
    """Return a shape with its last two axes exchanged."""
    return [*shape[:-2], shape[-1], shape[-2]] if flip and len(shape) > 1 else list(shape)


def _matmul(a: int = 0, b: int = 1) -> Rule:
    """Return the rule of products of inputs ``a`` and ``b``, of any rank: one op."""

    def rule(node: Node) -> list[Piece]:
        if node.attribute("transBatchA", 0) or node.attribute("transBatchB", 0):
            raise node.fail("transBatchA and transBatchB are not supported")
        first = _flipped(node.shape(a), bool(node.attribute("transA", 0)))
        second = _flipped(node.shape(b), bool(node.attribute("transB", 0)))
        swap = node.constant(a) and not node.constant(b)
        op = matrix_product(node, first, second, swap=swap)
        return [Piece(op, tuple(range(len(node.inputs))))]

    return rule


def _gemm(a: int = 0, b: int = 1) -> Rule:
    """Return the rule of products of matrices alone, which refuses operands of other ranks."""
    plain = _matmul(a, b)

    def rule(node: Node) -> list[Piece]:
        for index in (a, b):
            if len(node.shape(index)) != 2:
                raise node.fail(f"input {index} must be a matrix, got shape {node.shape(index)}")
        return plain(node)

    return rule


def _packed_matmul(node: Node) -> list[Piece]:
    """MatMulNBits: weights of a few bits are packed, so that only attributes tell their shape."""
    shape = node.shape(0)
    inner, columns = node.attribute("K", 0), node.attribute("N", 0)
    if shape[-1] != inner:
        raise node.fail(f"K is {inner} but the input has shape {shape}")
    op = product_op(node, 1, math.prod(shape[:-1]), columns, inner)
    return [Piece(op, (0,))]


def _einsum(node: Node) -> list[Piece]:
    """Einsum of two operands: a batched product, or by elements where no axis is summed."""
    equation = str(node.attribute("equation", "")).replace(" ", "")
    if len(node.inputs) != 2:
        raise node.fail(f"{equation!r} has {len(node.inputs)} operands; two are supported")
    terms, arrow, result = equation.partition("->")
    labels = terms.split(",")
    if len(labels) != 2:
        raise node.fail(f"{equation!r} does not name two operands")
    sizes: dict[str, int] = {}
    operands = []
    for index, term in enumerate(labels):
        axes = _labelled(node, equation, term, node.shape(index))
        for label, size in axes:
            if sizes.setdefault(label, size) != size:
                raise node.fail(f"{equation!r}: {label!r} has sizes {sizes[label]} and {size}")
        operands.append([label for label, _ in axes])
    if "..." in result:
        dots = [label for term in operands for label in term if label.isdigit()]
        out = set(result.replace("...", "")) | set(dots)
    else:
        out = set(result)
    if not arrow:
        every = [label for term in operands for label in term]
        out = {label for label in every if every.count(label) == 1 or label.isdigit()}
    return [Piece(_contraction(node, equation, operands, out, sizes), (0, 1))]


def _labelled(node: Node, equation: str, term: str, shape: Sequence[int]) -> list[tuple[str, int]]:
    """Return label and size of each axis; the axes of an ellipsis are called by numbers."""
    head, dots, tail = term.partition("...")
    hidden = len(shape) - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots):
        raise node.fail(f"{equation!r} does not fit an operand of shape {tuple(shape)}")
    # Ellipsis axes align at the right: number them from there.
    names = [*head, *(str(hidden - 1 - i) for i in range(hidden)), *tail]
    if len(set(names)) < len(names):
        raise node.fail(f"{equation!r}: a repeated label (a diagonal) is not supported")
    return list(zip(names, shape, strict=True))


def _contraction(
    node: Node, equation: str, operands: list[list[str]], out: set[str], sizes: dict[str, int]
) -> Op:
    """Return the op of a contraction: labels shared and kept are products, shared and summed inner.

    ``operands`` are the labels of both operands, ``out`` those of the result.
    """
    first, second = (set(term) for term in operands)
    for label in (first ^ second) - out:
        if sizes[label] > 1:
            raise node.fail(f"{equation!r} sums {label!r} over one operand alone: not a product")

    def size(labels: set[str]) -> int:
        return math.prod(sizes[label] for label in labels)

    inner = (first & second) - out
    if not inner:
        return Op(node.name, "vector", op_type=node.op_type, elements=size(first | second))
    rows, columns = size(first - second), size(second - first)
    if node.constant(0) and not node.constant(1):
        rows, columns = columns, rows
    return product_op(node, size(first & second & out), rows, columns, size(inner))


def _recurrent(gates: int) -> Rule:
    """Return the rule of RNN, GRU and LSTM, which have 1, 3 and 4 ``gates``.

    For each direction one product of the whole input sequence, then one product of the hidden
    state a step, each of which waits for the one before.
    """

    def rule(node: Node) -> list[Piece]:
        x, weights = node.shape(0), node.shape(1)
        if len(x) != 3 or len(weights) != 3:
            raise node.fail(f"input {x} and weights {weights} must have three axes")
        steps, batch = (x[1], x[0]) if node.attribute("layout", 0) else (x[0], x[1])
        hidden = weights[1] // gates
        if steps > MAX_STEPS:
            raise node.fail(f"{steps} time steps; at most {MAX_STEPS} are unrolled")
        pieces = []
        for direction in range(weights[0]):
            at = f"{node.name}.{direction}"
            inputs = product_op(node, 1, steps * batch, gates * hidden, x[2], f"{at}.input")
            pieces.append(Piece(inputs, tuple(range(len(node.inputs)))))
            before = inputs.name
            for step in range(steps):
                op = product_op(node, 1, batch, gates * hidden, hidden, f"{at}.step{step}")
                pieces.append(Piece(op, tuple(dict.fromkeys((before, inputs.name)))))
                before = op.name
        return pieces

    return rule


def attention(
    node: Node, products: int, queries: int, keys: int, width: int, value_width: int,
    reads: tuple[tuple[int | str, ...], tuple[int | str, ...]],
) -> list[Piece]:  # fmt: skip
    """Return scores, softmax and context of an attention; ``reads`` of the first and last."""
    scores = product_op(node, products, queries, keys, width, f"{node.name}.scores")
    softmax = Op(
        f"{node.name}.softmax", "vector", op_type="Softmax", elements=products * queries * keys
    )
    context = product_op(node, products, queries, value_width, keys, f"{node.name}.context")
    return [
        Piece(scores, reads[0]),
        Piece(softmax, (scores.name,)),
        Piece(context, (softmax.name, *reads[1])),
    ]


def _attention(node: Node) -> list[Piece]:
    """Attention of the default domain: query, key, value, mask, past key, past value.

    Scores, softmax and context; grouped query heads (GQA) count.
    """
    q, k, v = (node.shape(i) for i in range(3))
    if len(q) == 4:
        batch, q_heads, queries, width = q
        kv_heads, keys, value_width = k[1], k[2], v[3]
    elif len(q) == 3:
        q_heads, kv_heads = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
        if q_heads < 1 or kv_heads < 1:
            raise node.fail("q_num_heads and kv_num_heads are needed for inputs with three axes")
        batch, queries, keys = q[0], q[1], k[1]
        width, value_width = q[2] // q_heads, v[2] // kv_heads
    else:
        raise node.fail(f"a query of shape {q} must have three or four axes")
    if node.has(4):
        keys += node.shape(4)[2]
    # Query heads that share one key-value head are rows of the same product.
    rows = queries * (q_heads // kv_heads)
    reads = ((0, 1, 3, 4), (2, 5))
    return attention(node, batch * kv_heads, rows, keys, width, value_width, reads)


def _fused_attention(node: Node) -> list[Piece]:
    """Attention of com.microsoft: the projections and the attention in one node."""
    x, weights = node.shape(0), node.shape(1)
    heads = node.attribute("num_heads", 0)
    if len(x) != 3 or heads < 1:
        raise node.fail(f"an input of shape {x} with {heads} heads is not supported")
    if node.has(4):
        raise node.fail("a past state is not supported")
    batch, tokens, _ = x
    q, _, v = node.attribute("qkv_hidden_sizes", [weights[1] // 3] * 3)
    project = product_op(node, 1, batch * tokens, weights[1], x[2], f"{node.name}.project")
    reads = ((project.name,), (project.name,))
    sizes = (batch * heads, tokens, tokens, q // heads, v // heads)
    return [Piece(project, (0,)), *attention(node, *sizes, reads)]


def _plain_attention(node: Node) -> list[Piece]:
    """MultiHeadAttention of com.microsoft: query, key, value of (batch, tokens, hidden)."""
    heads = node.attribute("num_heads", 0)
    if not (node.has(1) and node.has(2)) or heads < 1 or node.has(6):
        raise node.fail("packed or missing keys and values, or a past state, are not supported")
    q, k, v = (node.shape(i) for i in range(3))
    if not len(q) == len(k) == len(v) == 3:
        raise node.fail(f"shapes {q}, {k}, {v}: (batch, tokens, hidden) is supported")
    sizes = (q[0] * heads, q[1], k[1], q[2] // heads, v[2] // heads)
    return attention(node, *sizes, ((0, 1), (2,)))


MICROSOFT = "com.microsoft"

RULES: dict[tuple[str, str], Rule] = {
    ("", "Conv"): _convolution(),
    ("", "ConvInteger"): _convolution(),
    ("", "QLinearConv"): _convolution(0, 3),
    ("", "ConvTranspose"): _transposed,
    ("", "Gemm"): _gemm(),
    ("", "MatMul"): _matmul(),
    ("", "MatMulInteger"): _matmul(),
    ("", "QLinearMatMul"): _matmul(0, 3),
    ("", "Einsum"): _einsum,
    ("", "Attention"): _attention,
    ("", "RNN"): _recurrent(1),
    ("", "GRU"): _recurrent(3),
    ("", "LSTM"): _recurrent(4),
    (MICROSOFT, "FusedConv"): _convolution(extra=(3,)),
    (MICROSOFT, "FusedMatMul"): _matmul(),
    (MICROSOFT, "FusedGemm"): _gemm(),
    (MICROSOFT, "QGemm"): _gemm(0, 3),
    (MICROSOFT, "MatMulIntegerToFloat"): _matmul(),
    (MICROSOFT, "DynamicQuantizeMatMul"): _matmul(),
    (MICROSOFT, "MatMulNBits"): _packed_matmul,
    (MICROSOFT, "Attention"): _fused_attention,
    (MICROSOFT, "MultiHeadAttention"): _plain_attention,
}
