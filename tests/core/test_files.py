import os
import stat
from pathlib import Path

import pytest

from mohsearch.core.errors import InputError
from mohsearch.core.files import write_text


def test_a_file_is_written_with_its_folder_and_replaced_as_a_whole(tmp_path):
    path = tmp_path / "new" / "deep" / "a.csv"
    write_text(path, "é,1\r\n")
    assert path.read_bytes() == "é,1\r\n".encode()
    path.chmod(0o640)
    with path.open(encoding="utf-8") as reader:
        write_text(path, "second\n")
        assert reader.read() == "é,1\n", "who reads the old file goes on reading it"
    assert path.read_text() == "second\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == ["a.csv"]


@pytest.mark.parametrize("failing", ["write_fails", "replace_fails"])
def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "a.json"
    write_text(path, "old")
    text = "new"
    if failing == "write_fails":
        text = "half\ud800"  # cannot be encoded
    else:

        def full(self, target):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises((InputError, UnicodeEncodeError)):
        write_text(path, text)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_is_followed(tmp_path):
    write_text(tmp_path / "real.txt", "old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_cannot_be_written_is_said_with_its_path(tmp_path):
    with pytest.raises(InputError, match="directory"):
        write_text(tmp_path, "x")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        write_text(tmp_path / "file" / "below.txt", "x")
