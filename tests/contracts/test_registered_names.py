"""Whatever is registered keeps the promises of its interface."""

import json
from pathlib import Path

import numpy as np
import pytest

from mohsearch.core.catalog import Catalog
from mohsearch.engines import ENGINES
from mohsearch.evaluators import EVALUATORS
from mohsearch.operators import OPERATORS
from mohsearch.operators.portfolio import describe_portfolios, load_ladder, load_portfolio
from mohsearch.problems import PROBLEM_OPTIONS, PROBLEMS
from mohsearch.problems.base import SearchProblem
from mohsearch.study import load_study, plan_study
from mohsearch.testing.contracts import ContractError, check_problem, check_repeats


def test_every_problem_keeps_its_promises(problem: SearchProblem) -> None:
    variation = load_portfolio(problem.card.slug).build(problem)
    X = variation.sampling(problem, 12, random_state=np.random.default_rng(4)).get("X")
    check_problem(problem, np.asarray(X))


def test_every_problem_has_options_and_a_portfolio(problem: SearchProblem) -> None:
    schema = PROBLEM_OPTIONS.load(problem.card.slug).model_json_schema()
    undescribed = [n for n, p in schema["properties"].items() if not p.get("description")]
    assert undescribed == []
    assert describe_portfolios(problem.card.slug, Catalog())


def test_sampling_of_every_portfolio_repeats_for_a_seed(problem: SearchProblem) -> None:
    slug = problem.card.slug
    for row in describe_portfolios(slug, Catalog()):
        if row["kind"] == "ladder":
            assert all(step.operators for step in load_ladder(slug, row["name"]))
            continue
        portfolio = load_portfolio(slug, row["name"])
        if portfolio.refusals(problem):
            portfolio = portfolio.applicable(problem)
        sampling = portfolio.build(problem).sampling

        def draw(seed: int, sampling=sampling):
            rng = np.random.default_rng(seed)
            return np.asarray(sampling(problem, 20, random_state=rng).get("X"))

        check_repeats(draw)


@pytest.mark.parametrize("registry", [ENGINES, EVALUATORS, OPERATORS, PROBLEMS])
def test_every_registered_name_loads_and_is_documented(registry) -> None:
    for name in registry.names():
        thing = registry.load(name)
        assert callable(thing)
        assert (thing.__doc__ or "").strip(), f"{registry.kind} {name} has no docstring"


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "studies").glob("*.yaml")))
def test_every_bundled_study_plans(path: Path) -> None:
    study = load_study(path.stem)
    assert study.spec.name == path.stem
    assert plan_study(study)


def test_a_broken_promise_is_named(problem: SearchProblem) -> None:
    X = (
        load_portfolio(problem.card.slug)
        .build(problem)
        .sampling(problem, 4, random_state=np.random.default_rng(0))
    )
    original = problem.metrics

    def forgetful(genomes):
        values = original(genomes)
        values.pop(problem.card.metrics[0].name)
        return values

    problem.metrics = forgetful  # type: ignore[method-assign]
    try:
        with pytest.raises(ContractError, match="metrics missing"):
            check_problem(problem, np.asarray(X.get("X")))
    finally:
        problem.metrics = original  # type: ignore[method-assign]


def test_designs_name_what_pictures_need(problem: SearchProblem) -> None:
    if problem.card.slug != "moham":
        pytest.skip("only moham has a schedule")
    rng = np.random.default_rng(1)
    x = np.asarray(
        load_portfolio("moham").build(problem).sampling(problem, 1, random_state=rng).get("X")
    )[0]
    design = json.loads(json.dumps(problem.decode(x)))
    assert {"package", "instances", "layers"} <= set(design)
    ids = {instance["id"] for instance in design["instances"]}
    assert all(layer["instance"] in ids for layer in design["layers"])
    assert all(layer["start_s"] <= layer["end_s"] for layer in design["layers"])
