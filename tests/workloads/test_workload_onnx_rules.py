"""ONNX nodes as ops: multiplications counted by running the node on ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from mohsearch.core.errors import InputError
from mohsearch.workloads.onnx_import import import_model

FLOAT = TensorProto.FLOAT


def one_node(node, shapes, outputs=1, opset=21, domain="", types=None):
    """Return a model of one node whose inputs are network inputs of the given shapes."""
    types = types or {}
    inputs = [
        helper.make_tensor_value_info(name, types.get(name, FLOAT), shape)
        for name, shape in shapes.items()
    ]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    graph = helper.make_graph([node], "g", inputs, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node(op_type, inputs, outputs=("y0",), **attributes):
    return helper.make_node(op_type, list(inputs), list(outputs), name="it", **attributes)


def multiplications(model, shapes):
    """Return the sum over the outputs of the node run on ones: one per multiplication."""
    ones = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return round(float(ReferenceEvaluator(model).run(None, ones)[0].sum()))


def ops_of(model, **options):
    return import_model(model, name="net", **options).mapped_ops


few = st.integers(1, 3)


@given(
    st.integers(1, 2), st.integers(1, 2), few, few,
    st.tuples(st.integers(5, 8), st.integers(5, 8)), st.tuples(few, few),
    st.tuples(few, few), st.tuples(few, few),
)  # fmt: skip
def test_a_convolution_multiplies_as_often_as_onnx_does(
    batch, groups, filters, channels, image, kernel, strides, dilations
):
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    assume(all(i >= s for i, s in zip(image, spans, strict=True)))
    shapes = {
        "x": (batch, groups * channels, *image),
        "w": (groups * filters, channels, *kernel),
    }
    model = one_node(node("Conv", "xw", group=groups, strides=strides, dilations=dilations), shapes)
    (op,) = ops_of(model)
    assert op.macs == multiplications(model, shapes)
    assert op.weight_elements == np.prod(shapes["w"])
    assert op.input_elements == np.prod(shapes["x"])


@given(few, few, st.integers(3, 9), few, few)
def test_a_convolution_over_one_axis_is_one_row(filters, channels, length, kernel, stride):
    shapes = {"x": (1, channels, length), "w": (filters, channels, kernel)}
    model = one_node(node("Conv", "xw", strides=[stride]), shapes)
    (op,) = ops_of(model)
    assert (op.shape.P, op.shape.R, op.input_h) == (1, 1, 1)
    assert op.macs == multiplications(model, shapes)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding_gives_onnx_s_output_size(mode):
    shapes = {"x": (1, 2, 7, 8), "w": (3, 2, 3, 2)}
    model = one_node(node("Conv", "xw", strides=[2, 2], auto_pad=mode), shapes)
    (op,) = ops_of(model)
    ones = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    assert ReferenceEvaluator(model).run(None, ones)[0].shape[2:] == (op.shape.P, op.shape.Q)


def test_padding_on_one_side_is_kept():
    shapes = {"x": (1, 2, 7, 8), "w": (3, 2, 3, 3)}
    model = one_node(node("Conv", "xw", pads=[0, 1, 2, 3]), shapes)
    (op,) = ops_of(model)
    assert op.pads == (0, 1, 2, 3)
    assert (op.shape.P, op.shape.Q) == (7, 10)


@given(few, few, st.tuples(few, few), st.tuples(few, few), few)
def test_a_transposed_convolution_multiplies_once_per_input_and_tap(
    filters, channels, kernel, strides, size
):
    assume(all(k <= s for k, s in zip(kernel, strides, strict=True)))
    shapes = {"x": (1, channels, size, size + 1), "w": (channels, filters, *kernel)}
    model = one_node(node("ConvTranspose", "xw", strides=strides), shapes)
    assert sum(op.macs for op in ops_of(model)) == multiplications(model, shapes)
    # onnx's reference cannot run groups: two of them are twice the work of one.
    shapes = {"x": (1, 2 * channels, size, size + 1), "w": (2 * channels, filters, *kernel)}
    grouped = one_node(node("ConvTranspose", "xw", strides=strides, group=2), shapes)
    assert sum(op.macs for op in ops_of(grouped)) == 2 * sum(op.macs for op in ops_of(model))


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(3, 6))
def test_the_parts_of_a_transposed_convolution_cover_its_output(kernel, stride, dilation, size):
    shapes = {"x": (1, 2, size, size), "w": (2, 3, kernel, kernel)}
    given_ = {"strides": [stride] * 2, "dilations": [dilation] * 2}
    model = one_node(node("ConvTranspose", "xw", **given_), shapes)
    ones = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    output = ReferenceEvaluator(model).run(None, ones)[0]
    assert sum(op.output_elements for op in ops_of(model)) >= np.count_nonzero(output)
    assert sum(op.output_elements for op in ops_of(model)) <= output.size
    assert sum(op.macs for op in ops_of(model)) >= output.sum()


@pytest.mark.parametrize(
    "attributes",
    [
        {"output_shape": [10, 12]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"},
        {"output_padding": [1, 1], "pads": [1, 1, 1, 1]}, {"auto_pad": "VALID"},
    ],
)  # fmt: skip
def test_the_output_size_of_a_transposed_convolution_follows_its_attributes(attributes):
    shapes = {"x": (1, 2, 5, 6), "w": (2, 3, 3, 3)}
    model = one_node(node("ConvTranspose", "xw", strides=[2, 2], **attributes), shapes)
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0]
    dims = [d.dim_value for d in inferred.type.tensor_type.shape.dim]
    assert sum(op.output_elements for op in ops_of(model)) == np.prod(dims)


@pytest.mark.parametrize(
    ("a", "b", "kind", "n", "g", "k"),
    [
        ((4, 5), (5, 6), "gemm", 4, 1, 6),
        ((2, 3, 4, 5), (5, 6), "gemm", 24, 1, 6),
        ((2, 3, 4, 5), (2, 3, 5, 6), "bmm", 4, 6, 6),
        ((2, 3, 4, 5), (3, 5, 6), "bmm", 8, 3, 6),
        ((4, 5), (3, 5, 6), "gemm", 4, 1, 18),
        ((5,), (5, 6), "gemm", 1, 1, 6),
        ((2, 4, 5), (5,), "gemm", 8, 1, 1),
        ((5,), (5,), "gemm", 1, 1, 1),
    ],
)
def test_a_matrix_product_broadcasts_as_in_onnx(a, b, kind, n, g, k):
    shapes = {"a": a, "b": b}
    model = one_node(node("MatMul", "ab"), shapes)
    (op,) = ops_of(model)
    assert (op.kind, op.shape.N, op.shape.G, op.shape.K) == (kind, n, g, k)
    assert op.macs == multiplications(model, shapes)


def test_a_constant_first_operand_holds_the_weights():
    model = one_node(node("MatMul", "ab"), {"b": (7, 5, 3)})
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 5), np.float32), "a"))
    (op,) = ops_of(model)
    assert (op.shape.N, op.shape.K, op.shape.C) == (21, 4, 5)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_a_gemm_transposes_its_operands(trans_a, trans_b):
    shapes = {"a": (4, 5)[:: -1 if trans_a else 1], "b": (5, 6)[:: -1 if trans_b else 1]}
    model = one_node(node("Gemm", "ab", transA=trans_a, transB=trans_b), shapes)
    (op,) = ops_of(model)
    assert (op.shape.N, op.shape.C, op.shape.K) == (4, 5, 6)
    assert op.macs == multiplications(model, shapes)


@pytest.mark.parametrize(
    ("equation", "a", "b", "kind"),
    [
        ("ij,jk->ik", (2, 3), (3, 4), "gemm"),
        ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5), "bmm"),
        ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5), "bmm"),
        ("...d,df->...f", (2, 3, 4), (4, 5), "gemm"),
        ("abc,cd->abd", (2, 3, 4), (4, 5), "gemm"),
        ("ij,jk", (2, 3), (3, 4), "gemm"),
        ("abcd,cde->abe", (2, 3, 4, 5), (4, 5, 6), "gemm"),
    ],
)
def test_an_einsum_that_is_a_product_multiplies_as_often_as_onnx_does(equation, a, b, kind):
    shapes = {"a": a, "b": b}
    model = one_node(node("Einsum", "ab", equation=equation), shapes)
    (op,) = ops_of(model)
    assert op.kind == kind
    assert op.macs == multiplications(model, shapes)


def test_an_einsum_without_a_sum_is_no_layer():
    model = one_node(node("Einsum", "ab", equation="ij,ij->ij"), {"a": (2, 3), "b": (2, 3)})
    (op,) = import_model(model, name="net").ops
    assert (op.kind, op.elements) == ("vector", 6)


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_node_is_one_product_and_one_step_after_the_other(op_type, gates):
    shapes = {"x": (5, 2, 3), "w": (1, gates * 4, 3), "r": (1, gates * 4, 4)}
    model = one_node(node(op_type, "xwr", ["y0", "y1"], hidden_size=4), shapes, outputs=2)
    net = import_model(model, name="net")
    assert net.macs == 5 * 2 * gates * 4 * 3 + 5 * 2 * gates * 4 * 4
    assert net.longest_chain() == 6
    assert net.predecessors("it.0.step0") == ("it.0.input",)
    assert set(net.predecessors("it.0.step1")) == {"it.0.step0", "it.0.input"}


def test_a_bidirectional_network_has_two_independent_chains():
    shapes = {"x": (3, 2, 3), "w": (2, 16, 3), "r": (2, 16, 4)}
    model = one_node(node("LSTM", "xwr", hidden_size=4, direction="bidirectional"), shapes)
    net = import_model(model, name="net")
    assert (len(net), net.longest_chain()) == (8, 4)


def test_attention_is_two_batched_products_and_a_softmax():
    shapes = {"q": (2, 4, 6, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 3)}
    model = one_node(node("Attention", "qkv"), shapes, opset=23)
    net = import_model(model, name="net")
    assert [op.kind for op in net.ops] == ["bmm", "vector", "bmm"]
    assert net.macs == 2 * 4 * 6 * 5 * 8 + 2 * 4 * 6 * 5 * 3
    assert net["it.scores"].weight_elements == 2 * 2 * 5 * 8
    assert net.predecessors("it.context") == ("it.softmax",)


def test_quantised_products_and_convolutions_are_counted_like_plain_ones():
    scalar = {"s": (), "z": ()}
    int8 = {"x": TensorProto.UINT8, "w": TensorProto.UINT8, "z": TensorProto.UINT8}
    conv = {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3)}
    products = {"x": (4, 5), "w": (5, 6)}
    cases = [
        (node("ConvInteger", "xw"), conv, 3 * 2 * 81),
        (node("QLinearConv", "xszwszsz"), conv | scalar, 3 * 2 * 81),
        (node("MatMulInteger", "xw"), products, 120),
        (node("QLinearMatMul", "xszwszsz"), products | scalar, 120),
    ]
    for made, shapes, expected in cases:
        (op,) = ops_of(one_node(made, shapes, types=int8))
        assert op.macs == expected


@pytest.mark.parametrize(
    ("made", "shapes", "macs", "output"),
    [
        (node("FusedMatMul", "ab", transB=1), {"a": (2, 4, 5), "b": (6, 5)}, 240, (2, 4, 6)),
        (node("FusedConv", "ab", strides=[2, 2]), {"a": (1, 2, 5, 5), "b": (3, 2, 3, 3)},
         216, None),
        (node("MatMulNBits", "abs", K=8, N=6, bits=4, block_size=16),
         {"a": (2, 4, 8), "b": (6, 1, 8), "s": (6,)}, 384, (2, 4, 6)),
        (node("Attention", "abc", num_heads=2), {"a": (1, 4, 8), "b": (8, 24), "c": (24,)},
         4 * 8 * 24 + 2 * 4 * 4 * 8, (1, 4, 8)),
        (node("MultiHeadAttention", "abc", num_heads=2),
         {"a": (1, 4, 8), "b": (1, 6, 8), "c": (1, 6, 8)}, 2 * 4 * 6 * 8, (1, 4, 8)),
    ],
)  # fmt: skip
def test_fused_ops_of_onnx_runtime_are_understood(made, shapes, macs, output):
    made.domain = "com.microsoft"
    model = one_node(made, shapes, domain="com.microsoft")
    if output is not None:
        relu = helper.make_node("Relu", ["y0"], ["z"], name="after")
        model.graph.node.append(relu)
    net = import_model(model, name="net")
    assert net.macs == macs
    if output is not None:
        assert net["after"].elements == np.prod(output)


@pytest.mark.parametrize(
    ("made", "shapes", "problem"),
    [
        (node("Conv", "xw"), {"x": (1, 2, 4, 4, 4), "w": (3, 2, 2, 2, 2)}, "over 3 axes"),
        (node("Conv", "xw"), {"x": (1, 3, 5, 5), "w": (3, 2, 3, 3)}, "3 input channels"),
        (node("Conv", "xw"), {"x": (1, 2, 2, 2), "w": (3, 2, 3, 3)}, "does not fit"),
        (node("Conv", "xw", kernel_shape=[2, 2]), {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3)},
         "kernel_shape"),
        (node("MatMul", "ab"), {"a": (2, 3), "b": (4, 5)}, "do not multiply|shape inference"),
        (node("Gemm", "ab"), {"a": (2, 3, 4), "b": (4, 5)}, "must be a matrix|shape inference"),
        (node("Einsum", "ab", equation="ij,jk->k"), {"a": (2, 3), "b": (3, 4)}, "sums 'i'"),
        (node("Einsum", "aa", equation="ii,ij->ij"), {"a": (2, 2)}, "repeated label"),
        (node("Einsum", "abc", equation="i,i,i->i"), {"a": (2,), "b": (2,), "c": (2,)},
         "3 operands"),
    ],
)  # fmt: skip
def test_what_cannot_be_mapped_is_refused_with_node_and_reason(made, shapes, problem):
    with pytest.raises(InputError, match=rf"node 'it' \({made.op_type}\): .*({problem})"):
        import_model(one_node(made, shapes), name="net")
