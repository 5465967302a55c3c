"""A chiplet study from file to table and pictures."""

import pytest

from tests.command_line import run

STUDY = """
name: small
title: A small chiplet study
problems:
  - name: chiplet
    label: analytic
    options: {genome: labels, chips: 3, constraints: chain, memory_limit: false}
    objectives: [interval_s]
  - name: chiplet
    label: hardware
    options: {genome: labels, chips: 3, constraints: chain, memory_limit: false, fidelity: hardware}
    objectives: [interval_s]
    portfolios: [prior]
workloads: [own_ae]
engines:
  - {engine: random, label: random}
  - {engine: chiplet-anneal, algorithm: labels, label: anneal, portfolios: [uniform]}
portfolios:
  - {name: prior}
  - {name: uniform}
seeds: 2
budget: {population: 10, generations: 3}
executor: {workers: 1}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chiplet")
    (folder / "small.yaml").write_text(STUDY)
    output = folder / "out"
    run("study", "run", folder / "small.yaml", "-o", output, "-q")
    return output


def test_samples_print_a_table_and_draw_a_picture(results, tmp_path):
    picture = tmp_path / "samples.png"
    done = run("plot", "samples", results, "--run", "analytic", "--at", "10,30", "--threshold",
               "1.1", "--csv", "-o", picture)  # fmt: skip
    header, *rows = done.stdout.splitlines()
    assert header.startswith("contender,seeds,interval_s@10,sd@10,interval_s@30,sd@30,gap")
    assert "equal-time>=1.1" in header
    assert len([r for r in rows if "random" in r or "anneal" in r]) == 3
    assert picture.stat().st_size > 10_000


def test_samples_say_nothing_about_what_was_not_sampled(results, tmp_path):
    done = run("plot", "samples", results, "--at", "10,300,1000", "--csv", "--run", "analytic",
               "-o", tmp_path / "s.png")  # fmt: skip
    header = done.stdout.splitlines()[0]
    assert "interval_s@30" in header
    assert "@300" not in header
    assert "the longest run has 30 samples" in done.stderr


def test_correlation_tells_pearsons_r_of_each_pair(results, tmp_path):
    done = run("plot", "correlation", results, "-o", tmp_path / "c.png")
    assert done.stderr.count("Pearson R") == 2


def test_a_partition_is_drawn_from_the_results(results, tmp_path):
    picture = tmp_path / "p.png"
    run("plot", "partition", results, "--run", "analytic*anneal*s1", "--solution", "0",
               "-o", picture)  # fmt: skip
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize("text", ["10,many", "0", "-5", "inf", "nan", "1.5", ","])
def test_numbers_that_are_none_are_one_error(results, text):
    done = run("plot", "samples", results, "--at", text, code=2)
    assert "--at" in done.output
    assert "Traceback" not in done.output
