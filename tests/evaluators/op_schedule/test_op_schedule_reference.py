"""Operator schedules beside published optima and enumerations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mohsearch.evaluators.op_schedule.check import find_fault
from mohsearch.evaluators.op_schedule.door import evaluate
from mohsearch.evaluators.op_schedule.files import read_instances
from mohsearch.evaluators.op_schedule.instance import Schedule, ScheduleInstance
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, solve

SHELF = Path(__file__).resolve().parents[3] / "evaluators" / "reference" / "phaze"
CASES = SHELF / "schedule_cases.json"
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


def task_graphs():
    graphs = json.loads(gzip.decompress((SHELF / "task_graphs.json.gz").read_bytes()))
    for graph in graphs:
        edges = [(p, i) for i, preds in enumerate(graph["preds"]) for p in preds]
        for cores, optimum in graph["optimal_makespan"].items():
            kinds, lengths = [0] * len(graph["duration"]), graph["duration"]
            instance = ScheduleInstance.build(kinds, lengths, lengths, edges, int(cores), 1)
            yield f"{graph['id']} on {cores}", instance, optimum


def check_task_graphs(most_tasks, time_limit_s):
    compared = proven = 0
    for name, instance, optimum in task_graphs():
        if len(instance) > most_tasks:
            continue
        result = solve(instance, ScheduleOptions(time_limit_s=time_limit_s))
        assert result.bound <= optimum <= result.makespan, name
        compared += 1
        proven += result.is_optimal
    return compared, proven


def test_standard_task_graphs_of_fifty_tasks_are_solved_to_their_known_optima():
    compared, proven = check_task_graphs(60, 5.0)
    assert compared == proven > 20


@pytest.mark.slow
def test_standard_task_graphs_of_a_hundred_tasks_are_solved_but_for_a_few():
    compared, proven = check_task_graphs(200, 5.0)
    assert proven >= 0.95 * compared > 100
