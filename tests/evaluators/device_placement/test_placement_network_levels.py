"""Placement on hierarchical networks and with virtual stages, beside enumerations."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.device_placement.door import evaluate
from mohsearch.evaluators.device_placement.interleaved import in_flight
from mohsearch.evaluators.device_placement.plan import evaluate_plan
from mohsearch.evaluators.device_placement.problem import (
    LayerCosts,
    NetworkLevel,
    PlacementProblem,
)
from mohsearch.evaluators.device_placement.solver import place


def chain(rng, n, *, devices, microbatches, memory=1e9, widths=(1,), **options):
    costs = {
        t: LayerCosts(
            forward_s=rng.uniform(0.5, 2, n) / t**0.8,
            backward_s=rng.uniform(1, 3, n) / t**0.8,
            weight_bytes=np.full(n, 3.0 / t),
            state_bytes=np.full(n, 12.0 / t),
            activation_bytes=rng.uniform(1, 4, n) / t,
            sliced=np.full(n, t > 1),
            edge_bytes=rng.uniform(0, 3, n - 1),
        )
        for t in widths
    }
    options.setdefault("bandwidth_bytes_per_s", 2.0)
    return PlacementProblem(
        layer_ids=tuple(range(n)),
        sources=np.arange(n - 1),
        targets=np.arange(1, n),
        costs=costs,
        devices=devices,
        memory_bytes=memory,
        microbatches=microbatches,
        sync_factor=2.0,
        **options,
    )


# Levels


def ring_seconds(problem, tensor, data):
    """Add up gradients step by step over explicit groups of device numbers, one byte a device."""
    groups = [[k * tensor] for k in range(data)]  # positions of the first slice's replicas
    share, seconds = 1.0, 0.0
    for level in problem.levels:
        merged: dict[int, list[list[int]]] = {}
        width = max(level.devices, tensor)
        for group in groups:
            merged.setdefault(group[0] // width, []).append(group)
        most = max(len(parts) for parts in merged.values())
        seconds += 2 * share * (most - 1) / most / level.bandwidth_bytes_per_s
        share /= most
        groups = [[x for part in parts for x in part] for parts in merged.values()]
    return seconds


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
@pytest.mark.parametrize("data", [1, 2, 4, 8, 16])
def test_gradients_are_summed_within_nodes_first(tensor, data):
    levels = (NetworkLevel(4, 100.0), NetworkLevel(16, 10.0), NetworkLevel(128, 2.0))
    rng = np.random.default_rng(1)
    problem = chain(rng, 2, devices=128, microbatches=16, levels=levels)
    found = problem.sync_s_per_byte(tensor, np.array([data]))[0]
    assert found == pytest.approx(ring_seconds(problem, tensor, data))


def enumerate_levels(problem):
    """The fastest plan by trying all, each in the smallest level that holds it."""
    best = math.inf
    n = problem.layers
    for t, d in itertools.product(problem.costs, range(1, problem.microbatches + 1)):
        for cuts in itertools.chain.from_iterable(
            itertools.combinations(range(1, n), k) for k in range(n)
        ):
            edges = [0, *cuts, n]
            stages = [list(range(a, b)) for a, b in itertools.pairwise(edges)]
            used = t * d * len(stages)
            if used > problem.devices:
                continue
            level = next(level for level in problem.levels if level.devices >= used)
            part = replace(problem, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s)
            try:
                best = min(best, evaluate_plan(part, t, d, stages).time_per_batch_s)
            except InfeasibleError:
                continue
    return best


@pytest.mark.parametrize("seed", range(12))
def test_plans_on_levels_are_the_fastest_of_all_plans(seed):
    rng = np.random.default_rng(seed)
    speeds = -np.sort(-rng.uniform(0.3, 6, 3))
    levels = tuple(
        NetworkLevel(size, float(speed)) for size, speed in zip((2, 4, 16), speeds, strict=True)
    )
    problem = chain(
        rng, int(rng.integers(2, 6)), devices=int(rng.integers(1, 13)), widths=(1, 2),
        microbatches=int(rng.integers(1, 7)), memory=float(rng.uniform(25, 80)), levels=levels,
    )  # fmt: skip
    found = place(problem)
    assert found.time_per_batch_s == pytest.approx(enumerate_levels(problem), rel=1e-9)


def test_levels_of_one_speed_are_a_flat_network_but_for_the_order_of_the_sums():
    rng = np.random.default_rng(3)
    flat = chain(rng, 6, devices=12, microbatches=6)
    one = replace(flat, levels=(NetworkLevel(16, 2.0),))
    assert place(one).time_per_batch_s == pytest.approx(place(flat).time_per_batch_s)


# Virtual stages


def order_on(device, stages, virtual, microbatches):
    """Passes of a device in Megatron-LM's interleaved order, as (+1 or -1, chunk)."""
    total = microbatches * virtual
    warm = total
    if microbatches != stages:
        warm = min(2 * (stages - device - 1) + (virtual - 1) * stages, total)
    forth = [(1, k // stages % virtual) for k in range(total)]
    back = [(-1, virtual - 1 - k // stages % virtual) for k in range(total)]
    steady = [x for pair in zip(forth[warm:], back, strict=False) for x in pair]
    return forth[:warm] + steady + back[total - warm :]


@pytest.mark.parametrize(("stages", "virtual", "batches"), [(2, 2, 4), (4, 3, 8), (3, 2, 3)])
def test_chunks_in_flight_are_those_of_the_order(stages, virtual, batches):
    for device in range(stages):
        passes = order_on(device, stages, virtual, batches)
        held = np.cumsum([step for step, _ in passes])
        assert held[-1] == 0
        assert held.max() == in_flight(stages, virtual, device, batches)


def enumerate_chunks(problem, virtual):
    """The fastest interleaved plan over all chunk boundaries, without a memory limit."""
    best = math.inf
    n = problem.layers
    (cost,) = problem.costs.values()
    speed = problem.bandwidth_bytes_per_s
    for stages in range(2, min(n // virtual, problem.devices) + 1):
        for cuts in itertools.combinations(range(1, n), stages * virtual - 1):
            edges = [0, *cuts, n]
            loads = []
            for a, b in itertools.pairwise(edges):
                enters = cost.edge_bytes[a - 1] / speed if a else 0.0
                leaves = cost.edge_bytes[b - 1] / speed if b < n else 0.0
                loads.append(enters + leaves + sum(cost.forward_s[a:b] + cost.backward_s[a:b]))
            devices = [sum(loads[j::stages]) for j in range(stages)]
            held = sum(edges[j + 1] - edges[j] for j in range(0, stages * virtual, stages))
            for d in range(1, problem.microbatches + 1):
                batches = problem.microbatches // d
                if problem.microbatches % d or batches % stages or stages * d > problem.devices:
                    continue
                sync = 2 * (d - 1) / d * 3.0 * held / speed
                best = min(best, max(devices) * (batches + (stages - 1) / virtual) + sync)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_interleaved_plans_lie_between_their_bound_and_close_to_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    problem = chain(rng, 8, devices=4, microbatches=8, virtual_stages=(2,))
    found = place(problem)
    best = enumerate_chunks(problem, 2)
    assert found.virtual_stages == 2
    assert found.bound_s <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found.time_per_batch_s <= 1.25 * best


def test_equal_layers_are_folded_exactly_and_beat_one_stage_a_device():
    rng = np.random.default_rng(0)
    base = chain(rng, 16, devices=4, microbatches=4)
    cost = replace(
        base.costs[1],
        forward_s=np.ones(16),
        backward_s=np.full(16, 2.0),
        edge_bytes=np.zeros(15),
    )
    base = replace(base, costs={1: cost}, memory_bytes=16 * 12.0)
    small = replace(base, memory_bytes=130.0)  # one device does not hold all layers
    single = place(small)
    folded = place(replace(small, virtual_stages=(1, 2, 4)))
    assert single.time_per_batch_s == pytest.approx(12 * (4 + 3))
    assert folded.virtual_stages == 4
    assert folded.time_per_batch_s == pytest.approx(12 * (4 + 3 / 4))
    assert sorted(v for stage in folded.stages for v in stage.layers) == list(range(16))
    assert folded.stages[0].layers == (0, 4, 8, 12)
    assert folded.stages[0].memory_bytes > single.stages[0].memory_bytes


def test_virtual_stages_are_refused_where_the_schedule_has_none():
    rng = np.random.default_rng(0)
    problem = chain(rng, 4, devices=2, microbatches=4, virtual_stages=(1, 2))
    with pytest.raises(InfeasibleError, match="1F1B"):
        place(replace(problem, schedule="GPipe"))
    branching = replace(problem, sources=np.array([0, 0, 1]), targets=np.array([1, 2, 3]))
    with pytest.raises(InfeasibleError, match="branches"):
        place(branching)


# Door

CHAIN = {
    "layers": [
        {"out_act": 1, "by_t": {"1": {"fw": 1.0, "bw": 2.0, "weights": 1, "acts": 1}}}
        for _ in range(8)
    ],
    "tmp_widths": [1],
    "K": 4,
    "B": 8,
    "recompute": False,
    "hbm": 12,
}


def run(folder, **changes):
    path = folder / "case.json"
    path.write_text(json.dumps({**CHAIN, **changes}))
    return evaluate(path)


def test_the_door_reads_levels_and_virtual_stages(tmp_path):
    levels = [{"devices": 2, "bandwidth": 10.0}, {"devices": 4, "bandwidth": 1.0}]
    flat = run(tmp_path, bandwidth=1.0).rows[0]
    both = run(tmp_path, levels=levels, virtualStages=[1, 2]).rows[0]
    assert flat["status"] == "optimal"
    assert both["time_per_batch_s"] <= flat["time_per_batch_s"]
    assert both["bound_s"] <= both["time_per_batch_s"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "bandwidth: give either one bandwidth or levels"),
        (
            {"bandwidth": 1.0, "levels": [{"devices": 4, "bandwidth": 1.0}]},
            "bandwidth: give either one bandwidth or levels",
        ),
        (
            {"levels": [{"devices": 2, "bandwidth": 1.0}]},
            r"levels\[0\].devices: the last level holds 2 devices, there are 4",
        ),
        (
            {"levels": [{"devices": 3, "bandwidth": 1.0}, {"devices": 8, "bandwidth": 1.0}]},
            r"levels\[1\].devices: must be a multiple of the level before \(3 devices\)",
        ),
        ({"bandwidth": 1.0, "virtualStages": [0]}, r"virtualStages\[0\]"),
    ],
)
def test_a_wrong_network_is_named(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        run(tmp_path, **changes)
