"""The paper's stopping rule, without its trap of infinite ends."""

import numpy as np
import pytest
from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

from mohsearch.engines.convergence import (
    Convergence,
    crowding_distances,
    largest_finite_crowding,
)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_crowding_distances_equal_pymoos(objectives):
    """pymoo divides the sum by the number of objectives."""
    rng = np.random.default_rng(objectives)
    F = rng.random((40, objectives))
    expected = calc_crowding_distance(F) * objectives
    ours = crowding_distances(F)
    assert np.array_equal(np.isinf(ours), np.isinf(expected))
    finite = np.isfinite(ours)
    assert np.allclose(ours[finite], expected[finite])


def test_the_largest_finite_distance_of_a_front_by_hand():
    F = np.array([[0.0, 10.0], [1.0, 8.0], [5.0, 4.0], [10.0, 0.0]])
    assert largest_finite_crowding(F) == pytest.approx(0.9 + 0.8)


def test_two_points_have_no_finite_distance_and_are_never_steady():
    assert np.isnan(largest_finite_crowding(np.array([[0.0, 1.0], [1.0, 0.0]])))
    assert not Convergence(window=2).reached([float("nan"), float("nan")])


def test_an_objective_without_extent_adds_nothing():
    F = np.array([[0.0, 3.0, 5.0], [1.0, 2.0, 5.0], [2.0, 0.0, 5.0]])
    assert crowding_distances(F)[1] == pytest.approx(1.0 + 1.0)


def test_a_moving_front_is_not_steady_and_a_still_one_is():
    rule = Convergence(window=4, tolerance=0.01)
    assert not rule.reached([0.9, 0.7, 0.5, 0.3, 0.1])
    assert rule.reached([0.9, 0.3, 0.301, 0.299, 0.3])
    assert not rule.reached([0.3, 0.3, 0.3]), "fewer generations than the window"
