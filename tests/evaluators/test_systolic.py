"""The evaluator ``systolic`` against SCALE-Sim's tables and a walked wavefront."""

import csv
import itertools

import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InputError
from mohsearch.evaluators import EVALUATORS
from mohsearch.evaluators.systolic import (
    DATAFLOWS,
    evaluate,
    systolic_cycles,
    systolic_utilization,
)

TABLE = builtin_root() / "evaluators" / "reference" / "moham" / "systolic_gemm.csv"


def test_every_row_of_the_scale_sim_tables_is_equal():
    with TABLE.open(newline="") as file:
        reference = list(csv.DictReader(file))
    report = EVALUATORS.load("systolic")(TABLE)
    assert report.natural_format == "csv"
    assert {row["dataflow"] for row in reference} == set(DATAFLOWS)
    equal = sum(
        ours["cycles"] == int(theirs["cycles"]) and ours["util"] == float(theirs["util"])
        for ours, theirs in zip(report.rows, reference, strict=True)
    )
    print(f"\nsystolic rows equal: {equal} of {len(reference)}")
    assert equal == len(reference) == 60


def _walked_cycles(m, n, k, height, width, dataflow):
    """Walk the wavefront of every fold, element by element; return the last busy cycle."""
    rows, columns, stream = {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[dataflow]
    start = 0
    for _row_fold in range(0, rows, height):
        for _column_fold in range(0, columns, width):
            if dataflow != "os":
                start += height  # one row of stationary operands a cycle
            busy = {i + j + t for i in range(height) for j in range(width) for t in range(stream)}
            start += max(busy) + 1
    return start - 1


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_a_wavefront_walked_element_by_element_ends_in_the_same_cycle(dataflow):
    for m, n, k in [(1, 1, 1), (5, 3, 7), (9, 4, 2), (3, 8, 8), (7, 7, 1)]:
        for height, width in [(1, 1), (2, 3), (4, 4), (8, 2)]:
            expected = _walked_cycles(m, n, k, height, width, dataflow)
            assert systolic_cycles(m, n, k, height, width, dataflow) == expected


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_utilization_is_a_share(dataflow):
    for size in (1, 3, 8, 64):
        assert 0 < systolic_utilization(size, size, size, 8, 8, dataflow) <= 1
    assert systolic_utilization(1, 1, 1, 1, 1, "os") == 1


def test_utilization_exceeds_one_only_for_outputs_held_by_a_single_element():
    sizes = range(1, 6)
    above = {
        (dataflow, height, width)
        for dataflow in DATAFLOWS
        for m, n, k, height, width in itertools.product(sizes, repeat=5)
        if systolic_utilization(m, n, k, height, width, dataflow) > 1
    }
    assert above == {("os", 1, 1)}
    assert systolic_utilization(2, 3, 4, 1, 1, "os") == 24 / 23


def test_further_columns_pass_through_and_stale_cycles_are_replaced(tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text(" M,N,K,H,W,dataflow,note,cycles\n8,8,8,8,8, OS ,mine,-1\n")
    (row,) = evaluate(path).rows
    assert (row["note"], row["cycles"], row["dataflow"]) == ("mine", 21, "os")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("M,N,K,H,W\n1,1,1,1,1\n", "header"),
        ("M,M,N,K,H,W,dataflow\n1,1,1,1,1,1,os\n", "header"),
        ("", "header"),
        ("M,N,K,H,W,dataflow\n8,8,0,8,8,os\n", "rows[0].K"),
        ("M,N,K,H,W,dataflow\n8,8,8,8,8,os\n8,8,1.5,8,8,os\n", "rows[1].K"),
        ("M,N,K,H,W,dataflow\n1_0,8,8,8,8,os\n", "rows[0].M"),
        ("M,N,K,H,W,dataflow\n٣,8,8,8,8,os\n", "rows[0].M"),
        ("M,N,K,H,W,dataflow\n8," + "9" * 5000 + ",8,8,8,os\n", "rows[0].N"),
        ("M,N,K,H,W,dataflow\n8,8,8,8,8,rs\n", "rows[0].dataflow"),
        ("M,N,K,H,W,dataflow\n8,8,8\n", "rows[0]"),
        ("M,N,K,H,W,dataflow\n8,8,8,8,8,os,7\n", "rows[0]"),
    ],
)
def test_a_malformed_file_is_refused_with_its_field(tmp_path, text, field):
    path = tmp_path / "cases.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        evaluate(path)
    assert caught.value.field == field
    assert caught.value.source == str(path)


@pytest.mark.parametrize("bad", [(0, 1, 1, 1, 1, "os"), (1, 1, 1, 1, 1, "rs")])
def test_nonsense_is_refused_by_the_function(bad):
    with pytest.raises(ValueError, match=r"positive|no dataflow"):
        systolic_cycles(*bad)
