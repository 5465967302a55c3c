"""Bytes of stored results that changed or are gone: always noticed, mended by resuming."""

import json
import random
import shutil

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.study import open_results, resume_study, run_study, status
from mohsearch.study.files import OutputFolder
from mohsearch.study.integrity import DamagedRunError, DamagedStudyError, damage


@pytest.fixture
def done(study, tmp_path):
    """A complete study's folder."""
    run_study(study(), tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def half_done(study, tmp_path, monkeypatch):
    """A study's folder with half of its generations."""
    from mohsearch.study import store

    monkeypatch.setattr(store, "FLUSH_S", 0.0)
    broken = study(problems=[{"name": "exact", "options": {"fail_at": 100}}])
    assert run_study(broken, tmp_path / "half").exit_code == 1
    return tmp_path / "half"


def data_files(folder):
    """Every file of every run."""
    results = folder / "results.zarr"
    return [p for p in sorted(results.rglob("*")) if p.is_file() and p.parent != results]


def all_files(folder):
    """Every file that says anything: those of the runs, their manifests, the card, the root."""
    others = [*(folder / ".manifests").iterdir(), folder / "study.json"]
    return [*data_files(folder), *others, folder / "results.zarr" / "zarr.json"]


def flip(path, rng):
    content = bytearray(path.read_bytes())
    place = rng.randrange(8 * len(content))
    content[place // 8] ^= 1 << (place % 8)
    path.write_bytes(bytes(content))


def answer(folder):
    """Return what reading says: the error, or the digest of what was read."""
    try:
        tree = open_results(folder)
        fronts = {n: v["front"] for n, v in tree.children.items() if "front" in v.children}
        found = {n: np.asarray(front["profit_a"]).tolist() for n, front in fronts.items()}
        tree.close()
        return found
    except (DamagedRunError, DamagedStudyError) as error:
        return str(error)


def noticed(folder, change, files, rng, tmp_path):
    """Count the changes to single files that are noticed."""
    count = 0
    for path in files:
        kept = path.read_bytes()
        change(path, rng)
        count += "is damaged" in str(answer(folder)) and "study resume" in str(answer(folder))
        path.write_bytes(kept)
    return count


@pytest.mark.parametrize("state", ["done", "half_done"])
@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_noticed_before_anything_is_read(
    state, rounds, request, tmp_path, capsys
):
    folder = request.getfixturevalue(state)
    whole = answer(folder) if state == "done" else None
    files = all_files(folder) * rounds
    if rounds == 1:
        files = files[::3]
    found = noticed(folder, flip, files, random.Random(1), tmp_path)
    with capsys.disabled():
        print(f"\n{state}: {found} of {len(files)} flipped bits noticed", end="")
    assert found == len(files) > 8
    assert whole is None or answer(folder) == whole


def cut(path, rng):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def remove(path, rng):
    path.unlink()


@pytest.mark.parametrize("change", [cut, remove])
def test_every_torn_or_missing_file_of_complete_results_is_noticed(done, change, tmp_path):
    files = data_files(done)[::4]
    assert noticed(done, change, files, random.Random(2), tmp_path) == len(files)


@pytest.mark.parametrize(
    "name", ["zarr.json", "archive/profit_a/c/0", "archive/genome/zarr.json", "history/done/c/0"]
)
def test_resuming_damaged_results_ends_as_if_undisturbed(done, name, content_of, tmp_path):
    whole = content_of(done)
    folder = OutputFolder(done)
    (run_id,) = whole
    flip(folder.run(run_id) / name, random.Random(3))
    assert damage(folder, run_id)
    events = []
    assert resume_study(done, progress=events.append).exit_code == 0
    (repaired,) = [event for event in events if event.kind == "repaired"]
    assert "results were damaged" in repaired.message
    assert content_of(done) == whole


def test_sound_values_are_saved_from_damaged_results(cases, half_done, monkeypatch):
    folder = OutputFolder(half_done)
    (run,) = status(half_done).runs
    flip(folder.run(run.run_id) / "history" / "evaluations" / "c" / "0", random.Random(4))
    computed = []
    original = cases.Knapsack.compute
    monkeypatch.setattr(cases.ExactProblem, "metrics", lambda self, X: self.compute(X))
    monkeypatch.setattr(
        cases.Knapsack, "compute", lambda self, X: computed.append(len(X)) or original(self, X)
    )
    assert resume_study(half_done).exit_code == 0
    assert sum(computed) == 128 - 96


def test_values_that_are_no_longer_sound_are_computed_again(half_done, study, content_of, tmp_path):
    folder = OutputFolder(half_done)
    (run,) = status(half_done).runs
    shutil.rmtree(folder.run(run.run_id) / "archive" / "weight")
    events = []
    assert resume_study(half_done, progress=events.append).exit_code == 1  # evaluation 100 again
    assert [e.evaluations for e in events if e.kind == "repaired"] == [0]
    assert resume_study(half_done).exit_code == 0
    run_study(study(), tmp_path / "whole")
    half, whole = (next(iter(content_of(p).values())) for p in (half_done, tmp_path / "whole"))
    assert half == whole


def test_the_state_of_damaged_results_is_shown(done):
    folder = OutputFolder(done)
    (run,) = status(done).runs
    attributes = folder.run(run.run_id) / "zarr.json"
    content = json.loads(attributes.read_text())
    content["attributes"]["seed"] = 2
    attributes.write_text(json.dumps(content))
    (run,) = status(done).runs
    assert (run.status, run.message) == ("damaged", "zarr.json has changed")


WRONG_CARDS = ["", "{", "[]", "\x00", '{"format": 1}', None]


def put(path, text):
    path.unlink() if text is None else path.write_text(text)


@pytest.mark.parametrize("text", WRONG_CARDS)
@pytest.mark.parametrize("name", ["study.json", "results.zarr/zarr.json"])
def test_either_place_of_the_card_is_mended_from_the_other(done, content_of, name, text):
    whole, (card, root) = content_of(done), (done / "study.json", done / "results.zarr/zarr.json")
    before = json.loads(card.read_text()), json.loads(root.read_text())
    put(done / name, text)
    with pytest.raises(InputError, match=r"is damaged|holds no results"):
        open_results(done)
    assert [run.status for run in status(done).runs] == ["complete"]
    assert resume_study(done).already_complete
    assert content_of(done) == whole
    assert (json.loads(card.read_text()), json.loads(root.read_text())) == before


def test_a_study_whose_card_is_damaged_in_both_places_is_refused(done):
    for name in ("study.json", "results.zarr/zarr.json"):
        flip(done / name, random.Random(5))
    with pytest.raises(InputError, match=r"study\.json"):
        resume_study(done)


def test_a_card_in_a_format_of_a_later_version_is_refused_with_the_reason(done, study):
    from mohsearch.study.integrity import sealed

    card = done / "study.json"
    content = json.loads(card.read_text()) | {"format": 2, "mohsearch_version": "9.1"}
    card.write_text(json.dumps(sealed(content)))
    for begin in (lambda: resume_study(done), lambda: run_study(study(), done)):
        with pytest.raises(InputError, match=r"written by mohsearch 9\.1 in format 2; .* format 1"):
            begin()
