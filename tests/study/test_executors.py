"""Genomes evaluated elsewhere: the same results, whatever dies, raises, hangs or is no number."""

import json
import os
import signal
import threading
from concurrent.futures import Future

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.study import run_study
from mohsearch.study.dask_workers import scheduler_of
from mohsearch.study.evaluation import CHUNK_S, LocalWorkers, Workers, chunk_rows
from mohsearch.study.evaluation_process import Outcome, Recipe
from mohsearch.study.executor import start_workers
from mohsearch.study.failures import WORST, EvaluationFailed, WorkersLost, going_on
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


def test_workers_find_the_poisoned_genomes_and_evaluate_all_others(recipe, begin):
    made, problem = recipe(poison="raise")
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
def test_a_genome_that_kills_hangs_or_is_no_number_is_named(recipe, begin, poison, reason, limit_s):
    made, problem = recipe(limit_s=limit_s, poison=poison)
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


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("runs", 2),
        ("evaluations", 1),
        ("evaluations", 4),
        pytest.param("runs", 4, marks=pytest.mark.slow),
        pytest.param("evaluations", 2, marks=pytest.mark.slow),
    ],
)
def test_a_study_is_the_same_however_many_workers_evaluate(
    study, tmp_path, content_of, kind, workers
):
    run_study(study(seeds=2), tmp_path / "here")
    divided = study(seeds=2, executor={"kind": kind})
    run_study(divided, tmp_path / "there", workers=workers)
    assert content_of(tmp_path / "there") == content_of(tmp_path / "here")


def test_others_are_evaluated_once_where_one_genome_fails(recipe, begin):
    made, problem = recipe(poison="raise")
    rows = np.random.default_rng(1).integers(0, 2, (24, problem.n_var))
    rows[5] = 1
    workers = begin(made, 2)
    sent, given_up = [], []
    evaluate = going_on(
        lambda X: sent.append(len(X)) or workers.metrics(X),
        problem,
        lambda x, why: given_up.append(x.tolist()),
    )
    metrics = evaluate(rows)
    assert sent == [24]
    assert given_up == [rows[5].tolist()]
    expected = problem.compute(rows)
    good = np.arange(24) != 5
    for name, column in metrics.items():
        assert np.array_equal(column[good], expected[name][good])
        assert abs(column[5]) == WORST


def test_a_killed_process_is_replaced_and_its_genomes_are_evaluated(recipe, begin):
    made, problem = recipe(delay_s=0.8)
    rows = np.random.default_rng(1).integers(0, 2, (16, problem.n_var))
    workers = begin(made, 2)
    workers.metrics(rows[:4])
    killed = workers.pids()[0]
    killer = threading.Timer(0.3, os.kill, (killed, signal.SIGKILL))
    killer.start()
    metrics = workers.metrics(rows)
    assert killed not in workers.pids()
    expected = problem.compute(rows)
    assert all(np.array_equal(metrics[name], expected[name]) for name in expected)


@pytest.mark.parametrize("rows", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("workers", [1, 2, 5, 1000])
def test_cheap_genomes_go_in_one_chunk_a_worker_and_costly_ones_in_four(rows, workers):
    def chunks(row_s, **more):
        return -(-rows // chunk_rows(rows, workers, row_s, more.pop("limit_s", None), **more))

    assert chunks(None) == chunks(1e-9) <= workers
    assert chunks(1e9) <= max(4 * workers, 1)
    if rows >= 100 * workers:
        assert chunks(None) == workers
        assert chunks(1e9) == chunks(None, careful=True) == chunks(None, limit_s=1.0)
        assert chunks(1e9) == 4 * workers
    # a chunk takes a quarter of the limit or is a single genome
    size = chunk_rows(rows, workers, 0.01, 0.4)
    assert size == 1 or size * 0.01 <= 0.1
    assert chunks(1e9, limit_s=1.0) == rows
    assert chunks(1.0, limit_s=5e-324) == rows


class _Noted(Workers):
    """Workers that evaluate at once, take a given time for each genome, and note the chunks."""

    def __init__(self, recipe, row_s):
        super().__init__(recipe, 2)
        self.row_s = row_s
        self.chunks = []

    def submit(self, rows):
        future = Future()
        self.chunks.append(len(rows))
        metrics = {"sum": rows.sum(axis=1).astype(float)}
        future.set_result(Outcome(metrics, seconds=self.row_s * len(rows)))
        return future

    def close(self):
        pass


def test_what_earlier_generations_took_says_how_large_chunks_are(recipe):
    made, _ = recipe()
    workers = _Noted(made, CHUNK_S / 10)
    rows = np.arange(160).reshape(80, 2)
    expected = rows.sum(axis=1)
    for sizes in ([40, 40], [10] * 8):  # nothing is known; a chunk of 40 took 8 s
        workers.chunks.clear()
        assert np.array_equal(workers.metrics(rows)["sum"], expected)
        assert workers.chunks == sizes
    workers.row_s = 0.0
    for sizes in ([10] * 8, [40, 40]):
        workers.chunks.clear()
        assert np.array_equal(workers.metrics(rows)["sum"], expected)
        assert workers.chunks == sizes


def test_processes_tell_how_long_a_chunk_took_once_their_code_is_loaded(recipe, begin):
    made, problem = recipe(delay_s=0.05)
    workers = begin(made, 1)
    rows = np.random.default_rng(1).integers(0, 2, (24, problem.n_var))
    workers.metrics(rows)
    assert workers._row_s is None
    workers.metrics(rows)
    assert workers._row_s >= 0.05 / len(rows)


def test_workers_that_die_before_they_have_the_problem_end_the_run_and_blame_no_genome(
    recipe, begin, rows, monkeypatch
):
    made, problem = recipe()
    monkeypatch.setattr("mohsearch.study.evaluation_process._CODE", "raise SystemExit(3)")
    workers = begin(made, 1)
    with pytest.raises(WorkersLost, match="dies before it has built the problem"):
        workers.metrics(rows[:, : problem.n_var])


def test_processes_end_with_whoever_started_them(recipe, begin):
    made, problem = recipe()
    workers = begin(made, 1)
    workers.metrics(np.zeros((2, problem.n_var), int))
    (pid,) = workers.pids()
    evaluator = workers._evaluators[0]
    evaluator._connection.close()  # what the end of this process would do
    assert evaluator._process.wait(timeout=30) == 0
    assert pid


def test_a_worker_with_another_problem_refuses_to_work(recipe, rows):
    made, problem = recipe()
    other = LocalWorkers(Recipe(made.study, made.key, None, "another"), 1)
    try:
        with pytest.raises(WorkersLost, match="differs from the study's"):
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
