"""Choosing from fronts: budgets in any unit, weights, trade-offs."""

import warnings

import numpy as np
import pytest

from mohsearch.analysis.fronts import Front, Metric, knee
from mohsearch.analysis.pick import (
    by_weights,
    high_trade_offs,
    knee_among,
    metric_and_factor,
    within,
)
from mohsearch.core.errors import InputError, UnknownNameError

METRICS = (
    Metric("latency_s", "s", "min", "latency"),
    Metric("energy_j", "J", "min", "energy"),
    Metric("throughput_per_s", "1/s", "max", "throughput"),
)


def front(latency, energy, throughput=None):
    values = {
        "latency_s": np.array(latency, float),
        "energy_j": np.array(energy, float),
        "throughput_per_s": np.array(throughput or [1.0] * len(latency), float),
    }
    return Front("run", {}, METRICS, values, ("latency_s", "energy_j"))


CURVE = front([1e-3, 2e-3, 4e-3, 8e-3], [8.0, 4.0, 2.0, 1.0], [9.0, 7.0, 5.0, 1.0])


@pytest.mark.parametrize(
    ("name", "metric", "factor"),
    [
        ("latency_ms", "latency_s", 1e-3),
        ("latency_us", "latency_s", 1e-6),
        ("latency_s", "latency_s", 1.0),
        ("latency", "latency_s", 1.0),
        ("energy_mj", "energy_j", 1e-3),
        ("energy_uJ", "energy_j", 1e-6),
        ("throughput_per_s", "throughput_per_s", 1.0),
    ],
)
def test_a_metric_is_named_in_any_unit(name, metric, factor):
    found, scale = metric_and_factor(CURVE, name)
    assert (found.name, scale) == (metric, pytest.approx(factor))


def test_an_unknown_metric_lists_what_exists():
    with pytest.raises(UnknownNameError, match=r"unknown metric 'latency_kg'.*energy_j"):
        metric_and_factor(CURVE, "latency_kg")


def test_budgets_bound_minimised_metrics_above_and_maximised_ones_below():
    assert within(CURVE, {"latency_ms": 4}).tolist() == [0, 1, 2]
    assert within(CURVE, {"throughput": 5.0, "energy_j": 4.0}).tolist() == [1, 2]
    assert within(CURVE, {}).tolist() == [0, 1, 2, 3]


def test_a_budget_nobody_keeps_says_what_is_possible():
    with pytest.raises(InputError, match=r"at most 0.5000 ms; the least of any is 1.000 ms"):
        within(CURVE, {"latency_us": 500})
    message = r"at least 8.000 1/s; the most of any that keeps the budgets before it is 7.000"
    with pytest.raises(InputError, match=message):
        within(CURVE, {"energy": 4.0, "throughput": 8.0})


@pytest.mark.parametrize("method", ["pseudo-weights", "compromise"])
def test_all_weight_on_one_objective_takes_its_best(method):
    assert by_weights(CURVE, {"latency": 1.0}, method) == 0
    assert by_weights(CURVE, {"energy": 3.0}, method) == 3
    assert by_weights(CURVE, {"latency": 1.0}, method, np.array([2, 3])) == 2


def test_pseudo_weights_equal_their_definition():
    rng = np.random.default_rng(1)
    x = np.sort(rng.random(30))
    item = front(x + 1, (1 - x) ** 2 + 5)
    losses = item.losses()
    ideal, nadir = losses.min(axis=0), losses.max(axis=0)
    nearness = (nadir - losses) / (nadir - ideal)
    pseudo = nearness / nearness.sum(axis=1, keepdims=True)
    for share in (0.2, 0.5, 0.9):
        expected = int(np.argmin(np.abs(pseudo - [share, 1 - share]).sum(axis=1)))
        assert by_weights(item, {"latency": share * 7, "energy": (1 - share) * 7}) == expected


def test_compromise_is_the_least_weighted_distance_to_the_ideal():
    rng = np.random.default_rng(2)
    x = np.sort(rng.random(30))
    item = front(x + 1, (1 - x) ** 2 + 5)
    losses = item.losses()
    scaled = (losses - losses.min(axis=0)) / np.ptp(losses, axis=0)
    expected = int(np.argmin(np.max(scaled * [0.75, 0.25], axis=1)))
    assert by_weights(item, {"latency": 3, "energy": 1}, "compromise") == expected


def test_wrong_weights_are_refused():
    with pytest.raises(InputError, match="must not be negative"):
        by_weights(CURVE, {"latency": -1.0})
    with pytest.raises(InputError, match="at least one weight"):
        by_weights(CURVE, {"latency": 0.0})
    with pytest.raises(UnknownNameError, match="unknown objective 'throughput_per_s'"):
        by_weights(CURVE, {"throughput": 1.0})


def test_an_objective_without_extent_and_a_lone_solution_do_no_harm():
    assert by_weights(front([1.0, 2.0], [3.0, 3.0]), {"energy": 1.0}) == 0
    assert by_weights(front([1.0], [3.0]), {"latency": 1.0, "energy": 1.0}) == 0
    assert high_trade_offs(front([1.0], [3.0])).tolist() == []


def test_the_knee_among_some_is_theirs_alone():
    assert knee_among(CURVE) == knee(CURVE.losses())
    assert knee_among(CURVE, np.array([3])) == 3


def test_high_trade_offs_hold_a_sharp_corner_and_leave_warnings_as_they_were():
    x = np.linspace(0, 1, 41)
    y = np.where(x < 0.2, 1 - 4.9 * x, 0.02 * (1 - x) / 0.8)
    before = list(warnings.filters)
    found = high_trade_offs(front(x + 1, y + 1))
    assert warnings.filters == before
    assert len(found)
    assert np.abs(x[found] - 0.2).min() < 0.06
