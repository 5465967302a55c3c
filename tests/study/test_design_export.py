"""One design out of a front and back in: `front pick`, `front export`, `evaluate design`."""

import json

import pytest
import yaml

from mohsearch.core.catalog import builtin_root
from mohsearch.study import load_study, run_study
from tests.command_line import run


@pytest.fixture
def results(study, tmp_path):
    output = tmp_path / "results"
    assert run_study(study(), output, workers=1).exit_code == 0
    return output


def test_an_exported_design_evaluates_to_its_own_metrics(results, tmp_path):
    path = tmp_path / "design.yaml"
    run("front", "export", results, "--solution", "profit_a", "--as", "yaml", "-o", path)
    card = yaml.safe_load(path.read_text())
    again = json.loads(run("evaluate", "design", path, "--format", "json").stdout)
    assert again["cases"][0]["metrics"] == card["metrics"]
    assert again["cases"][0]["design"] == card["design"]
    rows = run("evaluate", "design", path, "--format", "csv").stdout.splitlines()
    assert rows[0] == "metric,unit,value,expected,relative_difference"
    assert rows[1].endswith(",0.0")
    shown = run("front", "export", results, "--solution", "profit_a", "--as", "yaml").stdout
    assert shown == path.read_text()


def test_a_design_that_is_no_longer_what_its_file_says_is_told(results, tmp_path):
    path = tmp_path / "design.yaml"
    run("front", "export", results, "--solution", "0", "-o", path)
    card = yaml.safe_load(path.read_text())
    assert "compared=4 different=0" in run("evaluate", "design", path).stderr
    card["metrics"]["profit_a"] *= 2
    path.write_text(yaml.safe_dump(card))
    done = run("evaluate", "design", path)
    assert "compared=4 different=1 most=profit_a relative_difference=0.5" in done.stderr
    assert json.loads(done.stdout)["cases"][0]["expected"] == card["metrics"]
    card["metrics"]["profit_a"] = 0.0  # however small the value may be, it is not this
    path.write_text(yaml.safe_dump(card))
    done = run("evaluate", "design", path)
    assert "compared=4 different=1 most=profit_a relative_difference=1\n" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"genome": [1, 0, 1]}, "genome: has 3 genes; exact on knapsack has 20"),
        ({"genome": [0.5] * 20}, "genome: holds fractions"),
        ({"problem": "exakt"}, "unknown problem 'exakt'"),
        ({"gnome": []}, "gnome: no such field"),
        ({"metrics": {"profit_c": 1.0}}, "metrics: unknown metric 'profit_c'"),
    ],
)
def test_a_design_that_does_not_fit_is_refused_with_its_field(results, tmp_path, change, message):
    path = tmp_path / "design.yaml"
    run("front", "export", results, "--solution", "0", "-o", path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    assert message in run("evaluate", "design", path, code=2).stderr


def test_pick_keeps_a_budget_and_follows_weights(results):
    best = run("front", "pick", results, "--weights", "profit_a=1").stdout
    other = run("front", "pick", results, "--weights", "profit_b=1").stdout
    assert best != other
    held = run("front", "pick", results, "--budget", "weight=500", "--knee")
    assert "designs are within the budget" in held.stderr
    assert "--as yaml" in held.stderr
    refused = run("front", "pick", results, "--budget", "weight=1", code=2)
    assert "no solution has weight of at most 1" in refused.stderr
    assert "is not NAME=NUMBER" in run("front", "pick", results, "--budget", "5", code=2).stderr
    both = run("front", "pick", results, "--knee", "--trade-off", code=2)
    assert "one of --weights, --knee and --trade-off" in both.stderr


def test_only_packages_can_be_written_for_timeloop(results, tmp_path):
    refused = run("front", "export", results, "--as", "timeloop", "-o", tmp_path / "tl", code=2)
    assert "accelerators of the moham problem, not exact" in refused.stderr


def test_a_template_and_network_of_the_users_own_project_are_written_for_timeloop(
    tmp_path, monkeypatch
):
    for folder in ("evaluators/templates", "problems/workloads/networks", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    card = yaml.safe_load((builtin_root() / "evaluators/templates/simba.yaml").read_text())
    mine = tmp_path / "evaluators/templates/mine.yaml"
    mine.write_text(yaml.safe_dump(card | {"name": "mine"}))
    layer = {"name": "head", "type": "gemm", "N": 1, "K": 8, "C": 8}
    network = {"title": "own", "source": "made up", "layers": [layer]}
    (tmp_path / "problems/workloads/networks/own.yaml").write_text(yaml.safe_dump(network))
    spec = {
        "name": "own",
        "title": "Own names",
        "problems": [{"name": "moham", "options": {"templates": ["mine"], "max_instances": 1}}],
        "workloads": ["own"],
        "portfolios": [{"name": "generic"}],
        "budget": {"population": 2, "generations": 1},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(spec))
    monkeypatch.chdir(tmp_path)
    assert run_study(load_study("study.yaml"), "results", workers=1).exit_code == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    run("front", "export", "../results", "--solution", "0", "--as", "timeloop", "-o", "tl")
    written = yaml.safe_load((tmp_path / "elsewhere/tl/prob/own.head.yaml").read_text())
    assert written["problem"]["instance"] | {"M": 8, "C": 8} == written["problem"]["instance"]
