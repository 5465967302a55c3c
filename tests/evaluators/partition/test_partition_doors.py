"""`mohsearch evaluate chip-partition` and `chip-check`."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from mohsearch.cli.main import cli
from mohsearch.core.catalog import builtin_root
from mohsearch.workloads.op_graph_files import graph_columns, load_graph, write_graph

REFERENCE = builtin_root() / "evaluators/reference/chiplet/partition_cases.json"


def run(*arguments):
    return CliRunner().invoke(cli, ["evaluate", *map(str, arguments)], prog_name="mohsearch")


def write_open_model(path: Path) -> None:
    """Write a ReLU of a (batch, 8) input times an (8, 6) weight as ONNX, the batch left open."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", 6))
    weight = numpy_helper.from_array(np.ones((8, 6), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "pair", [x], [y], [weight])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "dla.json"
    write_graph(load_graph("timm_dla34"), path)
    return path


def test_a_partition_that_was_found_is_checked_and_costs_the_same(
    graph_file: Path, tmp_path: Path
) -> None:
    written = tmp_path / "partition.json"
    found = run("chip-partition", graph_file, "--chips", 8, "-o", written)
    assert found.exit_code == 0, found.output
    result = json.loads(written.read_text())["timm_dla34"]
    assert (result["status"], result["chips_used"]) == ("optimal", 8)
    assert result["interval_s"] == pytest.approx(247.85e-6, rel=1e-3)
    assert result["gap"] == pytest.approx(result["interval_s"] / result["bound_s"] - 1)
    assert (result["bound_by"], result["binding"]["what"]) == ("transfers", "chip")
    checked = run("chip-check", graph_file, written, "--chips", 8, "--format", "json")
    assert checked.exit_code == 0, checked.output
    again = json.loads(checked.output)["timm_dla34"]
    assert again["valid"]
    assert again["interval_s"] == result["interval_s"]
    assert again["chips"] == result["chips"]


def test_ops_keep_their_numbers_of_the_file(tmp_path: Path) -> None:
    graph = load_graph("own_ae")
    data = graph_columns(graph)
    for column in ("node_op", "node_out", "node_flops", "node_params"):
        data[column] = data[column][::-1]
    data["edge_src"] = [15 - u for u in data["edge_src"]]
    data["edge_dst"] = [15 - v for v in data["edge_dst"]]
    path = tmp_path / "backwards.json"
    path.write_text(json.dumps(data))
    found = json.loads(run("chip-partition", path, "--chips", 3, "--format", "json").output)
    labels = found["own_ae"]["labels"]
    assert labels == sorted(labels, reverse=True)
    assert labels[-1] == 0
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    checked = run("chip-check", path, tmp_path / "labels.json", "--chips", 3, "--format", "json")
    assert json.loads(checked.output)["own_ae"]["valid"]


def test_an_invalid_partition_is_told_with_its_reason(graph_file: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"labels": [0] * 132 + [5]}))
    result = json.loads(run("chip-check", graph_file, labels, "--format", "json").output)[
        "timm_dla34"
    ]
    assert (result["valid"], result["broken"]) == (False, "C2")
    assert "chip 1 has no op" in result["message"]
    labels.write_text(json.dumps([0] * 132 + [10**30]))
    outside = json.loads(run("chip-check", graph_file, labels, "--format", "json").output)
    assert outside["timm_dla34"]["broken"] == "range"


def test_cases_are_counted_and_their_optima_found() -> None:
    result = run("chip-partition", REFERENCE, "--format", "json")
    document = json.loads(result.output)
    for case in json.loads(REFERENCE.read_text()):
        answer = document[case["id"]]
        for key in ("valid_counts", "opt_max_load", "n_optimal", "opt_max_load_with_memory"):
            assert answer[key] == case[key]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "has 2 labels, the graph timm_dla34 has 133 ops"),
        ('["a"]', "must be a chip number"),
        ("{}", "has no labels"),
        ("3", "must be a list"),
        ("[", "not valid JSON"),
    ],
)
def test_a_wrong_partition_file_is_an_error(
    graph_file: Path, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    result = run("chip-check", graph_file, path)
    assert result.exit_code == 2
    assert message in result.output
    assert str(path) in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_dst": [0] * 155}, "edges[0]: (0, 0) does not join two of the ops"),
        ({"node_out": [1]}, "node_out: must have 133 numbers, has 1"),
        ({"node_op": [99] * 133}, "node_op[0]: must be below 7"),
        ({"edge_src": [0]}, "edge_src: has 1 entries, edge_dst 155"),
        ({"node_flops": "many"}, "node_flops: must be a list"),
        ({"colour": 1}, "colour: no such field"),
    ],
)
def test_a_wrong_graph_file_is_an_error(graph_file: Path, change, message: str) -> None:
    graph_file.write_text(json.dumps(json.loads(graph_file.read_text()) | change))
    result = run("chip-partition", graph_file)
    assert result.exit_code == 2
    assert message in result.output


def test_a_wrong_case_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    case = {"id": "a", "n": 2, "chips": 2, "edges": [[0, 1]], "latency": [1]}
    path.write_text(json.dumps([case]))
    result = run("chip-partition", path)
    assert (result.exit_code, "latency must have n = 2 numbers" in result.output) == (2, True)
    path.write_text(json.dumps([case | {"latency": [1, 1]}] * 2))
    assert "an earlier case has the id 'a'" in run("chip-partition", path).output
    many = case | {"n": 30, "chips": 20, "edges": [], "latency": [1] * 30}
    path.write_text(json.dumps(many))
    assert "too many to list" in run("chip-partition", path).output


def test_files_and_settings_that_an_evaluator_does_not_take_are_refused(graph_file: Path) -> None:
    one = run("chip-check", graph_file)
    assert (one.exit_code, "takes 2 inputs: PATH PARTITION; got 1" in one.output) == (2, True)
    other = run("systolic", graph_file, "--chips", 3)
    assert (other.exit_code, "systolic has no --chips" in other.output) == (2, True)
    many = run("chip-partition", graph_file, "--chips", 65)
    assert (many.exit_code, "chips must be 1 to 64" in many.output) == (2, True)


def test_symbolic_dimensions_of_an_onnx_file_get_their_sizes(tmp_path: Path) -> None:
    path, labels = tmp_path / "pair.onnx", tmp_path / "labels.json"
    write_open_model(path)
    refused = run("chip-partition", path, "--chips", 2)
    assert refused.exit_code == 2
    assert "--dim batch=SIZE" in refused.output
    memory = []
    for size in (16, 4096):
        arguments = (path, "--chips", 1, "--dim", f"batch={size}")
        found = run("chip-partition", *arguments, "-o", labels)
        assert found.exit_code == 0, found.output
        result = json.loads(labels.read_text())["pair"]
        assert result["ops"] == 2
        memory.append(result["peak_memory_bytes"])
        checked = run("chip-check", path, labels, *arguments[1:], "--format", "json")
        assert json.loads(checked.output)["pair"]["peak_memory_bytes"] == memory[-1]
    assert memory[1] > memory[0]


def test_a_dimension_where_there_is_none_is_refused(graph_file: Path) -> None:
    refused = run("chip-partition", graph_file, "--dim", "batch=2")
    assert refused.exit_code == 2
    assert "only an ONNX file has symbolic dimensions" in refused.output
    refused = run("systolic", graph_file, "--dim", "batch=2")
    assert refused.exit_code == 2
    assert "systolic has no --dim" in refused.output
