"""Operators applied together, each with its own probability."""

from __future__ import annotations

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
    return abs(count - draws * probability) < 5 * (draws * probability * (1 - probability)) ** 0.5


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
