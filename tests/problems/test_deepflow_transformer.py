"""A GPT model on 64 devices: the deepflow search with a transformer's training step."""

from __future__ import annotations

import numpy as np
import pytest

from mohsearch.evaluators.crossflow.design_points import evaluate_points
from mohsearch.evaluators.crossflow.design_space import G_STRATEGY
from mohsearch.evaluators.crossflow.transformer import Transformer
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.deepflow import build, product_flop
from mohsearch.problems.deepflow_workloads import load_iteration
from mohsearch.testing.contracts import check_problem

STRATEGIES = ("d64", "RC-1-8-d8", "CR-8-d8", "CR-8-d4-p2", "CR-8-p8", "CR-16-d4", "CR-64")
PARAMETERS = 8.3e9
# Narayanan et al., SC 2021, equation 3, activations recomputed: 96 B s l h^2 (1 + s/6h + V/16lh).
B, S, LAYERS, H, V = 512, 1024, 72, 3072, 51200
PUBLISHED_FLOP = 96 * B * S * LAYERS * H**2 * (1 + S / (6 * H) + V / (16 * LAYERS * H))


@pytest.fixture(scope="module")
def v100():
    options = {
        "devices": 64, "strategies": STRATEGIES, "fractions": "system", "chip_area_mm2": "system",
    }  # fmt: skip
    return build(options, "gpt_8b", objectives=["time_s", "energy_j"])


@pytest.fixture(scope="module")
def every(v100):
    X = np.tile(v100.space.lower, (len(STRATEGIES), 1))
    X[:, G_STRATEGY] = np.arange(len(STRATEGIES))
    return X


def test_the_card_holds_the_published_model():
    workload = load_iteration("gpt_8b")
    assert isinstance(workload, Transformer)
    assert (workload.batch_size, workload.sequence_length) == (B, S)
    assert (workload.model.layers, workload.model.hidden) == (LAYERS, H)
    weights = sum(layer.count * layer.parameters for layer in workload.cut(1).layers)
    # The head's weights are the embedding's; both layers count them.
    assert weights - V * H == pytest.approx(PARAMETERS, rel=0.005)


def test_a_step_does_the_operations_of_the_published_formula(v100, every):
    flop, samples = product_flop(v100.workload)
    assert samples == B
    assert flop == pytest.approx(PUBLISHED_FLOP, rel=1e-12)
    found = evaluate_points(v100.points(every[:1]), v100.workload, v100.point_options)
    # element-wise ops are in the figure too
    assert PUBLISHED_FLOP < found.flop[0] < 1.005 * PUBLISHED_FLOP


def test_what_fits_into_memory_and_what_does_not_divide_the_model_is_told_apart(v100, every):
    values = v100.metrics(every)
    runs = dict(zip(STRATEGIES, values["missing_parts"] == 0, strict=True))
    assert not runs.pop("CR-64")  # 32 heads
    assert all(runs.values())
    fits = dict(zip(STRATEGIES, values["memory_excess"] <= 0, strict=True))
    # weights, gradients and optimizer state take 16 bytes a parameter or more: 16 GiB are too few
    assert not fits["d64"]
    assert not fits["CR-8-d8"]
    assert fits["CR-8-d4-p2"]
    assert values["memory_bytes"][0] > 16 * PARAMETERS
    # kp1 and kp2 mean the same to a transformer
    rc, cr = STRATEGIES.index("RC-1-8-d8"), STRATEGIES.index("CR-8-d8")
    assert values["time_s"][rc] == pytest.approx(values["time_s"][cr], rel=1e-12)


def test_no_strategy_does_fewer_operations_or_beats_the_ideal(v100, every):
    values = v100.metrics(every)
    found = evaluate_points(v100.points(every), v100.workload, v100.point_options)
    runs = np.isfinite(found.time_s)
    assert runs.sum() == len(STRATEGIES) - 1
    assert (found.flop[runs] >= PUBLISHED_FLOP * (1 - 1e-12)).all()
    ideal = v100.ideal_point()
    assert 0 < ideal["time_s"] < values["time_s"].min()
    assert 0 < ideal["energy_j"] < values["energy_j"].min()
    assert values["time_s"].min() < 20 * ideal["time_s"]


def test_a_search_over_everything_keeps_its_promises():
    options = {"devices": 64, "logic": ["N12", "N7"], "memory": ["HBM2", "HBM2e"]}
    problem = build(options, "gpt_8b", objectives=["time_s", "energy_j", "cost_usd"])
    variation = load_portfolio("deepflow", "simplex").applicable(problem).build(problem)
    X = variation.sampling(problem, 30, random_state=np.random.default_rng(3)).get("X")
    check_problem(problem, np.asarray(X))
    feasible = (problem.metrics(np.asarray(X))["memory_excess"] <= 0).sum()
    assert 0 < feasible < 30
