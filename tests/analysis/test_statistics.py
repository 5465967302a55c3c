"""Tests over seeds against enumeration of all arrangements and of all subsets of hypotheses."""

import math
from itertools import combinations

import numpy as np
import pytest

from mohsearch.analysis.statistics import (
    compare_pairs,
    friedman,
    holm,
    least_p,
    mann_whitney,
    seeds_needed,
    vargha_delaney,
)


def p_by_enumeration(first, second):
    """Two-sided p over all ways to deal the ranks to the two samples."""
    together = np.concatenate([first, second])
    n = len(first)

    def statistic(chosen):
        a = together[list(chosen)]
        b = np.delete(together, list(chosen))
        return sum((x > b).sum() for x in a)

    centre = n * len(second) / 2
    observed = abs(statistic(range(n)) - centre)
    deals = list(combinations(range(len(together)), n))
    return np.mean([abs(statistic(deal) - centre) >= observed for deal in deals])


@pytest.mark.parametrize("seed", range(6))
def test_the_p_value_counts_the_arrangements_that_differ_as_much(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random(4) + rng.random() - 0.5, rng.random(5)
    assert mann_whitney(first, second) == pytest.approx(p_by_enumeration(first, second))


@pytest.mark.parametrize("seed", range(8))
def test_holms_correction_is_the_closure_of_bonferronis(seed):
    """Reject one hypothesis only if every set of hypotheses that holds it is rejected."""
    p = np.random.default_rng(seed).random(5) ** 3
    closed = [
        max(
            min(1.0, len(subset) * p[list(subset)].min())
            for size in range(1, 6)
            for subset in combinations(range(5), size)
            if k in subset
        )
        for k in range(5)
    ]
    assert holm(p) == pytest.approx(closed)


def test_effect_sizes_of_samples_that_do_not_overlap_are_extreme():
    (test,) = compare_pairs({"high": [4, 5, 6, 7], "low": [0, 1, 2, 3]})
    assert (test.a12, test.cliff_delta, test.size) == (1.0, 1.0, "large")
    assert test.p == pytest.approx(2 / 70)
    assert test.verdict == "high is better"
    assert vargha_delaney([1, 2], [1, 2]) == 0.5


def test_equal_samples_show_no_difference():
    (test,) = compare_pairs({"a": [1.0] * 5, "b": [1.0] * 5})
    assert (test.p, test.size, test.verdict) == (1.0, "negligible", "no difference shown")


def test_three_seeds_can_never_be_conclusive():
    (test,) = compare_pairs({"a": [1, 2, 3], "b": [10, 20, 30]})
    assert test.least_p_holm == pytest.approx(0.1)
    assert test.verdict == "too few seeds"


def test_the_seeds_needed_are_just_enough():
    for tests in (1, 3, 10, 45):
        n = seeds_needed(tests)
        assert least_p(n, n) * tests <= 0.05 < least_p(n - 1, n - 1) * tests
    assert least_p(4, 4) == 2 / math.comb(8, 4)


def test_friedman_needs_two_cases_and_three_contenders():
    assert math.isnan(friedman([[1, 2, 3]]))
    assert math.isnan(friedman([[1, 2], [2, 1]]))
    assert friedman([[1, 2, 3]] * 6) < 0.01
