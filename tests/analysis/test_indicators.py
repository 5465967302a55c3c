import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mohsearch.analysis.indicators import (
    Box,
    common_box,
    dominated_share,
    epsilon_additive,
    hypervolume,
    igd_plus,
    nondominated,
)

GRID = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=12)


def volume_by_inclusion_exclusion(points, reference):
    """Union of boxes [point, reference] over all subsets: an independent second formulation."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for subset in itertools.combinations(points, size):
            corner = np.max(subset, axis=0)
            total += (-1) ** (size + 1) * np.prod(np.maximum(reference - corner, 0))
    return total


def dominated_by_loops(winners, point, weakly):
    return any(
        all(w <= p for w, p in zip(winner, point, strict=True))
        and (weakly or any(w < p for w, p in zip(winner, point, strict=True)))
        for winner in winners
    )


@given(GRID)
@settings(max_examples=60, deadline=None)
def test_nondominated_points_are_those_no_other_point_dominates(points):
    expected = [not dominated_by_loops(points, p, weakly=False) for p in points]
    assert nondominated(points).tolist() == expected


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=7))
@settings(max_examples=60, deadline=None)
def test_hypervolume_equals_inclusion_and_exclusion_of_boxes(points):
    box = Box(np.zeros(3), np.full(3, 5.0), margin=0.2)
    scaled = np.array(points) / 5.0
    expected = volume_by_inclusion_exclusion(scaled, np.full(3, 1.2)) / 1.2**3
    assert hypervolume(points, box).value == pytest.approx(expected, abs=1e-12)


@given(GRID, GRID)
@settings(max_examples=60, deadline=None)
def test_dominated_share_equals_counting_pair_by_pair(winners, points):
    for weakly in (False, True):
        expected = np.mean([dominated_by_loops(winners, p, weakly) for p in points])
        assert dominated_share(winners, points, weakly=weakly) == pytest.approx(expected)


def test_dominated_share_does_not_depend_on_the_chunk_size(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = rng.random((40, 3)), rng.random((70, 3))
    whole = dominated_share(a, b)
    monkeypatch.setattr("mohsearch.analysis.indicators._CHUNK_ELEMENTS", 1)
    assert dominated_share(a, b) == whole


def test_the_box_spans_the_nondominated_points_of_all_fronts_only():
    box = common_box([[[0.0, 10.0], [5.0, 50.0]], [[4.0, 2.0], [np.inf, 0.0]]])
    assert box.ideal.tolist() == [0.0, 2.0]
    assert box.nadir.tolist() == [4.0, 10.0]
    assert box.reference.tolist() == pytest.approx([4.4, 10.8])


def test_a_box_without_width_still_gives_a_finite_hypervolume():
    box = common_box([[[1.0, 2.0]]])
    assert hypervolume([[1.0, 2.0]], box).value == pytest.approx(1.0)


def test_points_beyond_the_reference_add_nothing():
    box = Box(np.zeros(2), np.ones(2))
    assert hypervolume([[0.5, 2.0]], box).value == 0.0
    assert hypervolume([[0.5, 2.0], [0.2, 0.2]], box) == hypervolume([[0.2, 0.2]], box)


def test_distances_to_the_reference_front_are_zero_where_it_is_reached():
    front = np.array([[0.0, 1.0], [1.0, 0.0]])
    box = Box(np.zeros(2), np.ones(2))
    assert igd_plus(front, front, box) == 0.0
    assert epsilon_additive(front, front, box) == 0.0
    assert epsilon_additive(front + 0.25, front, box) == pytest.approx(0.25)
    # moved by (d, d), each reference point is missed by the vector (d, d)
    assert igd_plus(front + 0.25, front, box) == pytest.approx(0.25 * np.sqrt(2))


def test_not_a_number_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        nondominated([[np.nan, 1.0]])
