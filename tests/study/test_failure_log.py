"""The log of failed evaluations: a changed byte or a lost line shows; a torn end is no damage."""

import json
import multiprocessing

import numpy as np
import pytest
from click.testing import CliRunner

from mohsearch.cli.main import cli
from mohsearch.core.errors import InputError
from mohsearch.study import run_study
from mohsearch.study.failure_log import log_failures, logged, read_failures

FAILURES = [([1, 0, 2], "RuntimeError: broke"), ([0, 0, 1], "metric 'x' is nan"), ([3], "late")]


@pytest.fixture
def log(tmp_path):
    """A log of three lines of two runs."""
    path = tmp_path / "failures.jsonl"
    log_failures(path, "one", FAILURES[:2])
    log_failures(path, "two", FAILURES[2:])
    return path


def test_what_was_logged_is_read(log):
    found = read_failures(log)
    assert found.by_run == {"one": 2, "two": 1}
    assert not found.torn
    assert logged(log, "one") == {(json.dumps(g), why) for g, why in FAILURES[:2]}
    assert read_failures(log.with_name("none")).by_run == {}


def test_a_line_longer_than_what_is_read_at_once_is_sealed_and_followed(log):
    long = [([7] * 100_000, "broke"), ([8], "broke " * 50_000)]
    log_failures(log, "three", long)
    log_failures(log, "three", [([9], "late")])
    assert read_failures(log).by_run == {"one": 2, "two": 1, "three": 3}
    with log.open("ab") as stream:  # killed while it wrote a long line
        stream.write(b'{"run": "' + b"x" * 300_000)
    log_failures(log, "three", [([10], "later")])
    found = read_failures(log)
    assert (found.by_run["three"], found.torn) == (4, False)


def test_every_flipped_bit_shows(log):
    sound = log.read_bytes()
    last = sound.rstrip(b"\n").rfind(b"\n") + 1
    for place in range(len(sound)):
        for bit in (1, 32):
            log.write_bytes(sound[:place] + bytes([sound[place] ^ bit]) + sound[place + 1 :])
            if place == len(sound) - 1:  # the last line has no end any more
                assert read_failures(log).torn
                continue
            with pytest.raises(InputError, match=r"line \d+ is not what was written") as told:
                read_failures(log)
            assert place < last or "line 3" in str(told.value)


def test_a_removed_or_moved_line_shows_and_lines_of_early_versions_do_not(log):
    first, second, third = log.read_text().splitlines(keepends=True)
    for lines in ([second, third], [first, third], [second, first, third], [first, first]):
        log.write_text("".join(lines))
        with pytest.raises(InputError, match="is not what was written"):
            read_failures(log)
    early = json.dumps({"run": "one", "genome": [1], "reason": "old"}) + "\n"
    log.write_text(early)
    log_failures(log, "one", FAILURES[:1])
    assert read_failures(log).by_run == {"one": 2}
    log.write_text(log.read_text() + early)
    with pytest.raises(InputError, match="line 3 is not"):
        read_failures(log)


def test_a_torn_last_line_is_told_and_cut_off_by_the_next(log):
    sound = log.read_bytes()
    last = sound.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last + 1, len(sound)):
        log.write_bytes(sound[:end])
        assert read_failures(log).torn
        log_failures(log, "two", FAILURES[2:])
        assert log.read_bytes() == sound
    long = [(np.arange(100_000).tolist(), "long")]  # more than one block of the file
    log_failures(log, "two", long)
    log_failures(log, "two", FAILURES)
    assert read_failures(log).by_run == {"one": 2, "two": 5}


def _write(path, name):
    for number in range(40):
        log_failures(path, name, [([number], "x")])


def test_processes_that_write_at_the_same_time_take_turns(tmp_path):
    path = tmp_path / "failures.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert read_failures(path).by_run == {"a": 40, "b": 40}


def test_verify_checks_the_log(study, tmp_path):
    problems = [{"name": "exact", "options": {"poison": "raise", "poison_bits": 9}}]
    go_on = study(problems=problems, evaluation={"on_failure": "go-on"})
    run_study(go_on, tmp_path / "out")

    def verify():
        return CliRunner().invoke(cli, ["study", "verify", str(tmp_path / "out")])

    log = tmp_path / "out" / "failures.jsonl"
    text = log.read_text()
    assert f"{len(text.splitlines())} failed evaluations logged, as written" in verify().output
    log.write_text(text.replace("poisoned", "poisoneD", 1))
    assert verify().exit_code == 2
    assert "line 1 is not what was written" in verify().output
    log.write_text(text + '{"run"')
    assert "unfinished" in verify().output
    assert verify().exit_code == 0
    log.unlink()
    assert verify().exit_code == 2
    assert "lines of run" in verify().output
