"""What a search keeps for ever is small; the rest stands in a file, and nothing is different."""

import random

import numpy as np
import pytest

from mohsearch.engines import archive as archive_module
from mohsearch.engines import spool
from mohsearch.engines.archive import Archive
from mohsearch.engines.duplicates import GenomeIndex
from mohsearch.engines.spool import SpooledRows


@pytest.fixture
def small_window(monkeypatch):
    """Rows move to the file early."""
    monkeypatch.setattr(spool, "WINDOW_BYTES", 0)
    monkeypatch.setattr(archive_module, "FRONT_BLOCK", 64)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float64"])
def test_spooled_rows_are_those_of_an_array(small_window, tmp_path, dtype):
    rng = np.random.default_rng(4)
    spooled = SpooledRows(3, np.dtype(dtype), 10, tmp_path)
    whole = np.empty((0, 3), dtype=dtype)
    for _ in range(40):
        fresh = rng.integers(-100, 100, (int(rng.integers(0, 90)), 3)).astype(dtype)
        spooled.append(fresh)
        whole = np.concatenate([whole, fresh])
        assert len(spooled) == len(whole)
        first, last = sorted(rng.integers(0, len(whole) + 1, 2).tolist())
        assert np.array_equal(spooled.take(slice(first, last)), whole[first:last])
        assert np.array_equal(spooled.take(slice(None)), whole)
        assert np.array_equal(spooled.take(slice(first, last, 7)), whole[first:last:7])
        ids = rng.integers(-len(whole), len(whole), (4, 5))
        assert np.array_equal(spooled.take(ids), whole[ids])
    assert not spooled.in_memory
    assert spooled._held.nbytes <= 2 * 256 * 3 * np.dtype(dtype).itemsize
    assert not list(tmp_path.iterdir()), "the file has no name"


def test_rows_without_a_scratch_folder_stay_in_memory(small_window):
    spooled = SpooledRows(1, np.dtype("int64"))
    for start in range(0, 3000, 100):
        spooled.append(np.arange(start, start + 100)[:, None])
    assert spooled.in_memory
    assert np.array_equal(spooled.take(slice(None))[:, 0], np.arange(3000))


def test_a_full_disk_shows_when_rows_are_moved(small_window, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    spooled = SpooledRows(1, np.dtype("int64"), 1, tmp_path)
    spooled.append(np.arange(500)[:, None])
    monkeypatch.setattr(spool.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        spooled.append(np.arange(100)[:, None])
    assert np.array_equal(spooled.take(slice(None))[:, 0], np.arange(500))


def test_the_index_is_a_dictionary_in_less_memory():
    rng = random.Random(7)
    index, dictionary = GenomeIndex(np.dtype("int8")), {}
    # few distinct first words, so that many keys want the same slot
    words = [rng.randbytes(8) for _ in range(40)]
    for _ in range(6000):
        key = rng.choice(words) + rng.randrange(60).to_bytes(8, "little")
        assert (key in index) == (key in dictionary)
        assert index.get(key) == dictionary.get(key, -1)
        assert index.add(key) == dictionary.setdefault(key, len(dictionary))
    assert len(index) == len(dictionary) > 2000
    held = len(index._keys) + index._slots.itemsize * len(index._slots)
    assert held <= 16 * len(index) + 4 * max(1024, 4 * len(index) + 4)


def test_an_archive_with_a_file_is_the_one_without(small_window, cases, tmp_path):
    problem = cases.Accelerators()
    X = np.random.default_rng(2).permutation(problem.enumerate())
    plain, spooled = Archive(problem), Archive(problem, scratch=tmp_path)
    for start in range(0, len(X), 48):
        rows = X[start : start + 48]
        for one in (plain, spooled):
            one.append(rows, problem.compute(rows), one.index.keys(rows))
        ids = np.arange(0, len(plain), 5)
        assert np.array_equal(plain.objectives(ids), spooled.objectives(ids))
        assert np.array_equal(plain.constraints(ids), spooled.constraints(ids))
        assert plain.front().tolist() == spooled.front().tolist()
    assert not spooled._metrics.in_memory
    assert np.array_equal(plain.genomes, spooled.genomes)
    for name, column in plain.metrics.items():
        assert np.array_equal(column, spooled.metrics[name])


def test_a_front_kept_up_to_date_is_the_front_of_all(small_window, cases):
    problem = cases.Accelerators()
    X = np.random.default_rng(3).permutation(problem.enumerate())
    archive = Archive(problem)
    for start in range(0, len(X), 50):
        rows = X[start : start + 50]
        archive.append(rows, problem.compute(rows), archive.index.keys(rows))
    everything = np.arange(len(archive), dtype=np.int64)
    assert archive.front().tolist() == archive.front_of(everything).tolist()
    assert sorted(map(tuple, archive.objectives(archive.front()))) == sorted(
        map(tuple, problem.exact_front)
    )
