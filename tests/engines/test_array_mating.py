"""pymoo's mating on arrays: the same children as pymoo's own."""

import copy

import numpy as np
import pytest
from pymoo.algorithms.moo.nsga2 import NSGA2, binary_tournament
from pymoo.core.crossover import Crossover
from pymoo.core.individual import Individual
from pymoo.core.mating import Mating
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.operators.crossover.pntx import TwoPointCrossover

from mohsearch.engines.array_mating import ArrayMating, dominance_tournament, on_arrays
from mohsearch.engines.duplicates import GenomeIndex, SeenElimination
from mohsearch.engines.rows import Row, genomes, population_of, set_values

GENES = 6


class Shift(Mutation):
    """Adds one to a gene of every row, in place: what a careless operator does."""

    def _do(self, problem, X, random_state=None, **_):
        X[np.arange(len(X)), random_state.integers(0, GENES, len(X))] += 1
        return X


class Algorithm:
    tournament_type = "comp_by_dom_and_crowding"


class Problem:
    n_var = GENES


def parents(rng, count=20, constraints=0):
    """A population as NSGA-II's survival leaves it, with ties of every kind."""
    X = rng.integers(0, 4, (count, GENES))
    F = rng.integers(0, 4, (count, 2)).astype(float)
    G = rng.integers(-2, 3, (count, constraints)).astype(float)
    rank, crowding = rng.integers(0, 3, count), rng.choice([0.5, 1.0, np.inf], count)
    ours = population_of(X)
    set_values(ours, F, G)
    theirs = Population.new("X", X, "F", F, "G", G)
    for population in (ours, theirs):
        population.set("rank", rank, "crowding", crowding)
    return ours, theirs


def mating(index, crossover, mutation):
    algorithm = NSGA2(
        crossover=crossover, mutation=mutation, eliminate_duplicates=SeenElimination(index)
    )
    return algorithm.mating


@pytest.mark.parametrize("constraints", [0, 2])
@pytest.mark.parametrize("chances", [(1.0, 1.0), (0.5, 0.3), (0.0, 1.0), (1.0, 0.0)])
def test_children_and_the_generator_afterwards_are_those_of_pymoo(constraints, chances):
    for seed in range(5):
        ours, theirs = parents(np.random.default_rng(seed), constraints=constraints)
        made, states = [], []
        for population, convert in ((ours, on_arrays), (theirs, lambda m: m)):
            index = GenomeIndex(np.dtype("int8"))
            for key in index.keys(genomes(population)):
                index.add(key)
            operators = TwoPointCrossover(prob=chances[0]), Shift(prob=chances[1])
            algorithm, rng = Algorithm(), np.random.default_rng(seed)
            algorithm.random_state = rng
            chosen = convert(mating(index, *operators))
            assert isinstance(chosen, ArrayMating) == (population is ours)
            off = chosen.do(
                Problem(),
                population,
                24,
                random_state=rng,
                algorithm=algorithm,
                n_max_iterations=6,
            )
            made.append(np.array([one.X for one in off]))
            states.append(rng.bit_generator.state)
        assert np.array_equal(*made)
        assert states[0] == states[1]


def test_parents_are_untouched():
    ours, _ = parents(np.random.default_rng(1))
    before = genomes(ours).copy()
    algorithm = Algorithm()
    algorithm.random_state = rng = np.random.default_rng(1)
    made = on_arrays(mating(GenomeIndex(np.dtype("int8")), TwoPointCrossover(), Shift(prob=0.5)))
    made.do(Problem(), ours, 30, random_state=rng, algorithm=algorithm)
    assert np.array_equal(genomes(ours), before)
    assert np.array_equal([one.X for one in ours], before)


@pytest.mark.parametrize("kind", ["comp_by_dom_and_crowding", "comp_by_rank_and_crowding"])
@pytest.mark.parametrize("constraints", [0, 1])
def test_tournaments_have_the_winners_of_pymoo(kind, constraints):
    rng = np.random.default_rng(7)
    ours, theirs = parents(rng, 40, constraints)
    pairs = rng.integers(0, 40, (500, 2))
    winners = []
    for population, tournament in ((ours, dominance_tournament), (theirs, binary_tournament)):
        algorithm = Algorithm()
        algorithm.tournament_type = kind
        algorithm.random_state = np.random.default_rng(3)
        winners.append(tournament(population, pairs, algorithm))
    assert np.array_equal(*winners)


def test_operators_that_bring_more_than_their_hook_keep_pymoos_mating():
    class Own(Crossover):
        def do(self, *args, **kwargs):
            return super().do(*args, **kwargs)

    index = GenomeIndex(np.dtype("int8"))
    for crossover in (Own(2, 2), Crossover(2, 1), TwoPointCrossover(vtype=int)):
        assert type(on_arrays(mating(index, crossover, Shift()))) is Mating
    plain = mating(index, TwoPointCrossover(), Shift())
    plain.eliminate_duplicates = SeenElimination()
    assert on_arrays(plain) is plain


def test_a_row_answers_as_an_individual_does():
    row, individual = Row(np.array([1, 2])), Individual(X=np.array([1, 2]))
    for one in (row, individual):
        one.set("F", np.array([3.0]))
        one.set("G", np.array([-1.0, 2.0]))
        one.set("rank", 4)
    for name in ("X", "F", "G", "H", "CV", "FEAS", "dF", "rank", "nothing"):
        assert np.array_equal(row.get(name), individual.get(name)), name
    assert row.get("rank", "F")[0] == 4
    assert np.array_equal(copy.deepcopy(row).X, row.X)
    assert Row(np.zeros(1)).data is not Row(np.zeros(1)).data
