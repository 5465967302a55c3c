"""Graphs of ops: columns, files, the shelf, ONNX."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import (
    graph_columns,
    list_graphs,
    load_graph,
    read_graph,
    write_graph,
)

SOME = ("hf_bert_large_prim", "tv_densenet121", "own_seq2seq", "hf_mamba")


def test_the_shelf_holds_the_graphs_and_all_are_sound() -> None:
    names = list_graphs()
    assert len(names) == 97
    for name in names:
        graph = load_graph(name)
        assert (graph.name, graph.element_bytes) == (name, 2)
        assert (graph.edge_src < graph.edge_dst).all()
        assert (graph.file_index == np.arange(graph.n)).all()


def test_bert_large_has_its_published_size() -> None:
    ops, primitives = load_graph("hf_bert_large_op"), load_graph("hf_bert_large_prim")
    assert (ops.n, primitives.n, primitives.n_edges) == (390, 2204, 2469)
    assert ops.used_weight_bytes == pytest.approx(608e6, rel=1e-3)  # 340 M parameters, no tables
    assert primitives.flops.sum() == pytest.approx(79.2e9, rel=1e-3)


@pytest.mark.parametrize("name", SOME)
def test_adjacency_agrees_with_the_edges(name: str) -> None:
    graph = load_graph(name)
    pairs = set(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True))
    forwards = {(u, int(v)) for u in range(graph.n) for v in graph.successors(u)}
    backwards = {(int(u), v) for v in range(graph.n) for u in graph.predecessors(v)}
    assert forwards == backwards == pairs
    assert graph.in_bytes.sum() == graph.edge_bytes.sum()
    longest = max(graph.levels[u] - graph.levels[v] for u, v in pairs)
    assert longest < 0


@pytest.mark.parametrize("name", SOME)
def test_a_graph_is_read_back_as_it_was_written(name: str, tmp_path: Path) -> None:
    graph = load_graph(name)
    path = tmp_path / "again.json"
    write_graph(graph, path)
    assert read_graph(path).digest() == graph.digest()
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_graph(path.with_suffix(".json.gz")).digest() == graph.digest()
    assert graph.at_precision(1).digest() != graph.digest()
    assert graph.at_precision(1).at_precision(2).digest() == graph.digest()


def test_tables_that_are_gathered_from_are_no_weights() -> None:
    graph = load_graph("own_lstm_l1_h256_t16")
    embedding = graph.op_types.index("embedding")
    assert (graph.resident_bytes[graph.op_type == embedding] == 0).all()
    every = float(graph.weight_bytes.sum())
    assert graph.used_weight_bytes == every - 5.12e6


def test_ops_are_renumbered_into_a_topological_order() -> None:
    graph = PartitionGraph.from_columns(
        "back", ["c", "b", "a"], flops=[3, 2, 1], out_bytes=[0, 8, 4], edges=[(1, 0), (2, 1)]
    )
    assert graph.file_index.tolist() == [2, 1, 0]
    assert graph.flops.tolist() == [1, 2, 3]
    assert graph.edge_bytes.tolist() == [4, 8]


def test_of_parallel_edges_the_largest_counts() -> None:
    graph = PartitionGraph.from_columns(
        "twice",
        ["a", "a"],
        flops=[1, 1],
        out_bytes=[9, 9],
        edges=[(0, 1), (0, 1)],
        edge_bytes=[3, 5],
    )
    assert graph.edge_bytes.tolist() == [5]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"edges": [(0, 1), (1, 0)]}, "edges: the edges form a cycle"),
        ({"edges": [(0, 2)]}, r"edges\[0\]: \(0, 2\) does not join"),
        ({"edges": [(0.5, 1)]}, "edges: must be pairs"),
        ({"flops": [1, -1]}, r"flops\[1\]: must not be negative"),
        ({"flops": [1, float("nan")]}, r"flops\[1\]"),
        ({"out_bytes": [1]}, "out_bytes: must have 2 numbers, has 1"),
        ({"weights": [[0], [1]], "weight_bytes": [4]}, r"weights\[1\]: must be numbers of the 1"),
        ({"weights": [[0]], "weight_bytes": [4]}, "weights: must have 2 entries"),
    ],
)
def test_wrong_columns_are_refused(columns, message: str) -> None:
    given = {"flops": [1, 1], "out_bytes": [1, 1], "edges": [(0, 1)]} | columns
    with pytest.raises(InputError, match=message):
        PartitionGraph.from_columns("g", ["a", "b"], **given)


def test_a_missing_or_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown graph 'hf_bert'; did you mean"):
        load_graph("hf_bert")
    with pytest.raises(InputError, match="no such file"):
        read_graph(tmp_path / "none.json")
    path = tmp_path / "g.json.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="not a gzip file"):
        read_graph(path)
    path.write_bytes(gzip.compress(b"{"))
    with pytest.raises(InputError, match="not valid JSON"):
        read_graph(path)
    with pytest.raises(InputError, match="is written as"):
        write_graph(load_graph("own_ae"), tmp_path / "g.csv")


def test_an_onnx_model_becomes_a_graph_with_its_shared_weights(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    arrays = {"W": (8, 4, 3, 3), "B": (8,), "W2": (512, 10)}
    tensors = [
        onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name)
        for name, shape in arrays.items()
    ]
    tensors.append(onnx.numpy_helper.from_array(np.array([1, 512]), "shape"))
    nodes = [
        node("Conv", ["x", "W", "B"], ["c"], pads=[1, 1, 1, 1], name="layers.0"),
        node("Relu", ["c"], ["r"]),
        node("Add", ["r", "c"], ["s"]),
        node("Reshape", ["s", "shape"], ["f"]),
        node("MatMul", ["f", "W2"], ["m"]),
        node("MatMul", ["f", "W2"], ["m2"]),
        node("Add", ["m", "m2"], ["a"]),
        node("Softmax", ["a"], ["y"]),
    ]
    inputs = [value("x", onnx.TensorProto.FLOAT, [1, 4, 8, 8])]
    outputs = [value("y", onnx.TensorProto.FLOAT, [1, 10])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", inputs, outputs, tensors),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
    )
    onnx.save(model, tmp_path / "model.onnx")
    graph = read_graph(tmp_path / "model.onnx")
    types = [graph.op_types[code] for code in graph.op_type]
    assert types == ["Conv", "Relu", "Add", "MatMul", "MatMul", "Add", "Softmax"]
    assert graph.flops.tolist() == [2 * 8 * 4 * 9 * 64, 512, 512, 10240, 10240, 10, 50]
    assert graph.used_weight_bytes == 2 * (8 * 4 * 9 + 8 + 5120)
    assert graph.resident_bytes.tolist() == [592, 0, 0, 10240, 10240, 0, 0]
    assert (2, 3) in set(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True))
    assert json.loads(json.dumps(graph_columns(graph)))["node_out"][0] == 1024


def test_an_exported_module_becomes_a_graph_without_views_and_constants() -> None:
    torch = pytest.importorskip("torch")
    from mohsearch.workloads.op_graph_torch import graph_from_torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.wide = torch.nn.Linear(512, 64)
            self.same = torch.nn.Linear(64, 64)
            self.register_buffer("scale", torch.ones(64))

        def forward(self, x):
            wide = self.wide(torch.relu(self.stem(x)).flatten(1))
            unused = wide.exp()
            del unused
            return (self.same(self.same(wide)) + wide * (self.scale * 2)).softmax(-1)

    with torch.device("meta"):
        graph = graph_from_torch(Block(), (torch.randn(1, 3, 8, 8),))
    types = [graph.op_types[code] for code in graph.op_type]
    assert types == ["conv2d", "relu", "linear", "linear", "linear", "mul", "add", "softmax"]
    products = [2 * 512 * 27, 2 * 512 * 64, 2 * 64 * 64]
    assert graph.flops.tolist() == [products[0], 512, products[1], *products[2:] * 2, 64, 64, 320]
    assert graph.resident_bytes.tolist() == [448, 0, 65664, 8320, 8320, 128, 0, 0]
    assert graph.used_weight_bytes == 448 + 65664 + 8320 + 128  # the shared layer once
    with pytest.raises(InputError, match="cannot be exported"):
        graph_from_torch(Block(), ("no tensor",))


def test_a_saved_torch_program_is_refused_with_what_to_do_instead(tmp_path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"PK")
    with pytest.raises(InputError, match="graph_from_torch and keep it by write_graph"):
        read_graph(path)
