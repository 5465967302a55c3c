"""The SLURM cluster of docs/robustness.md, with a stand-in for `sbatch` that starts jobs here."""

import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from mohsearch.study.dask_workers import scheduler_of
from mohsearch.study.evaluation_process import Recipe
from mohsearch.study.executor import start_workers
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import plan_study

pytest.importorskip("dask_jobqueue")
PLUGIN = Path(__file__).resolve().parent.parent / "plugin"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "robustness.md"

SBATCH = """#!/bin/sh
# runs the job beside the caller instead of queueing it
cp "$1" "{folder}/job.sh"
nohup sh "{folder}/job.sh" > "{folder}/job.log" 2>&1 &
echo "$!" > "{folder}/job.pid"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
echo "$1" >> "{folder}/cancelled"
kill "$1"
"""


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A folder with `sbatch` and `scancel` on the path; what they did is written there."""
    folder = tmp_path / "queue"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    return folder


def documented():
    """Return the Python code of the page that starts a SLURM cluster."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "SLURMCluster" in block]
    return code


def test_the_documented_cluster_asks_slurm_for_what_it_says_and_evaluates(queue, study, capsys):
    small = documented()
    for wanted, here in (
        ("cores=8", "cores=1"),
        ("processes=8", "processes=1"),
        ("jobs=4", "jobs=1"),
        ('"ib0"', '"lo"'),
    ):
        assert wanted in small
        small = small.replace(wanted, here)
    names = {}
    exec(compile(small, str(PAGE), "exec"), names)
    cluster = names["cluster"]
    try:
        executor = capsys.readouterr().out.split()[-1]
        assert scheduler_of(executor) == cluster.scheduler_address
        script = cluster.job_script()
        for line in (
            r"#SBATCH --cpus-per-task=1",
            r"#SBATCH --mem=15G",
            r"#SBATCH -t 02:00:00",
            r"python\S* -m distributed\.cli\.dask_worker tcp://\S+ .*--nthreads 1",
        ):
            assert re.search(line, script), script
        spec = study(executor={"kind": executor})
        key = plan_study(spec).runs[0].key
        problem = build_problem(spec, key)
        cluster.wait_for_workers(1, timeout=60)
        workers = start_workers(Recipe(spec, key, None, problem.digest()), 1)
        try:
            rows = np.random.default_rng(1).integers(0, 2, (12, problem.n_var))
            found, expected = workers.metrics(rows), problem.compute(rows)
        finally:
            workers.close()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    finally:
        cluster.close()
    assert (queue / "cancelled").read_text().split() == (queue / "job.pid").read_text().split()


def test_the_documented_job_has_a_worker_for_each_core(queue, monkeypatch):
    import dask_jobqueue

    monkeypatch.setattr(dask_jobqueue.SLURMCluster, "scale", lambda self, *_, **__: None)
    names = {}
    exec(compile(documented().replace('"ib0"', '"lo"'), str(PAGE), "exec"), names)
    cluster = names["cluster"]
    try:
        script = cluster.job_script()
    finally:
        cluster.close()
    assert "--nworkers 8" in script
    assert "--nthreads 1" in script
    assert "#SBATCH --cpus-per-task=8" in script
