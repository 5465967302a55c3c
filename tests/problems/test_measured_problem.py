"""The problem measured: every point with its error, the accuracy of all, wrong input refused."""

from __future__ import annotations

import numpy as np
import pytest

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.tables import read_records
from mohsearch.evaluators.crossflow import kernel_door
from mohsearch.evaluators.crossflow.measured_points import kernels_file, load_points, set_names
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.measured import build

OVER_1_MS = {
    "vidur-products": (33, 0.036, 0.993, 0.274),
    "neusight-products": (1941, 0.107, 0.996, 0.342),
    "deepbench-products": (351, 0.090, 0.989, 0.287),
}
"""Kernels, mean error, log-correlation and the roofline's error, as docs/crossflow.md has them."""


@pytest.mark.parametrize("name", OVER_1_MS)
def test_the_accuracy_of_products_over_1_ms_is_as_documented(name):
    problem = build({"at_least": 1.0}, name)
    total = problem.certificate()["accuracy"][-1]
    points, error, correlation, plain = OVER_1_MS[name]
    assert total["points"] == points == len(problem.designs())
    assert total["mean_error"] == pytest.approx(error, abs=0.0005)
    assert total["log_correlation"] == pytest.approx(correlation, abs=0.0005)
    assert total["roofline_mean_error"] == pytest.approx(plain, abs=0.0005)
    values = problem.metrics(problem.designs())
    assert values["error"].mean() == pytest.approx(total["mean_error"], rel=1e-12)
    by_hand = np.corrcoef(np.log(problem.points.predicted), np.log(problem.points.measured))
    assert total["log_correlation"] == pytest.approx(by_hand[0, 1], rel=1e-12)


def test_points_are_those_that_the_evaluator_predicts(tmp_path):
    rows = [row for row in read_records(kernels_file()) if row["set"] == "vidur-elementwise"]
    names = [name for name in rows[0] if name != "set"]
    path = tmp_path / "mine.csv"
    lines = [",".join(row[name] for name in names) for row in rows]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    table = kernel_door.evaluate(path).rows
    for workload in ("vidur-elementwise", str(path)):
        problem = build(None, workload)
        assert [problem.decode(x)["predicted"] for x in problem.designs()] == pytest.approx(
            [row["predicted_ms"] for row in table], rel=1e-12
        )


def test_groups_and_the_whole_account_for_every_point():
    problem = build(None, "neusight-elementwise")
    *groups, total = problem.certificate()["accuracy"]
    assert sum(row["points"] for row in groups) == total["points"] == 758
    mean = sum(row["points"] * row["mean_error"] for row in groups) / 758
    assert mean == pytest.approx(total["mean_error"], rel=1e-12)


def test_the_parts_of_a_die_are_compared_with_its_areas():
    problem = build(None, "die-A100")
    whole = problem.decode(problem.designs()[-1])
    assert (whole["part"], whole["unit"]) == ("whole die", "mm2")
    assert whole["measured"] == pytest.approx(822.72)
    assert whole["predicted"] / whole["measured"] == pytest.approx(0.991, abs=0.001)
    parts = [problem.decode(x) for x in problem.designs()[:-1]]
    assert sum(part["predicted"] for part in parts) == pytest.approx(whole["predicted"])
    assert sum(part["measured"] for part in parts) == pytest.approx(whole["measured"] - 40)


def test_moves_stay_in_the_set_and_near_ones_in_their_group():
    problem = build(None, "neusight-elementwise")
    variation = load_portfolio("measured").build(problem)
    rng = np.random.default_rng(0)
    X = np.asarray(variation.sampling._do(problem, 200, random_state=rng))
    near, other = (member for member, _ in variation.mutation.members)
    moved = near._do(problem, X, random_state=rng)
    assert np.array_equal(problem.groups[moved], problem.groups[X])
    assert (moved != X).all()
    far = other._do(problem, X, random_state=rng)
    assert (far != X).all()
    assert far.min() >= 0
    assert far.max() < 758


def test_what_does_not_exist_is_told(tmp_path):
    with pytest.raises(UnknownNameError, match="vidur-products"):
        load_points("vidur")
    with pytest.raises(InputError, match="no such file"):
        load_points("none.csv", base=tmp_path)
    with pytest.raises(InputError, match="above 1e"):
        build({"at_least": 1e9}, "vidur-products")
    with pytest.raises(UnknownNameError, match="V1000"):
        build({"devices": "V1000"}, "vidur-products")
    empty = tmp_path / "empty.csv"
    empty.write_text("gpu,op,M,N,K,measured_ms\na100,gemm,8,8,8,\n")
    with pytest.raises(InputError, match="no measured kernel"):
        load_points(str(empty))
    assert "die-H100" not in set_names()
