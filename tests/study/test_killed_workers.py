"""Processes that evaluate genomes, killed in the middle of it: nothing is lost, nothing changes."""

import json
import os
import signal
import time

import pytest

from mohsearch.study import load_study, resume_study, run_study


class Evaluations:
    """What the processes have noted about the genomes they were at."""

    def __init__(self, path):
        self.path = path

    def read(self):
        """Return all notes, in the order in which they were written."""
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def under_way(self):
        """Return by process id what was begun and not ended."""
        begun = {}
        for note in self.read():
            if note["what"] == "begins":
                begun[note["pid"]] = note["rows"]
            else:
                begun.pop(note["pid"], None)
        return begun

    def kill_one(self, tabu=()):
        """Kill a process that is in the middle of an evaluation; return its id."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            for pid in self.under_way():
                if pid not in tabu:
                    os.kill(pid, signal.SIGKILL)
                    return pid
            time.sleep(0.01)
        raise AssertionError("nothing was evaluated")


@pytest.fixture
def begin(write_study, content, start, tmp_path, monkeypatch):
    """Start a study with two evaluating processes; return it, its file and what they note."""
    evaluations = Evaluations(tmp_path / "evaluations.jsonl")
    problem = {"name": "exact", "options": {"delay_s": 0.4}}
    path = write_study(
        {**content, "problems": [problem], "executor": {"kind": "evaluations"}}
    )  # fmt: skip
    monkeypatch.setenv("MOHSEARCH_TEST_FLUSH_S", "0")
    with monkeypatch.context() as patch:
        patch.setenv("EXACT_CASES_LOG", str(evaluations.path))
        process = start(path, tmp_path / "cut", 2)
    return process, path, evaluations


@pytest.fixture
def undisturbed(study, tmp_path, content_of):
    """What the study finds in one process where nothing is killed."""
    run_study(study(), tmp_path / "whole")
    return content_of(tmp_path / "whole")


def found(contents):
    """Leave out the digests of problem and options: the delay is one of these."""
    return [arrays for _, _, arrays, _ in contents.values()]


def test_genomes_of_a_killed_worker_are_evaluated_again(undisturbed, begin, tmp_path, content_of):
    process, _, evaluations = begin
    killed = []
    for _ in range(3):
        killed.append(evaluations.kill_one(tabu=killed))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-2000:]
    assert found(content_of(tmp_path / "cut")) == found(undisturbed)
    assert out.count("generation") == 8
    notes = evaluations.read()
    unfinished = [evaluations.under_way()[pid] for pid in killed if pid in evaluations.under_way()]
    assert unfinished, "every kill fell between two evaluations"
    # each genome has been evaluated to its end once, those that a death met among them
    ended = [tuple(row) for note in notes if note["what"] == "ends" for row in note["rows"]]
    assert len(ended) == len(set(ended))
    assert {tuple(row) for rows in unfinished for row in rows} <= set(ended)
    assert not (tmp_path / "cut" / "failures.jsonl").exists()


def test_worker_and_owner_killed_in_mid_evaluation_cost_the_generation_alone(
    undisturbed, begin, tmp_path, content_of
):
    process, path, evaluations = begin
    for line in iter(process.stdout.readline, ""):
        if line.startswith("generation 3"):
            break
    evaluations.kill_one()
    process.kill()
    process.wait()
    at_work = {note["pid"] for note in evaluations.read()}
    end = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in at_work):
        assert time.monotonic() < end, "a process outlived whoever started it"
        time.sleep(0.05)
    told = []
    assert resume_study(tmp_path / "cut", workers=2, progress=told.append).exit_code == 0
    (resumed,) = [event for event in told if event.kind == "resumed"]
    assert 3 <= resumed.generation < 8
    assert found(content_of(tmp_path / "cut")) == found(undisturbed)
    run_study(load_study(path), tmp_path / "again", workers=2)
    assert content_of(tmp_path / "again") == content_of(tmp_path / "cut")
