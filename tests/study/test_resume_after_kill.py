"""Kill a study at any moment; resumed, it ends bit for bit as if nothing had happened."""

import os
import random
import signal
import time

import pytest
import zarr

from mohsearch.core.errors import InputError
from mohsearch.study import load_study, resume_study, run_study, status, store


@pytest.fixture
def slow_study(write_study, content):
    """A study whose generations take time; return its path."""

    def write(delay_s=0.02, generations=30, **changes):
        problem = {"name": "exact", "options": {"delay_s": delay_s}}
        budget = {"population": 16, "generations": generations}
        return write_study({**content, "problems": [problem], "budget": budget, **changes})

    return write


def kill_after(process, lines, rng):
    """Kill a started study a little after it has reported some generations; return how many."""
    for _ in range(lines):
        if not process.stdout.readline():
            break
    time.sleep(rng.random() * 0.1)
    os.kill(process.pid, signal.SIGKILL)
    return process.wait()


@pytest.mark.parametrize(("seed", "kills"), [(1, 2), pytest.param(2, 12, marks=pytest.mark.slow)])
def test_a_study_killed_again_and_again_ends_as_if_undisturbed(
    slow_study, start, tmp_path, content_of, monkeypatch, seed, kills
):
    monkeypatch.setenv("MOHSEARCH_TEST_FLUSH_S", "0")
    rng = random.Random(seed)
    path = slow_study()
    run_study(load_study(path), tmp_path / "whole")
    reached = []
    for _ in range(kills):
        kill_after(start(path, tmp_path / "cut"), rng.randint(1, 2), rng)
        reached.append(status(tmp_path / "cut").runs[0].generation)
    assert reached == sorted(reached), "no generation is ever lost again"
    assert 0 < reached[0] < 30, "the first kill hit a run under way"
    resume_study(tmp_path / "cut")
    assert content_of(tmp_path / "cut") == content_of(tmp_path / "whole")


def test_a_killed_study_leaves_no_process_that_goes_on_writing(
    slow_study, start, tmp_path, content_of
):
    path = slow_study(seeds=2)
    process = start(path, tmp_path / "cut", 2)
    kill_after(process, 1, random.Random(5))
    resume_study(tmp_path / "cut", workers=1)
    run_study(load_study(path), tmp_path / "whole", workers=1)
    assert content_of(tmp_path / "cut") == content_of(tmp_path / "whole")


class Killed(BaseException):
    """What stands for a kill inside this process: nothing more is written after it."""


@pytest.fixture
def die_at_write(monkeypatch):
    """Let the n-th array write, and all later ones, fail as in a killed process."""
    original = zarr.Array.__setitem__
    state = {"writes": 0, "limit": None}

    def write(self, *args):
        state["writes"] += 1
        if state["limit"] is not None and state["writes"] > state["limit"]:
            raise Killed
        original(self, *args)

    monkeypatch.setattr(zarr.Array, "__setitem__", write)
    monkeypatch.setattr(store, "FLUSH_S", 0.0)
    return state


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 23])
def test_a_run_cut_between_any_two_writes_ends_as_if_undisturbed(
    study, tmp_path, content_of, die_at_write, every
):
    short = study(budget={"population": 16, "generations": 4})
    run_study(short, tmp_path / "whole")
    whole, total = content_of(tmp_path / "whole"), die_at_write["writes"]
    assert total > 60
    for limit in range(0, total, every):
        out = tmp_path / f"cut{limit}"
        die_at_write.update(writes=0, limit=limit)
        with pytest.raises(Killed):
            run_study(short, out)
        die_at_write["limit"] = None
        resume_study(out)
        assert content_of(out) == whole, f"cut after write {limit} of {total}"


@pytest.mark.parametrize("step", ["create", "write_front", "complete"])
def test_a_run_cut_before_a_step_of_its_end_is_completed(
    study, tmp_path, content_of, monkeypatch, step
):
    run_study(study(), tmp_path / "whole")

    def cut(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store.RunStore, step, cut)
        with pytest.raises(Killed):
            run_study(study(), tmp_path / "cut")
    resume_study(tmp_path / "cut")
    assert content_of(tmp_path / "cut") == content_of(tmp_path / "whole")


def test_resuming_evaluates_nothing_again(cases, study, tmp_path, monkeypatch):
    fails = {"name": "exact", "options": {"fail_at": 100}}
    broken = study(problems=[fails])
    assert run_study(broken, tmp_path / "out").exit_code == 1
    computed = []
    original = cases.Knapsack.compute

    def compute(self, X):
        computed.append(len(X))
        return original(self, X)

    monkeypatch.setattr(cases.Knapsack, "compute", compute)
    monkeypatch.setattr(cases.ExactProblem, "metrics", lambda self, X: self.compute(X))
    assert resume_study(tmp_path / "out").exit_code == 0
    assert sum(computed) == 128 - 96


def test_a_problem_that_changed_is_not_resumed(cases, study, tmp_path, monkeypatch):
    fails = study(problems=[{"name": "exact", "options": {"fail_at": 100}}])
    run_study(fails, tmp_path / "out")
    monkeypatch.setattr(cases.ExactProblem, "digest", lambda self: "another")
    outcome = resume_study(tmp_path / "out")
    assert "the problem has changed since this run began" in outcome.runs[0].message


def test_two_writers_on_one_folder_are_refused(slow_study, start, tmp_path):
    path = slow_study(delay_s=0.2)
    process = start(path, tmp_path / "out")
    assert process.stdout.readline().startswith("generation")
    with pytest.raises(InputError, match=f"process {process.pid} is writing to this folder"):
        resume_study(tmp_path / "out")


def test_a_study_can_be_looked_at_while_it_runs(slow_study, start, tmp_path):
    from mohsearch.study import open_results

    path = slow_study(delay_s=0.2)
    process = start(path, tmp_path / "out")
    for _ in range(8):
        assert process.stdout.readline().startswith("generation")
    (run,) = status(tmp_path / "out").runs
    assert run.status == "running"
    assert 0 < run.generation < 30
    node = open_results(tmp_path / "out")[run.run_id]
    assert int(node["history"]["done"].sum()) >= run.generation
    assert node.attrs["status"] == "running"
