"""Operator schedules beside published optima and enumerations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mohsearch.evaluators.op_schedule.check import find_fault
from mohsearch.evaluators.op_schedule.door import evaluate
from mohsearch.evaluators.op_schedule.files import read_instances
from mohsearch.evaluators.op_schedule.instance import Schedule

CASES = (
    Path(__file__).resolve().parents[3]
    / "evaluators"
    / "reference"
    / "phaze"
    / "schedule_cases.json"
)
OPEN = {"attn_h8_tc4_vc2_f1", "attn_h8_tc4_vc2_f2"}
"""Cases that take longer than a quick test."""


@pytest.fixture(scope="module")
def cases():
    return json.loads(CASES.read_text())["cases"]


@pytest.fixture(scope="module")
def results(cases, tmp_path_factory):
    path = tmp_path_factory.mktemp("schedules") / "cases.json"
    path.write_text(json.dumps([case for case in cases if case["id"] not in OPEN]))
    return evaluate(path).document


def test_every_known_optimum_is_found_and_proven(cases, results):
    known = [case for case in cases if case["expected"]["optimum"] is not None]
    assert len(known) == 56
    for case in known:
        result = results[case["id"]]
        assert result["makespan"] == case["expected"]["optimum"], case["id"]
        assert result["lower_bound"] == case["expected"]["optimum"], case["id"]
        assert result["status"] == "optimal", case["id"]


def test_cases_without_a_known_optimum_are_proven_within_their_published_range(cases, results):
    unknown = [case for case in cases if case["expected"]["optimum"] is None]
    for case in unknown:
        if case["id"] in OPEN:
            continue
        result = results[case["id"]]
        assert result["status"] == "optimal", case["id"]
        assert case["expected"]["bound"] <= result["makespan"] <= case["expected"]["best"]


def test_every_schedule_is_valid(results):
    for case in read_instances(CASES):
        if case.name not in OPEN:
            result = results[case.name]
            schedule = Schedule(tuple(result["start"]), tuple(map(bool, result["intra"])))
            assert find_fault(case.instance, schedule) is None
            assert schedule.makespan(case.instance) == result["makespan"]


def test_fused_operators_of_the_pairing_case_really_get_pairs(results):
    result = results["pairing_counterexample"]
    assert result["makespan"] == 19
    fused = [result["cores"][k] for k in (0, 4, 12)]
    assert all(tensor == vector for tensor, vector in fused)
