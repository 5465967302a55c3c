"""The training search: placements of uniform chains, bounds of all accelerators, the proof."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine
from mohsearch.evaluators.device_placement.solver import place
from mohsearch.evaluators.training_search import Setting
from mohsearch.evaluators.uniform_placement import place_uniform
from mohsearch.problems.phaze import build

pytestmark = pytest.mark.benchmark


def spent(function, *arguments):
    begin = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - begin


def test_uniform_placements_beside_the_general_program(capsys):
    problem = build({"published_widths": True}, "gpt3-175b")
    search, setting = problem.searches[0], Setting(1, 80 * 2**30, "full")
    machines = problem.grid.architectures(problem.grid.accelerators[::300])
    tables = search.tables(machines, setting)
    chain = search.model.chain(1, "full")
    forward = np.stack([t.forward_s for t in tables.lower], axis=1)
    backward = np.stack([t.backward_s for t in tables.lower], axis=1)
    cluster = search.cluster.cluster(1)
    memory, modes = np.full(len(forward), 80.0 * 2**30), np.ones(len(forward), dtype=bool)
    arguments = (chain, cluster, forward, backward, memory, modes)
    place_uniform(*arguments)
    plans, fast = spent(place_uniform, *arguments)
    problems = [cluster.problem(chain, forward[i], backward[i], memory[i], True) for i in range(4)]
    place(problems[0])
    general, slow = spent(lambda: [place(one) for one in problems])
    fast, slow = fast / len(forward), slow / len(problems)
    with capsys.disabled():
        print(
            f"\n98 layers, 1024 devices, two widths: {1e6 * fast:.0f} us, general program "
            f"{1e6 * slow:.0f} us, ratio {slow / fast:.0f}"
        )
    for one, plan in zip(general, plans.time_s, strict=False):
        assert plan == pytest.approx(one.time_per_batch_s, rel=1e-12)
    assert slow > 10 * fast


def test_bounds_of_all_accelerators(capsys):
    problem = build({}, "bert-large")
    search, setting = problem.searches[0], Setting(1, 80 * 2**30, "none")
    machines = problem.grid.architectures(problem.grid.accelerators)
    search.tables(machines.take(np.arange(10)), setting)
    tables, placed = spent(search.tables, machines, setting)
    _, rough = spent(search.roofline, machines, setting)
    _, plans = spent(search.optimistic, tables, setting)
    with capsys.disabled():
        print(
            f"\n29,360 accelerators, 4 widths: costs and schedule bounds {placed:.1f} CPU-s, "
            f"rooflines {rough:.1f}, placements {plans:.1f}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert-large", "llama2-7b", "gpt3-175b"])
def test_the_proof_over_the_whole_space(model, capsys):
    problem = build({}, model, objectives=["throughput_samples_per_s"])
    archive = Archive(problem)

    def prove():
        engine = make_engine(
            ENGINES.load("exhaustive"),
            problem,
            SimpleNamespace(),
            population=64,
            seed=1,
            seen=archive.index,
        )
        list(Search(problem, engine, archive, Budget(64, 20_000)).generations())
        return engine.report()

    report, seconds = spent(prove)
    best = archive.metrics["throughput_samples_per_s"].max()
    with capsys.disabled():
        print(f"\n{model}: {best:.6g} samples/s proven in {seconds:.0f} CPU-s, {report}")
    assert report["complete"]
    assert best <= report["proven_value"]["throughput_samples_per_s"] * (1 + 1e-12)
