"""The placement program beside an enumeration of all plans, written without any of its parts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.problem import LayerCosts, PlacementProblem
from mohsearch.evaluators.device_placement.solver import place


def random_problem(rng, *, chain, widths=(1, 2), **options):
    n = int(rng.integers(1, 6 if chain else 5))
    pairs = [(k, k + 1) for k in range(n - 1)] if chain else []
    density = 0.2 if chain else 0.5
    pairs += [
        (u, v)
        for u in range(n)
        for v in range(u + 1, n)
        if (u, v) not in pairs and rng.random() < density
    ]
    sources, targets = (np.array([p[k] for p in pairs], dtype=np.int64) for k in (0, 1))
    costs = {}
    weights = rng.uniform(1, 5, n)
    for t in widths:
        sliced = rng.random(n) < 0.7 if t > 1 else np.zeros(n, dtype=bool)
        costs[t] = LayerCosts(
            forward_s=rng.uniform(0.5, 2, n) / (1 + 0.6 * (t - 1) * sliced),
            backward_s=rng.uniform(1, 3, n) / (1 + 0.6 * (t - 1) * sliced),
            weight_bytes=weights,
            state_bytes=2 * weights,
            activation_bytes=rng.uniform(1, 6, n),
            sliced=sliced,
            edge_bytes=rng.uniform(0, 3, len(pairs)),
        )
    return PlacementProblem(
        layer_ids=tuple(range(n)),
        sources=sources,
        targets=targets,
        costs=costs,
        devices=int(rng.integers(1, 9)),
        memory_bytes=float(rng.uniform(10, 60)),
        bandwidth_bytes_per_s=float(rng.uniform(0.5, 4)),
        microbatches=int(rng.integers(1, 9)),
        recompute=bool(rng.random() < 0.5),
        **options,
    )


def longest_run(order, duration, arrivals):
    """Finish time of layers run in ``order``, each not before its arrivals."""
    finished = {}
    now = 0.0
    for v in order:
        now = max(now, arrivals(v, finished)) + duration[v]
        finished[v] = now
    return now


def stage_load(problem, cost, stage, from_end):
    edges = list(zip(problem.sources, problem.targets, cost.edge_bytes, strict=True))
    speed = problem.bandwidth_bytes_per_s
    again = problem.recompute and from_end > 1
    work = sum(cost.forward_s[v] for v in stage)
    start = work if again and problem.overlap_recompute else 0.0

    def best(duration, enters, leaves, floor):
        def arrivals(v, finished):
            times = [
                finished[enters(e)] if enters(e) in stage else e[2] / speed
                for e in edges
                if leaves(e) == v
            ]
            return max([floor, *times])

        def respects(order):
            place = {v: k for k, v in enumerate(order)}
            return all(
                place[enters(e)] < place[leaves(e)]
                for e in edges
                if enters(e) in stage and leaves(e) in stage
            )

        return min(
            longest_run(order, duration, arrivals)
            for order in itertools.permutations(stage)
            if respects(order)
        )

    forth = best(cost.forward_s, lambda e: e[0], lambda e: e[1], 0.0)
    back = best(cost.backward_s, lambda e: e[1], lambda e: e[0], start)
    return forth + back + (work if again and not problem.overlap_recompute else 0.0)


def ordered_partitions(problem):
    """All ways to give layers stage numbers 0.. so that no edge runs backwards."""
    n = problem.layers
    for count in range(1, n + 1):
        for numbers in itertools.product(range(count), repeat=n):
            forward = all(
                numbers[u] <= numbers[v]
                for u, v in zip(problem.sources, problem.targets, strict=True)
            )
            if forward and set(numbers) == set(range(count)):
                yield [[v for v in range(n) if numbers[v] == k] for k in range(count)]


def plan_time(problem, t, d, stages):
    cost = problem.costs[t]
    batches = math.ceil(problem.microbatches / d)
    used, slowest = 0, 0.0
    for k, stage in enumerate(stages):
        from_end = len(stages) - k
        inputs = sum(
            size
            for u, v, size in zip(problem.sources, problem.targets, cost.edge_bytes, strict=True)
            if v in stage and u not in stage
        ) + (problem.input_bytes if 0 in stage else 0)
        activations = sum(cost.activation_bytes[v] for v in stage)
        kept = inputs if problem.recompute else activations
        flights = (from_end if problem.schedule == "1F1B" else batches) - 1
        memory = sum(cost.state_bytes[v] for v in stage) + activations + flights * kept
        if memory > problem.memory_bytes:
            return math.inf
        used += t if any(cost.sliced[v] for v in stage) else 1
        slowest = max(slowest, stage_load(problem, cost, stage, from_end))
    if used * d > problem.devices:
        return math.inf
    weights = sum(cost.weight_bytes[v] for v in stages[0])
    sync = problem.sync_factor * (d - 1) / d * weights / problem.bandwidth_bytes_per_s
    return slowest * (batches + len(stages) - 1) + sync


def enumerate_best(problem):
    degrees = [
        d
        for d in range(1, min(problem.devices, problem.microbatches) + 1)
        if problem.rounding == "up" or problem.microbatches % d == 0
    ]
    return min(
        plan_time(problem, t, d, stages)
        for stages in ordered_partitions(problem)
        for t in problem.costs
        for d in degrees
    )


OPTIONS = [
    {},
    {"schedule": "GPipe"},
    {"rounding": "divisors", "overlap_recompute": False, "input_bytes": 2.0},
]


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_program_equals_the_enumeration(chain, options):
    rng = np.random.default_rng(11)
    feasible = 0
    for _ in range(25):
        problem = random_problem(rng, chain=chain, **options)
        if problem.input_bytes and not chain:
            problem = random_problem(rng, chain=True, **options)
        expected = enumerate_best(problem)
        result = place(problem)
        assert result.time_per_batch_s == pytest.approx(expected, rel=1e-9)
        feasible += result.is_feasible
    assert 5 < feasible


def test_a_graph_with_too_many_closed_sets_is_refused():
    n = 20
    cost = LayerCosts(*(np.ones(n) for _ in range(5)), np.zeros(n, dtype=bool), np.zeros(0))
    none = np.zeros(0, dtype=np.int64)
    problem = PlacementProblem(tuple(range(n)), none, none, {1: cost}, 4, 1e9, 1.0, 4)
    with pytest.raises(InfeasibleError, match="branches too widely"):
        place(problem)
