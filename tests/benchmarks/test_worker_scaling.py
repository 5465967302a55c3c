"""What workers gain and what they cost: local processes and Dask, cheap and costly evaluations.

Prints evaluations per second with 1, 2 and 4 workers beside those of this process alone, and what
one task (a chunk of genomes) costs: latency, processor time of the client (with Dask the scheduler
runs there too) and of the workers' side.
"""

import os
import statistics
import time

import numpy as np
import pytest
import yaml

from mohsearch.operators.portfolio import load_portfolio
from mohsearch.study import load_study
from mohsearch.study.evaluation_process import Recipe
from mohsearch.study.executor import start_workers
from mohsearch.study.objects import build_problem
from mohsearch.study.plan import plan_study

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
psutil = pytest.importorskip("psutil")

_CHIPLET = {"chips": 4, "genome": "labels", "fidelity": "hardware"}
_DEEPFLOW = {"devices": 64, "mapping": "searched"}
CASES = {
    "chiplet own_ae 4096": (_CHIPLET, "own_ae", 4096),
    "deepflow lm_tiny 192": (_DEEPFLOW, "lm_tiny", 192),
    "deepflow lm_tiny 1536": (_DEEPFLOW, "lm_tiny", 1536),
}
ROUNDS, TASKS = 5, 30


def processor_s(process):
    """Return processor seconds of a process and all below it."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            used = one.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system
    return total


def measured(evaluate, rows, rounds):
    """Return median wall seconds of a call, and processor seconds here and in all processes."""
    here = psutil.Process()
    before, all_before = time.process_time(), processor_s(here)
    walls = []
    for _ in range(rounds):
        began = time.perf_counter()
        evaluate(rows)
        walls.append(time.perf_counter() - began)
    cpu, everywhere = time.process_time() - before, processor_s(here) - all_before
    return statistics.median(walls), cpu / rounds, everywhere / rounds


@pytest.mark.parametrize("case", CASES)
def test_evaluations_per_second_by_workers(case, tmp_path, capsys):
    def say(line):
        with capsys.disabled():
            print(line, flush=True)

    options, workload, count = CASES[case]
    slug = case.split()[0]
    card = {
        "name": "scaling",
        "title": "Scaling",
        "problems": [{"name": slug, "options": options}],
        "workloads": [workload],
        "portfolios": [{"name": load_portfolio(slug).name, "skip_inapplicable": True}],
        "budget": {"population": 2, "generations": 1},
    }
    (tmp_path / "scaling.yaml").write_text(yaml.safe_dump(card))
    loaded = load_study(tmp_path / "scaling.yaml")
    key = plan_study(loaded).runs[0].key
    problem = build_problem(loaded, key)
    portfolio = load_portfolio(slug).applicable(problem).build(problem)
    rows = portfolio.sampling._do(problem, count, random_state=np.random.default_rng(1))
    expected = problem.metrics(rows)
    wall, cpu, _ = measured(problem.metrics, rows, ROUNDS)
    say(f"\n{case} genomes at once, median of {ROUNDS}; load {os.getloadavg()[0]:.1f}")
    say(f"here          {count / wall:12,.0f}/s {1e3 * cpu / count:10.4f} CPU-ms a genome")
    alone = cpu
    for kind in ("evaluations", "dask"):
        for workers in (1, 2, 4):
            entry = loaded.spec.executor.model_copy(update={"kind": kind})
            spec = loaded.spec.model_copy(update={"executor": entry})
            made = type(loaded)(spec, loaded.source, loaded.catalog)
            pool = start_workers(Recipe(made, key, None, problem.digest()), workers)
            try:
                for _ in range(3):  # code is loaded, every worker has its problem and is timed
                    found = pool.metrics(rows)
                for name, column in expected.items():
                    assert np.array_equal(found[name], column)
                wall, _, total = measured(pool.metrics, rows, ROUNDS)
                each = measured(pool.metrics, rows[:1], TASKS)
            finally:
                pool.close()
            say(
                f"{kind:11} {workers} {count / wall:12,.0f}/s"
                f" {1e3 * total / count:10.4f} CPU-ms a genome,"
                f" x{total / alone:.2f} of here; one genome: {1e3 * each[0]:.1f} ms,"
                f" CPU-ms client {1e3 * each[1]:.2f}, all {1e3 * each[2]:.2f}"
            )
