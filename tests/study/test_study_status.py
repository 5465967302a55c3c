"""What `study status` says: while a study runs, after a kill, at the end, and of a wrong folder."""

import os
import resource

import pytest
from click.testing import CliRunner

from mohsearch.cli.main import cli
from mohsearch.core.errors import InputError
from mohsearch.study import run_study, status
from mohsearch.study.files import OutputFolder, holder, locked


def shown(folder):
    """Return the rows of `mohsearch study status`, and all it says."""
    result = CliRunner().invoke(cli, ["study", "status", str(folder)])
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.output.splitlines()], result.output


@pytest.fixture
def running(write_study, content, start, tmp_path, monkeypatch):
    """A study under way, eight of its thirty generations or more done: process and folder."""
    monkeypatch.setenv("MOHSEARCH_TEST_FLUSH_S", "0")
    problem = {"name": "exact", "options": {"delay_s": 0.15}}
    budget = {"population": 16, "generations": 30}
    path = write_study({**content, "problems": [problem], "budget": budget, "seeds": 2})
    process = start(path, tmp_path / "out")
    for _ in range(8):
        assert process.stdout.readline().startswith("generation")
    return process, tmp_path / "out"


def test_status_follows_a_study_that_runs_and_one_that_was_killed(running):
    process, folder = running
    first, second = status(folder).runs
    assert (first.status, second.status) == ("running", "pending")
    assert 8 <= first.generation < 30
    assert first.evaluations == 16 * first.generation
    assert 0 < first.evaluations_per_s <= 16 / 0.15
    assert first.remaining_s == pytest.approx(
        (30 - first.generation) * 16 / first.evaluations_per_s
    )
    assert 2**25 < first.memory_bytes < 2**31
    assert (second.evaluations_per_s, second.remaining_s, second.memory_bytes) == (None,) * 3
    rows, _ = shown(folder)
    assert next(row for row in rows if row[:2] == [first.run_id, "running"])[-1] == "MiB"

    process.kill()
    process.wait()
    killed, _ = status(folder).runs
    assert killed.status == "interrupted"
    assert first.generation <= killed.generation < 30
    assert killed.evaluations_per_s > 0
    assert (killed.remaining_s, killed.memory_bytes) == (None, None)
    _, text = shown(folder)
    assert "interrupted" in text
    assert f"mohsearch study resume {folder}" in text


def test_status_of_a_complete_study_has_its_peak_memory(study, tmp_path):
    run_study(study(), tmp_path / "out")
    state = status(tmp_path / "out")
    (run,) = state.runs
    assert state.complete
    assert (run.status, run.generation, run.evaluations) == ("complete", 8, 128)
    assert run.evaluations_per_s > 0
    assert run.remaining_s is None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 2**25 < run.memory_bytes <= peak
    _, text = shown(tmp_path / "out")
    assert f"{run.memory_bytes / 2**20:,.0f} MiB" in text
    assert "Go on with" not in text


def test_status_of_several_runs_tells_each_apart(study, tmp_path):
    wrong = study(
        problems=[{"name": "exact"}, {"name": "exact", "label": "bad", "options": {"fail_at": 60}}]
    )
    run_study(wrong, tmp_path / "both", workers=1)
    sound, failed = status(tmp_path / "both").runs
    assert (sound.status, failed.status) == ("complete", "failed")
    assert (failed.generation, failed.evaluations) == (3, 48)
    assert "the evaluator broke" in failed.message
    assert failed.memory_bytes is None
    _, text = shown(tmp_path / "both")
    assert "the evaluator broke" in text


def test_status_of_a_folder_without_a_study_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, reason in (("empty", "holds no study"), ("none", "no such folder"), ("file", "no")):
        with pytest.raises(InputError, match=reason):
            status(tmp_path / name)
        result = CliRunner().invoke(cli, ["study", "status", str(tmp_path / name)])
        assert result.exit_code == 2


def test_the_number_of_another_process_in_an_old_lock_is_not_believed(tmp_path):
    lock = OutputFolder(tmp_path).locks / "run"
    assert holder(lock) is None
    with locked(lock, "run"):
        assert holder(lock) == os.getpid()
    assert lock.read_text() == f"{os.getpid()}\n"
    assert holder(lock) is None
