"""What the door of the operator schedule accepts and refuses, and what the checker finds."""

from __future__ import annotations

import json

import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.op_schedule.check import assign_cores, find_fault
from mohsearch.evaluators.op_schedule.door import evaluate
from mohsearch.evaluators.op_schedule.instance import Schedule, ScheduleInstance


def case(**changes):
    data = {
        "id": "a",
        "num_tc": 1,
        "num_vc": 1,
        "ops": [
            {"type": "tensor", "lat": 4, "lat_intra": 4},
            {"type": "VC", "latency": 2.5, "intra_op_latency": 1.5},
        ],
        "edges": [],
    }
    return data | changes


def report(tmp_path, *cases):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(list(cases)))
    return evaluate(path)


def test_decimal_latencies_are_scheduled_exactly(tmp_path):
    result = report(tmp_path, case(edges=[[0, 1]])).document["a"]
    assert result["makespan"] == 5.5
    assert result["status"] == "optimal"
    assert result["intra"] == [0, 1]


def test_an_empty_layer_takes_no_time(tmp_path):
    result = report(tmp_path, case(ops=[])).document["a"]
    assert (result["makespan"], result["status"], result["start"]) == (0, "optimal", [])


def test_edges_may_name_operators(tmp_path):
    ops = [
        {"id": "x", "type": "tensor", "lat": 4, "lat_intra": 4},
        {"id": "y", "type": "vector", "lat": 2, "lat_intra": 2},
    ]
    result = report(tmp_path, case(ops=ops, edges=[["y", "x"]])).document["a"]
    assert result["start"] == [2, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": [[0, 1], [1, 0]]}, r"cases\[0\].edges: the operators form a circle"),
        ({"edges": [[0, 7]]}, r"cases\[0\].edges\[0\]: no operator 7"),
        ({"num_tc": 0}, r"cases\[0\].num_tc: operator 0 needs such a core"),
        ({"ops": [{"type": "tenser", "lat": 1, "lat_intra": 1}]}, "did you mean 'tensor'"),
        ({"ops": [{"type": "tensor", "lat": -1, "lat_intra": 1}]}, r"ops\[0\].lat"),
        ({"ops": [{"type": "tensor", "lat": 1e-12, "lat_intra": 1}]}, "give them as cycles"),
    ],
)
def test_a_wrong_value_is_named_with_its_field(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        report(tmp_path, case(**changes))


def test_two_cases_with_one_id_are_refused(tmp_path):
    with pytest.raises(InputError, match="a second case"):
        report(tmp_path, case(), case())


PAIR = ScheduleInstance.build([0, 1, 2], [4, 4, 4], [2, 2, 2], [(0, 1)], 1, 1)


@pytest.mark.parametrize(
    ("start", "intra", "fault"),
    [
        ((0, 4, 8), (0, 0, 0), None),
        ((0, 3, 8), (0, 0, 0), "operator 1 starts before operator 0 ends"),
        ((0, 4, 2), (0, 0, 0), "at 2 more than 1 tensor cores are in use"),
        ((0, 8, 4), (0, 0, 0), None),
        ((0, 4, 6), (0, 0, 1), "operator 1 runs while operator 2 takes all cores"),
        ((-1, 4, 8), (0, 0, 0), "operator 0 starts before 0"),
        ((0, 4, 8), (0, 0, 1), None),
    ],
)
def test_the_checker_tells_valid_from_invalid(start, intra, fault):
    assert find_fault(PAIR, Schedule(start, tuple(map(bool, intra)))) == fault


def test_counts_alone_do_not_make_pairs():
    # from 3 on one pair has only its tensor core busy and the other only its vector core
    instance = ScheduleInstance.build([0, 2, 1, 1, 2], [4, 2, 3, 4, 1], [9] * 5, [], 2, 2)
    stuck = Schedule((0, 0, 0, 2, 3), (False,) * 5)
    assert find_fault(instance, stuck) == "no assignment gives every fused operator a pair of cores"
    later = Schedule((0, 0, 0, 2, 4), (False,) * 5)
    assert assign_cores(instance, later)[4] in {(0, 0), (1, 1)}


def test_a_layer_of_more_operators_than_python_recurses_is_paired() -> None:
    n = 1100
    layer = ScheduleInstance.build([0] * n, [4] * n, [9] * n, [], n, 1)
    cores = assign_cores(layer, Schedule((0,) * n, (False,) * n))
    assert cores is not None
    assert len({tensor for tensor, _ in cores}) == n
    fewer = ScheduleInstance.build([0] * n, [4] * n, [9] * n, [], n - 1, 1)
    assert find_fault(fewer, Schedule((0,) * n, (False,) * n)) is not None
