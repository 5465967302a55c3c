"""Running studies: what is written, and that nothing but the study decides it."""

import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.study import (
    open_results,
    plan_study,
    read_designs,
    resume_study,
    run_study,
    status,
)

RUN = "exact-knapsack-nsga2-standard-s1"


def test_plain_xarray_reads_the_results_without_a_warning(study, tmp_path):
    run_study(study(), tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = tmp_path / "out" / "results.zarr"
        tree = xr.open_datatree(path, engine="zarr", consolidated=False)
        tree.load()
    node = tree[RUN]
    assert tree.attrs["study"] == "small"
    assert json.loads(tree.attrs["spec"])["budget"]["population"] == 16
    assert node.attrs["status"] == "complete"
    assert list(node.attrs["objectives"]) == ["profit_a", "profit_b"]
    assert node["history"].sizes == {"generation": 8, "individual": 16}
    assert node["archive"].sizes == {"genome_id": 128, "gene": 20}
    assert bool(node["history"]["done"].all())
    assert node["history"]["evaluations"].values.tolist() == [16 * g for g in range(1, 9)]
    assert node["archive"]["profit_a"].attrs == {
        "units": "1",
        "sense": "max",
        "long_name": "value of profit_a",
    }
    assert set(node["front"].data_vars) == {
        *("profit_a", "profit_b", "weight", "excess_weight"),
        *("genome", "genome_id", "final", "design"),
    }


def test_the_design_note_names_all_that_is_stored_and_nothing_else(study, tmp_path):
    note = Path(__file__).parents[2] / "docs" / "design" / "0001-moham-contracts.md"
    results = note.read_text(encoding="utf-8").partition("## 5. Results")[2]
    results = results.partition("A decoded moham design")[0]
    named = set(re.findall(r"`([a-z_]+)`", results))
    run_study(study(), tmp_path / "out")
    tree = open_results(tmp_path / "out")
    node = tree[RUN]
    provenance = json.loads(node.attrs["provenance"])
    stored = {*tree.attrs, *node.attrs, *node["front"].attrs, *node.children, *provenance}
    for group in node.children.values():
        stored |= set(group.data_vars)
        for variable in group.data_vars.values():
            stored |= set(variable.attrs)
    metrics = set(node.attrs["metrics"]) | set(node.attrs["constraints"])
    assert stored - metrics <= named
    assert named - stored == set()


def test_the_history_holds_the_population_of_each_generation(study, tmp_path):
    run_study(study(), tmp_path / "out")
    node = open_results(tmp_path / "out")[RUN]
    ids = node["history"]["archive_index"].values
    for metric in ("profit_a", "weight", "excess_weight"):
        looked_up = node["archive"][metric].values[ids]
        assert np.array_equal(node["history"][metric].values, looked_up)
    for g, distinct in enumerate(node["history"]["distinct"].values):
        assert ids[g].max() < distinct


def test_the_front_is_the_non_dominated_set_of_all_evaluated_genomes(cases, study, tmp_path):
    import moocore

    run_study(study(), tmp_path / "out")
    node = open_results(tmp_path / "out")[RUN]
    archive, front = node["archive"].to_dataset(), node["front"].to_dataset()
    feasible = archive["excess_weight"].values <= 0
    F = -np.column_stack([archive["profit_a"].values, archive["profit_b"].values])[feasible]
    expected = {tuple(row) for row in moocore.filter_dominated(F)}
    ours = {
        (-a, -b) for a, b in zip(front["profit_a"].values, front["profit_b"].values, strict=True)
    }
    assert ours == expected
    rows = front["genome"].values
    assert np.array_equal(rows, archive["genome"].values[front["genome_id"].values])
    recomputed = cases.Knapsack().compute(rows)
    for name in ("profit_a", "profit_b", "weight"):
        assert np.array_equal(recomputed[name], front[name].values)
    last = node["history"]["archive_index"].values[-1]
    assert np.array_equal(front["final"].values, np.isin(front["genome_id"].values, last))


def test_designs_are_decoded_in_the_order_of_the_front(study, tmp_path):
    run_study(study(), tmp_path / "out")
    designs = read_designs(tmp_path / "out", RUN)
    rows = open_results(tmp_path / "out")[RUN]["front"]["genome"].values
    assert [d["row"] for d in designs] == rows.tolist()
    with pytest.raises(UnknownNameError, match="unknown run 'other'"):
        read_designs(tmp_path / "out", "other")


def test_a_run_says_where_it_comes_from_and_what_is_proven(study, tmp_path):
    run_study(study(), tmp_path / "out")
    attrs = open_results(tmp_path / "out")[RUN].attrs
    provenance = json.loads(attrs["provenance"])
    assert {"numpy", "pymoo", "zarr", "mohsearch"} <= set(provenance["versions"])
    assert provenance["wall_s"] > 0
    assert provenance["peak_memory_bytes"] > 10**7
    assert json.loads(attrs["ideal_point"]) == {"profit_a": 857.0, "profit_b": 800.0}
    assert json.loads(attrs["certificate"]) == {"front": "complete enumeration"}
    assert [o["name"] for o in json.loads(attrs["operators"])["operators"]] == [
        *("random", "crossover", "mutation")
    ]
    assert attrs["stopped"] == "budget"
    assert len(attrs["digest"]) == 64


def test_the_number_of_workers_changes_nothing(study, tmp_path, content_of):
    two = study(workloads=["knapsack", "assignment"], seeds=2)
    run_study(two, tmp_path / "one", workers=1)
    outcome = run_study(two, tmp_path / "two", workers=2)
    assert [run.status for run in outcome.runs] == ["complete"] * 4
    assert content_of(tmp_path / "one") == content_of(tmp_path / "two")


@pytest.mark.parametrize(
    ("executor", "asked", "allowed"),
    [
        ({"workers": 1}, None, 1),
        ({"workers": 1}, 2, 2),
        ({"workers": 3}, None, 3),
        ({}, None, 6),
        ({"workers": 9}, None, 6),
    ],
)
def test_a_problem_is_built_with_as_many_processes_as_the_study_has_workers(
    study, tmp_path, monkeypatch, executor, asked, allowed
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.setenv("EXACT_CASES_BUILDS", str(tmp_path / "builds"))
    run_study(study(executor=executor), tmp_path / "out", workers=asked)
    assert (tmp_path / "builds").read_text().split() == [str(os.getpid()), str(allowed)]


@pytest.mark.parametrize("kind", ["runs", "evaluations"])
def test_a_worker_process_builds_its_problem_without_more_processes(
    study, tmp_path, monkeypatch, kind
):
    monkeypatch.setenv("EXACT_CASES_BUILDS", str(tmp_path / "builds"))
    run_study(study(seeds=2, executor={"kind": kind, "workers": 2}), tmp_path / "out")
    builds = [line.split() for line in (tmp_path / "builds").read_text().splitlines()]
    assert builds[0][0] == str(os.getpid())
    others = [count for process, count in builds if process != str(os.getpid())]
    assert set(others) == {"1"}


def test_seeds_differ_and_repeat(study, tmp_path):
    run_study(study(seeds=[3, 4]), tmp_path / "a")
    run_study(study(name="again", seeds=[4]), tmp_path / "b")
    first, second = open_results(tmp_path / "a"), open_results(tmp_path / "b")
    digests = {name: node.attrs["digest"] for name, node in first.children.items()}
    assert len(set(digests.values())) == 2
    four = RUN.replace("-s1", "-s4")
    assert second[four].attrs["digest"] == digests[four]


def test_a_complete_study_is_left_alone(study, tmp_path):
    out = tmp_path / "out"
    run_study(study(), out)
    before = {p: p.stat().st_mtime_ns for p in (out / "results.zarr").rglob("*") if p.is_file()}
    events = []
    outcome = run_study(study(), out, progress=events.append)
    after = {p: p.stat().st_mtime_ns for p in (out / "results.zarr").rglob("*") if p.is_file()}
    assert outcome.already_complete
    assert outcome.exit_code == 0
    assert [event.kind for event in events] == ["skipped"]
    assert before == after
    assert resume_study(out).already_complete


def test_another_study_in_the_same_folder_is_refused(study, tmp_path):
    run_study(study(), tmp_path / "out")
    with pytest.raises(InputError, match=r"out: holds results of a different study \(small\)"):
        run_study(study(seeds=2), tmp_path / "out")
    prose = study(title="The same study under another title", executor={"workers": 2})
    assert run_study(prose, tmp_path / "out").already_complete


def test_a_folder_with_other_things_in_it_is_refused(study, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("...")
    with pytest.raises(InputError, match="is not empty and holds no study"):
        run_study(study(), tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file, not a folder"):
        run_study(study(), tmp_path / "file")
    with pytest.raises(InputError, match="no such folder"):
        resume_study(tmp_path / "nowhere")


def test_a_failed_run_is_recorded_and_the_others_go_on(study, tmp_path):
    failing = {"name": "exact", "label": "failing", "options": {"fail_at": 50}}
    mixed = study(problems=[failing, {"name": "exact", "label": "sound"}])
    outcome = run_study(mixed, tmp_path / "out")
    assert [run.status for run in outcome.runs] == ["failed", "complete"]
    assert outcome.exit_code == 1
    assert outcome.failed[0].message == "RuntimeError: the evaluator broke"
    failed, sound = status(tmp_path / "out").runs
    assert (failed.status, failed.generation, failed.evaluations) == ("failed", 3, 48)
    assert failed.message == "RuntimeError: the evaluator broke"
    assert (sound.status, sound.generation, sound.message) == ("complete", 8, "budget")
    node = open_results(tmp_path / "out")["failing-knapsack-nsga2-standard-s1"]
    assert node.attrs["status"] == "failed"
    assert int(node["history"]["done"].sum()) == 3
    with pytest.raises(InputError, match=r"has no front \(status: failed\)"):
        read_designs(tmp_path / "out", "failing-knapsack-nsga2-standard-s1")


def test_a_problem_that_cannot_be_built_fails_its_runs_only(study, tmp_path):
    broken = {"name": "exact", "label": "broken", "options": {"broken": True}}
    outcome = run_study(study(problems=[broken, {"name": "exact"}]), tmp_path / "out")
    assert [run.status for run in outcome.runs] == ["failed", "complete"]
    assert open_results(tmp_path / "out")["broken-knapsack-nsga2-standard-s1"].attrs["failure"] == (
        "RuntimeError: cannot be built"
    )


def test_wrong_options_end_the_study_before_any_run(study, tmp_path):
    bad = [{"name": "exact"}, {"name": "exact", "label": "bad", "options": {"delay": 1}}]
    with pytest.raises(InputError, match=r"small.yaml: problems\[1\].options: no such option"):
        run_study(study(problems=bad), tmp_path / "out")
    with pytest.raises(
        InputError, match=r"problems\[0\]: unknown exact case .knapsac.; did you mean"
    ):
        run_study(study(workloads=["knapsac"]), tmp_path / "out2")


def test_an_engine_that_does_not_fit_the_problem_ends_the_study_before_any_run(study, tmp_path):
    unfit = study(
        workloads=["assignment"],
        engines=[{}, {"algorithm": "moead"}],
        portfolios=[{"name": "migrating"}],
    )
    with pytest.raises(InputError, match=r"small.yaml: engines\[1\]: .*takes no immigrants"):
        run_study(unfit, tmp_path / "out")


def test_a_worker_that_dies_costs_its_run_only(study, tmp_path):
    deadly = {"name": "exact", "label": "deadly", "options": {"die_at": 40}}
    sound = {"name": "exact", "label": "sound", "options": {"delay_s": 0.1}}
    outcome = run_study(study(problems=[deadly, sound]), tmp_path / "out", workers=2)
    assert [run.status for run in outcome.runs] == ["failed", "complete"]
    assert outcome.runs[0].message == "its process died (killed, or out of memory)"
    assert status(tmp_path / "out").runs[0].message == outcome.runs[0].message


def test_convergence_ends_a_run_early_and_says_so(study, tmp_path):
    budget = {
        "population": 20,
        "generations": 45,
        "convergence": {"window": 5, "tolerance": 0.05},
    }
    run_study(study(workloads=["accelerators"], budget=budget), tmp_path / "out")
    node = open_results(tmp_path / "out")["exact-accelerators-nsga2-standard-s1"]
    count = node.attrs["generations"]
    assert node.attrs["stopped"] == "converged"
    assert 5 <= count < 45
    assert node.attrs["evaluations"] == 20 * count
    assert node["history"]["done"].values.tolist() == [True] * count + [False] * (45 - count)
    assert status(tmp_path / "out").complete


def test_progress_tells_what_happens(study, tmp_path):
    events = []
    run_study(study(), tmp_path / "out", progress=events.append)
    kinds = [event.kind for event in events]
    assert kinds[0] == "building"
    assert kinds[-1] == "complete"
    assert {"started", "generation"} <= set(kinds)
    last = [event for event in events if event.kind == "generation"][-1]
    assert (last.run_id, last.generation, last.generations, last.evaluations) == (RUN, 8, 8, 128)
    best = open_results(tmp_path / "out")[RUN]["front"]["profit_a"].values.max()
    assert last.best["profit_a"] == best


def test_the_status_of_a_study_not_begun_is_pending(study, tmp_path):
    planned = study(seeds=2)
    run_study(planned, tmp_path / "out")
    import shutil

    shutil.rmtree(tmp_path / "out" / "results.zarr" / RUN)
    states = [(run.status, run.generation) for run in status(tmp_path / "out").runs]
    assert states == [("pending", 0), ("complete", 8)]
    assert not status(tmp_path / "out").complete
    outcome = resume_study(tmp_path / "out")
    assert [run.status for run in outcome.runs] == ["complete", "skipped"]
    assert len(plan_study(planned).runs) == 2


def test_the_best_values_told_are_those_of_feasible_solutions(study, tmp_path):
    events = []
    run_study(study(), tmp_path / "out", progress=events.append)
    told = [e for e in events if e.kind == "complete"][-1].best
    node = open_results(tmp_path / "out")[RUN]
    archive, evaluated = node["archive"], node["archive"]["profit_a"].notnull()
    feasible = evaluated & (archive["excess_weight"] <= 0)
    for name in ("profit_a", "profit_b"):
        assert told[name] == float(archive[name].where(feasible).max())
        assert told[name] < float(archive[name].where(evaluated).max())
