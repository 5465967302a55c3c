"""A study whose disk fills up says so; with room again it ends as if undisturbed."""

import os
import subprocess
import sys

import pytest
import yaml

from mohsearch.core.errors import InputError
from mohsearch.study import load_study, open_results, resume_study, run_study

STUDY = {
    "name": "full",
    "title": "A study on a full disk",
    "problems": [{"name": "moham", "options": {"max_instances": 2}}],
    "workloads": ["tiny"],
    "portfolios": [{"name": "paper"}],
    "budget": {"population": 12, "generations": 10},
    "executor": {"workers": 1},
}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own; ``resize(KiB)`` changes its size."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a tmpfs be mounted")

    def resize(kib):
        options = f"remount,size={kib}k"
        subprocess.run(["mount", "-o", options, str(place)], check=True)

    yield place, resize
    subprocess.run(["umount", "-l", str(place)], check=True)


def told(study, folder):
    """Run a study; return why it or its run failed, and whether it is complete."""
    try:
        outcome = run_study(study, folder)
    except InputError as error:
        return str(error), False
    return outcome.runs[0].message, outcome.exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_study_on_a_full_disk_fails_with_the_reason_and_is_resumed(small_disk, tmp_path):
    place, resize = small_disk
    path = tmp_path / "full.yaml"
    path.write_text(yaml.safe_dump(STUDY))
    study = load_study(path)
    run_study(study, tmp_path / "whole")
    refused = 0
    for kib in (96, 160, 224, 320):  # full while the arrays are made, and later
        resize(kib)
        reason, complete = told(study, place / "out")
        if complete:
            break
        assert "No space left on device" in reason
        refused += 1
    assert refused > 1
    resize(16384)
    outcome = resume_study(place / "out") if (place / "out" / "study.json").is_file() else None
    outcome = outcome or run_study(study, place / "out")
    assert outcome.exit_code == 0
    found = []
    for folder in (place / "out", tmp_path / "whole"):
        tree = open_results(folder)
        found.append([node.attrs["digest"] for node in tree.children.values()])
        tree.close()
    assert found[0] == found[1]
