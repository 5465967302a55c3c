"""The evaluator layer-mapper: cases in, fronts with certificates out, clear refusals."""

import json
from pathlib import Path

import pytest

from mohsearch.core.errors import InputError, MohsearchError
from mohsearch.evaluators.mapper.door import evaluate
from mohsearch.evaluators.mapper.exact import search_layer
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

CASE = {"layer": {"K": 8, "C": 8, "P": 4, "Q": 4}, "template": "simba"}


def write(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize("shape", [lambda c: c, lambda c: [c], lambda c: {"cases": [c]}])
def test_the_front_of_the_mapper_comes_back(tmp_path: Path, shape) -> None:
    report = evaluate(write(tmp_path, shape(CASE)))
    front = search_layer(LayerShape(K=8, C=8, P=4, Q=4), load_template("simba"))
    assert [row["cycles"] for row in report.rows] == front.cycles.tolist()
    assert report.document["0"]["certificate"]["complete"] is True
    json.dumps(report.document, allow_nan=False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "JSON"),
        ([{"template": "simba"}], "layer"),
        ([{**CASE, "layer": {"K": 0}}], "layer.K"),
        ([{**CASE, "layer": {"Z": 1}}], "no such field"),
        ([{**CASE, "template": "simbaa"}], "did you mean 'simba'"),
        ([{**CASE, "id": "a"}, {**CASE, "id": "a"}], "second case"),
    ],
)
def test_a_wrong_case_is_refused_with_its_place(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises(MohsearchError, match=message):
        evaluate(write(tmp_path, data))


def test_an_empty_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        evaluate(write(tmp_path, ""))


def test_a_layer_that_fits_nowhere_says_why_and_the_others_are_mapped(tmp_path: Path) -> None:
    impossible = {"id": "wide", "layer": {"K": 4, "R": 500}, "template": "eyeriss"}
    document = evaluate(write(tmp_path, [impossible, CASE])).document
    assert "eyeriss" in json.dumps(document["wide"])
    assert len(document) == 2
