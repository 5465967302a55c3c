"""Every algorithm of every engine on every problem: kept promises, or a clear refusal."""

import pytest

from mohsearch.core.errors import InputError, MissingExtraError
from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems import PROBLEMS
from mohsearch.testing.contracts import check_engine

POPULATION, GENERATIONS = 8, 3
HEAVY = {
    ("pymoo", "age-moea2"),  # compiles for ten seconds
    ("optuna", "gp"),  # imports torch, fits a Gaussian process for each evaluation
}
EVERY_ALGORITHM_ON = "moham"
"""Elsewhere only the first algorithm of an engine runs in the quick suite; the rest are slow."""


def cells():
    for problem in PROBLEMS.names():
        for name in ENGINES.names():
            engine = ENGINES.load(name)
            for algorithm in engine.algorithms:
                first = algorithm == engine.default_algorithm
                quick = first or problem == EVERY_ALGORITHM_ON
                slow = not quick or (name, algorithm) in HEAVY
                marks = [pytest.mark.slow] if slow else []
                label = f"{problem}-{name}-{algorithm}"
                yield pytest.param(problem, name, algorithm, id=label, marks=marks)


@pytest.fixture(scope="session")
def variation(problem):
    """The problem's default portfolio, as far as it applies."""
    return load_portfolio(problem.card.slug).applicable(problem).build(problem)


@pytest.mark.parametrize(("problem", "name", "algorithm"), list(cells()), indirect=["problem"])
def test_an_engine_keeps_its_promises_or_refuses_the_problem(problem, variation, name, algorithm):
    # The Gaussian process takes over after ten evaluations and needs seconds for each.
    population, generations = (6, 2) if algorithm == "gp" else (POPULATION, GENERATIONS)

    def build(seed):
        archive = Archive(problem)
        engine = make_engine(
            ENGINES.load(name),
            problem,
            variation,
            algorithm=algorithm,
            population=population,
            seed=seed,
            seen=archive.index,
            evaluations=population * generations,
        )
        return Search(problem, engine, archive, Budget(population, generations))

    refusal = None
    try:
        build(1)
    except MissingExtraError as error:
        pytest.skip(str(error))
    except InputError as error:
        refusal = str(error)
    if refusal is None:
        check_engine(build)
    else:
        assert algorithm in refusal or name in refusal
