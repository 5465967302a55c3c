"""The corrected model: exact tiles, monotone in every resource, conserving traffic."""

import itertools
import math

import numpy as np
import pytest

from mohsearch.evaluators.crossflow import exact_tiling
from mohsearch.evaluators.crossflow.age import generate, overdrive
from mohsearch.evaluators.crossflow.config import allocation_row, technology_row
from mohsearch.evaluators.crossflow.evaluate import Gemm, Lstm, Strategy, evaluate, place_row
from mohsearch.evaluators.crossflow.layout import (
    A_CHIP_AREA,
    A_NODE_AREA,
    A_TDP,
    ALLOCATION_COLUMNS,
    K_AREA_USED,
    K_FLOPS,
    K_FLOW,
    K_LEVEL,
    K_POWER_USED,
    L_BANDWIDTH,
    L_LATENCY,
    L_SHARE,
    LEVEL_FIELDS,
)  # fmt: skip
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.evaluators.crossflow.reasons import MEMORY_OVERFLOW, OK, OVER_BUDGET, REASONS
from mohsearch.evaluators.crossflow.timeline import backward_graph, run

V100 = config_from({"system": "V100"})
TECH, ALLOC = technology_row(V100), allocation_row(V100)


def random_allocations(count, seed):
    rng = np.random.default_rng(seed)
    rows = np.tile(ALLOC, (count, 1))
    for low, high in ((3, 10), (10, 17), (17, ALLOCATION_COLUMNS)):
        rows[:, low:high] = 0.9 * rng.dirichlet(np.ones(high - low), count)
    return rows


def sizes_of(extent):
    powers = {2**i for i in range(20) if 2**i <= extent}
    return sorted(powers | {d for d in range(1, extent + 1) if extent % d == 0})


def enumerated(chip, m, k, n):
    """Try all nested triples of tiles, with the traffic formula written out again."""
    column = [K_LEVEL + i * LEVEL_FIELDS for i in range(4)]
    rate = [chip[c + L_BANDWIDTH] / 2 for c in column]
    late = [chip[c + L_LATENCY] for c in column]
    room = [chip[c + L_SHARE] / 2 for c in column]
    reuse = math.ceil(max(m, n, k) / 4)
    near = 2 * m * k * n * (16 + 8 * reuse) / (32 * reuse)
    floor = max(2 * m * k * n / chip[K_FLOPS], near / rate[0] + late[0])

    def fitting(level):
        every = itertools.product(sizes_of(m), sizes_of(k), sizes_of(n))
        return [(a, b, c) for a, b, c in every if a * b + b * c + a * c <= room[level]]

    def counts(t):
        return math.ceil(m / t[0]), math.ceil(k / t[1]), math.ceil(n / t[2])

    def moved(c, u):
        keep_c = m * k * c[2] + k * n * c[0] + m * n * (2 * u[1] - 1)
        keep_a = m * k * u[2] + k * n * c[0] + m * n * (2 * c[1] - 1)
        keep_b = m * k * c[2] + k * n * u[0] + m * n * (2 * c[1] - 1)
        return min(keep_c, keep_a, keep_b)

    best = math.inf
    tiles = [fitting(level) for level in range(3)]
    for t2 in tiles[2]:
        far = max(floor, moved(counts(t2), (1, 1, 1)) / rate[3] + late[3])
        for t1 in tiles[1]:
            if far >= best or any(a > b for a, b in zip(t1, t2, strict=True)):
                continue
            mid = max(far, moved(counts(t1), counts(t2)) / rate[2] + late[2])
            for t0 in tiles[0]:
                if mid >= best or any(a > b for a, b in zip(t0, t1, strict=True)):
                    continue
                best = min(best, max(mid, moved(counts(t0), counts(t1)) / rate[1] + late[1]))
    return best


def test_the_exact_tiling_is_what_enumeration_of_all_nested_tiles_finds():
    rng = np.random.default_rng(7)
    base = generate(TECH, ALLOC)[0]
    for _ in range(120):
        chip = base.copy()
        m, k, n = rng.choice([1, 3, 4, 6, 8, 12, 16, 20], 3)
        for level in range(4):
            column = K_LEVEL + level * LEVEL_FIELDS
            chip[column + L_BANDWIDTH] = 10 ** rng.uniform(11, 14)
            chip[column + L_LATENCY] = rng.choice([0.0, 1e-10]) if level == 3 else 0.0
            if level < 3:
                chip[column + L_SHARE] = 2 * rng.choice([3, 5, 8, 12, 20, 40, 100, 300])
        out = np.zeros(exact_tiling.GEMM_COLUMNS)
        exact_tiling.exact_gemm(chip, float(m), float(k), float(n), 2.0, out)
        assert out[0] == pytest.approx(enumerated(chip, int(m), int(k), int(n)), rel=1e-12)


def test_tile_sizes_are_all_powers_of_two_and_divisors():
    out = np.empty(exact_tiling.MAX_SIZES)
    for extent in (1, 2, 7, 12, 36, 64, 97, 100, 5040):
        count = exact_tiling.tile_sizes(float(extent), out)
        assert out[:count].tolist() == sizes_of(extent)


def test_every_operand_crosses_every_level_at_least_once():
    out = np.zeros(exact_tiling.GEMM_COLUMNS)
    for chip in generate(TECH, random_allocations(30, 1)):
        exact_tiling.exact_gemm(chip, 96.0, 4096.0, 640.0, 2.0, out)
        if math.isfinite(out[0]):
            least = 2 * (96 * 4096 + 4096 * 640 + 96 * 640)
            assert all(q >= least for q in out[exact_tiling.G_Q1 : exact_tiling.G_Q3 + 1])
            tile = out[exact_tiling.G_T2 : exact_tiling.G_T2N + 1]
            assert np.all(out[exact_tiling.G_T1 : exact_tiling.G_T1N + 1] <= tile)
            assert out[0] >= out[exact_tiling.G_COMPUTE]


@pytest.mark.parametrize("column", [A_TDP, *range(3, ALLOCATION_COLUMNS)])
def test_more_of_any_resource_is_never_slower(column):
    rows = random_allocations(12, column)
    for workload, strategy in (
        (Gemm(2048, 4096, 1024), Strategy()),
        (Lstm(256, 4096, 1, 1024, 4), Strategy.parse("d4")),
    ):
        less = evaluate(TECH, rows, workload, strategy)
        for factor in (1.02, 1.5):
            more = rows.copy()
            more[:, column] *= factor
            assert np.all(
                evaluate(TECH, more, workload, strategy).time_s <= less.time_s * (1 + 1e-9)
            )


def test_a_larger_package_is_never_slower():
    rows = random_allocations(20, 3)
    less = evaluate(TECH, rows, Gemm(2048, 2048, 2048)).time_s
    rows[:, A_NODE_AREA] *= 1.4
    assert np.all(evaluate(TECH, rows, Gemm(2048, 2048, 2048)).time_s <= less * (1 + 1e-9))


@pytest.mark.parametrize("pair", [("N12", "N7"), ("N7", "N5"), ("authors10", "authors7")])
def test_a_newer_node_is_never_slower(pair):
    times = []
    for node in pair:
        config = config_from({"system": "V100", "technology": {"logic": node}})
        rows = random_allocations(15, 5)
        times.append(evaluate(technology_row(config), rows, Gemm(4096, 4096, 4096)).time_s)
    assert np.all(times[1] <= times[0] * (1 + 1e-9))


def test_a_chip_uses_no_more_area_and_power_than_it_has():
    rows = random_allocations(300, 2)
    chips = generate(TECH, rows)
    assert np.all(chips[:, K_AREA_USED] <= rows[:, A_CHIP_AREA] * (1 + 1e-9))
    assert np.all(chips[:, K_POWER_USED] <= rows[:, A_TDP] * (1 + 1e-9))
    assert np.isfinite(chips).all()


def test_any_fractions_give_a_time_or_a_reason():
    rng = np.random.default_rng(11)
    rows = random_allocations(200, 4)
    rows[:, 3:] = 10 ** rng.uniform(-6, -0.9, rows[:, 3:].shape)
    points = evaluate(TECH, rows, Gemm(512, 512, 512))
    assert set(points.reason.tolist()) <= set(REASONS)
    assert np.all((points.reason == OK) <= np.isfinite(points.time_s))
    assert np.all((points.reason == OK) | (points.reason > 0))


def test_a_model_that_does_not_fit_and_fractions_above_one_have_their_reasons():
    big = evaluate(TECH, ALLOC, Lstm(4096, 800000, 2, 19968, 20))
    assert big.reason[0] == MEMORY_OVERFLOW
    assert big.memory_bytes[0] > big.capacity_bytes[0]
    greedy = ALLOC.copy()
    greedy[3] = 0.95
    assert evaluate(TECH, greedy, Gemm(64, 64, 64)).reason[0] == OVER_BUDGET


def test_the_voltage_root_solves_its_cubic():
    for c in (1e-30, 1e-9, 1e-3, 0.3, 50.0):
        for vt in (0.0, 0.2, 0.4):
            u = overdrive(c, vt)
            assert u * u * (u + vt) == pytest.approx(c, rel=1e-12)


def test_no_link_carries_two_transfers_and_no_device_runs_two_kernels():
    graph = backward_graph(6, 4, 4)
    durations = np.random.default_rng(3).uniform(0.1, 2.0, 11)
    finish = np.empty(graph.resource.size)
    run(*graph, durations, True, finish)
    length = np.where(graph.kind >= 0, durations[graph.kind], 0.0)
    for resource in set(graph.resource.tolist()) - {-1}:
        mine = np.flatnonzero(graph.resource == resource)
        ends = np.sort(finish[mine])
        starts = np.sort(finish[mine] - length[mine])
        assert np.all(starts[1:] >= ends[:-1] - 1e-9)
    for task in range(graph.resource.size):
        for child in graph.successors[graph.first[task] : graph.first[task + 1]]:
            assert finish[child] - length[child] >= finish[task] - 1e-9


def test_links_that_are_shared_slow_a_step_down():
    workload, strategy = Lstm(256, 4096, 1, 1024, 4), Strategy.parse("d4")
    alone = evaluate(TECH, ALLOC, workload, strategy)
    shared = evaluate(TECH, ALLOC, workload, strategy, place=place_row(4, inter_derate=4))
    assert shared.time_s[0] > alone.time_s[0]


def test_energy_falls_with_the_energy_per_bit():
    less = TECH.copy()
    less[14] *= 0.5
    pair = [evaluate(t, ALLOC, Gemm(256, 4096, 4096), energy=True) for t in (TECH, less)]
    assert 0 < pair[1].energy_j[0] < pair[0].energy_j[0]
    assert pair[0].chips[0, K_FLOW] == 4
