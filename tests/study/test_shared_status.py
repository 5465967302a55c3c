"""`study status` of a search on a shared storage: what the storage holds, read without waiting."""

import json
import os
import shutil
import signal
import socket
import time

import pytest
from click.testing import CliRunner

from mohsearch.cli.main import cli
from mohsearch.core.errors import InputError
from mohsearch.study import run_study, status
from mohsearch.study.card import write_card
from mohsearch.study.files import OutputFolder
from mohsearch.study.plan import plan_study
from tests.study.test_shared_storage import (  # noqa: F401  # fixtures
    GENERATIONS,
    POPULATION,
    TOTAL,
    database,
    place,
    server,
    shared,
)


def test_status_follows_a_shared_search_its_death_and_its_end(
    place,  # noqa: F811
    content,
    write_study,
    start,
    study,
    tmp_path,
):
    path = write_study({**content, **shared(place, delay_s=0.2)})
    process = start(path, tmp_path / "a")
    for line in iter(process.stdout.readline, ""):
        if line.startswith("generation 1"):
            break
    (run,) = status(tmp_path / "a").runs
    assert run.status == "running"
    assert POPULATION <= run.trials["complete"] < TOTAL
    assert run.trials["processes"] == 1
    assert run.evaluations == run.trials["complete"]
    assert 1 <= run.generation < GENERATIONS
    assert 0 < run.evaluations_per_s <= 5
    assert run.remaining_s > 0
    shown = CliRunner().invoke(cli, ["study", "status", str(tmp_path / "a"), "--json"])
    assert json.loads(shown.output)["runs"][0]["trials"]["processes"] == 1

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 30
    while (dead := status(tmp_path / "a").runs[0]).status == "running":
        assert time.monotonic() < end, "the dead process is counted as a living one"
        time.sleep(0.3)
    assert dead.status == "interrupted"
    assert dead.trials["processes"] == 0
    assert dead.trials["complete"] >= run.trials["complete"]

    made = study(**shared(place, delay_s=0.2))
    assert run_study(made, tmp_path / "b").exit_code == 0
    assert status(tmp_path / "b").complete
    (other,) = status(tmp_path / "a").runs
    assert (other.status, other.trials["complete"]) == ("searched", TOTAL)
    assert run_study(made, tmp_path / "a").exit_code == 0
    assert status(tmp_path / "a").complete


def test_status_does_not_wait_for_a_server_that_is_away(
    study,
    database,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr("mohsearch.engines.optuna_state.CONNECT_S", 2)
    made = study(**shared(database))
    run_study(made, tmp_path / "out")
    card = json.loads((tmp_path / "out" / "study.json").read_text())
    assert card["spec"]["storage"]["url"] == database
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (1, silent.getsockname()[1]):
            away = study(**shared(f"postgresql://search@127.0.0.1:{port}/studies"))
            folder = tmp_path / f"away{port}"
            (folder / ".manifests").mkdir(parents=True)
            for noted in (tmp_path / "out" / ".manifests").glob("*.storage.json"):
                shutil.copy(noted, folder / ".manifests")
            _write_card(away, folder)
            began = time.monotonic()
            (found,) = status(folder).runs
            assert time.monotonic() - began < 20
            assert found.status == "unknown"
            assert f"127.0.0.1:{port}" in found.message


def test_a_server_that_is_away_is_asked_for_one_run_only(study, tmp_path, monkeypatch):
    made = study(**shared("postgresql://search@127.0.0.1:1/studies"), seeds=3)
    folder = OutputFolder(tmp_path / "away")
    folder.manifests.mkdir(parents=True)
    _write_card(made, folder.root)
    begun = [run.id for run in plan_study(made).runs][:2]
    for run_id in begun:
        folder.search_name(run_id).write_text("{}")
    asked = []

    def answer(_, of, run_id):
        if of.search_name(run_id).is_file():
            asked.append(run_id)
            raise InputError("no answer")

    monkeypatch.setattr("mohsearch.study.results.storage_state_of", answer)
    found = {run.run_id: (run.status, run.message) for run in status(folder.root).runs}
    assert asked == begun[:1]
    assert [found[run_id] for run_id in begun] == [("unknown", "no answer")] * 2
    assert [state for state, _ in found.values()].count("pending") == 1


def _write_card(made, folder):
    write_card(OutputFolder(folder), plan_study(made))


@pytest.mark.parametrize("broken", ["", "not a journal\nat all\n"])
def test_status_of_a_journal_that_is_gone_or_none_says_so(study, tmp_path, broken):
    run_study(study(**shared("journal", "random")), tmp_path / "out")
    for path in (tmp_path / "out" / "results.zarr").iterdir():
        if path.is_dir():
            path.rename(tmp_path / path.name)
    (run,) = status(tmp_path / "out").runs
    assert (run.status, run.trials["complete"]) == ("searched", TOTAL)
    (tmp_path / "out" / "optuna.journal").write_text(broken)
    (run,) = status(tmp_path / "out").runs
    assert run.status == ("unknown" if broken else "pending")
    assert not broken or "cannot be read" in run.message
