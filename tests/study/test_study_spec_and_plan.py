"""Study files: what they may say, what they expand to, and how errors read."""

import json

import pytest
from pydantic import BaseModel

from mohsearch.core.catalog import Catalog, builtin_root
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.study import StudySpec, load_study, plan_study

BUNDLED = Catalog([builtin_root()]).names("studies")


def models(schema):
    yield schema
    yield from schema.get("$defs", {}).values()


def test_every_field_of_a_study_is_documented_in_its_json_schema():
    schema = StudySpec.model_json_schema()
    json.dumps(schema)
    for model in models(schema):
        assert model.get("description"), model.get("title")
        for name, field in model.get("properties", {}).items():
            assert field.get("description"), f"{model['title']}.{name}"
    assert issubclass(StudySpec, BaseModel)


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_study_is_valid_and_names_only_what_exists(name):
    study = load_study(name)
    assert study.spec.name == name
    runs = plan_study(study).runs
    assert len({run.id for run in runs}) == len(runs) == len({run.digest for run in runs}) > 0


@pytest.mark.parametrize("name", [n for n in BUNDLED if n.startswith("moham_")])
def test_the_papers_studies_run_at_the_papers_scale_and_say_what_it_claims(name):
    spec = load_study(name).spec
    assert (spec.budget.population, spec.budget.generations) == (250, 300)
    assert "MOHaM" in spec.reference
    if "fig" in name:
        assert f"Figure {name.removeprefix('moham_fig')}" in spec.reference
        assert spec.expectation


def test_a_study_is_the_product_of_its_parts(study):
    made = plan_study(
        study(
            workloads=["knapsack", "assignment"],
            engines=[{"algorithm": "nsga2"}, {"engine": "random", "portfolios": ["standard"]}],
            portfolios=[{"name": "standard"}, {"name": "migrating"}],
            seeds=[7, 9],
        )
    )
    assert [run.id for run in made.runs][:6] == [
        "exact-knapsack-nsga2-standard-s7",
        "exact-knapsack-nsga2-standard-s9",
        "exact-knapsack-nsga2-migrating-s7",
        "exact-knapsack-nsga2-migrating-s9",
        "exact-knapsack-random-standard-s7",
        "exact-knapsack-random-standard-s9",
    ]
    assert len(made.runs) == 12
    assert len(made.problem_keys()) == 2
    assert made.evaluations == 12 * 16 * 8


def test_problems_and_engines_may_name_the_portfolios_they_run_with(study):
    made = plan_study(
        study(
            problems=[
                {"name": "exact", "label": "a", "portfolios": ["standard"]},
                {"name": "exact", "label": "b", "portfolios": ["migrating"]},
            ],
            portfolios=[{"name": "standard"}, {"name": "migrating"}],
        )
    )
    assert [(run.problem.title, run.portfolio.title) for run in made.runs] == [
        ("a", "standard"),
        ("b", "migrating"),
    ]


def test_problems_may_name_the_workloads_they_run_on(study):
    made = plan_study(
        study(
            problems=[
                {"name": "exact", "label": "a", "workloads": ["knapsack"]},
                {"name": "exact", "label": "b", "workloads": ["assignment"]},
                {"name": "exact", "label": "c"},
            ],
            workloads=["knapsack", "assignment"],
        )
    )
    assert [(run.problem.title, run.workload) for run in made.runs] == [
        ("a", "knapsack"),
        ("b", "assignment"),
        ("c", "knapsack"),
        ("c", "assignment"),
    ]
    alone = plan_study(study(workloads=["knapsack", "assignment"]))
    assert {run.digest for run in alone.runs} == {run.digest for run in made.runs}


def test_run_ids_stay_unique_when_labels_run_together(study):
    made = plan_study(
        study(
            engines=[{"label": "x"}, {"label": "x-y"}],
            portfolios=[{"name": "standard", "label": "y-z"}, {"name": "migrating", "label": "z"}],
        )
    )
    ids = [run.id for run in made.runs]
    assert len(set(ids)) == 4
    assert sum(name.startswith("exact-knapsack-x-y-z-s1-") for name in ids) == 2


def test_prose_labels_and_workers_do_not_enter_the_digest_but_seeds_and_options_do(study):
    first = plan_study(study())
    prose = plan_study(study(title="Other", description="words", executor={"workers": 2}))
    assert prose.digest == first.digest
    for change in (
        {"seeds": [2]},
        {"budget": {"population": 16, "generations": 9}},
        {"problems": [{"name": "exact", "options": {"delay_s": 0.1}}]},
        {"portfolios": [{"name": "standard", "without": ["mutation"]}]},
    ):
        other = plan_study(study(**change))
        assert other.digest != first.digest
        assert other.runs[0].digest != first.runs[0].digest
    labelled = plan_study(study(problems=[{"name": "exact", "label": "renamed"}]))
    assert labelled.runs[0].digest == first.runs[0].digest
    assert labelled.digest != first.digest, "its results stand under another name"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgett": {}}, "budgett: no such field; known fields: budget, description"),
        ({"budget": {"population": 1, "generations": 8}}, "budget.population: .*greater than or"),
        ({"budget": {"population": 16}}, "budget.generations: Field required"),
        ({"seeds": 0}, "seeds: a number of seeds must be between 1 and 10000, got 0"),
        ({"seeds": []}, "seeds: .*at least 1 item"),
        ({"seeds": "many"}, "seeds: must be a list"),
        ({"seeds": [1, 1]}, "seeds: a seed stands twice"),
        ({"seeds": [-1]}, r"seeds\[0\]: .*greater than or equal to 0"),
        ({"problems": []}, "problems: .*at least 1 item"),
        (
            {"problems": [{"name": "exact"}, {"name": "exact"}]},
            "problems: label 'exact' stands twice; give each its own",
        ),
        (
            {"portfolios": [{"name": "standard", "without": ["mutation"], "only": ["crossover"]}]},
            r"portfolios\[0\]: give either 'without' or 'only'",
        ),
        ({"problems": [{"name": "exact", "label": "a/b"}]}, r"problems\[0\].label: "),
        ({"executor": {"workers": 0}}, "executor.workers: "),
    ],
)
def test_a_wrong_study_is_refused_with_file_and_field(study, changes, message):
    with pytest.raises(InputError, match=rf"small.yaml: {message}"):
        study(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"problems": [{"name": "exakt"}]},
            r"problems\[0\].name: unknown problem 'exakt'; did you mean 'exact'\? available: ",
        ),
        (
            {"engines": [{"engine": "pymo"}]},
            r"engines\[0\].engine: unknown engine 'pymo'; did you mean 'pymoo'",
        ),
        (
            {"engines": [{"algorithm": "nsga4"}]},
            r"engines\[0\].algorithm: unknown pymoo algorithm 'nsga4'",
        ),
        (
            {"engines": [{"options": {"speed": 3}}]},
            r"engines\[0\].options.speed: no such field",
        ),
        (
            {"engines": [{"portfolios": ["standart"]}]},
            r"engines\[0\].portfolios\[0\]: unknown portfolio label 'standart'; did you mean",
        ),
        (
            {"problems": [{"name": "exact", "workloads": ["knapsak"]}]},
            r"problems\[0\].workloads\[0\]: unknown workload of the study: 'knapsak'; did you mean",
        ),
        (
            {"portfolios": [{"name": "standart"}]},
            r"portfolios\[0\]: unknown portfolio 'standart'; did you mean 'standard'",
        ),
        (
            {"portfolios": [{"name": "standard", "without": ["mutatoin"]}]},
            r"portfolios\[0\].without: unknown operator of portfolio 'standard': 'mutatoin'",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_its_place_and_what_exists(study, changes, message):
    with pytest.raises(InputError, match=rf"small.yaml: {message}"):
        plan_study(study(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"workloads": ["arvrr"]},
            r"workloads\[0\]: unknown application or network 'arvrr'; did you mean 'arvr'",
        ),
        (
            {"problems": [{"name": "moham", "objectives": ["latency"]}]},
            r"problems\[0\].objectives\[0\]: unknown metric 'latency'; did you mean 'latency_s'",
        ),
        (
            {"problems": [{"name": "moham", "options": {"max_instance": 3}}]},
            r"problems\[0\].options.max_instance: no such field; known fields: .*max_instances",
        ),
        (
            {"engines": [{"algorithm": "ga"}]},
            r"engines\[0\].algorithm: pymoo algorithm 'ga' takes at most 1 objectives, got 3",
        ),
    ],
)
def test_a_bundled_problem_is_checked_in_depth_before_anything_is_built(study, changes, message):
    moham = {
        "problems": [{"name": "moham"}],
        "workloads": ["arvr"],
        "portfolios": [{"name": "paper"}],
    }
    with pytest.raises(InputError, match=rf"small.yaml: {message}"):
        plan_study(study(**{**moham, **changes}))


def test_a_study_is_found_by_name_from_any_folder_and_by_path(
    project, write_study, content, tmp_path_factory, monkeypatch
):
    path = write_study(content)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load_study("smoke").spec.name == "smoke"
    assert load_study(str(path)).spec.name == "small"
    with pytest.raises(UnknownNameError, match=r"unknown study 'small'.*moham_arvr"):
        load_study("small")
    monkeypatch.chdir(project)
    assert load_study("small").source == path.resolve()


def test_importing_studies_is_cheap():
    import subprocess
    import sys

    code = "import mohsearch.study, sys; print({'numpy', 'zarr', 'pymoo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
