"""A long study: its memory stays flat, its store small, and its front is read at once."""

import json
import subprocess
import sys
import time

import pytest
import yaml

from mohsearch.analysis.results import read_fronts
from mohsearch.study import load_study, open_results, resume_study, run_study, status

POPULATION = 250

TELLING = """
import json, os, sys
from mohsearch.study import load_study, run_study

def memory():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def tell(event):
    if event.kind in ("generation", "complete", "resumed"):
        print(json.dumps([event.kind, event.evaluations, memory()]), flush=True)

sys.exit(run_study(load_study(sys.argv[1]), sys.argv[2], workers=1, progress=tell).exit_code)
"""


def written(folder, generations, population=POPULATION):
    """Write a study with evaluations of microseconds."""
    study = {
        "name": "long",
        "title": "A long study",
        "problems": [{"name": "moham"}],
        "workloads": ["tiny"],
        "engines": [{"engine": "array"}],
        "portfolios": [{"name": "paper"}],
        "budget": {"population": population, "generations": generations},
        "executor": {"workers": 1},
    }
    path = folder / "long.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


@pytest.fixture
def early(monkeypatch):
    """Older rows leave memory early, and stored arrays are read in small blocks."""
    from mohsearch.engines import spool
    from mohsearch.study import integrity, store

    monkeypatch.setattr(spool, "WINDOW_BYTES", 0)
    monkeypatch.setattr(store, "BLOCK_BYTES", 2**12)
    monkeypatch.setattr(integrity, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(store, "CHUNK_BYTES", 2**12)


def test_a_study_that_does_not_fit_in_memory_ends_as_one_that_does(tmp_path, request):
    study = load_study(written(tmp_path, 100, 50))
    run_study(study, tmp_path / "whole")
    request.getfixturevalue("early")
    outcome = run_study(study, tmp_path / "spooled", progress=stop_at(20))
    assert [run.message for run in outcome.runs] == ["RuntimeError: stopped here"]
    assert 20 <= status(tmp_path / "spooled").runs[0].generation < 100
    assert resume_study(tmp_path / "spooled").exit_code == 0
    found = []
    for folder in ("whole", "spooled"):
        tree = open_results(tmp_path / folder)
        found.append([node.attrs["digest"] for node in tree.children.values()])
        tree.close()
    assert found[0] == found[1]


def stop_at(generation):
    """Return a progress that ends the run with an error."""

    def progress(event):
        if event.kind == "generation" and event.generation >= generation:
            raise RuntimeError("stopped here")

    return progress


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("evaluations", [1_000_000])
def test_a_million_evaluations_keep_memory_flat_and_reading_quick(evaluations, tmp_path, capsys):
    path = written(tmp_path, evaluations // POPULATION)
    out = tmp_path / "out"
    command = [sys.executable, "-c", TELLING, str(path), str(out)]
    told = run_and_kill_halfway(command, evaluations // 2)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    resumed = [json.loads(line) for line in done.stdout.splitlines()]
    assert resumed[0][0] == "resumed"
    assert resumed[-1][:2] == ["complete", evaluations]
    told += resumed
    marks = {
        share: next(memory for _, count, memory in told if count >= share * evaluations)
        for share in (0.1, 0.25, 0.5, 0.75, 1.0)
    }
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    seconds = reading(out)
    with capsys.disabled():
        shown = ", ".join(f"{s:.0%} {m / 2**20:.0f} MiB" for s, m in marks.items())
        print(
            f"\n{evaluations:,} evaluations: {shown}, most {max(m for *_, m in told) / 2**20:.0f} "
            f"MiB; {size / 2**20:.0f} MiB on disk; front of {len(read_fronts(out)[0])} read in "
            f"{seconds:.2f} CPU-s",
            end="",
        )
    assert marks[1.0] < 1.15 * marks[0.1] + 2**25
    assert size < 100 * evaluations
    assert seconds < 1.0


def run_and_kill_halfway(command, evaluations):
    """Kill a study after so many evaluations; return what it told."""
    told = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            told.append(json.loads(line))
            if told[-1][1] >= evaluations:
                process.kill()
                break
    return told


def reading(out):
    """Return the processor time of reading the front, everything imported."""
    read_fronts(out)
    began = time.process_time()
    read_fronts(out)
    return time.process_time() - began
