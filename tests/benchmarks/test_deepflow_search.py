"""CPU seconds of the paper's search beside the authors' program, and what others find."""

import numpy as np
import pytest

from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.deepflow import build

PROGRAM_CPU_S = 1360.0
"""CPU seconds of one start of 100 steps of GD_search.py (566c192) on a core of an AMD EPYC."""
AUTHORS = {
    "compat": "deepflow", "memory_limit": "ignored", "inter_derate": 1.0, "devices": 8,
    "strategies": "d8", "chip_area_mm2": 930,
}  # fmt: skip


def search(problem, engine, portfolio, population, generations, **options):
    archive = Archive(problem)
    made = make_engine(
        ENGINES.load(engine),
        problem,
        load_portfolio("deepflow", portfolio).applicable(problem).build(problem),
        population=population,
        seed=1,
        seen=archive.index,
        options=options,
    )
    run = Search(problem, made, archive, Budget(population, generations))
    evaluations = [generation.evaluations for generation in run.generations()][-1]
    return evaluations, float(archive.metrics["time_s"][archive.front()[0]])


@pytest.mark.benchmark
def test_ten_starts_of_a_hundred_steps(benchmark, capsys):
    problem = build(AUTHORS, "lm_wide", objectives=["time_s"])
    problem.metrics(problem.box().genomes(problem.box().start[None]))
    evaluations, best = benchmark.pedantic(
        search, (problem, "deepflow-gradient", "authors-starts", 150, 101), rounds=3
    )
    seconds = benchmark.stats.stats.min
    with capsys.disabled():
        print(
            f"\nS = 10, T = 100: {evaluations} evaluations in {seconds:.2f} s,"
            f" {10 * PROGRAM_CPU_S / seconds:,.0f} times the authors' program; best {best:.5f} s"
        )
    assert evaluations > 15_000


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("engine", "portfolio", "options"),
    [
        ("deepflow-gradient", "authors-starts", {"starts": 1}),
        ("cma", "fractions", {}),
        ("array", "fractions", {}),
        ("random", "fractions", {}),
    ],
)
def test_sixteen_hundred_evaluations(benchmark, capsys, engine, portfolio, options):
    problem = build(AUTHORS, "lm_wide", objectives=["time_s"])
    problem.metrics(problem.box().genomes(problem.box().start[None]))
    evaluations, best = benchmark.pedantic(
        search, (problem, engine, portfolio, 16, 100), options, rounds=3
    )
    with capsys.disabled():
        print(f"\n{engine}: {evaluations} evaluations, best {best:.5f} s")
    assert np.isfinite(best)


@pytest.mark.benchmark
def test_operators_on_a_population_of_250(benchmark, capsys):
    problem = build(
        {"devices": 512, "logic": ["N12", "N7", "N5"], "tdp_w": [100, 700], "mapping": "searched"},
        "lm_tiny",
    )
    variation = load_portfolio("deepflow").applicable(problem).build(problem)
    rng = np.random.default_rng(0)
    X = variation.sampling._do(problem, 250, random_state=rng)

    def generation():
        pairs = X.reshape(2, 125, -1)
        children = variation.crossover._do(problem, pairs, random_state=rng)
        return variation.mutation._do(problem, children.reshape(250, -1), random_state=rng)

    children = benchmark(generation)
    assert problem.space.is_valid(children).all()
    with capsys.disabled():
        print(f"\none generation of 250 children: {benchmark.stats.stats.min * 1e3:.2f} ms")
