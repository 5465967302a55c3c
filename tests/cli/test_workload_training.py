"""`mohsearch workload show --training`."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mohsearch.cli.main import cli
from mohsearch.workloads.hf_config import load_model
from mohsearch.workloads.training import build_training
from tests.command_line import run


def test_the_operators_of_a_sliced_model_are_printed() -> None:
    text = run(
        "workload", "show", "llama2-7b", "--training", "--tp", "4", "--microbatch", "2"
    ).output
    for wanted in ("6,738,415,616", "decoder, backward", "dw.down", "decoder, update: 1 op"):
        assert wanted in text
    assert "16 of 4096 x 4096 x 128" in text  # scores: 2 samples of 8 heads


def test_json_holds_every_operator_with_the_sums_of_the_library() -> None:
    options = ["--tp", "8", "--recompute", "selective", "--sequence-parallel", "--json"]
    found = json.loads(run("workload", "show", "gpt3-175b", "--training", *options).output)
    workload = build_training(
        load_model("gpt3-175b"), tensor_parallel=8, recompute="selective", sequence_parallel=True
    )
    assert found["tensor_flops_per_device"] == workload.flops
    counts = {layer["layer"]: layer["count"] for layer in found["layers"]}
    assert sum(row["tensor_flops"] * counts[row["layer"]] for row in found["ops"]) == workload.flops
    assert {row["phase"] for row in found["ops"]} >= {"recompute", "weight_gradient", "update"}


def test_csv_has_one_row_an_operator() -> None:
    text = run("workload", "show", "bert-base", "--training", "--csv", "--fused").output
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["engine"] for row in rows} == {"tensor", "vector", "fused"}
    plain = run("workload", "show", "bert-base", "--training", "--csv").output
    assert len(plain.splitlines()) > len(text.splitlines())


def test_a_config_json_of_ones_own_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    fields = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    file.write_text(json.dumps(fields))
    text = run("workload", "show", str(file), "--training", "--sequence", "16").output
    assert tmp_path.name in text.split()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["llama2-7b", "--training", "--tp", "3"], "do not divide the 32 heads"),
        (["lama2-7b", "--training"], "did you mean 'llama2-7b'?"),
        (["resnet50", "--tp", "2"], "--tp can be given only with --training"),
        (["resnet50", "--csv"], "--csv can be given only with --training"),
        (["llama2-7b", "--training", "--layers"], "--layers can be given only without"),
        (["bert-base", "--training", "--sequence", "1024"], "takes 1 to 512 tokens"),
    ],
)
def test_what_does_not_fit_together_is_refused(args: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["workload", "show", *args], prog_name="mohsearch")
    assert result.exit_code == 2
    assert words in result.output or words in str(result.exception)


def test_the_list_names_the_models_to_train() -> None:
    text = run("workload", "list").output
    assert "Models to train" in text
    assert "174.6 G" in text
    models = json.loads(run("workload", "list", "--json").output)["models"]
    assert {"gpt3-175b", "t5-base", "mixtral-8x7b"} <= {model["name"] for model in models}


def test_a_configuration_file_without_the_option_is_answered_by_it(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    shown = run("workload", "show", path, code=2)
    assert "is a model to train; show it with --training" in shown.stderr
    path.write_text("[]")
    assert "--training" not in run("workload", "show", path, code=2).stderr
