"""A training study from file to proof and pictures."""

import json
import re

import pytest
from click.testing import CliRunner

from mohsearch.cli.main import cli
from mohsearch.study import open_results
from tests.command_line import run

STUDY = """
name: small
title: A small training study
problems:
  - name: phaze
    options:
      widths: [64, 128]
      depths: [64, 128]
      global_buffers_mib: [8, 32]
      microbatches: [4]
      hbm_gib: [8]
      tensor_parallel: [1, 2]
      network_gb_per_s: 50
      schedule_states: 32
    objectives: [throughput_samples_per_s]
workloads: [megatron-2.5b]
engines:
  - {engine: exhaustive}
  - {engine: phaze-hysteresis, options: {level: 2}}
portfolios:
  - {name: exchange}
budget: {population: 32, generations: 400}
executor: {workers: 1}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phaze")
    (folder / "small.yaml").write_text(STUDY)
    output = folder / "out"
    run("study", "run", folder / "small.yaml", "-o", output, "-q")
    return output


def test_a_study_stores_the_proof_and_the_published_search_stays_below_it(results):
    tree = open_results(results)
    name = "phaze-megatron-2.5b-{}-exchange-s1"
    proof = tree[name.format("exhaustive")]
    report = json.loads(proof.attrs["engine_report"])
    assert report["complete"]
    assert sum(report["no_better_by"].values()) > 0
    best = float(proof["front"]["throughput_samples_per_s"].values.max())
    assert best <= report["proven_value"]["throughput_samples_per_s"] * (1 + 1e-12)
    published = tree[name.format("phaze-hysteresis")]
    assert float(published["front"]["throughput_samples_per_s"].values.max()) <= best
    assert json.loads(published.attrs["engine_report"])["level"] == 2


def test_designs_are_told_and_drawn(results, tmp_path):
    shown = run("front", "show", results, "--run", "*exhaustive*").stdout
    assert "vector cores" in shown
    for kind in ("layer", "pipeline"):
        picture = tmp_path / f"{kind}.png"
        run("plot", kind, results, "--run", "*exhaustive*", "--solution", "0", "-o", picture)
        assert picture.stat().st_size > 10_000
    done = run("plot", "layer", results, "--run", "*exhaustive*", "--model", "megatron", code=2)
    assert "megatron-2.5b" in done.output


def test_a_measured_training_run_is_listed_and_shown():
    listed = CliRunner().invoke(cli, ["workload", "list"])
    assert "sc21_t1_07" in listed.output
    shown = CliRunner().invoke(cli, ["workload", "show", "sc21_t1_07"])
    assert shown.exit_code == 0
    assert "24.8173658" in shown.output


def test_a_finished_study_tells_its_proof_and_names_a_picture_that_can_be_drawn(results):
    shown = run("study", "run", results.parent / "small.yaml", "-o", results).stdout
    assert re.search(r"^proof: optimal: \d+ of [\d,]+ designs evaluated", shown, re.MULTILINE)
    picture = re.search(r"mohsearch (plot (?!front|convergence)\w+) ", shown).group(1)
    assert picture == "plot pipeline"
