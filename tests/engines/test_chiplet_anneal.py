"""Annealing of partitions: the contract, an optimum known by enumeration, clear refusals."""

import itertools

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.engines.archive import Archive
from mohsearch.engines.chiplet_anneal import AnnealEngine
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.chiplet import build
from mohsearch.testing.contracts import check_engine


def search(algorithm, seed, *, chips=3, budget=(8, 4), options=None, **problem_options):
    given = {"chips": chips, "genome": "labels", "constraints": "chain", **problem_options}
    problem = build(given, "own_ae", objectives=["interval_s"])
    archive = Archive(problem)
    engine = make_engine(
        AnnealEngine, problem, load_portfolio("chiplet", "uniform").build(problem),
        algorithm=algorithm, options=options, population=budget[0], seed=seed, seen=archive.index,
    )  # fmt: skip
    return Search(problem, engine, archive, Budget(*budget))


@pytest.mark.parametrize("algorithm", ["distribution", "labels"])
def test_annealing_keeps_the_engine_contract(algorithm):
    check_engine(lambda seed: search(algorithm, seed))


def test_a_generation_holds_as_many_samples_as_the_population():
    run = search("labels", 1, budget=(10, 3))
    assert [g.evaluations for g in run.generations()] == [10, 20, 30]


def best_cut_s(problem):
    cuts = [
        np.searchsorted(c, np.arange(16), side="right")
        for k in range(3)
        for c in itertools.combinations(range(1, 16), k)
    ]
    return problem.costs(np.array(cuts))["interval_s"].min()


@pytest.mark.parametrize(
    "options", [{"share": 0.15}, {"share": 0.15, "step": "neighbour", "order": "changed-first"}]
)
def test_annealing_labels_finds_the_best_cut_of_a_chain(options):
    run = search("labels", 2, budget=(20, 40), options=options)
    for _ in run.generations():
        pass
    found = run.archive.metrics["interval_s"].min()
    assert found <= best_cut_s(run.problem) * 1.02


def test_annealing_improves_on_its_first_sample_and_only_accepts_what_it_was_told():
    run = search("distribution", 3, budget=(20, 15))
    for _ in run.generations():
        pass
    values = run.archive.metrics["interval_s"]
    assert values.min() < values[0]
    accepted = run.engine.population()
    assert (run.archive.ids(run.archive.index.keys(accepted)) >= 0).all()


def test_nothing_infeasible_is_accepted_once_something_feasible_is():
    run = search("labels", 1, budget=(20, 15), sram_mb=1.6, options={"share": 0.2})
    feasible = False
    for _ in run.generations():
        ids = run.archive.ids(run.archive.index.keys(run.engine.population()))
        now = bool((run.archive.constraints(ids) <= 0).all())
        assert now or not feasible
        feasible = now
    excess = run.archive.metrics["memory_excess"]
    assert feasible
    assert (excess > 0).any()


def test_other_genomes_and_several_objectives_are_refused():
    with pytest.raises(InputError, match="needs the problem chiplet with the option genome"):
        search("labels", 1, genome="segments")
    problem = build({"chips": 3, "genome": "labels"}, "own_ae")
    with pytest.raises(InputError, match="at most 1 objectives"):
        make_engine(
            AnnealEngine, problem, load_portfolio("chiplet").build(problem), population=4, seed=1,
            seen=Archive(problem).index,
        )  # fmt: skip
