"""The schedule solver beside an enumeration that shares nothing with it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mohsearch.evaluators.op_schedule.bounds import critical_path, two_budget
from mohsearch.evaluators.op_schedule.check import find_fault
from mohsearch.evaluators.op_schedule.instance import FUSED, ScheduleInstance
from mohsearch.evaluators.op_schedule.search_kernels import MAX_OPS
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, solve


def random_instance(rng, most_ops, most_cores=3):
    n = int(rng.integers(2, most_ops + 1))
    kinds = rng.integers(0, 3, n)
    alone = rng.integers(1, 12, n)
    spread = np.where(rng.random(n) < 0.3, alone, np.maximum(1, alone // rng.integers(1, 5, n)))
    spread = np.where(rng.random(n) < 0.1, alone + 2, spread)
    density = rng.choice([0.1, 0.3, 0.6])
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < density]
    cores = rng.integers(1, most_cores + 1, 2)
    return ScheduleInstance.build(kinds, alone, spread, edges, *(int(c) for c in cores))


def enumerate_best(instance):
    """Try all orders in which operators are placed, all modes and all cores.

    Every operator is put at the earliest moment that its predecessors, the operators on all cores
    placed before it, and its cores allow; some order, mode and core choice gives an optimum.
    """
    n = len(instance)
    preds = [[i for i, j in instance.edges if j == k] for k in range(n)]
    best = int(np.minimum(instance.alone, instance.spread).sum())

    def place(done, ends, tensor, vector, barrier):
        nonlocal best
        horizon = max(ends.values(), default=0)
        if len(done) == n:
            best = min(best, horizon)
            return
        if horizon >= best:
            return
        for k in range(n):
            if k in done or any(p not in done for p in preds[k]):
                continue
            ready = max([barrier, *(ends[p] for p in preds[k])])
            end = horizon + int(instance.spread[k])
            place(done | {k}, {**ends, k: end}, tensor, vector, end)
            for t, v in core_choices(instance, k):
                start = max(
                    ready,
                    0 if t is None else tensor[t],
                    0 if v is None else vector[v],
                )
                end = start + int(instance.alone[k])
                new_tensor = tuple(end if c == t else busy for c, busy in enumerate(tensor))
                new_vector = tuple(end if c == v else busy for c, busy in enumerate(vector))
                place(done | {k}, {**ends, k: end}, new_tensor, new_vector, barrier)

    place(frozenset(), {}, (0,) * instance.tensor_cores, (0,) * instance.vector_cores, 0)
    return best


def core_choices(instance, k):
    kind = int(instance.kinds[k])
    if kind == FUSED:
        return [(c, c) for c in range(min(instance.tensor_cores, instance.vector_cores))]
    cores = instance.tensor_cores if kind == 0 else instance.vector_cores
    return [(c, None) if kind == 0 else (None, c) for c in range(cores)]


def test_the_solver_equals_the_enumeration():
    rng = np.random.default_rng(5)
    for _ in range(60):
        instance = random_instance(rng, 5, 2)
        result = solve(instance)
        assert result.is_optimal
        assert result.makespan == enumerate_best(instance), instance
        assert max(critical_path(instance), two_budget(instance)) <= result.makespan


@pytest.mark.slow
def test_the_solver_equals_the_enumeration_of_larger_cases():
    rng = np.random.default_rng(6)
    for _ in range(150):
        instance = random_instance(rng, 6, 3)
        assert solve(instance).makespan == enumerate_best(instance), instance


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_search_and_integer_program_agree(backend):
    rng = np.random.default_rng(7)
    program = ScheduleOptions(method="program", backend=backend, time_limit_s=60)
    for _ in range(12 if backend == "highs" else 5):
        instance = random_instance(rng, 8)
        found, proven = solve(instance), solve(instance, program)
        assert found.is_optimal
        assert proven.is_optimal
        assert found.makespan == proven.makespan


def test_turning_all_orders_round_changes_nothing():
    rng = np.random.default_rng(8)
    for _ in range(25):
        instance = random_instance(rng, 12)
        assert solve(instance).makespan == solve(instance.reversed()).makespan


def test_a_narrow_search_still_reports_a_valid_bound():
    rng = np.random.default_rng(9)
    for _ in range(10):
        instance = random_instance(rng, 14)
        hurried = solve(instance, ScheduleOptions(time_limit_s=1e-9))
        exact = solve(instance)
        assert hurried.bound <= exact.makespan <= hurried.makespan


def test_the_optimum_does_not_depend_on_the_numbering_of_operators():
    for permutation in itertools.islice(itertools.permutations(range(5)), 0, 120, 17):
        instance = ScheduleInstance.build(
            [0, 1, 2, 0, 1], [5, 7, 4, 6, 3], [3, 4, 4, 2, 3], [(0, 1), (0, 2), (3, 4)], 2, 1
        )
        place = {old: new for new, old in enumerate(permutation)}
        index = list(permutation)
        moved = ScheduleInstance.build(
            instance.kinds[index],
            instance.alone[index],
            instance.spread[index],
            [(place[i], place[j]) for i, j in instance.edges],
            2,
            1,
        )
        assert solve(moved).makespan == solve(instance).makespan


def test_operators_of_no_length_are_scheduled_in_order():
    rng = np.random.default_rng(12)
    for _ in range(40):
        plain = random_instance(rng, 6, 2)
        empty = rng.random(len(plain)) < 0.4
        instance = ScheduleInstance.build(
            plain.kinds,
            np.where(empty, 0, plain.alone),
            np.where(empty, 0, plain.spread),
            plain.edges,
            plain.tensor_cores,
            plain.vector_cores,
        )
        result = solve(instance)
        assert find_fault(instance, result.schedule) is None
        assert result.is_optimal


def test_a_layer_too_large_to_search_still_gets_a_schedule_with_a_bound():
    n = MAX_OPS + 20
    rng = np.random.default_rng(13)
    alone = rng.integers(1, 30, n)
    instance = ScheduleInstance.build(rng.integers(0, 3, n), alone, alone, [], 4, 3)
    result = solve(instance, ScheduleOptions(time_limit_s=1))
    assert result.bound <= result.makespan < result.serial
    assert result.gap < 0.2
