"""Operators applied together, each with its own probability."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling

from mohsearch.operators.combined import (
    CombinedCrossover,
    CombinedMutation,
    CombinedSampling,
    Immigrants,
    choose_members,
    combine,
)

PROBLEM = SimpleNamespace(n_var=2)


class Marks(Mutation):
    """Adds a number to both genes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def _do(self, problem, X, random_state=None, **kwargs):
        return X + self.number


class Pairs(Crossover):
    def __init__(self, number: int) -> None:
        super().__init__(2, 2)
        self.number = number

    def _do(self, problem, X, random_state=None, **kwargs):
        return X + self.number


class Filled(Sampling):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def _do(self, problem, n_samples, random_state=None, **kwargs):
        return np.full((n_samples, 2), self.number)


def within(count: int, probability: float, draws: int) -> bool:
    spread = (draws * probability * (1 - probability)) ** 0.5
    return bool(abs(count - draws * probability) < 5 * spread + 3)


def test_each_mutation_acts_on_its_part_of_the_individuals_independently():
    draws = 100_000
    combined = CombinedMutation([(Marks(1), 0.05), (Marks(10), 0.3), (Marks(100), 1.0)])
    X = np.zeros((draws, 2), dtype=np.int64)
    children = combined._do(PROBLEM, X, random_state=np.random.default_rng(1))
    assert not X.any()
    marks = children[:, 0]
    assert within((marks % 10 == 1).sum(), 0.05, draws)
    assert within((marks % 100 >= 10).sum(), 0.3, draws)
    assert (marks >= 100).all()
    assert within((marks == 111).sum(), 0.05 * 0.3, draws)


def test_each_crossover_acts_on_its_part_of_the_matings():
    draws = 100_000
    combined = CombinedCrossover([(Pairs(1), 0.103), (Pairs(10), 0.047)])
    X = np.zeros((2, draws, 2), dtype=np.int64)
    children = combined._do(PROBLEM, X, random_state=np.random.default_rng(2))
    assert not X.any()
    assert np.array_equal(children[0], children[1])
    assert within((children[0, :, 0] % 10 == 1).sum(), 0.103, draws)
    assert within((children[0, :, 0] >= 10).sum(), 0.047, draws)


def chance_of(acts: tuple[bool, ...], rates: tuple[float, ...]) -> float:
    return math.prod(r if a else 1 - r for a, r in zip(acts, rates, strict=True))


def test_members_are_drawn_given_that_at_least_one_acts():
    rates = (0.05, 0.3, 0.5)
    draws = 60_000
    forced = np.arange(draws) % 2 == 0
    chosen = choose_members(rates, forced, np.random.default_rng(6))
    for part, given in ((chosen[:, forced], 1 - chance_of((False,) * 3, rates)),
                        (chosen[:, ~forced], 1.0)):  # fmt: skip
        for acts in itertools.product((False, True), repeat=3):
            count = (part.T == acts).all(axis=1).sum()
            chance = chance_of(acts, rates) / given
            if given < 1 and not any(acts):
                assert count == 0
            else:
                assert within(count, chance, draws // 2)


def test_a_member_that_always_acts_leaves_the_others_their_chance():
    chosen = choose_members((0.2, 1.0, 0.4), np.ones(50_000, bool), np.random.default_rng(7))
    assert chosen[1].all()
    assert within(chosen[0].sum(), 0.2, 50_000)
    assert within(chosen[2].sum(), 0.4, 50_000)


def test_redrawn_copies_are_distributed_as_if_copies_had_been_discarded():
    crossing, mutating = (0.1, 0.05), (0.06, 0.04, 0.02)
    everything = [(Pairs(1), 0.1), (Pairs(2), 0.05)]
    mutations = [(Marks(4), 0.06), (Marks(8), 0.04), (Marks(16), 0.02)]
    crossover, mutation = combine(everything, mutations)
    rng = np.random.default_rng(8)
    draws = 200_000
    children = crossover._do(PROBLEM, np.zeros((2, draws // 2, 2), np.int64), random_state=rng)
    children = mutation._do(PROBLEM, children.reshape(draws, 2), random_state=rng)
    marks = np.bincount(children[:, 0], minlength=32)
    rates = (*crossing, *mutating)
    given = 1 - chance_of((False,) * 5, rates)
    assert marks[0] == 0, "a child is a copy of its parent"
    for number in range(1, 32):
        acts = tuple(bool(number >> bit & 1) for bit in range(5))
        assert within(marks[number], chance_of(acts, rates) / given, draws), acts


@pytest.mark.parametrize("missing", ["crossover", "mutation"])
def test_without_one_kind_the_other_acts_on_every_child(missing):
    crossover, mutation = combine(
        [] if missing == "crossover" else [(Pairs(1), 0.01)],
        [] if missing == "mutation" else [(Marks(1), 0.01)],
    )
    rng = np.random.default_rng(9)
    children = crossover._do(PROBLEM, np.zeros((2, 50, 2), np.int64), random_state=rng)
    children = mutation._do(PROBLEM, children.reshape(100, 2), random_state=rng)
    assert (children == 1).all()


def test_kept_copies_are_as_frequent_as_the_probabilities_say():
    crossover, mutation = combine([(Pairs(1), 0.2)], [(Marks(2), 0.3)], "keep")
    rng = np.random.default_rng(10)
    children = crossover._do(PROBLEM, np.zeros((2, 50_000, 2), np.int64), random_state=rng)
    children = mutation._do(PROBLEM, children.reshape(100_000, 2), random_state=rng)
    copies = (children[:, 0] == 0).sum()
    assert abs(copies - 100_000 * 0.8 * 0.7) < 6 * (100_000 * 0.56 * 0.44) ** 0.5


def test_a_mutation_used_without_its_crossover_acts_on_every_individual():
    _, mutation = combine([(Pairs(1), 0.9)], [(Marks(1), 0.01)])
    X = np.zeros((30, 2), np.int64)
    assert (mutation._do(PROBLEM, X, random_state=np.random.default_rng(11)) == 1).all()


@pytest.mark.parametrize("kind", [CombinedCrossover, CombinedMutation])
def test_without_members_children_are_copies(kind):
    X = np.arange(12).reshape(2, 3, 2) if kind is CombinedCrossover else np.arange(6).reshape(3, 2)
    children = kind([])._do(PROBLEM, X, random_state=np.random.default_rng(3))
    assert np.array_equal(children, X)
    children[:] = -1
    assert X.min() == 0


def test_a_first_population_is_shared_by_largest_remainder():
    sampling = CombinedSampling([(Filled(1), 1.0), (Filled(2), 0.5), (Filled(3), 0.001)])
    assert sampling.counts(100) == [67, 33, 0]
    assert sampling.counts(1) == [1, 0, 0]
    assert all(sum(sampling.counts(n)) == n for n in range(50))
    X = sampling._do(PROBLEM, 10, random_state=np.random.default_rng(4))
    assert X[:, 0].tolist() == [1] * 7 + [2] * 3
    assert sampling._do(PROBLEM, 0, random_state=np.random.default_rng(4)).shape == (0, 2)


def test_a_first_population_needs_a_sampling():
    with pytest.raises(ValueError, match="needs a sampling"):
        CombinedSampling([])


def test_a_crossover_of_three_parents_is_refused():
    odd = Pairs(1)
    odd.n_parents = 3
    with pytest.raises(ValueError, match="two children of two parents"):
        CombinedCrossover([(odd, 1.0)])


def test_immigrants_are_a_share_of_the_population():
    immigrants = Immigrants(Filled(7), 0.1)
    assert immigrants.count(250) == 25
    drawn = immigrants.draw(PROBLEM, 20, np.random.default_rng(5))
    assert drawn.tolist() == [[7, 7], [7, 7]]
