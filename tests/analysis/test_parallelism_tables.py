"""Errors of predicted runs and the gain of the best configuration, from a study's results."""

import pytest
from click.testing import CliRunner

from mohsearch.analysis import published_tables
from mohsearch.cli.main import cli

STUDY = """
name: two_runs
title: Two measured runs
problems:
  - name: parallelism
    label: as-measured
    options: {degrees: measured, techniques: measured}
    objectives: [iteration_s]
  - name: parallelism
    label: free
    options: {virtual_stages: [1, 3]}
    objectives: [iteration_s]
workloads: [korth_t5_3, korth_t5_6]
engines: [{engine: exhaustive}]
portfolios: [{name: degrees, skip_inapplicable: true}]
budget: {population: 4096, generations: 4}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallelism")
    (folder / "two_runs.yaml").write_text(STUDY)
    run = ["study", "run", str(folder / "two_runs.yaml"), "-q", "--workers", "1"]
    done = CliRunner().invoke(cli, [*run, "-o", str(folder / "out")])
    assert done.exit_code == 0, done.output
    return folder / "out"


def test_the_error_of_every_run_stands_beside_the_peers(results):
    shown = CliRunner().invoke(cli, ["tables", str(results)]).output
    # Predictions and peer as `mohsearch evaluate training` gives them; measured: Korthikanti et al.
    assert "| korthikanti_table5 | 2 | 1.3% | 2.3% | +1.3% | 4.7% | 8.9% |" in shown
    assert "| 18.13 | 18.55 | +2.3% | -0.6% |" in shown
    assert "| 37.83 | 37.93 | +0.3% | -8.9% |" in shown


def test_the_best_configuration_stands_beside_the_measured_one(results):
    shown = CliRunner().invoke(cli, ["tables", str(results)]).output
    lines = [line for line in shown.splitlines() if line.startswith("| korth")]
    first, second = lines[-2:]
    assert first.startswith("| korth_t5_3 | 18.55 |")
    assert "sequence parallel" in first
    assert second.endswith("| 0.0% | the measured one |")


def test_results_without_a_published_table_are_refused(results, monkeypatch):
    monkeypatch.setattr(published_tables, "MAKERS", {"phaze": list})
    shown = CliRunner().invoke(cli, ["tables", str(results)])
    assert shown.exit_code == 2
    assert "no published table is made of these runs (problem parallelism)" in shown.output
