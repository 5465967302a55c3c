"""The bound by phases and the local search beside exact optima of small instances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mohsearch.evaluators.op_schedule.bounds import critical_path, two_budget
from mohsearch.evaluators.op_schedule.check import find_fault
from mohsearch.evaluators.op_schedule.improve import improve
from mohsearch.evaluators.op_schedule.instance import (
    TENSOR,
    VECTOR,
    ScheduleInstance,
    serial_schedule,
)
from mohsearch.evaluators.op_schedule.phases import MAX_PHASE_OPS, backbone, phase_bound
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, solve

WITHOUT = ScheduleOptions(phase_nodes=-1, steps=0)
"""The exact search alone, which an enumeration confirms elsewhere."""


def random_layer(rng, most_ops, large):
    n = int(rng.integers(2, most_ops + 1))
    kinds = rng.integers(0, 3, n)
    alone = rng.integers(0, 12, n)
    spread = np.where(rng.random(n) < 0.3, alone, -(-alone // rng.integers(1, 5, n)))
    if large:
        unit = int(rng.integers(1_000, 10_000_000))
        alone = alone * unit + rng.integers(0, unit, n)
        spread = spread * unit + rng.integers(0, unit, n)
    density = rng.choice([0.1, 0.3, 0.6])
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < density]
    cores = rng.integers(1, 4, 2)
    return ScheduleInstance.build(kinds, alone, spread, edges, *(int(c) for c in cores))


def check_bounds(seed, count, most_ops):
    """Compare bounds with optima; return how often phases and two budgets reach them.

    The few layers whose fused cores leave the exact search unproven in time still have a valid
    schedule, and no bound may exceed that either.
    """
    rng = np.random.default_rng(seed)
    reached = plain = proven = 0
    for k in range(count):
        layer = random_layer(rng, most_ops, large=k % 3 == 2)
        optimum = solve(layer, WITHOUT)
        proven += optimum.is_optimal
        linear = phase_bound(layer, layer.serial, 0, nodes=0)
        found = phase_bound(layer, layer.serial, 0, nodes=200)
        assert linear.bound <= optimum.makespan, layer
        assert found.bound <= optimum.makespan, layer
        if found.schedule is not None:
            assert find_fault(layer, found.schedule) is None
        reached += found.bound == optimum.makespan
        plain += max(critical_path(layer), two_budget(layer)) == optimum.makespan
    assert proven >= 0.99 * count
    return reached, plain


def test_the_bound_by_phases_never_exceeds_the_optimum():
    reached, plain = check_bounds(seed=21, count=120, most_ops=7)
    assert plain < reached


@pytest.mark.slow
def test_the_bound_by_phases_never_exceeds_the_optimum_of_two_thousand_layers():
    reached, plain = check_bounds(seed=22, count=2_000, most_ops=9)
    assert reached > 1_700
    assert reached > plain


def test_a_bound_that_starts_from_a_known_schedule_proves_it_or_stays_below_it():
    rng = np.random.default_rng(23)
    for _ in range(60):
        layer = random_layer(rng, 7, large=False)
        optimum = solve(layer, WITHOUT).makespan
        assert phase_bound(layer, optimum, 0, nodes=100).bound <= optimum
        assert phase_bound(layer, optimum + 1, 0, nodes=100).bound <= optimum


def test_the_bound_sees_that_an_operator_cannot_run_half_on_one_core_and_half_on_all():
    layer = ScheduleInstance.build([TENSOR, TENSOR, VECTOR], [4, 4, 9], [3, 3, 5], [], 1, 1)
    assert solve(layer, WITHOUT).makespan == 9
    assert two_budget(layer) <= phase_bound(layer, 11, 0, nodes=100).bound == 9


def test_the_backbone_is_a_chain():
    rng = np.random.default_rng(24)
    for _ in range(50):
        layer = random_layer(rng, 12, large=False)
        chain = backbone(layer)
        assert all(layer.before[i, j] for i, j in itertools.pairwise(chain))


def test_a_layer_too_large_for_phases_keeps_its_bound():
    ones = [1] * (MAX_PHASE_OPS + 1)
    layer = ScheduleInstance.build([VECTOR] * len(ones), ones, ones, [], 1, 2)
    assert phase_bound(layer, len(ones), 7, nodes=10).bound == 7


def test_local_search_returns_valid_schedules_that_are_never_longer_and_mostly_optimal():
    rng = np.random.default_rng(25)
    optimal = 0
    for _ in range(150):
        layer = random_layer(rng, 8, large=False)
        start = serial_schedule(layer)
        found = improve(layer, start, steps=300)
        assert find_fault(layer, found) is None
        makespan, optimum = found.makespan(layer), solve(layer, WITHOUT).makespan
        assert optimum <= makespan <= layer.serial
        optimal += makespan == optimum
    assert optimal > 130


def test_local_search_repeats_and_moves_no_global_generator():
    layer = random_layer(np.random.default_rng(26), 12, large=True)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = improve(layer, serial_schedule(layer), steps=500)
    assert first == improve(layer, serial_schedule(layer), steps=500)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_with_an_effort_instead_of_a_time_limit_the_result_repeats():
    rng = np.random.default_rng(27)
    effort = ScheduleOptions(time_limit_s=1e9, max_width=32, steps=200, phase_nodes=5)
    for _ in range(5):
        layer = random_layer(rng, 16, large=True)
        first, second = solve(layer, effort), solve(layer, effort)
        assert (first.schedule, first.bound) == (second.schedule, second.bound)
