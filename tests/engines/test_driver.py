"""The driver: ledger, replay, failures and the end of a search."""

import numpy as np
import pytest

from mohsearch.engines.convergence import Convergence
from mohsearch.engines.driver import EvaluationError, Recorded, ReplayError


def run(made, recorded=None):
    return list(made.generations(recorded))


def record(made, generations, count):
    """What a store would hold after ``count`` generations."""
    distinct = np.array([g.distinct for g in generations[:count]])
    stop = distinct[-1]
    return Recorded(
        genomes=made.archive.genomes[:stop].copy(),
        metrics={k: v[:stop].copy() for k, v in made.archive.metrics.items()},
        evaluations=np.array([g.evaluations for g in generations[:count]]),
        distinct=distinct,
        wall_s=10.0,
        cpu_s=5.0,
    )


def test_the_budget_is_population_times_generations(cases, search):
    made = search(cases.Knapsack(), population=24, generations=7)
    generations = run(made)
    assert [g.number for g in generations] == list(range(7))
    assert generations[-1].evaluations == 24 * 7 == made.problem.computed
    assert made.stopped == "budget"


@pytest.mark.parametrize("engine", ["pymoo", "array", "random"])
def test_no_genome_is_evaluated_twice(cases, search, engine):
    made = search(cases.Assignment(), engine=engine, population=30, generations=20)
    generations = run(made)
    assert made.problem.computed == len(made.archive) == generations[-1].distinct
    assert len({row.tobytes() for row in made.archive.genomes}) == len(made.archive)


def test_moead_spends_its_whole_budget_on_genomes_it_has_not_seen(cases, search):
    """15 directions for a population of 20: five subproblems have a second child."""
    made = search(cases.Accelerators(), algorithm="moead", population=20, generations=12)
    generations = run(made)
    assert len(generations[0].population) == 15
    assert generations[-1].evaluations == 20 * 12
    assert generations[-1].distinct == made.problem.computed == 20 * 12


def test_moead_gives_each_subproblem_a_child_of_its_own_neighbours(cases, search, operators):
    """Without crossover and mutation a child is one of its parents, and these are neighbours."""
    made = search(cases.Assignment(), algorithm="moead", population=120, generations=2)
    next(made.generations())
    algorithm = made.engine._algorithm
    algorithm.selection.prob.set(1.0)
    algorithm.mating.crossover.prob.set(0.0)
    algorithm.mating.mutation.prob.set(0.0)
    places = np.arange(len(algorithm.pop))
    children = algorithm._children(places)
    known = algorithm.pop.get("X")
    for place, child in zip(places, children, strict=True):
        assert (known[algorithm.neighbors[place]] == child).all(axis=1).any()


def test_the_population_consists_of_archive_members_of_its_size(cases, search):
    made = search(cases.Knapsack(), population=24, generations=6)
    for generation in made.generations():
        assert len(generation.population) == 24
        assert generation.population.min() >= 0
        assert generation.population.max() < generation.distinct


def test_the_archive_keeps_natural_signs_and_hands_on_minimised_ones(cases, search):
    made = search(cases.Knapsack(), generations=2)
    run(made)
    profits = made.archive.metrics["profit_a"]
    assert (profits >= 0).all()
    assert np.array_equal(made.archive.objectives()[:, 0], -profits)


@pytest.mark.parametrize("engine", ["pymoo", "array", "deap", "optuna", "random"])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_replayed_search_continues_bit_for_bit(cases, search, engine, count):
    whole = search(cases.Assignment(), engine=engine, population=20, generations=9)
    generations = run(whole)
    again = search(cases.Assignment(), engine=engine, population=20, generations=9)
    resumed = run(again, record(whole, generations, count))
    assert [g.replayed for g in resumed] == [True] * count + [False] * (9 - count)
    assert again.problem.computed == whole.problem.computed - generations[count - 1].distinct
    assert np.array_equal(again.archive.genomes, whole.archive.genomes)
    for name, column in whole.archive.metrics.items():
        assert np.array_equal(again.archive.metrics[name], column)
    for one, other in zip(generations, resumed, strict=True):
        assert np.array_equal(one.population, other.population)
    assert resumed[-1].wall_s >= 10.0
    assert resumed[-1].cpu_s >= 5.0


def test_a_record_of_another_search_is_refused(cases, search):
    whole = search(cases.Knapsack(), seed=1)
    recorded = record(whole, run(whole), 3)
    with pytest.raises(ReplayError, match="generation 0 does not repeat"):
        run(search(cases.Knapsack(), seed=2), recorded)


def test_a_value_that_is_no_number_ends_the_search(cases, search):
    problem = cases.Knapsack(options=cases.Options(nan_at=45))
    made = search(problem, population=20)
    generations = made.generations()
    assert [next(generations).number for _ in range(2)] == [0, 1]
    with pytest.raises(EvaluationError, match="metric 'profit_a' is nan for genome"):
        next(generations)


def test_a_metric_of_wrong_length_is_named(cases, search):
    problem = cases.Knapsack()
    problem.compute = lambda X: {
        **dict.fromkeys(("profit_b", "weight", "excess_weight"), np.zeros(len(X))),
        "profit_a": np.zeros(3),
    }
    with pytest.raises(EvaluationError, match=r"'profit_a' has shape \(3,\) for 20 genomes"):
        run(search(problem))


def test_convergence_ends_a_search_before_its_budget(cases, search):
    rule = Convergence(window=5, tolerance=0.05)
    made = search(cases.Accelerators(), population=20, generations=45, convergence=rule)
    generations = run(made)
    assert made.stopped == "converged"
    assert 5 <= len(generations) < 45
    crowding = [g.largest_crowding for g in generations]
    assert np.std(crowding[-5:]) <= 0.05
    assert not rule.reached(crowding[:-1])


@pytest.mark.parametrize("engine", ["pymoo", "array", "deap", "optuna", "random"])
def test_a_seed_repeats_and_another_differs_without_touching_global_state(cases, search, engine):
    from mohsearch.testing.contracts import check_repeats

    def genomes(seed):
        made = search(cases.Assignment(), engine=engine, generations=4, seed=seed)
        run(made)
        return made.archive.genomes

    check_repeats(genomes)
