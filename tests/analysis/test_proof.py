"""What a search proved is told beside its front, and tightens the bounds that are shown."""

import json

import numpy as np

from mohsearch.analysis.fronts import Front, Metric
from mohsearch.analysis.proof import proof_in_words, with_proven_values

SPEED = Metric("throughput_samples_per_s", "1/s", "max", "throughput")
AREA = Metric("area_mm2", "mm2", "min", "area")


def front(**report):
    full = {"designs": 1000, "evaluated": 10, "complete": True, "tolerance": 0.0, "gap": {}}
    full |= {"proven_value": {}, **report}
    values = {"throughput_samples_per_s": np.array([8.0]), "area_mm2": np.array([5.0])}
    return Front(
        "run",
        {"engine_report": json.dumps(full)},
        (SPEED, AREA),
        values,
        tuple(values),
        ideal_point={"throughput_samples_per_s": 20.0, "area_mm2": 4.0},
    )


def test_an_optimum_is_called_one():
    words = proof_in_words(front(status="optimal"))
    assert words == "optimal: 10 of 1,000 designs evaluated, bounds leave out the rest"


def test_tolerance_and_open_schedules_are_told_with_what_they_leave_open():
    words = proof_in_words(
        front(
            status="feasible",
            tolerance=0.01,
            may_still_improve=3,
            gap={"throughput_samples_per_s": 0.0086, "area_mm2": None},
        )
    )
    assert "every design left out is within 0.01 of a solution" in words
    assert "3 solutions have schedules not proven optimal" in words
    assert words.endswith("by more than throughput samples 0.86%")


def test_an_interrupted_search_claims_nothing():
    assert proof_in_words(front(status="feasible", complete=False)).startswith("not finished")


def test_other_engines_prove_nothing():
    assert proof_in_words(Front("a", {"engine_report": {"level": 6}}, (), {}, ())) == ""
    assert proof_in_words(Front("a", {}, (), {}, ())) == ""


def test_the_tighter_of_two_bounds_is_shown():
    proven = {"throughput_samples_per_s": 9.0, "area_mm2": 3.0}
    shown = with_proven_values(front(status="feasible", proven_value=proven)).ideal_point
    assert shown == {"throughput_samples_per_s": 9.0, "area_mm2": 4.0}
