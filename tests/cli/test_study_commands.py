"""Studies from the command line, on a plug-in problem whose front is known."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from mohsearch.cli.progress import PlainReporter, make_reporter
from mohsearch.study.events import StudyEvent
from tests.command_line import run

PLUGIN = Path(__file__).resolve().parent.parent / "plugin"


@pytest.fixture
def project(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PLUGIN))
    path = os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    (tmp_path / "operators").symlink_to(PLUGIN / "operators")
    (tmp_path / "studies").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(project):
    def write_study(name="small", options=None, **changes):
        content = {
            "name": name,
            "title": "A study of exact cases",
            "problems": [{"name": "exact", "options": options or {}}],
            "workloads": ["assignment"],
            "engines": [{"algorithm": "nsga2"}],
            "portfolios": [{"name": "standard"}],
            "budget": {"population": 16, "generations": 8},
            "executor": {"workers": 1},
        }
        path = project / "studies" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content | changes))
        return path

    return write_study


def test_runs_of_problems_with_other_metrics_are_listed_in_a_table_each(write):
    other = {"name": "chiplet", "workloads": ["own_ae"], "portfolios": ["seeded"],
             "options": {"chips": 3, "fidelity": "hardware"}}  # fmt: skip
    write(
        problems=[
            {"name": "exact", "workloads": ["assignment"], "portfolios": ["standard"]},
            other,
        ],
        workloads=["assignment", "own_ae"],
        engines=[{"engine": "random"}],
        portfolios=[{"name": "standard"}, {"name": "seeded"}],
        budget={"population": 4, "generations": 1},
        seeds=3,
    )
    tables = run("study", "run", "small", "--output", "out").stdout.split("\n\n")
    first, second = (
        table.strip().splitlines() for table in tables if table.strip().startswith("run ")
    )
    assert len(first) == len(second) == 4
    assert first[0] != second[0]


def test_a_study_of_the_project_is_listed_planned_run_and_shown_by_name(write, project):
    write(seeds=2)
    assert "A study of exact cases" in run("study", "list").stdout
    assert "exact-assignment-nsga2-standard-s2" in run("study", "plan", "small").stdout
    result = run("study", "run", "small", "--output", "out")
    assert "[2/2] exact-assignment-nsga2-standard-s2: complete" in result.stderr
    assert "exact-assignment-nsga2-standard-s1:" in result.stdout
    assert "knee" in result.stdout
    assert "proven bound" in result.stdout
    assert "mohsearch plot front out" in result.stdout
    assert "mohsearch compare out" in result.stdout
    assert "complete" in run("study", "status", "out").stdout
    document = json.loads(run("front", "export", "out", "--format", "json").stdout)
    assert [r["seed"] for r in document["runs"]] == [1, 2]
    run("compare", "out")
    run("plot", "convergence", "out", "-o", "c.svg")


def test_a_front_in_the_table_is_the_front_in_the_store(write, project):
    import xarray as xr

    write()
    run("study", "run", "small", "-q")
    rows = json.loads(run("front", "export", "results/small", "--format", "json").stdout)
    solutions = rows["runs"][0]["solutions"]
    with xr.open_datatree(
        project / "results" / "small" / "results.zarr", engine="zarr", consolidated=False
    ) as tree:
        front = tree["exact-assignment-nsga2-standard-s1/front"]
        stored = sorted(zip(front["cost_a"].values, front["cost_b"].values, strict=True))
    shown = [(s["metrics"]["cost_a"], s["metrics"]["cost_b"]) for s in solutions]
    assert sorted(shown) == [tuple(map(float, pair)) for pair in stored]
    assert shown[0][0] == min(first for first, _ in shown)
    assert solutions[0]["design"]["kind"] == "assignment"


def test_running_again_says_that_nothing_is_left(write, project):
    write()
    run("study", "run", "small", "-o", "out")
    assert "nothing left to do" in run("study", "run", "small", "-o", "out").stderr
    assert "nothing left to do" in run("study", "resume", "out").stderr


def test_other_seeds_can_be_given(write, project):
    write()
    run("study", "run", "small", "-o", "out", "--seeds", "7,9", "--quiet")
    names = [
        r["run_id"] for r in json.loads(run("study", "status", "out", "--json").stdout)["runs"]
    ]
    assert [name.rpartition("-")[2] for name in names] == ["s7", "s9"]
    assert "not a list of numbers" in run("study", "run", "small", "--seeds", "x", code=2).stderr
    assert "stands twice" in run("study", "run", "small", "--seeds", "1,1", code=2).stderr


def test_quiet_prints_nothing(write, project):
    write()
    assert run("study", "run", "small", "-o", "out", "-q").output == ""


def test_a_run_that_fails_is_named_and_the_exit_code_is_1(write, project):
    write(options={"fail_at": 20})
    result = run("study", "run", "small", "-o", "out", code=1)
    assert "FAILED: " in result.stderr
    assert "the evaluator broke" in result.stderr
    assert "mohsearch study resume out" in result.stderr
    assert "failed" in run("study", "status", "out").stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": {"population": 0, "generations": 8}}, "budget.population: "),
        ({"engines": [{"engine": "pymo"}]}, "engines[0].engine: unknown engine 'pymo'; did you"),
        ({"engines": [{"algorithm": "nsga4"}]}, "engines[0].algorithm: unknown pymoo algorithm"),
        ({"portfolios": [{"name": "standrd"}]}, "portfolios[0]"),
        ({"colour": "red"}, "colour: no such field"),
    ],
)
def test_mistakes_in_a_study_are_told_with_file_and_field(write, project, changes, message):
    path = write(**changes)
    for command in ("plan", "run"):
        result = run("study", command, path, code=2)
        assert str(path) in result.stderr
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_another_studys_folder_is_refused(write, project):
    write()
    write("other", title="Another study")
    run("study", "run", "small", "-o", "out", "-q")
    assert "different study (small)" in run("study", "run", "other", "-o", "out", code=2).stderr
    (project / "full").mkdir()
    (project / "full" / "thesis.txt").touch()
    assert "is not empty" in run("study", "run", "small", "-o", "full", code=2).stderr


def test_an_interrupted_study_says_how_to_go_on_and_ends_the_same(write, project):
    path = write(options={"delay_s": 0.03}, budget={"population": 16, "generations": 40})
    process = subprocess.Popen(
        [sys.executable, "-m", "mohsearch", "study", "run", str(path), "-o", "cut"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "generation 1/40" in line or "started" in line:
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "mohsearch study resume cut" in stderr
    assert "Traceback" not in stderr
    state = json.loads(run("study", "status", "cut", "--json").stdout)
    assert not state["complete"]
    assert "mohsearch study resume cut" in run("study", "status", "cut").stdout
    run("study", "resume", "cut", "-q")
    run("study", "run", path, "-o", "whole", "-q")
    cut, whole = (run("front", "export", folder).stdout for folder in ("cut", "whole"))
    assert cut == whole


def living_members(group):
    """Return the processes of a process group that still do something."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("workers", "whole_group"),
    [(2, False), (1, True), pytest.param(2, True, marks=pytest.mark.slow)],
)
def test_a_terminated_study_ends_with_its_workers_and_can_be_resumed(
    write, project, workers, whole_group
):
    path = write(
        seeds=workers, options={"delay_s": 0.02}, budget={"population": 16, "generations": 90}
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "mohsearch", "study", "run", str(path), "-o", "cut",
         "--workers", str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    while ": started" not in process.stderr.readline():
        assert process.poll() is None
    assert len(living_members(process.pid)) >= (3 if workers == 2 else 1)
    time.sleep(0.2)
    process.terminate()
    if whole_group:  # as `timeout` does: the command, then its group
        os.killpg(process.pid, signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 143
    assert stderr.splitlines()[-2:] == [
        "terminated; completed generations are kept. Go on with:",
        "  mohsearch study resume cut",
    ]
    assert "Traceback" not in stderr
    deadline = time.monotonic() + 10
    while (left := living_members(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    state = json.loads(run("study", "status", "cut", "--json").stdout)
    assert [item["status"] for item in state["runs"]].count("failed") == 0
    assert not state["complete"]
    if workers == 2:
        return
    assert state["runs"][0]["generation"] > 0
    run("study", "resume", "cut", "-q")
    assert json.loads(run("study", "status", "cut", "--json").stdout)["complete"]


def test_lines_about_progress_are_occasional(monkeypatch, capsys):
    clock = iter([0.0, 1.0, 5.0, 11.0, 12.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    reporter = PlainReporter(1)
    reporter(StudyEvent("started", "r"))
    for generation in (1, 2, 3, 4):
        reporter(StudyEvent("generation", "r", generation, 9, best={"latency_s": 0.002}))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["r: started", "r: generation 3/9; best latency 2.00 ms"]


def test_bars_are_drawn_on_a_terminal_only(monkeypatch):
    assert isinstance(make_reporter(1), PlainReporter)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with make_reporter(2) as live:
        assert not isinstance(live, PlainReporter)
        live(StudyEvent("building", "p-w", 1, 5, message="mapping layers"))
        live(StudyEvent("started", "r1", 0, 10))
        live(StudyEvent("generation", "r1", 3, 10, best={"energy_j": 1.0}))
        assert [task.description for task in live._progress.tasks] == ["runs", "r1"]
        assert live._progress.tasks[1].completed == 3
        live(StudyEvent("complete", "r1", 10, 10))
        assert [task.description for task in live._progress.tasks] == ["runs"]
        assert live._progress.tasks[0].completed == 1


def test_the_smoke_study_gives_designs_pictures_and_a_ranking(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = run("study", "run", "smoke", "--output", "out").stdout
    assert "MACs" in out
    assert "proven bound for any solution: latency" in out
    for kind in ("front", "gantt", "convergence"):
        run("plot", kind, "out")
        assert (tmp_path / "out" / f"{kind}.png").stat().st_size > 20_000
    shown = run("front", "show", "out", "--run", "nsga2-paper", "--solution", "fastest").stdout
    assert "critical chain" in shown
    rows = run("compare", "out").stdout.splitlines()
    assert len(rows) == 4
    assert rows[0].startswith("case,contender,rank")


def test_an_interruption_while_layers_are_mapped_does_not_wait_for_them(tmp_path):
    rows = [f"l{k},conv,1,{384 + k},{768 + k},72,72,3,3,1,1" for k in range(24)]
    table = "\n".join(["name,type,N,K,C,Y,X,R,S,stride,pad", *rows])
    (tmp_path / "big.csv").write_text(table)
    study = {
        "name": "big",
        "title": "Layers that take long to map",
        "problems": [{"name": "moham", "options": {"templates": ["simba", "eyeriss"]}}],
        "workloads": ["big.csv"],
        "portfolios": [{"name": "paper"}],
        "budget": {"population": 8, "generations": 2},
    }
    (tmp_path / "big.yaml").write_text(yaml.safe_dump(study))
    process = subprocess.Popen(
        [sys.executable, "-m", "mohsearch", "study", "run", "big.yaml", "-o", "out"],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "building the problem" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "mohsearch study resume out" in stderr
