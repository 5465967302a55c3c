"""Whatever stands in a file, the tool answers with one clear error: no traceback, no hang."""

from __future__ import annotations

import random
import re
import resource
import signal
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mohsearch.cli.main import cli
from mohsearch.evaluators.training_time.cards import _read_cluster
from tests.robustness.malformed import (
    KINDS,
    changed,
    clear,
    cut_or_flipped,
    places_in,
    whole_file,
    wrong_fields,
)

MEMORY = 2**30
LIMIT_S = 60
SAMPLE = 3
"""Wrong fields of each kind in the fast tests."""
NOT_FINITE = re.compile(r"(?<![\w.\"'])[+-]?(nan|inf|infinity)(?![\w.\"'])", re.IGNORECASE)
"""What a printed result may never have: a search would go after it."""


class Hangs(Exception):
    pass


@contextmanager
def limits():
    """Allow 1 GiB more of address space than now, a minute of computing, ten of anything."""

    def too_long(*_):
        raise Hangs

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    before = {name: signal.signal(name, too_long) for name in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # a busy machine is no fault
    signal.alarm(10 * LIMIT_S)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for name, action in before.items():
            signal.signal(name, action)


def fault_of(kind, folder, label, content, *, may_be_right=True):
    """Return what is wrong with the tool's answer to a file; None if nothing is."""
    clear(folder)
    _read_cluster.cache_clear()  # a process reads a card once
    path = kind.place(folder, content)
    before = sorted(folder.rglob("*"))
    with limits():
        result = CliRunner().invoke(cli, kind.command, prog_name="mohsearch")
    said = result.output.strip()
    if result.exit_code == 0 and may_be_right:
        number = NOT_FINITE.search(result.output)
        if number is None or number[0].lower().encode() in content.lower():  # a name is repeated
            return None
        return f"{kind.name}: {label}: prints {number[0]}"
    if result.exit_code != 2:
        return f"{kind.name}: {label}: exit code {result.exit_code}: {said[-300:]}"
    named = (path.stem, "passwd", *(name for name, _ in kind.around))  # a card may name another
    if "Traceback" in said or not any(name in said for name in named):
        return f"{kind.name}: {label}: the message does not name the file: {said[:300]}"
    if sorted(folder.rglob("*")) != before:
        return f"{kind.name}: {label}: files were written"
    return None


def faults(kind, folder, variants, **options):
    found = [fault_of(kind, folder, *variant, **options) for variant in variants]
    return [fault for fault in found if fault]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MOHSEARCH_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each_kind
def test_a_valid_file_is_read(kind, folder):
    kind.place(folder, kind.content())
    result = CliRunner().invoke(cli, kind.command, prog_name="mohsearch")
    assert result.exit_code == 0, result.output


@each_kind
def test_a_file_that_is_wrong_as_a_whole_is_refused(kind, folder):
    right = {("partition", "a list")}  # a list of chips is a partition
    variants = [(what, data) for what, data in whole_file(kind) if (kind.name, what) not in right]
    assert faults(kind, folder, variants, may_be_right=False) == []


@each_kind
def test_a_directory_in_place_of_a_file_is_refused(kind, folder):
    path = kind.place(folder, b"")
    path.unlink()
    path.mkdir()
    result = CliRunner().invoke(cli, kind.command, prog_name="mohsearch")
    assert result.exit_code in {0, 2}, result.output
    assert "Traceback" not in result.output
    assert result.exit_code == 2 or kind.name in {"technology", "problem", "operators", "package"}


@each_kind
def test_wrong_fields_are_refused_or_right(kind, folder):
    rng = random.Random(3)
    variants = wrong_fields(kind, lambda found: rng.sample(found, min(SAMPLE, len(found))))
    assert faults(kind, folder, variants) == []


@each_kind
def test_cut_and_flipped_files_are_refused_or_right(kind, folder):
    assert faults(kind, folder, cut_or_flipped(kind, random.Random(4), 1)) == []


@pytest.mark.slow
@each_kind
def test_every_wrong_field_is_refused_or_right(kind, folder):
    assert faults(kind, folder, wrong_fields(kind)) == []


@pytest.mark.slow
@each_kind
def test_many_cut_and_flipped_files_are_refused_or_right(kind, folder):
    assert faults(kind, folder, cut_or_flipped(kind, random.Random(5), 100)) == []


def lists_and_objects(inner):
    return st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lists_and_objects,
    max_leaves=12,
)
JSON_KINDS = [kind for kind in KINDS if kind.file.endswith(".json")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", JSON_KINDS, ids=lambda kind: kind.name)
def test_arbitrary_json_in_any_field_is_refused_or_right(kind, folder):
    data = kind.data

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(field=st.sampled_from(list(places_in(data))), value=ANY_JSON)
    def check(field, value):
        content = kind.written(changed(data, field, value))
        assert fault_of(kind, folder, f"{field} = {value!r}", content) is None

    check()
