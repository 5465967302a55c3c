import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mohsearch.analysis.indicators import (
    Box,
    common_box,
    coverage,
    dominated_share,
    epsilon_additive,
    hypervolume,
    igd_plus,
    nondominated,
    r2,
    r2_sampled,
    spread,
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


CASES = json.loads((Path(__file__).parent / "reference" / "hypervolume_cases.json").read_text())


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["id"])
def test_hypervolumes_equal_published_ones(case):
    reference = np.array(case["ref"])
    box = Box(np.zeros(len(reference)), reference, margin=0.0)
    share = hypervolume(case["points"], box).value
    assert share * np.prod(reference) == pytest.approx(case["hypervolume_min"], rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_sampled_r2_tends_to_the_exact_one(seed):
    points = np.random.default_rng(seed).random((12, 2))
    box = Box(np.zeros(2), np.ones(2))
    dense = np.linspace(0, 1, 20001)
    sampled = r2_sampled(points, np.column_stack([dense, 1 - dense]))
    assert r2(points, box) == pytest.approx(sampled, rel=1e-3)


def test_r2_of_one_point_is_the_mean_of_its_weighted_losses():
    """Over the unit simplex of three weights, of max(w_1, w_2, w_3) for the point (1, 1, 1)."""
    box = Box(np.zeros(3), np.ones(3))
    assert r2([[1.0, 1.0, 1.0]], box) == pytest.approx(11 / 18, rel=0.03)
    assert r2(np.zeros((0, 3)), box) == float("inf")


def test_a_better_front_has_the_smaller_r2():
    rng = np.random.default_rng(5)
    front = rng.random((20, 3))
    box = Box(np.zeros(3), np.ones(3))
    assert r2(front * 0.8, box) < r2(front, box)


def test_spread_equals_its_definition_by_loops():
    rng = np.random.default_rng(3)
    points = rng.random((9, 3))
    box = Box(np.zeros(3), np.ones(3))
    nearest = [
        min(np.linalg.norm(points[i] - points[j]) for j in range(9) if j != i) for i in range(9)
    ]
    ends = [np.array(e, float) for e in ((0, 1, 1), (1, 0, 1), (1, 1, 0))]
    missed = sum(min(np.linalg.norm(e - p) for p in points) for e in ends)
    mean = np.mean(nearest)
    expected = (missed + sum(abs(d - mean) for d in nearest)) / (missed + len(points) * mean)
    assert spread(points, box) == pytest.approx(expected)
    assert np.isnan(spread(points[:1], box))


def test_coverage_is_one_of_itself_and_not_symmetric():
    better, worse = [[0.0, 1.0], [1.0, 0.0]], [[0.0, 2.0], [2.0, 0.0], [0.5, 0.5]]
    assert coverage(better, better) == 1.0
    assert coverage(better, worse) == pytest.approx(2 / 3)
    assert coverage(worse, better) == 0.0


def test_r2_of_one_objective_is_the_distance_of_the_best_value_from_the_best():
    box = Box(np.zeros(1), np.ones(1))
    assert r2([[0.25], [0.75]], box) == 0.25


def unit_square(steps):
    """Evenly spaced points of the unit square, shape (steps * steps, 2)."""
    axis = np.linspace(0, 1, steps)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def sphere(steps=90):
    """Points of the sphere's positive octant."""
    a, b = (unit_square(steps) * np.pi / 2).T
    return np.column_stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])


def true_front(name):
    """Points of a test problem's front, by its formula, dense enough for half a per cent."""
    x = np.linspace(0, 1, 4001)
    if name.startswith("DTLZ1"):
        square = unit_square(90)
        inside = square[square.sum(axis=1) <= 1]
        return 0.5 * np.column_stack([inside, 1 - inside.sum(axis=1)])
    if name.startswith("DTLZ2"):
        return sphere()
    if name.startswith("WFG4-9 2"):
        return np.column_stack([2 * np.sin(x * np.pi / 2), 4 * np.cos(x * np.pi / 2)])
    if name.startswith("WFG4-9 3"):
        return sphere() * (2, 4, 6)
    if name.startswith("ZDT6"):
        x = np.linspace(1 - np.exp(-4 * 0.0819) * np.sin(6 * np.pi * 0.0819) ** 6, 1, 4001)
    second = {
        "ZDT1": 1 - np.sqrt(x),
        "ZDT2": 1 - x**2,
        "ZDT3": 1 - np.sqrt(x) - x * np.sin(10 * np.pi * x),
        "ZDT6": 1 - x**2,
    }[name[:4]]
    return np.column_stack([x, second])


FRONTS = Path(__file__).parent.parent / "engines" / "reference" / "analytic_fronts.json"


@pytest.mark.parametrize(
    "case", json.loads(FRONTS.read_text())["fronts"], ids=lambda case: case["problem"]
)
def test_hypervolumes_of_dense_fronts_come_near_the_closed_forms_from_below(case):
    """Second formulation: the front's formula sampled, against its integral."""
    reference = np.array(case["ref"])
    box = Box(np.zeros(len(reference)), reference, margin=0.0)
    points = true_front(case["problem"])
    if case["problem"].startswith("ZDT3"):  # the only front below 0
        box = Box(np.array([0.0, -1.0]), reference, margin=0.0)
    found = hypervolume(points, box).value * np.prod(box.span)
    assert 0.98 * case["hypervolume"] < found < (1 + 1e-6) * case["hypervolume"]
