"""Design points per second of CrossFlow, beside the authors' program."""

import numpy as np
import pytest

from mohsearch.evaluators.crossflow.config import allocation_row, technology_row
from mohsearch.evaluators.crossflow.design_points import DesignPoints, technology_of
from mohsearch.evaluators.crossflow.design_points import (
    evaluate_points as evaluate_points_with_metrics,
)
from mohsearch.evaluators.crossflow.evaluate import AUTHORS, CORRECTED, Gemm, Lstm, Model, Strategy
from mohsearch.evaluators.crossflow.evaluate import evaluate as evaluate_points
from mohsearch.evaluators.crossflow.layout import ALLOCATION_COLUMNS
from mohsearch.evaluators.crossflow.placement import best_placement, placements
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.evaluators.crossflow.transformer import Transformer

PROGRAM_CPU_S = {"gemm": 0.107, "lstm": 1.00}
"""CPU seconds a point of the authors' program (566c192) on a core of an AMD EPYC."""
MODELS = {
    "authors": AUTHORS,
    "corrected": CORRECTED,
    "corrected, all bundles built": Model(choose_bundles=False),
}


def allocations(count):
    config = config_from({"system": "V100"})
    rng = np.random.default_rng(0)
    rows = np.tile(allocation_row(config), (count, 1))
    for low, high in ((3, 10), (10, 17), (17, ALLOCATION_COLUMNS)):
        rows[:, low:high] = rng.dirichlet(np.ones(high - low), count)
    return technology_row(config), rows


@pytest.mark.benchmark
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("workload", ["gemm", "lstm"])
def test_points_per_second(benchmark, capsys, name, workload):
    count = 2000 if workload == "gemm" else 500
    tech, rows = allocations(count)
    work, strategy = Gemm(8192, 8192, 8192), Strategy()
    if workload == "lstm":
        work, strategy = Lstm(4096, 40000, 2, 4096, 20), Strategy.parse("d8")
    evaluate_points(tech, rows[:2], work, strategy, model=MODELS[name])
    result = benchmark.pedantic(
        evaluate_points, (tech, rows, work, strategy), {"model": MODELS[name]}, rounds=3
    )
    assert np.isfinite(result.time_s).mean() > 0.7
    rate = count / benchmark.stats.stats.min
    with capsys.disabled():
        print(
            f"\n{workload}, {name}: {rate:,.0f} points/s,"
            f" {rate * PROGRAM_CPU_S[workload]:,.0f} times the authors' program"
        )


@pytest.mark.benchmark
def test_all_orders_of_512_devices(benchmark, capsys):
    best_placement((2, 1, 1, 1), 1)
    result = benchmark.pedantic(placements.__wrapped__, ((4, 8, 16, 1), 16, "torus"), rounds=3)
    with capsys.disabled():
        print(f"\n{len(result)} placements in {benchmark.stats.stats.min:.3f} s")
    assert len({s.order for s in result}) == 24


@pytest.mark.benchmark
def test_transformer_points_per_second(benchmark, capsys):
    _, rows = allocations(60)
    work = Transformer.named("megatron-2.5b", batch_size=64)
    points = DesignPoints((technology_of("V100"),), rows, None, (1, 4, 1, 4, 4))
    evaluate_points_with_metrics(points, work)
    benchmark.pedantic(evaluate_points_with_metrics, (points, work), rounds=3)
    with capsys.disabled():
        print(f"\n{60 / benchmark.stats.stats.min:,.0f} transformer steps/s with all metrics")
