"""Metrics beside time: conservation of energy, budgets, cost, mappings."""

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import allocation_row
from mohsearch.evaluators.crossflow.design_points import (
    ORDERS,
    DesignPoints,
    PointOptions,
    evaluate_points,
    technology_of,
)
from mohsearch.evaluators.crossflow.evaluate import Gemm, Lstm, Strategy, evaluate
from mohsearch.evaluators.crossflow.layout import (
    A_CHIP_AREA,
    A_NODE_AREA,
    A_TDP,
    ALLOCATION_COLUMNS,
    K_FLOP_ENERGY,
    K_LEVEL,
    L_ENERGY,
    L_STATIC,
    LEVEL_FIELDS,
)
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.evaluators.crossflow.reasons import OK

V100 = allocation_row(config_from({"system": "V100"}))
TECHNOLOGY = (technology_of("V100"), technology_of("V100", logic="N7", memory="HBM2e"))
MODEL = Lstm(256, 4096, 2, 1024, 4)
STRATEGIES = np.array(
    [(0, 1, 1, 8, 1), (1, 4, 1, 2, 1), (2, 2, 4, 1, 1), (1, 2, 1, 1, 4), (0, 1, 1, 1, 1)]
)


def population(count, seed):
    rng = np.random.default_rng(seed)
    rows = np.tile(V100, (count, 1))
    for low, high in ((3, 10), (10, 17), (17, ALLOCATION_COLUMNS)):
        rows[:, low:high] = rng.dirichlet(np.ones(high - low), count)
    strategies = STRATEGIES[rng.integers(0, len(STRATEGIES), count)]
    return DesignPoints(TECHNOLOGY, rows, rng.integers(0, 2, count), strategies)


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("workload", [MODEL, Gemm(512, 2048, 4096)])
def test_power_times_time_is_energy_and_no_budget_is_exceeded(workload, nodes):
    points = population(150, nodes)
    m = evaluate_points(points, workload, PointOptions(nodes_per_package=nodes))
    ran = np.isfinite(m.time_s)
    assert ran.mean() > 0.5
    assert m.energy_j[ran] == pytest.approx((m.power_w * m.time_s * m.devices)[ran], rel=1e-12)
    assert np.all(m.power_w[ran] <= m.peak_power_w[ran])
    assert np.all(m.peak_power_w <= points.allocation[:, A_TDP] * (1 + 1e-9))
    assert np.all(m.die_area_mm2 <= points.allocation[:, A_CHIP_AREA] * (1 + 1e-9))
    assert np.all(m.used_area_mm2 <= m.die_area_mm2)
    assert np.all(m.area_mm2 <= points.allocation[:, A_NODE_AREA] * (1 + 1e-9))
    assert np.all((m.utilization >= 0) & (m.utilization <= 1))
    assert np.all((m.headroom_bytes >= 0) | (m.reason != OK))
    assert np.isfinite(m.cost_usd).all()


def test_the_energy_of_a_product_is_the_sum_over_what_moves_and_computes():
    points = evaluate(TECHNOLOGY[0].row, V100, Gemm(256, 256, 256), energy=True)
    chip = points.chips[0]
    # One tile of each operand fits everywhere, so every level but the registers moves it once.
    compulsory = 2 * 3 * 256 * 256
    leak = sum(chip[K_LEVEL + i * LEVEL_FIELDS + L_STATIC] for i in range(4))
    base = 2 * 256**3 * chip[K_FLOP_ENERGY] + leak * points.time_s[0]
    far = compulsory * chip[K_LEVEL + 3 * LEVEL_FIELDS + L_ENERGY]
    assert points.energy_j[0] > base + far
    longer = evaluate(
        TECHNOLOGY[0].row, V100, Gemm(256, 256, 256), energy=True, launch_overhead_s=1.0
    )
    extra = longer.energy_j[0] - points.energy_j[0]
    assert extra == pytest.approx(leak * (longer.time_s[0] - points.time_s[0]))


def test_the_best_of_all_orders_is_the_fastest_of_the_24():
    for code in ((2, 2, 4, 2, 1), (1, 4, 1, 4, 1), (1, 4, 1, 2, 4)):
        rows = np.tile(V100, (24, 1))
        rows[:, 8] = rows[:, 15] = 0.05
        options = PointOptions(nodes_per_package=4, inter="chain", intra="mesh")
        each = evaluate_points(
            DesignPoints(TECHNOLOGY[:1], rows, None, code, np.arange(24)), MODEL, options
        )
        best = evaluate_points(DesignPoints(TECHNOLOGY[:1], rows[:1], None, code), MODEL, options)
        assert each.mapping.tolist() == list(range(24))
        assert best.time_s[0] == each.time_s.min()
        assert 0 <= best.mapping[0] < len(ORDERS)


def test_a_population_is_evaluated_as_its_points_one_by_one():
    points = population(12, 5)
    together = evaluate_points(points, MODEL, PointOptions(nodes_per_package=4))
    for i in range(12):
        one = DesignPoints(
            TECHNOLOGY, points.allocation[i : i + 1], points.which[i : i + 1], points.strategy[i]
        )
        alone = evaluate_points(one, MODEL, PointOptions(nodes_per_package=4))
        for name in ("time_s", "energy_j", "cost_usd", "area_mm2", "mapping", "reason"):
            assert getattr(alone, name)[0] == getattr(together, name)[i], name


def test_a_single_device_needs_no_order_and_has_the_plain_time():
    m = evaluate_points(DesignPoints(TECHNOLOGY[:1], V100[None]), MODEL)
    plain = evaluate(TECHNOLOGY[0].row, V100, MODEL, Strategy())
    assert m.time_s[0] == plain.time_s[0]
    assert m.throughput_per_s[0] == pytest.approx(256 / plain.time_s[0])
    assert m.system_cost_usd[0] == m.cost_usd[0]


def test_quoted_bandwidths_replace_the_generators():
    fast = technology_of("V100", memory="HBM3", inter_network="GDR_x8", quoted_bandwidths=True)
    assert fast.overrides[0] == 2.6e12
    assert fast.overrides[2] == 4e11
    with pytest.raises(InputError, match="serdes20 has no quoted bandwidth"):
        technology_of("V100", quoted_bandwidths=True)


def test_dearer_nodes_and_larger_dies_cost_more():
    rows = np.tile(V100, (2, 1))
    rows[1, A_CHIP_AREA] = 500
    rows[1, A_NODE_AREA] = 915
    for technology in TECHNOLOGY:
        m = evaluate_points(DesignPoints((technology,), rows), MODEL)
        assert m.cost_usd[0] > m.cost_usd[1]
    pair = [
        evaluate_points(DesignPoints((t,), V100[None]), MODEL).cost_usd[0]
        for t in (technology_of("V100", logic="N7"), technology_of("V100", logic="N5"))
    ]
    assert pair[1] > pair[0]


def test_arrays_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="names no technology"):
        evaluate_points(DesignPoints(TECHNOLOGY, V100[None], np.array([2])), MODEL)
    with pytest.raises(InputError, match="must have 1 numbers"):
        evaluate_points(DesignPoints(TECHNOLOGY, V100[None], np.array([0, 1])), MODEL)
