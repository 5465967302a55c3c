"""Resuming when more goes wrong: during a repair, twice at once, moved, linked, not writable."""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from mohsearch.core.errors import InputError
from mohsearch.study import open_results, resume_study, run_study, status, store
from mohsearch.study.files import OutputFolder
from mohsearch.study.integrity import is_sealed, sealed
from mohsearch.study.results import check_results

FAILS = [{"name": "exact", "options": {"fail_at": 100}}]


class Killed(BaseException):
    """What stands for a kill inside this process: nothing more is written after it."""


@pytest.fixture
def half_done(study, tmp_path, monkeypatch):
    """A study's folder with 96 of 128 evaluations."""
    monkeypatch.setattr(store, "FLUSH_S", 0.0)
    assert run_study(study(problems=FAILS), tmp_path / "half").exit_code == 1
    return tmp_path / "half"


@pytest.fixture
def whole(half_done, tmp_path, content_of):
    """What the half-done study finds if nothing more happens to it."""
    shutil.copytree(half_done, tmp_path / "undisturbed")
    assert resume_study(tmp_path / "undisturbed").exit_code == 0
    return content_of(tmp_path / "undisturbed")


@pytest.fixture
def computed(cases, monkeypatch):
    """How many genomes were evaluated since, a list to sum up."""
    counts = []
    original = cases.Knapsack.compute
    monkeypatch.setattr(cases.ExactProblem, "metrics", lambda self, X: self.compute(X))
    monkeypatch.setattr(
        cases.Knapsack, "compute", lambda self, X: counts.append(len(X)) or original(self, X)
    )
    return counts


def damage_ledger(output):
    """Flip a bit in an array that holds no evaluation."""
    (run,) = status(output).runs
    path = OutputFolder(output).run(run.run_id) / "history" / "evaluations" / "c" / "0"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(bytes(content))


STEPS = {
    "mohsearch.study.carry_out.set_aside": "before anything",
    "mohsearch.study.store._allocate_archive": "while the run is made anew",
    "mohsearch.study.store.write_manifest": "before its manifest",
    "mohsearch.study.carry_out.salvaged": "before values are taken over",
    "mohsearch.study.store.RunStore.flush": "before any is written again",
    "mohsearch.study.store.RunStore.write_front": "before the front",
    "mohsearch.study.carry_out.drop_set_aside": "before the damaged part is removed",
}
_QUICK = "mohsearch.study.store.RunStore.flush"


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=when, marks=[] if step == _QUICK else pytest.mark.slow)
        for step, when in STEPS.items()
    ],
)
def test_a_repair_that_is_cut_off_loses_no_evaluation(
    half_done, whole, computed, content_of, monkeypatch, step
):
    def cut(*args, **kwargs):
        raise Killed

    damage_ledger(half_done)
    with monkeypatch.context() as patch:
        patch.setattr(step, cut)
        with pytest.raises(Killed):
            resume_study(half_done)
    assert resume_study(half_done).exit_code == 0
    assert content_of(half_done) == whole
    assert sum(computed) <= 2 * 32, "only what was not on disk is evaluated, by either session"
    assert not [p for p in (half_done / ".staging").iterdir() if "-damaged-" in p.name] or (
        step.endswith("drop_set_aside")
    )


def test_a_disk_full_during_a_repair_loses_no_evaluation(
    half_done, whole, computed, content_of, monkeypatch
):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    damage_ledger(half_done)
    for step in ("_allocate_archive", "write_manifest", "RunStore.flush"):
        with monkeypatch.context() as patch:
            patch.setattr(f"mohsearch.study.store.{step}", full)
            outcome = resume_study(half_done)
        assert "No space left on device" in outcome.runs[0].message
    computed.clear()
    assert resume_study(half_done).exit_code == 0
    assert content_of(half_done) == whole
    assert sum(computed) == 128 - 96


def test_values_of_another_problem_are_never_taken_over(half_done, cases, monkeypatch):
    damage_ledger(half_done)
    with monkeypatch.context() as patch:
        patch.setattr(cases.ExactProblem, "digest", lambda self: "another")
        outcome = resume_study(half_done)
    assert "the problem has changed since this run began" in outcome.runs[0].message
    assert resume_study(half_done).exit_code == 0


def test_without_the_digest_of_its_problem_nothing_of_a_run_is_trusted(
    half_done, whole, computed, content_of
):
    (run,) = status(half_done).runs
    folder = OutputFolder(half_done)
    for path in (folder.run(run.run_id) / "zarr.json", folder.manifest(run.run_id)):
        path.write_text("{")
    assert resume_study(half_done).exit_code == 0
    assert sum(computed) == 128
    assert content_of(half_done) == whole


def test_a_study_that_failed_before_its_first_generation_gives_way_to_the_mended_one(
    study, tmp_path, content_of
):
    wrong = study(problems=[{"name": "exact", "options": {"fail_at": 1}}])
    assert run_study(wrong, tmp_path / "out").exit_code == 1
    mended = study(title="Mended", seeds=2)
    assert run_study(mended, tmp_path / "out").exit_code == 0
    run_study(mended, tmp_path / "whole")
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")
    assert status(tmp_path / "out").title == "Mended"


def test_a_problem_mended_before_its_first_generation_is_begun_anew(
    study, cases, tmp_path, monkeypatch
):
    wrong = study(problems=[{"name": "exact", "options": {"fail_at": 1}}])
    assert run_study(wrong, tmp_path / "out").exit_code == 1
    monkeypatch.setattr(cases.ExactProblem, "digest", lambda self: "mended")
    monkeypatch.setattr(cases.ExactProblem, "metrics", lambda self, X: self.compute(X))
    assert resume_study(tmp_path / "out").exit_code == 0


def test_a_study_with_a_generation_does_not_give_way(half_done, study):
    with pytest.raises(InputError, match="holds results of a different study"):
        run_study(study(seeds=2, problems=FAILS), half_done)


def test_a_start_cut_off_before_the_card_does_not_block_the_folder(
    study, tmp_path, content_of, monkeypatch
):
    def cut(*args, **kwargs):
        raise Killed

    for step in ("zarr.open_group", "mohsearch.study.card.write_json"):
        with monkeypatch.context() as patch:
            patch.setattr(step, cut)
            with pytest.raises(Killed):
                run_study(study(), tmp_path / "out")
        (tmp_path / "out" / ".study.json.123").write_text('{"for')
    assert run_study(study(), tmp_path / "out").exit_code == 0
    run_study(study(), tmp_path / "whole")
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")


def test_a_folder_with_files_of_others_is_still_refused(study, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"holds no study \(it has thesis.tex\)"):
        run_study(study(), tmp_path / "out")


@pytest.mark.parametrize(
    "seed", [1, 11, *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 60))]
)
def test_files_lost_with_the_power_cost_evaluations_and_nothing_else(
    half_done, whole, content_of, seed
):
    rng = random.Random(seed)
    files = [p for p in half_done.rglob("*") if p.is_file() and not p.name.startswith(".lock")]
    files.sort(key=lambda path: (path.stat().st_mtime_ns, str(path)))
    for path in files[-rng.randint(3, 30) :]:  # the last ones written
        kind = rng.choice(["empty", "torn", "zeros", "gone", "kept"])
        size = path.stat().st_size
        if kind == "gone":
            path.unlink()
        elif kind != "kept":
            cut = {"empty": 0, "torn": rng.randrange(size), "zeros": 0}[kind]
            path.write_bytes(path.read_bytes()[:cut] + b"\0" * (size if kind == "zeros" else 0))
    assert resume_study(half_done).exit_code in {0, 1}  # evaluation 100 fails once if made again
    assert resume_study(half_done).exit_code == 0
    assert content_of(half_done) == whole


def test_of_two_that_resume_at_once_one_goes_on(half_done, whole, start, content_of):
    path = half_done.parent / "studies" / "small.yaml"
    both = [start(path, half_done) for _ in range(2)]
    told = [process.communicate(timeout=120)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 1])
    if codes == [0, 1]:  # the other had ended before this one began, else
        assert any("is writing to this folder" in text for text in told)
    assert content_of(half_done) == whole


@pytest.mark.slow
def test_a_study_killed_while_it_is_resumed_goes_on(half_done, whole, start, content_of):
    path = half_done.parent / "studies" / "small.yaml"
    for wait_s in (0.0, 0.5, 1.0):
        process = start(path, half_done)
        time.sleep(wait_s)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert resume_study(half_done).exit_code == 0
    assert content_of(half_done) == whole


def test_a_folder_may_be_moved_and_linked_to(half_done, whole, tmp_path, content_of):
    (tmp_path / "elsewhere").mkdir()
    moved = half_done.rename(tmp_path / "elsewhere" / "renamed")
    link = tmp_path / "link"
    link.symlink_to(moved)
    assert resume_study(link).exit_code == 0
    assert content_of(link) == content_of(moved) == whole
    assert link.is_symlink()


def test_a_link_to_nowhere_is_a_folder_to_make(study, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert run_study(study(), tmp_path / "link").exit_code == 0
    assert (tmp_path / "target" / "study.json").is_file()


def test_a_clock_that_jumps_changes_nothing(half_done, whole, content_of, monkeypatch):
    real = time.time
    jumps = random.Random(3)
    monkeypatch.setattr(time, "time", lambda: real() + jumps.choice([-1e8, 0.0, 1e8]))
    for path in half_done.rglob("*"):
        os.utime(path, (2e9, 2e9))
    assert resume_study(half_done).exit_code == 0
    assert content_of(half_done) == whole


def test_results_of_another_version_go_on_if_the_problem_is_the_same(half_done, whole, content_of):
    card = half_done / "study.json"
    content = json.loads(card.read_text()) | {"mohsearch_version": "0.0.9"}
    card.write_text(json.dumps(sealed(content)))
    assert is_sealed(json.loads(card.read_text()))
    assert resume_study(half_done).exit_code == 0
    assert content_of(half_done) == whole


@pytest.fixture
def read_only(half_done, tmp_path):
    """The folder on a file system that nothing can be written to."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    bind = ["mount", "--bind", str(half_done), str(place)]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a folder be mounted")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_read_only_folder_can_be_looked_at_and_refuses_to_be_resumed(read_only):
    with pytest.raises(InputError, match="Read-only file system"):
        resume_study(read_only)
    assert status(read_only).runs[0].generation == 6
    open_results(read_only).close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_folder_of_another_user_is_refused_with_the_reason(half_done):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)  # unlike pytest's folders, it can be reached
        folder = Path(place) / "half"
        shutil.copytree(half_done, folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        assert as_nobody(lambda: check_results(OutputFolder(folder))) == "nothing was refused"
        assert as_nobody(lambda: resume_study(folder)) == "Permission denied"
        for name in ("study.json", "results.zarr/zarr.json"):
            (folder / name).chmod(0o600)
        assert as_nobody(lambda: status(folder)) == "Permission denied"


def as_nobody(action):
    """Return how an action ends in a process of another user."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        text = "nothing was refused"
        try:
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            action()
        except InputError as error:
            text = error.message
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(process, 0)
    with os.fdopen(reader) as stream:
        return stream.read()
