"""Genomes evaluated elsewhere: the same results, whatever dies, raises, hangs or is no number."""

import json
import os

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.study import run_study
from mohsearch.study.dask_workers import scheduler_of
from mohsearch.study.evaluation import (
    WORST,
    EvaluationFailed,
    LocalWorkers,
    Recipe,
    going_on,
)
from mohsearch.study.executor import start_workers
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import plan_study


@pytest.fixture
def recipe(study):
    """Recipe of the knapsack with options, and the problem: ``recipe(poison="raise")``."""

    def make(kind="evaluations", limit_s=None, **options):
        spec = study(
            problems=[{"name": "exact", "options": options}],
            executor={"kind": kind},
            evaluation={"limit_s": limit_s},
        )
        key = plan_study(spec).runs[0].key
        problem = build_problem(spec, key)
        return Recipe(spec, key, None, problem.digest()), problem

    return make


@pytest.fixture
def rows():
    return np.random.default_rng(1).integers(0, 2, (24, 14))


@pytest.fixture
def begin():
    """Start workers that are ended with the test."""
    started = []

    def start(recipe, count):
        started.append(start_workers(recipe, count))
        return started[-1]

    yield start
    for workers in started:
        workers.close()


@pytest.mark.parametrize("kind", ["evaluations", pytest.param("dask", marks=pytest.mark.slow)])
def test_workers_find_the_poisoned_genomes_and_evaluate_all_others(recipe, begin, kind):
    made, problem = recipe(kind, poison="raise")
    rows = np.random.default_rng(1).integers(0, 2, (24, problem.n_var))
    rows[5] = rows[17] = 1
    workers = begin(made, 2)
    with pytest.raises(EvaluationFailed, match="poisoned") as failed:
        workers.metrics(rows)
    assert [genome.tolist() for genome, _ in failed.value.failures] == [rows[5].tolist()] * 2
    good = np.delete(rows, [5, 17], axis=0)
    expected = problem.compute(good)
    for name, column in workers.metrics(good).items():
        assert np.array_equal(column, expected[name])


@pytest.mark.parametrize(
    ("poison", "reason", "limit_s"),
    [
        ("nan", "is nan", None),
        ("die", "its worker died", None),
        ("hang", "longer than its limit", 1.0),
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["evaluations", "dask"])
def test_a_genome_that_kills_hangs_or_is_no_number_is_named(
    recipe, begin, kind, poison, reason, limit_s
):
    if (kind, poison) == ("dask", "hang"):
        pytest.skip("Dask takes minutes to hand the genome from one ended worker to the next")
    made, problem = recipe(kind, limit_s, poison=poison)
    rows = np.random.default_rng(1).integers(0, 2, (6, problem.n_var))
    rows[4] = 1
    workers = begin(made, 2)
    workers.metrics(rows[:2])  # the problem is built
    with pytest.raises(EvaluationFailed, match=reason) as failed:
        workers.metrics(rows)
    assert [genome.tolist() for genome, _ in failed.value.failures] == [rows[4].tolist()]


@pytest.mark.parametrize("poison", ["raise", "nan"])
def test_a_study_goes_on_past_poisoned_genomes_where_it_is_told_to(study, tmp_path, poison):
    problems = [{"name": "exact", "options": {"poison": poison, "poison_bits": 9}}]
    go_on = study(problems=problems, evaluation={"on_failure": "go-on"})
    assert run_study(go_on, tmp_path / "on").exit_code == 0
    lines = (tmp_path / "on" / "failures.jsonl").read_text().splitlines()
    assert lines
    for line in map(json.loads, lines):
        assert sum(line["genome"]) >= 9
        assert "poisoned" in line["reason"] or "is nan" in line["reason"]
    stop = study(problems=problems)
    assert run_study(stop, tmp_path / "stop").exit_code == 1
    (line,) = {*(tmp_path / "stop" / "failures.jsonl").read_text().splitlines()[:1]}
    assert sum(json.loads(line)["genome"]) >= 9


def test_a_genome_given_up_has_the_worst_values_there_are(recipe):
    _, problem = recipe(poison="raise")
    given_up = []
    evaluate = going_on(problem.metrics, problem, lambda x, why: given_up.append((x, why)))
    rows = np.zeros((3, problem.n_var), dtype=int)
    rows[1] = 1
    metrics = evaluate(rows)
    assert metrics["profit_a"].tolist()[1] == -WORST
    assert metrics["excess_weight"].tolist()[1] == metrics["weight"].tolist()[1] == WORST
    assert [why for _, why in given_up] == ["RuntimeError: poisoned"]


def test_a_study_is_the_same_however_many_workers_evaluate(study, tmp_path, content_of):
    run_study(study(), tmp_path / "here")
    divided = study(executor={"kind": "evaluations"})
    run_study(divided, tmp_path / "two", workers=2)
    assert content_of(tmp_path / "two") == content_of(tmp_path / "here")


@pytest.mark.slow
def test_a_study_on_a_dask_cluster_survives_the_death_of_a_worker(study, tmp_path, content_of):
    from distributed import LocalCluster

    run_study(study(), tmp_path / "here")
    problems = [{"name": "exact", "options": {"delay_s": 0.05}}]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        killed = []

        def kill_one(event):
            if event.kind == "generation" and not killed:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], 9)

        remote = study(problems=problems, executor={"kind": f"dask://{address}"})
        assert run_study(remote, tmp_path / "far", progress=kill_one).exit_code == 0
    assert killed
    far, here = (next(iter(content_of(tmp_path / p).values()))[2] for p in ("far", "here"))
    assert far == here


def test_a_worker_with_another_problem_refuses_to_work(recipe, rows):
    made, problem = recipe()
    other = LocalWorkers(Recipe(made.study, made.key, None, "another"), 1)
    try:
        with pytest.raises(Exception, match="differs from the study's"):
            other.metrics(rows[:, : problem.n_var])
    finally:
        other.close()


def test_a_limit_without_workers_that_can_be_ended_is_refused(study, tmp_path):
    with pytest.raises(InputError, match=r"evaluation\.limit_s: a limit needs workers"):
        run_study(study(evaluation={"limit_s": 1.0}), tmp_path / "out")


@pytest.mark.parametrize("text", ["dask:/x:1", "dask://", "dask://host", "ray", "dask://h:p"])
def test_a_wrong_executor_is_refused(text, study):
    with pytest.raises(InputError, match="no executor"):
        scheduler_of(text)
    with pytest.raises(InputError, match="kind"):
        study(executor={"kind": text})
