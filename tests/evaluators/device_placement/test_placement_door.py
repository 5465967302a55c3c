"""What the door of the placement accepts and refuses."""

from __future__ import annotations

import copy
import json

import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.device_placement.door import evaluate

GRAPH = {
    "maxMemoryPerDevice": 100,
    "maxDevices": 4,
    "bandwidth": 10.0,
    "mbsInBatch": 8,
    "activationRecomputation": False,
    "optimizerAlgorithm": "SGD",
    "nodes": {
        "1": [
            {
                "id": k,
                "parameterSize": 1,
                "activationSize": 2,
                "optimalLatencyFw": 1.0,
                "optimalLatencyBw": 2.0,
                "isTensorParallelized": False,
            }
            for k in (-1, 0, 1)
        ]
    },
    "edges": {
        "1": [
            {"sourceId": -1, "destId": 0, "communicationCost": 1},
            {"sourceId": 0, "destId": 1, "communicationCost": 1},
        ]
    },
}


def written(tmp_path, data, name="net.json"):
    path = tmp_path / name
    path.write_text(json.dumps(data))
    return path


def test_a_single_problem_is_named_after_its_file(tmp_path):
    report = evaluate(written(tmp_path, GRAPH))
    result = report.document["net"]
    # four replicas with 2 microbatches each: 2 * 9 s and 4 * 3/4 * 3 bytes / (10 bytes/s)
    assert result["finalTimePerBatch"] == pytest.approx(18.9)
    assert result["stages"][0]["memory_bytes"] == pytest.approx(2 * 3 + 6)
    assert report.rows[0]["layers_by_stage"] == "3"


def test_mixed_precision_adam_counts_eight_copies(tmp_path):
    small = evaluate(written(tmp_path, GRAPH)).document["net"]["stages"][0]["memory_bytes"]
    data = {**GRAPH, "optimizerAlgorithm": "AdamMixedPrecision"}
    large = evaluate(written(tmp_path, data)).document["net"]["stages"][0]["memory_bytes"]
    assert large - small == pytest.approx(6 * 3)


def change(path, value):
    data = copy.deepcopy(GRAPH)
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("bandwidth",), 0, "bandwidth"),
        (("nodes", "1", 0, "id"), 0, "a second layer 0"),
        (("edges", "1", 0, "destId"), 9, r"edges.1\[0\].destId: no layer 9"),
        (("edges", "1", 1, "destId"), -1, "circle"),
        (("edges", "1", 1), GRAPH["edges"]["1"][0], "a second edge"),
        (("nodes", "2"), GRAPH["nodes"]["1"][:2], "not the same layers"),
        (("nodes", "1", 0, "isTensorParallelized"), True, "width 1"),
        (("nodes", "1", 0, "optimalLatencyFw"), -1, "optimalLatencyFw"),
    ],
)
def test_a_wrong_value_is_named_with_its_field(tmp_path, path, value, message):
    with pytest.raises(InputError, match=message):
        evaluate(written(tmp_path, change(path, value)))


@pytest.mark.parametrize("data", [[], 3, [{"id": "a"}], {"cases": [GRAPH | {"id": "a"}] * 2}])
def test_what_holds_no_proper_case_is_refused(tmp_path, data):
    with pytest.raises(InputError):
        evaluate(written(tmp_path, data))


def test_a_missing_width_of_a_chain_is_named(tmp_path):
    layer = {"out_act": 1, "by_t": {"1": {"fw": 1, "bw": 1, "weights": 1, "opt": 1, "acts": 1}}}
    case = {
        "layers": [layer],
        "tmp_widths": [1, 2],
        "K": 1,
        "B": 1,
        "bandwidth": 1,
        "recompute": False,
        "hbm": 9,
    }
    with pytest.raises(InputError, match=r"cases\[0\].layers\[0\].by_t: no costs for width 2"):
        evaluate(written(tmp_path, [case]))


def test_one_microbatch_needs_the_same_memory_under_both_schedules(tmp_path):
    data = {**GRAPH, "mbsInBatch": 1, "maxDevices": 1, "maxMemoryPerDevice": 12}
    plans = [
        evaluate(written(tmp_path, {**data, "pipelineSchedule": name})).document["net"]
        for name in ("1F1B", "GPipe")
    ]
    assert plans[0]["stages"][0]["memory_bytes"] == plans[1]["stages"][0]["memory_bytes"] == 12


def test_too_wide_a_graph_is_refused_with_its_file_and_case(tmp_path):
    nodes = [{**GRAPH["nodes"]["1"][0], "id": k} for k in range(18)]
    edges = [{"sourceId": 0, "destId": k, "communicationCost": 1} for k in range(1, 18)]
    path = written(tmp_path, {**GRAPH, "nodes": {"1": nodes}, "edges": {"1": edges}})
    with pytest.raises(InputError, match=r"net\.json: case 'net': the layer graph branches"):
        evaluate(path)


def test_half_an_expert_plan_is_refused(tmp_path):
    with pytest.raises(InputError, match="fixedTMPC: missing: an expert plan has all three"):
        evaluate(written(tmp_path, {**GRAPH, "fixedPP": 2, "fixedDP": 1}))
