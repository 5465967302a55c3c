"""A Dask cluster on this machine: the same results, whatever dies, hangs or is no number."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.study import dask_workers, run_study
from mohsearch.study.evaluation_process import Recipe
from mohsearch.study.executor import start_workers
from mohsearch.study.failures import EvaluationFailed, WorkersLost
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import plan_study

distributed = pytest.importorskip("distributed")
PLUGIN = Path(__file__).resolve().parent.parent / "plugin"


@pytest.fixture(scope="module")
def cluster():
    """Two workers that know the plug-in; one that is killed comes back."""
    with pytest.MonkeyPatch.context() as patch:
        path = os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYTHONPATH", path)
        patch.syspath_prepend(str(PLUGIN))
        started = distributed.LocalCluster(
            host="127.0.0.1", n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
        with started:
            yield started


@pytest.fixture
def executor(cluster):
    """The cluster as a study names it."""
    return {"kind": f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"}


@pytest.fixture
def begin(study, executor):
    """Workers for the knapsack with options: ``begin(poison="raise")``; and the problem."""
    started = []

    def start(limit_s=None, **options):
        spec = study(
            problems=[{"name": "exact", "options": options}],
            executor=executor,
            evaluation={"limit_s": limit_s},
        )
        key = plan_study(spec).runs[0].key
        problem = build_problem(spec, key)
        started.append(start_workers(Recipe(spec, key, None, problem.digest()), 2))
        return started[-1], problem

    yield start
    for workers in started:
        workers.close()


def pids(cluster):
    """Process ids of the cluster's workers."""
    return [nanny.pid for nanny in cluster.workers.values() if nanny.pid is not None]


@pytest.mark.parametrize(
    ("poison", "reason", "limit_s"),
    [
        ("raise", "poisoned", None),
        ("nan", "is nan", None),
        ("die", "its worker died", None),
        ("hang", "longer than its limit of 1 s", 1.0),
    ],
)
def test_a_genome_that_raises_kills_hangs_or_is_no_number_is_named(
    begin, cluster, poison, reason, limit_s
):
    before = pids(cluster)
    workers, problem = begin(limit_s, poison=poison)
    rows = np.random.default_rng(1).integers(0, 2, (6, problem.n_var))
    rows[4] = 1
    workers.metrics(rows[:2])  # problem and code are loaded
    with pytest.raises(EvaluationFailed, match=reason) as failed:
        workers.metrics(rows)
    assert [genome.tolist() for genome, _ in failed.value.failures] == [rows[4].tolist()]
    good, expected = np.arange(6) != 4, problem.compute(rows)
    for name, column in failed.value.found.items():
        assert np.array_equal(column[good], expected[name][good])
    assert pids(cluster) == before, "a genome cost the cluster a worker"


def test_what_a_killed_worker_had_is_evaluated_by_another(begin, cluster):
    workers, problem = begin(delay_s=0.8)
    rows = np.random.default_rng(1).integers(0, 2, (16, problem.n_var))
    workers.metrics(rows[:4])
    killed = pids(cluster)[0]
    killer = threading.Timer(0.3, os.kill, (killed, signal.SIGKILL))
    killer.start()
    metrics = workers.metrics(rows)
    killer.join()
    expected = problem.compute(rows)
    assert all(np.array_equal(metrics[name], expected[name]) for name in expected)
    with pytest.raises(ProcessLookupError):
        os.kill(killed, 0)


def test_a_study_on_a_cluster_survives_the_death_of_a_worker(
    study, tmp_path, content_of, cluster, executor
):
    run_study(study(), tmp_path / "here")
    killed = []

    def kill_one(event):
        if event.kind == "generation" and not killed:
            killed.append(pids(cluster)[0])
            os.kill(killed[0], signal.SIGKILL)

    slow = [{"name": "exact", "options": {"delay_s": 0.02}}]
    remote = study(problems=slow, executor=executor)
    assert run_study(remote, tmp_path / "far", progress=kill_one).exit_code == 0
    assert killed
    far, here = (next(iter(content_of(tmp_path / p).values()))[2] for p in ("far", "here"))
    assert far == here


@pytest.mark.parametrize("workers", [pytest.param(w, marks=pytest.mark.slow) for w in (1, 2, 4)])
def test_a_study_is_the_same_on_a_cluster_of_any_size(study, tmp_path, content_of, workers):
    run_study(study(), tmp_path / "here")
    run_study(study(executor={"kind": "dask"}), tmp_path / "far", workers=workers)
    assert content_of(tmp_path / "far") == content_of(tmp_path / "here")


def test_a_cluster_without_workers_is_not_waited_for_for_ever(begin, monkeypatch):
    monkeypatch.setattr(dask_workers, "NO_WORKER_S", 0.2)
    monkeypatch.setattr(dask_workers, "LOOK_S", 0.1)
    workers, problem = begin(delay_s=1.0)
    monkeypatch.setattr(workers._client, "nthreads", dict)
    with pytest.raises(WorkersLost, match=r"no worker for 0\.2 s"):
        workers.metrics(np.zeros((4, problem.n_var), int))


def test_a_scheduler_that_does_not_answer_is_named(study, monkeypatch):
    monkeypatch.setattr(dask_workers, "CONNECT_S", 0.5)
    spec = study(executor={"kind": "dask://127.0.0.1:1"})
    key = plan_study(spec).runs[0].key
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        start_workers(Recipe(spec, key, None, "any"), 1)
