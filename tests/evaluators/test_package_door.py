import json

import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators import EVALUATORS

CASE = {
    "id": "two share",
    "instances": [{"id": "a"}, {"id": "b"}],
    "layers": [
        {"name": "conv", "instance": "a", "cycles": 1e6, "memory_bytes": 4e6},
        {"name": "fc", "instance": "b", "cycles": 1e6, "memory_bytes": 4e6},
        {"name": "head", "instance": "a", "cycles": 5e5, "memory_bytes": 0, "predecessors": ["fc"]},
    ],
}


def evaluate(tmp_path, data):
    path = tmp_path / "case.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return EVALUATORS.load("package-schedule")(path)


def ends(report, name):
    return {layer["name"]: layer["end_s"] for layer in report.document[name]["layers"]}


def test_instances_on_two_interfaces_do_not_disturb_each_other(tmp_path):
    report = evaluate(tmp_path, CASE)
    assert ends(report, "two share") == pytest.approx({"conv": 1e-3, "fc": 1e-3, "head": 1.5e-3})
    assert [i["interface"] for i in report.document["two share"]["instances"]] == [0, 1]
    assert len(report.rows) == 3


def test_instances_on_one_interface_slow_each_other_down(tmp_path):
    shared = CASE | {"instances": [{"id": "a", "interface": 0}, {"id": "b", "interface": 0}]}
    report = evaluate(tmp_path, {"cases": [CASE, shared | {"id": ""}]})
    assert ends(report, "2") == pytest.approx({"conv": 2e-3, "fc": 2e-3, "head": 2.5e-3})
    (interface,) = report.document["2"]["interfaces"]
    assert interface["bytes"] == pytest.approx(8e6)
    assert interface["utilisation"] == pytest.approx(0.8)
    assert report.document["2"]["layers"][0]["stalled_s"] == pytest.approx(1e-3)
    assert [row["case"] for row in report.rows] == ["two share"] * 3 + ["2"] * 3


def test_the_slowest_package_and_the_largest_layer_still_have_a_latency(tmp_path):
    slowest = {f"{name}_bandwidth_gb_per_s": 1e-6 for name in ("interface", "link", "system")}
    layers = [layer | {"cycles": 1e18, "memory_bytes": 1e18} for layer in CASE["layers"]]
    report = evaluate(tmp_path, CASE | slowest | {"clock_ghz": 1e-6, "layers": layers})
    # three times 1e18 bytes at 1 kB/s of the whole package
    assert report.document["two share"]["latency_s"] == pytest.approx(3e15)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "no case"),
        ("[3]", "case 1"),
        (CASE | {"instances": []}, "instances"),
        (CASE | {"layers": [CASE["layers"][0] | {"instance": "z"}]}, "no instance 'z'"),
        (CASE | {"layers": [CASE["layers"][2]]}, "no layer 'fc'"),
        (CASE | {"layers": CASE["layers"] + CASE["layers"][:1]}, "same name"),
        (CASE | {"order": ["head", "fc", "conv"]}, "case 1: order: 'head' must come after 'fc'"),
        (
            CASE | {"layers": CASE["layers"][::-1]},
            r"case 1: layers\[0\]: 'head' must come after 'fc'",
        ),
        (
            CASE | {"layers": [layer | {"predecessors": ["head"]} for layer in CASE["layers"]]},
            "case 1: layers: the dependencies form a cycle: head -> head$",
        ),
        ('{"id": "a", "id": "b"}', "duplicate key 'id'"),
        (CASE | {"link_bandwidth_gb_per_s": 1e-50}, "link_bandwidth_gb_per_s: .*0.000001"),
        (CASE | {"system_bandwidth_gb_per_s": 0}, "system_bandwidth_gb_per_s"),
        (CASE | {"order": ["conv", "fc"]}, "each layer once"),
        (CASE | {"sharing": "fair"}, "sharing"),
        (CASE | {"instances": [{"id": "a", "interface": 0}, {"id": "b"}]}, "every instance or"),
        ({"cases": [CASE, CASE]}, "earlier case"),
        (CASE | {"clock_ghz": 0}, "clock_ghz"),
    ],
)
def test_a_wrong_case_is_refused_with_its_place(tmp_path, data, message):
    with pytest.raises(InputError, match=message):
        evaluate(tmp_path, data)
