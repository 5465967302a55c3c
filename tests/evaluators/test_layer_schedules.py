"""Bounds of layer schedules on many accelerators hold, and schedules are optimal where proven."""

import numpy as np

from mohsearch.evaluators.layer_schedules import LayerGraph, bound_schedules, schedule_layer
from mohsearch.evaluators.op_schedule.check import find_fault
from mohsearch.evaluators.op_schedule.solver import solve
from mohsearch.evaluators.training_architecture import feasible_architectures
from mohsearch.evaluators.training_times import SliceTimes, TrainingModel
from mohsearch.workloads.hf_config import load_model


def random_layer(rng: np.random.Generator, ops: int) -> LayerGraph:
    """A random order among ops of random kinds."""
    edges = tuple(
        (i, j) for j in range(ops) for i in range(j) if rng.random() < rng.choice([0.15, 0.4])
    )
    return LayerGraph(rng.integers(3, size=ops), edges)


def test_bounds_hold_and_schedules_equal_the_optimum_of_the_general_solver():
    rng = np.random.default_rng(3)
    open_cases = 0
    for _ in range(40):
        graph = random_layer(rng, int(rng.integers(2, 9)))
        count = 5
        tensor, vector = rng.integers(1, 4, size=count), rng.integers(1, 4, size=count)
        alone = rng.integers(1, 30, size=(len(graph), count))
        spread = rng.integers(1, 30, size=(len(graph), count))
        bounds = bound_schedules(graph, alone, spread, tensor, vector)
        assert sorted(i for block in graph.blocks for i in block) == list(range(len(graph)))
        for c in range(count):
            instance = graph.instance(alone[:, c], spread[:, c], tensor[c], vector[c])
            best = solve(instance)
            assert best.is_optimal
            assert bounds.makespan_lower[c] <= best.makespan <= bounds.serial[c]
            assert bounds.serial[c] == instance.serial
            found = schedule_layer(graph, alone[:, c], spread[:, c], tensor[c], vector[c])
            assert find_fault(instance, found.schedule) is None
            assert found.schedule.makespan(instance) == found.makespan
            assert found.bound <= best.makespan <= found.makespan
            if found.bound == found.makespan:
                assert found.makespan == best.makespan
            open_cases += bounds.makespan_lower[c] < bounds.serial[c]
    assert open_cases > 50


def test_real_layers_are_bounded_on_all_kinds_of_accelerators():
    machines = feasible_architectures()
    some = machines.take(np.random.default_rng(5).choice(len(machines), 12, replace=False))
    part = SliceTimes(TrainingModel(load_model("bert-base"), (1,)), some, 1, 1)
    lower, serial = part.lower(), part.serial()
    gain = 0.0
    for index in range(len(some)):
        times, proven = part.solve(index)
        for p, name in enumerate(("forward_s", "backward_s")):
            exact = getattr(times, name)[0]
            slack = 1e-12
            assert (getattr(lower, name)[index] <= proven[p] + slack).all()
            assert (proven[p] <= exact + slack).all()
            assert (exact <= getattr(serial, name)[index] + slack).all()
            gain = max(gain, float((1 - exact / getattr(serial, name)[index]).max()))
        energy = times.forward_j[0] + times.backward_j[0]
        assert (energy >= (lower.forward_j + lower.backward_j)[index] * (1 - 1e-12)).all()
    assert gain > 0  # somewhere running side by side pays


def test_the_same_effort_gives_the_same_schedule():
    rng = np.random.default_rng(6)
    graph = random_layer(rng, 12)
    alone, spread = rng.integers(1, 30, size=12), rng.integers(1, 30, size=12)
    results = {schedule_layer(graph, alone, spread, 2, 2, width=4) for _ in range(3)}
    assert len(results) == 1
