import csv
import io
import json

import pytest

from mohsearch.evaluators import EVALUATORS
from tests.command_line import run

CASES = "case,M,N,K,H,W,dataflow\na,8,8,8,4,4,os\nb,8,8,8,4,4,ws\n"


@pytest.fixture
def cases(tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text(CASES)
    return path


def test_every_evaluator_is_listed_with_what_it_does_and_takes():
    out = run("evaluate", "--list").stdout
    for name in EVALUATORS.names():
        assert f"{name}\n  does" in out
    assert out.count("  input") == len(EVALUATORS.names())
    assert "``" not in out


def test_the_natural_format_is_printed_and_other_formats_on_request(cases):
    natural = list(csv.DictReader(io.StringIO(run("evaluate", "systolic", cases).stdout)))
    assert [row["case"] for row in natural] == ["a", "b"]
    document = json.loads(run("evaluate", "systolic", cases, "--format", "json").stdout)
    cycles = [row["cycles"] for row in document.values()]
    assert cycles == [int(row["cycles"]) for row in natural]
    table = run("evaluate", "systolic", cases, "--format", "table").stdout
    assert str(cycles[0]) in table


def test_the_suffix_of_the_output_is_its_format(cases, tmp_path):
    result = run("evaluate", "systolic", cases, "-o", tmp_path / "out" / "counts.json")
    assert "wrote 2 cases to" in result.stderr
    assert len(json.loads((tmp_path / "out" / "counts.json").read_text())) == 2
    result = run("evaluate", "systolic", cases, "-o", tmp_path / "a.csv")
    assert "wrote 2 cases in 2 rows to" in result.stderr
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 3
    run("evaluate", "systolic", cases, "-o", tmp_path / "t.txt", "--format", "table", code=2)


def test_cases_are_counted_where_each_has_several_rows(tmp_path):
    layers = [
        {"name": n, "instance": "a", "cycles": 100, "memory_bytes": 5} for n in ("x", "y", "z")
    ]
    path = tmp_path / "package.json"
    path.write_text(json.dumps({"instances": [{"id": "a"}], "layers": layers}))
    for name, said in (("out.json", "wrote 1 case to "), ("out.csv", "wrote 1 case in 3 rows to ")):
        result = run("evaluate", "package-schedule", path, "-o", tmp_path / name)
        assert said in result.stderr


def test_wrong_evaluators_and_files_are_answered_clearly(cases, tmp_path):
    result = run("evaluate", "sistolic", cases, code=2)
    assert "unknown evaluator 'sistolic'; did you mean 'systolic'?" in result.stderr
    assert "no such file" in run("evaluate", "systolic", tmp_path / "x.csv", code=2).stderr
    cases.write_text(CASES.replace("8,8,8,4,4,ws", "8,8,-8,4,4,ws"))
    result = run("evaluate", "systolic", cases, code=2)
    assert str(cases) in result.stderr
    assert "K" in result.stderr
