import json

import pytest
import yaml

from mohsearch.workloads.zoo import load_network
from tests.command_line import run

TABLE = """name,type,N,K,C,Y,X,R,S,stride,pad,groups,predecessors
first,conv,1,8,3,16,16,3,3,1,1,,
left,conv,1,8,8,16,16,3,3,1,1,,first
right,dwconv,1,8,8,16,16,3,3,1,1,8,first
last,gemm,4,10,8,,,,,,,,left right
"""


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["workload", "list"], ["arvr", "resnet50", "4.089 G"]),
        (["workload", "show", "tiny", "--layers"], ["tiny_cnn", "MACs", "stride"]),
        (["workload", "show", "resnet50"], ["54", "published", "0.997"]),
        (["workload", "list"], ["tv_resnet18", "lm_tiny", "gpt3-175b"]),
        (["workload", "show", "tv_resnet18"], ["ops", "68", "edges", "75"]),
        (["workload", "show", "gemm_64k"], ["gemm", "65,536"]),
        (["template", "list"], ["eyeriss", "row stationary", "paper, artifact"]),
        (["template", "show", "simba"], ["GlobalBuffer", "exactly K=8", "MICRO 2019"]),
        (
            ["template", "show", "eyeriss"],
            ["16  ", "G > K > N > P > C, P whole", "S C K G, S whole"],
        ),
        (
            ["template", "show", "shidiannao"],
            ["RegisterOut (optional)", "matrix products", "X: up to 16 over K; Y: up to 16 over N"],
        ),
        (["problem", "list"], ["moham", "latency_s, energy_j, area_mm2"]),
        (["problem", "show", "moham"], ["permutation", "max_instances", "area_mm2"]),
        (["operator", "list"], ["mapping-crossover", "0.047", "ablation"]),
        (["engine", "list"], ["pymoo", "nsga2 (default)", "random", "64 genes"]),
        (["engine", "show", "pymoo"], ["sms-emoa", "2 to 3", "Zhang and Li 2007"]),
        (["engine", "show", "optuna"], ["nsgaiii", "the portfolio", "its own ways"]),
        (["study", "list"], ["smoke"]),
        (["study", "show", "smoke"], ["24 individuals x 12 generations", "tiny"]),
        (["study", "plan", "smoke"], ["moham-tiny-nsga2-paper-s1", "evaluations at most"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_lists_and_cards_are_printed(args, wanted):
    out = run(*args).stdout
    for text in wanted:
        assert text in out


@pytest.mark.parametrize(
    "args",
    [
        ["workload", "list"],
        ["workload", "show", "tiny", "--layers"],
        ["workload", "show", "tv_resnet18"],
        ["workload", "show", "lm_tiny"],
        ["template", "list"],
        ["template", "show", "eyeriss"],
        ["problem", "list"],
        ["problem", "show", "moham"],
        ["operator", "list", "moham"],
        ["engine", "list"],
        ["study", "list"],
        ["study", "plan", "smoke"],
    ],
    ids=" ".join,
)
def test_lists_and_cards_are_json_on_request(args):
    assert json.loads(run(*args, "--json").stdout)


def test_a_workload_of_another_kind_is_told_how_it_is_shown():
    model = run("workload", "show", "gpt2", code=2).stderr
    assert "gpt2 is a model to train; show it with --training" in model
    refused = run("workload", "show", "tv_resnet18", "--layers", code=2).stderr
    assert "--layers can be given only for networks and applications" in refused


@pytest.mark.parametrize(
    ("args", "known"),
    [
        (["workload", "show", "resnet5"], "did you mean 'resnet50'?"),
        (["template", "show", "eyris"], "did you mean 'eyeriss'?"),
        (["template", "show", "simba", "-v", "papr"], "did you mean 'paper'?"),
        (["problem", "show", "mohm"], "did you mean 'moham'?"),
        (["operator", "list", "mohm"], "did you mean 'moham'?"),
        (["study", "show", "smok"], "did you mean 'smoke'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_names_are_answered_with_the_nearest_and_all(args, known):
    result = run(*args, code=2)
    assert known in result.stderr
    assert "available: " in result.stderr


def test_the_schema_describes_every_field_of_a_study():
    schema = json.loads(run("study", "schema").stdout)
    assert {"problems", "workloads", "engines", "budget"} <= set(schema["properties"])
    for part in [schema, *schema["$defs"].values()]:
        for name, field in part.get("properties", {}).items():
            assert field.get("description"), name


def test_an_imported_table_is_found_by_name_and_is_the_same_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TABLE)
    result = run("workload", "import", "mine.csv", "--title", "My network")
    assert "Next: mohsearch workload show mine" in result.stderr
    card = tmp_path / "problems" / "workloads" / "networks" / "mine.yaml"
    assert yaml.safe_load(card.read_text())["title"] == "My network"
    original, imported = load_network("mine.csv"), load_network("mine")
    assert imported.digest() == original.digest()
    assert "My network" in run("workload", "show", "mine").stdout
    assert "exists already" in run("workload", "import", "mine.csv", code=2).stderr
    run("workload", "import", "mine.csv", "--force")


def test_an_onnx_model_is_imported_with_its_symbolic_dimension_fixed(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])],
        "net",
        [helper.make_tensor_value_info("x", 1, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", 1, ["batch", 4, 8, 8])],
        [helper.make_tensor("w", 1, [4, 3, 3, 3], [0.0] * 108)],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset), tmp_path / "net.onnx")
    result = run("workload", "import", "net.onnx", code=2)
    assert "batch" in result.stderr
    done = run("workload", "import", "net.onnx", "--dim", "batch=2", "-o", "net.yaml")
    assert "wrote net.yaml: 1 layer, " in done.stderr
    assert load_network("net.yaml").macs == 2 * 4 * 3 * 9 * 64


def test_a_model_without_a_layer_is_refused_and_leaves_no_card(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset), tmp_path / "relu.onnx")
    refused = run("workload", "import", "relu.onnx", "-o", "relu.yaml", code=2)
    assert "relu.onnx: no layer in it multiplies" in refused.stderr
    assert not (tmp_path / "relu.yaml").exists()


def test_an_onnx_model_with_an_op_of_its_own_is_shown_on_request(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    helper = onnx.helper
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w"], ["h"], name="linear"),
            helper.make_node("Wobble", ["h"], ["y"], name="wobble", domain="my.ops"),
        ],
        "net",
        [helper.make_tensor_value_info("x", 1, [5, 3])],
        [helper.make_tensor_value_info("y", 1, [5, 4])],
        [helper.make_tensor("w", 1, [3, 4], [0.0] * 12)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "net.onnx")
    assert "--vector-op Wobble" in run("workload", "show", "net.onnx", code=2).stderr
    shown = run("workload", "show", "net.onnx", "--vector-op", "Wobble", "--json").stdout
    assert json.loads(shown)["macs"] == 60
    refused = run("workload", "show", "tiny_cnn", "--vector-op", "Wobble", code=2)
    assert "for ONNX files" in refused.stderr


@pytest.mark.parametrize("text", ["batch", "batch=", "=1", "batch=0", "batch=x"])
def test_a_dimension_must_be_name_and_size(text):
    assert "is not NAME=SIZE" in run("workload", "show", "tiny", "--dim", text, code=2).stderr


def test_other_files_cannot_be_imported(tmp_path):
    (tmp_path / "net.txt").write_text("")
    result = run("workload", "import", tmp_path / "net.txt", code=2)
    assert "give an ONNX file (.onnx) or a layer table (.csv)" in result.stderr
    assert "no such file" in run("workload", "import", "absent.csv", code=2).stderr


def test_the_doctor_finds_this_installation_well():
    checks = {c["what"]: c for c in json.loads(run("doctor", "--json").stdout)}
    for what in ("python", "libraries", "shelves", "self-test"):
        assert checks[what]["state"] == "ok", checks[what]
    assert "none beyond the proven bounds" in checks["self-test"]["detail"]


@pytest.fixture
def quick_doctor(monkeypatch):
    from mohsearch.cli import doctor

    monkeypatch.setattr(doctor, "_self_test", lambda: "left out")
    return doctor


def test_the_doctor_reports_what_fails_and_exits_with_1(quick_doctor, monkeypatch):
    def broken():
        raise PermissionError("read-only")

    monkeypatch.setattr(quick_doctor, "_numba_cache", broken)
    result = run("doctor", code=1)
    assert "PermissionError: read-only" in result.stdout
    assert "not able to work: compiled-code cache" in result.stderr


def test_the_doctor_takes_absent_extras_calmly(quick_doctor, monkeypatch):
    monkeypatch.setattr(quick_doctor, "EXTRAS", {"netcdf": ("no-such-package-anywhere",)})
    out = run("doctor").stdout
    assert "pip install 'mohsearch[netcdf]'" in out
    assert "all is well" in out


def test_a_plugged_in_problem_without_a_card_says_so(monkeypatch):
    from mohsearch import problems

    monkeypatch.setitem(problems.PROBLEMS._builtin, "tiles", "nowhere:build")
    assert "tiles: no card problems/tiles.yaml" in run("problem", "show", "tiles").stdout


def test_a_template_of_an_unknown_technology_is_not_shown_as_if_it_could_be_used(
    tmp_path, monkeypatch
):
    text = run("template", "show", "simba", "--json").stdout
    folder = tmp_path / "evaluators" / "templates"
    folder.mkdir(parents=True)
    card = json.loads(text) | {"name": "mine", "technology": "cmos46"}
    (folder / "mine.yaml").write_text(yaml.safe_dump(card))
    monkeypatch.chdir(tmp_path)
    refused = run("template", "show", "mine", code=2)
    assert "mine.yaml: technology: unknown technology 'cmos46'" in refused.stderr
