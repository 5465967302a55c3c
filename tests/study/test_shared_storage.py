"""Several processes search one Optuna study: nothing is lost, and all write the same."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.engines.optuna_storage import cut_torn_line, open_storage, without_password
from mohsearch.study import load_study, open_results, run_study
from mohsearch.study.plan import plan_study

POPULATION, GENERATIONS = 6, 4
TOTAL = POPULATION * GENERATIONS


def shared(url, algorithm="nsgaii", heartbeat_s=1, **options):
    """Return what makes a study of the exact cases a shared one."""
    return {
        "problems": [{"name": "exact", "options": options}],
        "engines": [{"engine": "optuna", "algorithm": algorithm}],
        "budget": {"population": POPULATION, "generations": GENERATIONS},
        "storage": {"url": url, "heartbeat_s": heartbeat_s},
    }


@pytest.fixture(scope="session")
def server():
    """Start a PostgreSQL server on this machine; return a URL with its port."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = str(programs[-1]) if programs else shutil.which("initdb")
    if found is None:
        pytest.skip("no PostgreSQL server on this machine")
    programs = Path(found).parent
    as_owner = []
    folder = Path(tempfile.mkdtemp(prefix="mohsearch-postgresql-"))
    if os.getuid() == 0:  # the server refuses to run as root
        as_owner = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    data = folder / "data"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def call(program, *arguments):
        command = [*as_owner, programs / program, "-D", data, *arguments]
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)

    call("initdb", "-U", "search", "--auth=trust", "--no-sync")
    options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
    call("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
    yield f"postgresql://search@127.0.0.1:{port}"
    call("pg_ctl", "-w", "-m", "immediate", "stop")
    shutil.rmtree(folder)


@pytest.fixture
def database(server):
    """Return a URL of a new, empty database."""
    psycopg = pytest.importorskip("psycopg")
    name = f"studies_{time.monotonic_ns()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{server}/{name}"


@pytest.fixture(params=["journal", "postgresql"])
def place(request, tmp_path):
    """Return the URL of a storage, of each kind in turn."""
    if request.param == "journal":
        return f"journal://{tmp_path / 'trials' / 'optuna.journal'}"
    return request.getfixturevalue("database")


def trials_in(url, journal=Path()):
    """Return all trials of the one study in a storage."""
    import optuna

    from mohsearch.engines.optuna_engine import quietly

    storage = open_storage(url, journal=journal, heartbeat_s=1)
    with quietly():
        (name,) = optuna.get_all_study_names(storage)
        found = optuna.load_study(study_name=name, storage=storage).get_trials()
    storage.remove_session()
    return found


def states(trials):
    """Return how many trials there are of each state."""
    return Counter(trial.state.name for trial in trials)


def wait_for(condition, most_s=60.0):
    """Wait until a condition holds."""
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def told(process):
    """Wait for the end of a started study; return its exit code, having shown what it said."""
    out, err = process.communicate(timeout=120)
    print(out[-500:], err[-2000:])
    return process.returncode


def test_two_processes_one_killed_complete_the_study_and_lose_nothing(
    place, content, write_study, start, tmp_path, content_of
):
    path = write_study({**content, **shared(place, delay_s=0.1)})
    first, second = start(path, tmp_path / "a"), start(path, tmp_path / "b")
    # both have told something once one has come to its second generation
    for line in iter(first.stdout.readline, ""):
        if line.startswith("generation 2"):
            break
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert told(second) == 0
    assert run_study(load_study(path), tmp_path / "a").exit_code == 0
    assert content_of(tmp_path / "a") == content_of(tmp_path / "b")

    found = trials_in(place)
    assert states(found)["COMPLETE"] == TOTAL
    assert not states(found)["RUNNING"]
    again = {t.system_attrs["failed_trial"] for t in found if "failed_trial" in t.system_attrs}
    begun = {
        t.number
        for t in found
        if t.state.name == "FAIL" and "beyond_budget" not in t.user_attrs and t.params
    }
    assert begun <= again
    owners = {t.user_attrs["owner"] for t in found if "owner" in t.user_attrs}
    assert len(owners) >= 2
    (node,) = open_results(tmp_path / "b").children.values()
    rows = [t.user_attrs["genome"] for t in found if t.state.name == "COMPLETE"]
    assert len(np.unique(rows, axis=0)) == node.attrs["distinct_genomes"]
    assert node.attrs["evaluations"] == TOTAL
    report = json.loads(node.attrs["engine_report"])
    assert report["reproducible"] is False
    assert report["processes"] == len(owners)


def test_processes_that_begin_at_the_same_moment_in_one_folder_write_one_result(
    content, write_study, start, tmp_path
):
    path = write_study({**content, **shared("journal", delay_s=0.02)})
    both = [start(path, tmp_path / "out") for _ in range(2)]
    assert [told(process) for process in both] == [0, 0]
    found = trials_in("journal", tmp_path / "out" / "optuna.journal")
    assert states(found)["COMPLETE"] == TOTAL
    (node,) = open_results(tmp_path / "out").children.values()
    assert node.attrs["status"] == "complete"


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")  # by thread
def test_tables_are_made_once_by_processes_that_come_at_the_same_moment(database):
    opened, problems = [], []

    def come():
        try:
            opened.append(open_storage(database, journal=Path(), heartbeat_s=1))
            opened[-1].remove_session()
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(opened) == 4


def test_a_server_that_goes_away_is_named_and_the_study_goes_on_where_it_was(
    study, database, tmp_path
):
    psycopg = pytest.importorskip("psycopg")
    server, _, name = database.rpartition("/")

    def allow(yes):
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {yes}")
            if not yes:
                connection.execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='{name}'"
                )

    def pull_the_plug(event):
        if event.kind == "generation" and event.generation == 1:
            allow(False)

    made = study(**shared(database, "random"), workloads=["accelerators"])
    outcome = run_study(made, tmp_path / "out", progress=pull_the_plug)
    assert outcome.exit_code == 1
    assert "the storage of trials failed" in outcome.runs[0].message
    allow(True)
    assert run_study(made, tmp_path / "out").exit_code == 0
    found = trials_in(database)
    assert states(found)["COMPLETE"] == TOTAL
    assert not states(found)["RUNNING"]


@pytest.mark.parametrize("algorithm", ["nsgaii", "nsgaiii", "random", "qmc", "tpe"])
def test_every_sampler_works_on_a_shared_storage(algorithm, study, tmp_path, cases):
    made = study(**shared("journal", algorithm), workloads=["accelerators"])
    outcome = run_study(made, tmp_path / "out")
    assert outcome.exit_code == 0, outcome.runs
    found = trials_in("journal", tmp_path / "out" / "optuna.journal")
    assert states(found) == {"COMPLETE": TOTAL}
    problem = cases.Accelerators()
    for trial in found:
        values = problem.compute(np.array([trial.user_attrs["genome"]]))
        outcome = trial.user_attrs["outcome"]["metrics"]
        assert all(outcome[name] == values[name][0] for name in values)


def test_a_genome_that_cannot_be_evaluated_ends_the_study_everywhere_or_is_passed_over(
    study, tmp_path
):
    changes = shared("journal", poison="raise", poison_bits=9)
    stopped = run_study(study(**changes), tmp_path / "stop")
    assert stopped.exit_code == 1
    assert "poisoned" in stopped.runs[0].message
    on = study(**changes, evaluation={"on_failure": "go-on"})
    assert run_study(on, tmp_path / "on").exit_code == 0
    for folder in ("stop", "on"):
        lines = (tmp_path / folder / "failures.jsonl").read_text().splitlines()
        assert lines
        assert all(sum(json.loads(line)["genome"]) >= 9 for line in lines)
        assert len(set(lines)) == len(lines)


def test_a_storage_is_only_for_engines_that_share(study):
    with pytest.raises(InputError, match=r"engines\[0\]\.engine: only engine 'optuna' can share"):
        plan_study(study(storage={"url": "journal"}))
    steady = shared("journal")
    steady["budget"] = {**steady["budget"], "convergence": {"window": 3}}
    with pytest.raises(InputError, match=r"budget\.convergence: .* cannot stop early"):
        plan_study(study(**steady))


@pytest.mark.parametrize("url", ["sqlite:///x", "journal:x", "postgresql://", "", "redis://h"])
def test_a_wrong_storage_is_refused_with_what_there_is(url, study):
    with pytest.raises(InputError, match=r"storage\.url: .*no such storage; there are: journal"):
        study(**shared(url))


def test_a_password_is_not_written_anywhere(study, tmp_path):
    made = study(**shared("postgresql://ann:secret@127.0.0.1:1/studies"))
    outcome = run_study(made, tmp_path / "out")
    assert outcome.exit_code == 1
    assert re.search(r"postgresql://ann@127\.0\.0\.1:1.*no such database", outcome.runs[0].message)
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes(), path


@pytest.mark.parametrize("url", ["journal:///a:b@c", "postgresql://db/s", "postgresql://a@db:1/s"])
def test_a_url_without_password_stays_as_it_is(url):
    assert without_password(url) == url


def test_a_line_that_a_killed_process_left_unfinished_is_cut_off(tmp_path):
    journal = tmp_path / "j"
    for text, kept in [(b"", b""), (b"{}\n", b"{}\n"), (b"{}\n{", b"{}\n"), (b"{", b"")]:
        journal.write_bytes(text)
        cut_torn_line(journal)
        assert journal.read_bytes() == kept
    long = b"{}\n" + b"x" * 200_000
    journal.write_bytes(long)
    cut_torn_line(journal)
    assert journal.read_bytes() == b"{}\n"


def test_a_search_goes_on_after_a_torn_line(study, tmp_path):
    made = study(**shared("journal", "random"), workloads=["accelerators"])
    run_study(made, tmp_path / "whole")
    text = (tmp_path / "whole" / "optuna.journal").read_bytes().splitlines(keepends=True)
    torn = tmp_path / "torn.journal"
    torn.write_bytes(b"".join(text[: len(text) // 2]) + text[len(text) // 2][:7])
    again = study(**shared(f"journal://{torn}", "random"), workloads=["accelerators"])
    assert run_study(again, tmp_path / "again").exit_code == 0
    assert states(trials_in("journal", torn))["COMPLETE"] == TOTAL


def test_a_file_that_is_no_journal_is_refused(study, tmp_path):
    wrong = tmp_path / "wrong.journal"
    wrong.write_text("not a journal\nat all\n")
    outcome = run_study(study(**shared(f"journal://{wrong}")), tmp_path / "out")
    assert outcome.exit_code == 1
    assert "is no journal of Optuna" in outcome.runs[0].message


def test_a_search_without_a_storage_refuses_the_folder_of_a_shared_one(study, tmp_path):
    changes = shared("journal")
    run_study(study(**changes), tmp_path / "out")
    changes["storage"] = None
    with pytest.raises(InputError, match="results of a different study"):
        run_study(study(**changes), tmp_path / "out")
