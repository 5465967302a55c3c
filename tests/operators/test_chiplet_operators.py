"""Operators of the chiplet search: valid children of every genome, and what each one changes."""

import numpy as np
import pytest

from mohsearch.operators import OPERATORS
from mohsearch.operators.chiplet_moves import merge_or_split, shift_boundaries
from mohsearch.operators.chiplet_mutation import ResetMutation
from mohsearch.operators.chiplet_sampling import ExactSeeds, GreedySeeds, SampledPartitions
from mohsearch.operators.portfolio import load_ladder, load_portfolio
from mohsearch.problems.chiplet import build
from mohsearch.testing.contracts import check_repeats

GENOMES = ("labels", "offsets", "segments", "keys")
NAMES = [name for name in OPERATORS.names() if name.startswith("chiplet-")]


@pytest.fixture(scope="module")
def problems():
    return {
        genome: build({"genome": genome, "chips": 5, "constraints": "chain"}, "own_dlrm")
        for genome in GENOMES
    }


def apply(name, problem, rng, count=20):
    operator = OPERATORS.load(name)()
    space = problem.space
    X = space.encode(space.sample(count, rng, prior="cuts"), rng)
    if hasattr(operator, "n_offsprings"):
        pairs = X.reshape(2, count // 2, -1)
        return operator._do(problem, pairs, random_state=rng).reshape(count, -1)
    if isinstance(operator, (SampledPartitions, ExactSeeds, GreedySeeds)):
        return operator._do(problem, count, random_state=rng)
    return operator._do(problem, X, random_state=rng)


@pytest.mark.parametrize("genome", GENOMES)
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_makes_valid_genomes_and_repeats_for_a_seed(problems, name, genome):
    problem = problems[genome]
    check_repeats(lambda seed: apply(name, problem, np.random.default_rng(seed)))
    children = apply(name, problem, np.random.default_rng(3))
    space = problem.space
    assert children.shape == (20, problem.n_var)
    assert ((children >= space.lower) & (children <= space.upper)).all()
    assert space.valid(space.partitions(children)).all()


@pytest.mark.parametrize("genome", GENOMES)
@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("mutation", "crossover"))])
def test_operators_leave_the_parents_alone_and_change_some_children(problems, name, genome):
    problem, rng = problems[genome], np.random.default_rng(5)
    operator = OPERATORS.load(name)()
    X = problem.space.encode(problem.space.sample(20, rng, prior="cuts"), rng)
    parents = X.reshape(2, 10, -1) if hasattr(operator, "n_offsprings") else X
    before = parents.copy()
    children = operator._do(problem, parents, random_state=rng)
    assert np.array_equal(parents, before)
    assert (children != parents).any(axis=-1).sum() >= 4


@pytest.mark.parametrize("constraints", ["chain", "ladder"])
def test_a_boundary_shift_moves_few_ops_by_one_chip(constraints):
    problem = build({"genome": "labels", "chips": 5, "constraints": constraints}, "own_tcn")
    rng = np.random.default_rng(1)
    before = problem.space.sample(50, rng, prior="cuts")
    after = before.copy()
    shift_boundaries(problem.space, after, rng)
    assert problem.space.valid(after).all()
    moved = after != before
    assert (np.abs(after - before) <= 1).all()
    assert (moved.sum(axis=1) <= 16).all()
    assert moved.any(axis=1).mean() > 0.5
    assert np.array_equal(after.max(axis=1), before.max(axis=1))


def test_merging_and_splitting_change_the_number_of_chips_by_one(problems):
    space = problems["labels"].space
    rng = np.random.default_rng(2)
    before = space.sample(60, rng, prior="cuts")
    after = before.copy()
    merge_or_split(space, after, rng)
    steps = after.max(axis=1) - before.max(axis=1)
    assert set(steps) <= {-1, 0, 1}
    assert {-1, 1} <= set(steps)
    assert (steps == 0).mean() < 0.2


def test_exact_seeds_start_with_the_best_and_go_on_with_copies(problems):
    problem = problems["labels"]
    rng = np.random.default_rng(0)
    count = len(problem.seeds) + 10
    X = ExactSeeds()._do(problem, count, random_state=rng)
    interval = problem.metrics(X)["interval_s"]
    assert interval[0] == problem.metrics(problem.seeds)["interval_s"].min()
    assert len(X) == count
    alone = ExactSeeds(copies=False)._do(problem, count, random_state=rng)
    assert len(np.unique(alone, axis=0)) == len(alone) == len(problem.seeds)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prior": "normal"}, "prior: 'normal'"),
        ({"order": "sorted"}, "order: 'sorted'"),
        ({"sigma": 0}, "sigma must be positive"),
    ],
)
def test_wrong_sampling_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SampledPartitions(**options)


def test_a_reset_needs_a_positive_number_of_genes():
    with pytest.raises(ValueError, match="positive"):
        ResetMutation(genes=0)


@pytest.mark.parametrize("ladder", ["ablation", "seeding"])
def test_every_step_of_a_ladder_can_start_a_search(problems, ladder):
    for step in load_ladder("chiplet", ladder):
        variation = step.build(problems["segments"])
        X = variation.sampling(problems["segments"], 6, random_state=np.random.default_rng(0))
        assert len(X) == 6


def test_no_operator_of_the_shelf_is_refused(problems):
    for problem in problems.values():
        assert load_portfolio("chiplet", "seeded").refusals(problem) == {}
