"""Placements beside the results of PHAZE's own program and of a published enumeration."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mohsearch.evaluators.device_placement.door import evaluate

SHELF = Path(__file__).resolve().parents[3] / "evaluators" / "reference" / "phaze"


@pytest.fixture(scope="module")
def reference():
    return json.loads(gzip.decompress((SHELF / "placement_cases.json.gz").read_bytes()))["cases"]


@pytest.fixture(scope="module")
def results(reference, tmp_path_factory):
    path = tmp_path_factory.mktemp("placement") / "cases.json"
    path.write_text(json.dumps(reference))
    return evaluate(path).document


def test_every_case_of_the_published_program_is_equal(reference, results):
    compared = 0
    for case in reference:
        result, expected = results[case["id"]], case["expected"]
        if expected["refused"]:
            continue
        assert result["finalTimePerBatch"] == (
            pytest.approx(expected["time_per_batch_s"], rel=1e-9)
            if expected["time_per_batch_s"] is not None
            else None
        ), case["id"]
        assert result["bound"] == result["finalTimePerBatch"]
        compared += 1
    assert compared >= 39


def test_expert_plans_cost_what_the_published_program_says(reference, results):
    known = [case for case in reference if case["expected"]["expert_time_per_batch_s"] is not None]
    assert len(known) >= 35
    for case in known:
        assert results[case["id"]]["fixedStrategyTimePerBatch"] == pytest.approx(
            case["expected"]["expert_time_per_batch_s"], rel=1e-9
        ), case["id"]


def test_an_expert_plan_that_does_not_run_leaves_the_search_alone(results):
    for case in ("E02_fixed_oom_aborts", "E17_fixed_width_missing", "E18_fixed_too_many_devices"):
        assert results[case]["status"] == "optimal"
        assert results[case]["fixedStrategyTimePerBatch"] is None
        assert results[case]["fixedStrategyProblem"]


def test_a_network_that_fits_nowhere_is_reported_infeasible(results):
    result = results["E01_oom_everything"]
    assert result["status"] == "infeasible"
    assert result["stages"] == []
    assert result["finalTimePerBatch"] is None


def test_a_layer_graph_with_branches_is_placed_too(results):
    result = results["E05_fork_join_unsupported"]
    assert result["status"] == "optimal"
    assert sorted(node for stage in result["stages"] for node in stage["nodes"]) == [0, 1, 2, 3]


def test_no_result_is_below_the_bound_that_needs_no_search(results):
    for name, result in results.items():
        if result["finalTimePerBatch"] is not None:
            assert result["balanceBound"] <= result["finalTimePerBatch"] * (1 + 1e-12), name


def test_every_chain_equals_its_enumeration():
    document = evaluate(SHELF / "placement_chains.json").document
    cases = json.loads((SHELF / "placement_chains.json").read_text())
    assert len(cases) == 10
    for case in cases:
        result = document[case["id"]]
        optimum = case["optimum_time_per_batch"]
        assert result["finalTimePerBatch"] == pytest.approx(optimum, rel=1e-9)
        assert result["timePerBatchWithoutTransfers"] == pytest.approx(
            case["optimum_without_activation_comm"], rel=1e-9
        )
