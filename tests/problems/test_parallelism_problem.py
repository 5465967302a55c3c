"""The parallelism problem: every configuration, the measured ones marked, wrong input refused."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.training_door import evaluate
from mohsearch.evaluators.training_time.parallel_grid import GENES
from mohsearch.operators.parallelism_variation import neighbours
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.parallelism import build
from mohsearch.problems.parallelism_runs import load_run, measured_runs_file, run_names

MEASURED = {"degrees": "measured", "techniques": "measured"}


def fastest(problem):
    X = problem.designs()
    values = problem.metrics(X)
    time = np.where(values["memory_excess_bytes"] > 0, np.inf, values["iteration_s"])
    return X[time.argmin()], float(time.min())


def test_a_measured_run_is_predicted_as_the_evaluator_predicts_it(tmp_path):
    table = evaluate(measured_runs_file())
    by_id = {row["id"]: row for row in table.rows}
    for name in run_names():
        row, seconds = fastest(build(MEASURED, name))
        assert seconds == pytest.approx(by_id[name]["predicted_s"], rel=1e-12)
        design = build(MEASURED, name).decode(row)
        assert design["microbatch"] == by_id[name]["microbatch"]
        assert design["run"]["error"] == pytest.approx(by_id[name]["error"], rel=1e-9)
        assert design["remark"] == "as measured"


def test_every_configuration_that_runs_is_in_the_grid_and_no_other():
    """The oracle: all combinations written out, each held against the rules of the CSV reader."""
    problem = build({"microbatches": [1, 3], "virtual_stages": [1, 2, 5]}, "sc21_t1_07")
    record = dict(load_run("sc21_t1_07").record)
    listed = set()
    for row in problem.designs():
        one = [int(problem.grid.values(row[None], k)[0]) for k in range(len(GENES))]
        listed.add((*one[:2], int(problem.grid.replicas(row[None])[0]), *one[2:]))
    devices, layers, batch = 8 * 8 * 24, int(record["layers"]), int(record["gbs"])
    expected = set()
    degrees = [
        (t, p, devices // (t * p))
        for t, p in itertools.product((1, 2, 4, 8), range(1, layers + 1))
        if layers % p == 0 and devices % (t * p) == 0
    ]
    for (t, p, d), b, v, mode, along in itertools.product(
        degrees, (1, 3), (1, 2, 5), (0, 1, 2), (0, 1)
    ):
        whole = batch % (b * d) == 0 and (t > 1 or not along)
        rounds = v == 1 or (p > 1 and layers % (p * v) == 0 and batch // (b * d) % p == 0)
        if whole and rounds:
            expected.add((t, p, d, b, v, mode, along))
    assert {tuple(map(int, one)) for one in listed} == expected


def test_more_freedom_never_makes_the_fastest_configuration_slower():
    for name in ("korth_t5_3", "sc21_t1_10"):
        times = [
            fastest(build(options, name))[1]
            for options in (MEASURED, {"techniques": "measured"}, {})
        ]
        assert times[0] >= times[1] >= times[2]


def test_what_a_device_cannot_hold_violates_a_constraint():
    problem = build({}, "sc21_t1_10")
    values = problem.metrics(problem.designs())
    room = problem.cluster.device.memory_bytes
    over = values["memory_bytes"] > room
    assert over.any()
    assert not over.all()
    np.testing.assert_array_equal(over, values["memory_excess_bytes"] > 0)


def test_a_configuration_that_does_not_divide_violates_a_constraint():
    problem = build({}, "korth_t5_1")
    every = np.indices(problem.grid.shape).reshape(len(GENES), -1).T
    values = problem.metrics(every)
    np.testing.assert_array_equal(values["indivisible"] == 0, problem.grid.is_valid(every))
    assert values["indivisible"].any()
    broken = every[np.flatnonzero(values["indivisible"])[0]]
    assert problem.decode(broken)["prediction"] is None


def test_a_model_needs_devices_and_a_batch_and_has_no_measured_configuration():
    problem = build({"devices": 1024, "global_batch": 1536}, "gpt3-175b")
    assert len(problem.designs()) > 100
    design = problem.decode(problem.designs()[0])
    assert design["run"]["measured_s"] is None
    assert design["remark"] == "not measured"
    json.dumps(design)
    with pytest.raises(InputError, match="global_batch: missing"):
        build({"devices": 64}, "gpt3-175b")
    with pytest.raises(InputError, match="degrees: gpt3-175b is a model"):
        build({"devices": 64, "global_batch": 64, **MEASURED}, "gpt3-175b")


def test_a_row_of_the_users_own_file_is_a_workload(tmp_path):
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow("id,hidden,layers,heads,tp,pp,dp,gbs,mbs,measured_iter_s".split(","))
        writer.writerow(["ours", 4096, 32, 32, 4, 2, 8, 256, 2, 12.5])
    problem = build(MEASURED, f"{path}#ours")
    (row,) = problem.designs()
    assert problem.decode(row)["run"]["measured_s"] == 12.5
    with pytest.raises(UnknownNameError, match=r"mine\.csv 'theirs'.*available: ours"):
        build({}, f"{path}#theirs")
    with pytest.raises(InputError, match="no such file"):
        build({}, f"{tmp_path / 'none.csv'}#ours")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "selena"}, "did you mean 'selene'"),
        ({"devices": 63}, "no combination"),
        ({"devices": 32, "degrees": "measured"}, "devices: the measured run has 64"),
        ({"tensor": [0]}, "greater than or equal to 1"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(options, message):
    with pytest.raises(InputError, match=message):
        build(options, "korth_t5_3")


def test_an_unknown_name_lists_runs_and_models():
    with pytest.raises(UnknownNameError, match="did you mean 'korth_t5_3'"):
        build({}, "korth_t5_33")


def test_no_configuration_is_faster_than_its_products_alone():
    for options in ({}, {"attention": "flash"}):
        problem = build(options, "korth_t5_5")
        values = problem.metrics(problem.designs())
        assert values["iteration_s"].min() > problem.ideal_point()["iteration_s"]


def test_variation_returns_configurations_that_run_and_neighbours_differ_where_they_may():
    problem = build({}, "sc21_t1_05")
    rng = np.random.default_rng(3)
    made = load_portfolio("parallelism").build(problem)
    X = made.sampling(problem, 40, random_state=rng).get("X")
    assert problem.grid.is_valid(X).all()
    assert len(np.unique(X, axis=0)) > 20
    for genes in ((0, 1), (2, 3), (4, 5)):
        near = neighbours(problem.grid, X[0], genes)
        others = [k for k in range(len(GENES)) if k not in genes]
        assert (near[:, others] == X[0, others]).all()
        assert (near != X[0]).any(axis=1).all()
