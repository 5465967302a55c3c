"""What engines refuse, and how they say it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.cards import validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.engines import ENGINES
from mohsearch.engines.directions import reference_directions
from mohsearch.engines.engine import Engine, check_capabilities
from mohsearch.study.plan import Study, plan_study
from mohsearch.study.spec import StudySpec


@pytest.mark.parametrize("name", ENGINES.names())
def test_every_engine_declares_its_algorithms(name):
    engine = ENGINES.load(name)
    assert issubclass(engine, Engine)
    assert engine.default_algorithm in engine.algorithms
    for can in engine.algorithms.values():
        assert can.summary
        assert set(can.operators) <= {"sampling", "crossover", "mutation"}
        assert can.max_objectives is None or can.max_objectives >= can.min_objectives


@pytest.mark.parametrize(
    ("algorithm", "objectives", "constraints", "message"),
    [
        ("sms-emoa", 4, 0, "takes at most 3 objectives, got 4; able: nsga2"),
        ("nsga3", 1, 0, "needs at least 2 objectives, got 1; able: nsga2, ga"),
        ("nsga3", 3, 1, "does not respect constraints"),
        ("ga", 2, 0, "takes at most 1 objectives, got 2"),
    ],
)
def test_an_unfit_algorithm_is_refused_with_those_that_fit(
    algorithm, objectives, constraints, message
):
    with pytest.raises(InputError, match=message):
        check_capabilities(
            "pymoo",
            ENGINES.load("pymoo"),
            algorithm,
            objectives=objectives,
            constraints=constraints,
        )


def test_an_unknown_algorithm_is_answered_with_those_that_exist():
    with pytest.raises(UnknownNameError, match=r"did you mean 'nsga3'.*nsga2"):
        check_capabilities("pymoo", ENGINES.load("pymoo"), "nsgaii", objectives=2, constraints=0)


def test_a_portfolio_without_a_needed_operator_is_refused(cases, search, operators):
    with pytest.raises(InputError, match="needs a portfolio with: mutation"):
        search(
            cases.Knapsack(),
            portfolio=SimpleNamespace(sampling=operators.sampling, crossover=operators.crossover),
        )


class Newcomers:
    """A fifth of each generation, as a portfolio's immigrants."""

    def __init__(self, sampling):
        self.sampling = sampling
        self.drawn = 0

    def count(self, population):
        self.drawn += 1
        return population // 5


@pytest.mark.parametrize("engine", ["pymoo", "array", "optuna"])
def test_immigrants_take_the_place_of_offspring_after_the_first_generation(
    cases, search, operators, engine
):
    newcomers = Newcomers(operators.sampling)
    portfolio = SimpleNamespace(**{**vars(operators), "immigrants": newcomers})
    made = search(
        cases.Assignment(), engine=engine, portfolio=portfolio, population=20, generations=5
    )
    plain = search(cases.Assignment(), engine=engine, population=20, generations=5)
    last, plain_last = list(made.generations())[-1], list(plain.generations())[-1]
    assert newcomers.drawn == 4
    assert last.evaluations == plain_last.evaluations == 100
    assert np.array_equal(made.archive.genomes[:20], plain.archive.genomes[:20])
    assert not np.array_equal(made.archive.genomes[20:40], plain.archive.genomes[20:40])


def test_an_algorithm_without_immigrants_refuses_a_portfolio_that_has_some(
    cases, search, operators
):
    portfolio = SimpleNamespace(**{**vars(operators), "immigrants": Newcomers(operators.sampling)})
    with pytest.raises(InputError, match="'moead' takes no immigrants"):
        search(cases.Assignment(), algorithm="moead", portfolio=portfolio)


def test_reference_directions_are_as_many_as_fit():
    for most in (3, 10, 91, 250):
        directions = reference_directions(3, most)
        assert len(directions) <= most
        assert np.allclose(directions.sum(axis=1), 1)
    assert len(reference_directions(2, 250)) == 250
    with pytest.raises(InputError, match="population of 2 is too small"):
        reference_directions(3, 2)


def test_options_of_an_engine_are_validated(cases, search):
    with pytest.raises(InputError, match="no such field"):
        search(cases.Knapsack(), options={"immigrant": 3})


@pytest.mark.parametrize("limited", [True, False])
def test_a_study_without_the_constraint_may_use_methods_that_know_none(limited):
    content = {
        "name": "free",
        "title": "free",
        "problems": [{"name": "chiplet", "options": {"memory_limit": limited}}],
        "workloads": ["tv_resnet50"],
        "engines": [{"algorithm": "nsga3"}],
        "portfolios": [{"name": "cold"}],
        "seeds": 1,
        "budget": {"population": 12, "generations": 2},
    }
    study = Study(validate(StudySpec, content), Path("free.yaml"), Catalog())
    if limited:
        with pytest.raises(InputError, match="does not respect constraints"):
            plan_study(study)
    else:
        assert len(plan_study(study).runs) == 1
