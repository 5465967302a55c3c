"""ONNX models as operator graphs: dependencies, missing weights, open shapes, broken files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mohsearch.core.errors import InputError, MissingExtraError, UnknownNameError
from mohsearch.workloads import onnx_file
from mohsearch.workloads.onnx_import import import_model, read_onnx
from mohsearch.workloads.transformer import TransformerCard, encoder_stack
from mohsearch.workloads.zoo import load_application, load_network

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def info(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs, outputs, name=name, **attributes)


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def weight(name, *shape):
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


def model(nodes, inputs, initializer=(), outputs=(), value_info=(), opset=21, **options):
    graph = helper.make_graph(
        list(nodes), "g", list(inputs), list(outputs), list(initializer),
        value_info=list(value_info),
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **options)


def linear_pair(first=(4, 8), **options):
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], "first"),
        node("Relu", ["h"], ["a"], "relu"),
        node("MatMul", ["a", "w2"], ["y"], "second"),
    ]
    return model(nodes, [info("x", first)], [weight("w1", 8, 6), weight("w2", 6, 3)], **options)


class ResNet:
    """Builds ResNet-50 v1.5 (stride in the 3x3 convolution) without any weight data."""

    def __init__(self):
        self.nodes, self.weights = [], []
        self.channels = {"x": 3}

    def conv(self, x, filters, kernel, stride=1):
        name = f"conv{len(self.weights)}"
        self.weights.append(info(f"{name}.w", (filters, self.channels[x], kernel, kernel)))
        pads = [kernel // 2] * 4
        self.nodes += [
            node("Conv", [x, f"{name}.w"], [f"{name}.y"], name, strides=[stride] * 2, pads=pads),
            node("Relu", [f"{name}.y"], [name]),
        ]
        self.channels[name] = filters
        return name

    def block(self, x, width, stride, *, project):
        y = self.conv(self.conv(self.conv(x, width, 1), width, 3, stride), 4 * width, 1)
        short = self.conv(x, 4 * width, 1, stride) if project else x
        out = f"{y}.sum"
        self.nodes.append(node("Add", [y, short], [out]))
        self.channels[out] = 4 * width
        return out

    def build(self):
        x = self.conv("x", 64, 7, 2)
        self.nodes.append(
            node("MaxPool", [x], ["pool"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        )
        self.channels["pool"] = 64
        x = "pool"
        for width, count, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
            for index in range(count):
                x = self.block(x, width, stride if index == 0 else 1, project=index == 0)
        self.nodes += [
            node("GlobalAveragePool", [x], ["mean"]),
            node("Flatten", ["mean"], ["flat"]),
            node("Gemm", ["flat", "fc.w"], ["y"], "fc", transB=1),
        ]
        inputs = [info("x", ("batch", 3, 224, 224)), *self.weights, info("fc.w", (1000, 2048))]
        return model(self.nodes, inputs)


def test_resnet50_without_weights_equals_the_one_on_the_shelf(tmp_path):
    path = tmp_path / "resnet.onnx"
    onnx.save(ResNet().build(), path)
    net = load_network(path, dims={"batch": 1})
    shelf = load_network("resnet50")
    assert net.macs == shelf.macs == 4_089_184_256
    assert len(net.mapped_ops) == 54
    assert sorted(map(str, net.unique_shapes())) == sorted(map(str, shelf.unique_shapes()))
    assert net.longest_chain() == shelf.longest_chain()
    assert len(net) == 54 + 53 + 16 + 2  # layers, activations, sums, pools


@pytest.mark.parametrize(
    ("name", "layers", "gmacs", "mega_weights", "tolerance"),
    [
        # Layers with weights, GMAC and M weights as commonly published for these networks.
        ("resnet50", 54, 4.1, 25.5, 0.01),
        ("vgg19", 19, 19.6, 143.7, 0.01),
        ("squeezenet", 26, 0.352, 1.24, 0.02),
        ("densenet121", 121, 2.83, 7.98, 0.02),
    ],
)
def test_published_models_have_their_published_sizes(name, layers, gmacs, mega_weights, tolerance):
    path = LIGHT / f"light_{name}.onnx"
    if not path.is_file():
        pytest.skip("this release of onnx does not bring its light models")
    net = read_onnx(path)
    assert len(net.mapped_ops) == layers
    assert net.macs / 1e9 == pytest.approx(gmacs, rel=tolerance)
    assert net.weight_elements / 1e6 == pytest.approx(mega_weights, rel=tolerance)


def test_dependencies_run_through_vector_ops_and_views():
    net = import_model(linear_pair(), name="net")
    assert net.mapped_predecessors() == {"first": (), "second": ("first",)}
    assert net["relu"].elements == 24


def test_a_shape_computation_makes_no_dependency():
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], "first"),
        node("Shape", ["h"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"], axis=0),
        node("Unsqueeze", ["rows", "axes"], ["rows1"]),
        node("Mul", ["rows1", "two"], ["double"]),
        node("Concat", ["double", "minus"], ["target"], axis=0),
        node("Reshape", ["z", "target"], ["folded"], "fold"),
        node("MatMul", ["folded", "w2"], ["y"], "second"),
    ]
    given = [
        weight("w1", 8, 6), weight("w2", 3, 5), constant("zero", np.int64(0)),
        constant("axes", [0]), constant("two", [2]), constant("minus", [-1]),
    ]  # fmt: skip
    net = import_model(model(nodes, [info("x", (4, 8)), info("z", (2, 12))], given), name="net")
    assert net.mapped_predecessors() == {"first": (), "second": ()}
    assert net["second"].shape.N == 8
    assert [op.name for op in net.ops] == ["first", "second"]


def exported_encoder(card):
    """Return one encoder layer as exporters write it: reshapes computed from the input's shape."""
    hidden, heads, inner = card.hidden, card.heads, card.intermediate
    nodes, given = [], [constant("zero", np.int64(0)), constant("one", np.int64(1))]
    given += [constant("axes", [0]), constant("heads", [heads]), constant("rest", [-1])]
    given.append(constant("hidden", [hidden]))
    for axis, name in (("zero", "batch"), ("one", "tokens")):
        nodes += [
            node("Shape", ["x"], [f"{name}.shape"]),
            node("Gather", [f"{name}.shape", axis], [f"{name}.size"]),
            node("Unsqueeze", [f"{name}.size", "axes"], [name]),
        ]
    nodes.append(node("Concat", ["batch", "tokens", "heads", "rest"], ["split"], axis=0))
    nodes.append(node("Concat", ["batch", "tokens", "hidden"], ["merged"], axis=0))

    def linear(name, x, inputs, outputs):
        given.append(weight(f"{name}.w", inputs, outputs))
        nodes.append(node("MatMul", [x, f"{name}.w"], [name], name))
        return name

    for name, turn in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        linear(name, "x", hidden, hidden)
        nodes.append(node("Reshape", [name, "split"], [f"{name}.split"]))
        nodes.append(node("Transpose", [f"{name}.split"], [f"{name}.heads"], perm=turn))
    nodes += [
        node("MatMul", ["query.heads", "key.heads"], ["scores"], "scores"),
        node("Softmax", ["scores"], ["softmax"], axis=-1),
        node("MatMul", ["softmax", "value.heads"], ["context"], "context"),
        node("Transpose", ["context"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "merged"], ["flat"]),
    ]
    linear("output", "flat", hidden, hidden)
    nodes.append(node("Add", ["output", "x"], ["stream"]))
    linear("up", "stream", hidden, inner)
    nodes.append(node("Relu", ["up"], ["bent"]))
    linear("down", "bent", inner, hidden)
    nodes.append(node("Add", ["down", "stream"], ["y"]))
    return model(nodes, [info("x", ("batch", "tokens", hidden))], given)


def test_an_exported_encoder_equals_the_one_built_from_its_hyper_parameters():
    card = TransformerCard(hidden=12, heads=3, layers=1, sequence=7, intermediate=20, batch=2)
    built = encoder_stack(card, "built")
    net = import_model(exported_encoder(card), name="net", dims={"batch": 2, "tokens": 7})
    assert net.macs == built.macs
    for op in net.mapped_ops:
        assert op.shape == built[f"layer0.{op.name}"].shape
        assert {f"layer0.{p}" for p in net.mapped_predecessors()[op.name]} == set(
            built.mapped_predecessors()[f"layer0.{op.name}"]
        )


def test_shapes_may_stand_in_the_file_alone():
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], "first"),
        node("Reshape", ["h", "unknown"], ["folded"]),
        node("MatMul", ["folded", "w2"], ["y"], "second"),
    ]
    inputs = [info("x", (4, 8)), info("w1", (8, 6)), info("unknown", (2,), INT64)]
    described = [info("folded", (8, 3)), info("w2", (3, 5))]
    net = import_model(model(nodes, inputs, value_info=described), name="net")
    assert net["second"].shape.bounds()[:4] == (8, 1, 5, 3)


def test_weights_and_what_is_made_of_them_are_no_producers():
    nodes = [
        node("Transpose", ["w1"], ["turned"], "turn"),
        node("DequantizeLinear", ["turned", "scale"], ["plain"], "dequantise"),
        node("MatMul", ["x", "plain"], ["y"], "only"),
    ]
    quantised = numpy_helper.from_array(np.zeros((6, 8), np.int8), "w1")
    given = [quantised, constant("scale", np.float32(0.5))]
    net = import_model(model(nodes, [info("x", (4, 8))], given), name="net")
    assert [op.name for op in net.ops] == ["only"]


def test_nodes_without_names_and_with_equal_ones_get_their_own():
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Relu", ["a"], ["b"], "same"),
        node("Relu", ["b"], ["c"], "same"),
        node("Relu", ["c"], ["d"], "with blank"),
    ]
    net = import_model(model(nodes, [info("x", (2, 3))]), name="net")
    assert [op.name for op in net.ops] == ["Relu_0", "same", "same_2", "with_blank"]


def test_functions_are_inlined():
    body = helper.make_function(
        "mine", "Linear", ["a", "b"], ["c"],
        [node("MatMul", ["a", "b"], ["h"]), node("Relu", ["h"], ["c"])],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    call = helper.make_node("Linear", ["x", "w"], ["y"], name="call", domain="mine")
    made = model([call], [info("x", (4, 8))], [weight("w", 8, 6)], functions=[body])
    made.opset_import.append(helper.make_opsetid("mine", 1))
    net = import_model(made, name="net")
    assert net.macs == 192
    assert [op.kind for op in net.ops] == ["gemm", "vector"]


def test_nodes_may_stand_in_any_order():
    made = linear_pair()
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    net = import_model(made, name="net")
    assert net.mapped_predecessors() == {"first": (), "second": ("first",)}


@pytest.mark.parametrize("label", ["batch", None])
def test_an_open_dimension_is_refused_with_the_remedy_and_can_be_bound(label):
    made = linear_pair((label, 8))
    key = label or "x[0]"
    name = rf"dims={{'{key}': ...}}".replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(
        InputError, match=rf"node 'first' \(MatMul\): .*dynamic shape.*--dim .*{name}"
    ):
        import_model(made, name="net")
    net = import_model(made, name="net", dims={key: 16})
    assert net["first"].shape.N == 16
    assert net["relu"].elements == 96


def test_a_dimension_that_does_not_exist_or_makes_no_sense_is_refused():
    with pytest.raises(UnknownNameError, match="unknown symbolic dimension 'bach'; did you mean"):
        import_model(linear_pair(("batch", 8)), name="net", dims={"bach": 1})
    with pytest.raises(InputError, match=r"dims\['batch'\]: must be a positive integer, got 0"):
        import_model(linear_pair(("batch", 8)), name="net", dims={"batch": 0})


def test_an_unknown_op_is_refused_unless_it_is_called_element_wise():
    made = linear_pair()
    made.graph.node[1].op_type = "Wobble"
    made.graph.node[1].domain = "my.ops"
    made.opset_import.append(helper.make_opsetid("my.ops", 1))
    with pytest.raises(
        InputError,
        match=r"node 'relu' \(my\.ops\.Wobble\): .*--vector-op Wobble .*vector_ops={'Wobble'}",
    ):
        import_model(made, name="net")
    net = import_model(made, name="net", vector_ops={"Wobble"})
    assert net["relu"].elements == 24
    assert net.mapped_predecessors()["second"] == ("first",)


def branch():
    return helper.make_graph(
        [node("Constant", [], ["b"], value=constant("v", np.float32(1)))], "branch", [],
        [info("b", ())],
    )  # fmt: skip


def test_control_flow_is_refused_by_name():
    choose = node("If", ["c"], ["y"], "choose", then_branch=branch(), else_branch=branch())
    made = model([choose], [info("c", (), TensorProto.BOOL)])
    with pytest.raises(InputError, match=r"node 'choose' \(If\): control flow is not supported"):
        import_model(made, name="net")


def test_sequences_are_refused_by_name():
    made = model([node("SequenceConstruct", ["x"], ["s"], "pack")], [info("x", (2,))])
    with pytest.raises(InputError, match=r"node 'pack' \(SequenceConstruct\): sequences"):
        import_model(made, name="net")


def test_a_tail_whose_size_depends_on_the_data_is_fine_until_a_layer_reads_it():
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], "first"),
        node("NonZero", ["h"], ["where"], "where"),
        node("Cast", ["where"], ["picked"], "cast", to=FLOAT),
    ]
    made = model(nodes, [info("x", (4, 8))], [weight("w1", 8, 6), weight("w2", 2, 3)])
    net = import_model(made, name="net")
    assert net["where"].elements is None
    assert net["cast"].elements is None
    made.graph.node.append(node("MatMul", ["w2", "picked"], ["y"], "last"))
    with pytest.raises(InputError, match=r"node 'last' .*input 1 \('picked'\) depends on the data"):
        import_model(made, name="net")


def test_a_cycle_a_missing_tensor_and_a_second_producer_are_refused():
    relus = [node("Relu", ["b"], ["a"], "one"), node("Add", ["a", "x"], ["b"], "two")]
    with pytest.raises(InputError, match=r"node 'one' .*cycle"):
        import_model(model(relus, [info("x", (2,))]), name="net")
    with pytest.raises(InputError, match=r"node 'r' .*'nowhere', which nothing produces"):
        import_model(model([node("Relu", ["nowhere"], ["a"], "r")], [info("x", (2,))]), name="net")
    twice = [node("Relu", ["x"], ["a"], "one"), node("Relu", ["x"], ["a"], "two")]
    with pytest.raises(InputError, match=r"node 'two' .*'a', as does another node"):
        import_model(model(twice, [info("x", (2,))]), name="net")


def test_a_model_of_constants_alone_is_refused():
    made = model([node("Relu", ["w"], ["y"])], [], [weight("w", 100, 100)])
    with pytest.raises(InputError, match="no op that is not a constant"):
        import_model(made, name="net")


def test_the_given_model_is_left_as_it_was():
    made = linear_pair(("batch", 8))
    before = made.SerializeToString()
    import_model(made, name="net", dims={"batch": 2})
    assert made.SerializeToString() == before


# Files.


def saved(made, path):
    onnx.save(made, path)
    return path


def test_missing_external_data_does_no_harm(tmp_path):
    made = linear_pair()
    onnx.save(
        made, tmp_path / "net.onnx", save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip
    (tmp_path / "weights.bin").unlink()
    assert read_onnx(tmp_path / "net.onnx").macs == 4 * 8 * 6 + 4 * 6 * 3


def test_weights_are_dropped_while_reading(tmp_path):
    big = weight("w1", 512, 1024)
    in_node = node("Constant", [], ["w2"], "w2", value=weight("", 1024, 300))
    nodes = [
        in_node,
        node("MatMul", ["x", "w1"], ["h"], "a"),
        node("MatMul", ["h", "w2"], ["y"], "b"),
    ]
    path = saved(model(nodes, [info("x", (4, 512))], [big]), tmp_path / "net.onnx")
    assert path.stat().st_size > 3e6
    slim = onnx_file.read_model(path)
    assert slim.ByteSize() < 1000
    net = read_onnx(path)
    assert net.macs == 4 * 512 * 1024 + 4 * 1024 * 300
    assert net.mapped_predecessors() == {"a": (), "b": ("a",)}


def test_small_constants_are_kept_while_reading(tmp_path):
    made = linear_pair()
    path = saved(made, tmp_path / "net.onnx")
    assert onnx_file.read_model(path) == made


def test_every_truncation_of_a_file_is_refused_or_still_a_network(tmp_path):
    data = linear_pair().SerializeToString()
    path = tmp_path / "cut.onnx"
    messages = []
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        try:
            read_onnx(path)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 0.9 * len(range(0, len(data), 7))
    assert all(message.startswith(str(path)) for message in messages)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello, this is text\n", b"\xff" * 100, b"\x08\x08", b"<html></html>", bytes(50)],
)
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "no.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"no\.onnx: (truncated|the file is empty|not an ONNX)"):
        read_onnx(path)


def test_random_damage_never_escapes_as_anything_but_an_input_error(tmp_path):
    data = bytearray(linear_pair().SerializeToString())
    rng = np.random.default_rng(5)
    path = tmp_path / "bad.onnx"
    for _ in range(150):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            damaged[place] = int(rng.integers(256))
        path.write_bytes(damaged)
        try:
            net = read_onnx(path)
        except InputError:
            continue
        assert net.macs >= 0


def test_a_graph_that_nests_without_end_is_refused(tmp_path):
    inner = b"\x00" * (onnx_file.KEEP_BYTES + 1)
    for _ in range(60):
        for number in (6, 5, 1):  # attribute's graph, node's attribute, graph's node
            head = bytes([number << 3 | 2]) + onnx_file._varint(len(inner))
            inner = head + inner
    path = tmp_path / "deep.onnx"
    path.write_bytes(bytes([7 << 3 | 2]) + onnx_file._varint(len(inner)) + inner)
    with pytest.raises(InputError, match="nested deeper"):
        read_onnx(path)


def test_a_missing_file_and_a_missing_package_are_said(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no such file"):
        load_network(tmp_path / "none.onnx")
    path = saved(linear_pair(), tmp_path / "net.onnx")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"mohsearch\[onnx\]"):
        load_network(path)


def test_a_card_may_bind_the_dimensions_of_its_onnx_file(tmp_path):
    saved(linear_pair(("batch", 8)), tmp_path / "net.onnx")
    card = tmp_path / "card.yaml"
    card.write_text("title: T\nsource: S\nonnx: net.onnx\ndims: {batch: 4}\n")
    assert load_network(card).source == "S"
    assert load_application(card).macs == 4 * 8 * 6 + 4 * 6 * 3
    assert load_network(card, dims={"batch": 8}).macs == 2 * (4 * 8 * 6 + 4 * 6 * 3)
