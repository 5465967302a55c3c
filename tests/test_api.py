"""The functions at the top of the package."""

import json
import subprocess
import sys

import pytest

import mohsearch
from mohsearch.core.errors import InputError, UnknownNameError
from tests.analysis.synthetic_results import run_groups, two_engines, write_results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return two_engines(tmp_path_factory.mktemp("results"), seeds=2)


@pytest.mark.parametrize("kind", ["front", "convergence", "attainment", "compare", "gantt"])
def test_every_kind_of_picture_is_drawn_and_written(results, tmp_path, kind):
    figure = mohsearch.plot(kind, results, tmp_path / f"{kind}.svg", heading="A heading")
    assert len(figure.axes)
    assert "A heading" in (tmp_path / f"{kind}.svg").read_text() or figure.legends


def test_pictures_take_runs_objectives_and_solutions(results):
    assert len(mohsearch.plot("front", results, objectives=["latency_s", "area_mm2"]).axes) == 1
    figure = mohsearch.plot("gantt", results, runs=["random-1"], solution="fastest")
    assert len(figure.axes) == 2


def test_an_unknown_picture_is_answered_with_those_that_exist(results):
    with pytest.raises(UnknownNameError, match=r"unknown picture 'fronts'; did you mean 'front'"):
        mohsearch.plot("fronts", results)


def test_comparing_and_reading_take_run_patterns(results):
    assert len(mohsearch.read_fronts(results, ["random"])) == 2
    comparison = mohsearch.compare(results, by="engine", objectives=["latency_s", "energy_j"])
    assert set(comparison.objectives.values()) == {("latency_s", "energy_j")}
    assert comparison.standings[0].contender == "pymoo nsga2"


def test_an_ablation_is_read_from_its_folder_and_drawn(tmp_path):
    entries = [{"name": "paper"}, {"name": "paper", "label": "off", "without": ["sa-merging"]}]
    groups = {}
    for seed in (1, 2):
        groups |= run_groups(f"r-{seed}", seed=seed, portfolio="paper")
        groups |= run_groups(f"o-{seed}", seed=seed, portfolio="off")
    write_results(tmp_path, groups, spec=json.dumps({"portfolios": entries}))
    (found,) = mohsearch.ablate(tmp_path)
    assert [step.name for step in found.steps] == ["sa-merging"]
    assert len(mohsearch.plot("ablation", tmp_path).axes) == 2, "both measures"


def test_a_study_as_data_is_validated_with_its_field_path():
    with pytest.raises(InputError, match=r"study: budget\.generations"):
        mohsearch.run_study(
            {
                "name": "wrong",
                "title": "no generations",
                "problems": [{"name": "moham"}],
                "workloads": ["tiny"],
                "portfolios": [{"name": "paper"}],
                "budget": {"population": 8},
            }
        )


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, mohsearch; "
        "print([m for m in ('numpy', 'pymoo', 'xarray', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'search'"):
        mohsearch.search  # noqa: B018
