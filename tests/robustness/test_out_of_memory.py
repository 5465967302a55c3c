"""Memory that runs out: inside an evaluation, and by the system's killing a worker."""

import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from mohsearch.study import load_study, open_results, resume_study, run_study, status

STUDY = {
    "name": "hungry",
    "title": "A study whose memory runs out",
    "problems": [{"name": "moham", "options": {"max_instances": 2}}],
    "workloads": ["tiny"],
    "portfolios": [{"name": "paper"}],
    "engines": [{"engine": "array"}],
    "budget": {"population": 12, "generations": 30},
}
HUNGER_BYTES = 2**34


@pytest.fixture
def written(tmp_path):
    """Write the study with top-level fields changed; return its path."""

    def write(**changes):
        path = tmp_path / "hungry.yaml"
        path.write_text(yaml.safe_dump({**STUDY, **changes}))
        return path

    return write


def digests(folder):
    tree = open_results(folder)
    found = {name: str(node.attrs["digest"]) for name, node in tree.children.items()}
    tree.close()
    return found


def limited(path, output):
    """Run a study whose evaluations outgrow a limit of memory after a while; its exit code."""
    process = os.fork()
    if not process:
        from mohsearch.problems import moham
        from mohsearch.study import store

        store.FLUSH_S = 0.0
        compute, calls = moham.MohamProblem.metrics, []

        def hungry(self, X):
            calls.append(len(X))
            if len(calls) > 10:
                np.ones(HUNGER_BYTES, dtype=np.int8)
            return compute(self, X)

        moham.MohamProblem.metrics = hungry
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + 2**31
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        code = 9
        try:
            code = run_study(load_study(path), output, workers=1).exit_code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_study_that_outgrows_its_memory_says_so_and_is_resumed(written, tmp_path):
    path = written(executor={"workers": 1})
    assert limited(path, tmp_path / "cut") == 1
    (run,) = status(tmp_path / "cut").runs
    assert (run.status, run.generation) == ("failed", 10)
    assert "Unable to allocate 16.0 GiB" in run.message
    assert resume_study(tmp_path / "cut").exit_code == 0
    run_study(load_study(path), tmp_path / "whole")
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kills", [1, 2])
def test_a_worker_killed_by_the_system_costs_a_session_at_most(written, tmp_path, kills):
    path = written(executor={"workers": 2}, seeds=2, budget={"population": 50, "generations": 150})
    killed = []

    def tell(event):
        workers = [pid for pid in children(os.getpid()) if is_worker(pid)]
        if event.kind == "generation" and len(killed) < kills and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
            time.sleep(0.1)

    outcome = run_study(load_study(path), tmp_path / "out", progress=tell)
    assert len(killed) == kills
    # killed twice, the second time alone in its process, a run is given up until it is resumed
    assert [run.message for run in outcome.failed] == [
        "its process died (killed, or out of memory)"
    ] * (kills - 1)
    assert resume_study(tmp_path / "out", workers=1).exit_code == 0
    run_study(load_study(path), tmp_path / "whole", workers=1)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def children(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(n) for task in tasks for n in (task / "children").read_text().split()]


def is_worker(pid):
    """Whether a process is one of a pool's, not what looks after shared memory."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
