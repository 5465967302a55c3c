"""Speed of the moham operators at paper scale, beside pymoo's own integer operators."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.operators import OPERATORS
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.testing.moham import random_genomes, random_space

pytestmark = pytest.mark.benchmark

MATINGS = 125
ALL = [n for n in OPERATORS.names() if n.endswith(("-crossover", "-mutation")) and "keys" not in n]


@pytest.fixture(scope="module")
def problem() -> SimpleNamespace:
    """About 400 layers and 16 slots, as the paper's larger workloads."""
    space = random_space(
        np.random.default_rng(3), layers=400, unique=60, max_instances=16, networks=5, most=20
    )
    return SimpleNamespace(space=space, n_var=space.n_var, xl=space.lower, xu=space.upper)


@pytest.fixture(scope="module")
def genomes(problem) -> np.ndarray:
    return random_genomes(problem.space, np.random.default_rng(4), 2 * MATINGS)


def generation(problem, genomes, operators, rng) -> Callable[[], np.ndarray]:
    """All operators once on every mating and child, whatever their probability."""
    pairs = genomes.reshape(2, MATINGS, -1)

    def run() -> np.ndarray:
        children = pairs
        for operator in operators:
            if hasattr(operator, "n_parents"):
                children = operator._do(problem, children, random_state=rng)
        children = children.reshape(genomes.shape)
        for operator in operators:
            if not hasattr(operator, "n_parents"):
                children = operator._do(problem, children, random_state=rng)
        return children

    return run


def cpu_ms(run: Callable[[], object], repeats: int = 10) -> float:
    run()
    begin = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - begin) / repeats * 1e3


def test_all_ten_operators_on_every_mating_of_a_generation(benchmark, problem, genomes):
    rng = np.random.default_rng(5)
    run = generation(problem, genomes, [OPERATORS.load(name)() for name in ALL], rng)
    children = benchmark(run)
    assert len(ALL) == 10
    assert problem.space.is_valid(children).all()
    generic = [OPERATORS.load("moham-keys-crossover")(), OPERATORS.load("moham-keys-mutation")()]
    peer = cpu_ms(generation(problem, genomes, generic, rng))
    own = cpu_ms(run)
    print(f"\nten operators: {own:.2f} CPU-ms; SBX and PM with repair: {peer:.2f} CPU-ms")
    print(f"ratio: {peer / own:.1f}")


@pytest.mark.parametrize("name", ["paper", "paper-per-layer", "artifact", "generic"])
def test_one_generation_of_a_portfolio(benchmark, problem, genomes, name):
    rng = np.random.default_rng(6)
    variation = load_portfolio("moham", name).build(problem)
    run = generation(problem, genomes, [variation.crossover, variation.mutation], rng)
    assert problem.space.is_valid(benchmark(run)).all()
    print(f"\n{name}: {cpu_ms(run):.2f} CPU-ms per generation of {2 * MATINGS}")


@pytest.mark.parametrize("name", ["moham-random", "moham-seeds"])
def test_a_first_population(benchmark, problem, name):
    rng = np.random.default_rng(7)
    sampling = OPERATORS.load(name)()
    X = benchmark(lambda: sampling._do(problem, 250, random_state=rng))
    assert problem.space.is_valid(X).all()
