"""Engines against fronts known by complete enumeration."""

import moocore
import numpy as np
import pytest

from mohsearch.engines import ENGINES
from mohsearch.problems.base import (
    BudgetCard,
    MetricCard,
    ProblemCard,
    SearchProblem,
)

CASES = ("knapsack", "assignment", "accelerators")


def found_share(cases, search):
    """Run a search; return its front's share of the exact hypervolume."""
    for _ in search.generations():
        pass
    data = cases.DATA[search.problem.slug]
    F = search.archive.objectives(search.archive.front())
    return moocore.hypervolume(F, ref=data["reference_point"]) / data["hypervolume"]


@pytest.mark.parametrize("case", ["assignment", "accelerators"])
def test_the_stored_front_is_what_enumeration_finds(cases, case):
    problem = cases.PROBLEMS[case]()
    values = problem.compute(problem.enumerate())
    F = np.column_stack([values[m.name] for m in problem.objective_cards]) * problem.signs
    front = moocore.filter_dominated(F)
    assert sorted(map(tuple, front)) == sorted(map(tuple, problem.exact_front))


@pytest.mark.parametrize("engine", ["pymoo", "array"])
@pytest.mark.parametrize(
    ("case", "population", "generations", "share"),
    [("knapsack", 40, 60, 0.97), ("assignment", 30, 30, 0.95), ("accelerators", 20, 20, 0.95)],
)
def test_nsga2_nearly_reaches_the_exact_front(
    cases, search, engine, case, population, generations, share
):
    """With less evaluations than the space has points: 0.2 %, 18 % and 39 % of them."""
    shares = [
        found_share(
            cases,
            search(
                cases.PROBLEMS[case](),
                engine=engine,
                population=population,
                generations=generations,
                seed=seed,
            ),
        )
        for seed in (1, 2, 3)
    ]
    assert np.median(shares) >= share
    assert max(shares) <= 1 + 1e-12


@pytest.mark.parametrize(
    "algorithm",
    [
        "nsga3",
        "unsga3",
        "sms-emoa",
        pytest.param("age-moea2", marks=pytest.mark.slow),  # compiles for ten seconds
        "moead",
    ],
)
def test_every_multi_objective_algorithm_comes_near_the_exact_front(cases, search, algorithm):
    made = search(cases.Assignment(), algorithm=algorithm, population=30, generations=30)
    assert found_share(cases, made) >= 0.9


@pytest.mark.parametrize(("engine", "least"), [("deap", 0.95), ("optuna", 0.9)])
def test_other_libraries_nsga2_come_near_the_exact_front(cases, search, engine, least):
    made = search(cases.Assignment(), engine=engine, population=30, generations=30)
    assert found_share(cases, made) >= least
    assert len(made.archive) == 900, "no genome twice"


class Portions(SearchProblem):
    """Two amounts and waste: the less the better, but the amounts make twelve together."""

    permutation = False

    def __init__(self):
        loads = [
            MetricCard(name=n, unit="1", sense="min", description=n) for n in ("left", "right")
        ]
        card = ProblemCard(
            slug="portions",
            title="portions",
            description="two amounts with a lower limit on their sum",
            reference="this test",
            variables=(),
            metrics=tuple(loads),
            constraints=(
                MetricCard(name="short", unit="1", sense="min", description="missing from 12"),
            ),
            objectives=("left", "right"),
            budget=BudgetCard(population=20, generations=20),
        )
        super().__init__(card, np.zeros(3, dtype=int), np.full(3, 15))

    def metrics(self, X):
        a, b, waste = np.asarray(X, dtype=float).T
        return {"left": a + 2 * waste, "right": b + waste, "short": 12 - a - b}

    def decode(self, x):
        return {"portions": x.tolist()}

    def digest(self):
        return "portions"


CONSTRAINED = [
    ("array", "nsga2"),
    ("deap", "nsga2"),
    ("deap", "spea2"),
    ("optuna", "nsgaii"),
    ("optuna", "nsgaiii"),
    ("pymoo", "nsga2"),
    ("pymoo", "sms-emoa"),
    pytest.param("pymoo", "age-moea2", marks=pytest.mark.slow),  # compiles for ten seconds
]


@pytest.mark.parametrize(("engine", "algorithm"), CONSTRAINED)
def test_algorithms_with_constraints_end_on_the_constrained_front(cases, search, engine, algorithm):
    """4,096 points, 13 of them the front; without the constraint it would be (0, 0) alone."""
    made = search(Portions(), engine=engine, algorithm=algorithm, population=20, generations=30)
    generations = list(made.generations())
    assert (made.archive.constraints() > 0).any(), "some are infeasible on the way"
    if engine != "optuna":  # whose population is what it asked for last
        assert (made.archive.constraints(generations[-1].population) <= 0).all()
    front = made.archive.objectives(made.archive.front())
    exact = np.array([(a, 12.0 - a) for a in range(13)])
    reference = np.full(2, 13.0)
    found = moocore.hypervolume(front, ref=reference)
    assert front.sum(axis=1).min() == 12.0
    assert 0.9 <= found / moocore.hypervolume(exact, ref=reference) <= 1.0


def test_every_algorithm_with_constraints_is_in_that_test():
    """TPE, GP and QMC go by Optuna's rules, which have a test of their own."""
    rows = {getattr(case, "values", case) for case in CONSTRAINED}
    general = {"array", "deap", "optuna", "pymoo"}
    gene_by_gene = {"tpe", "gp", "qmc", "random"}
    for name in general:
        for algorithm, can in ENGINES.load(name).algorithms.items():
            if can.constraints and can.max_objectives != 1 and algorithm not in gene_by_gene:
                assert (name, algorithm) in rows


@pytest.mark.parametrize(
    ("algorithm", "generations"),
    [pytest.param("tpe", 5, marks=pytest.mark.slow), ("random", 12), ("qmc", 12)],
)
def test_optunas_samplers_search_genes_that_vary_freely(cases, search, algorithm, generations):
    made = search(
        cases.Accelerators(),
        engine="optuna",
        algorithm=algorithm,
        population=20,
        generations=generations,
    )
    assert found_share(cases, made) >= 0.7


def test_search_beats_random_draws_at_equal_evaluations(cases, search):
    better = 0
    for seed in (1, 2, 3):
        arguments = {"population": 40, "generations": 60, "seed": seed}
        nsga2 = found_share(cases, search(cases.Knapsack(), **arguments))
        drawn = found_share(cases, search(cases.Knapsack(), engine="random", **arguments))
        better += nsga2 > drawn
    assert better == 3


@pytest.mark.parametrize("engine", ["pymoo", "array", "random"])
def test_the_whole_space_is_found_when_the_budget_allows(cases, search, engine):
    """1,024 points, each evaluated once: then the engine has nothing left to ask."""
    made = search(cases.Accelerators(), engine=engine, population=32, generations=64)
    share = found_share(cases, made)
    assert made.stopped == "exhausted" or len(made.archive) >= 1000
    assert share == pytest.approx(1.0)
    assert made.problem.computed == len(made.archive) <= 1024


@pytest.mark.parametrize(
    ("algorithm", "metric", "best"), [("ga", "latency", 69.0), ("nsga2", "energy", 191.0)]
)
def test_a_single_objective_finds_its_least_value(cases, search, algorithm, metric, best):
    problem = cases.Accelerators(objectives=[metric])
    made = search(problem, algorithm=algorithm, population=20, generations=25)
    for _ in made.generations():
        pass
    front = made.archive.front()
    assert len(front) == 1
    assert made.archive.metrics[metric][front[0]] == best


def test_constraints_are_respected_in_the_front(cases, search):
    made = search(cases.Knapsack(), population=30, generations=20)
    for _ in made.generations():
        pass
    metrics = made.archive.metrics
    assert (metrics["excess_weight"] > 0).any(), "some infeasible rows are evaluated"
    assert (metrics["excess_weight"][made.archive.front()] <= 0).all()
