"""Worker processes are as few as allowed and end with the process that started them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mohsearch.core.processes import allowed_processes, process_limit

PARENT = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import os
from mohsearch.core.processes import follow_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_context("spawn"), follow_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 60).result()
"""


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert runs(worker)
        os.kill(parent.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while runs(worker) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not runs(worker)


def test_workers_do_not_run_the_script_that_started_them_again(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import os\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from mohsearch.core.processes import follow_parent, worker_context\n"
        "print('begins', flush=True)\n"
        "with ProcessPoolExecutor(2, worker_context(), follow_parent) as pool:\n"
        "    others = pool.submit(os.getpid).result() != os.getpid()\n"
        "import __main__\n"
        "print('ends', others, __main__.__file__ == __file__)\n"
    )
    done = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split("\n") == ["begins", "ends True True", ""]
    assert done.stderr == ""


def test_a_limit_on_processes_holds_within_for_this_thread_and_is_never_widened(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    elsewhere = []
    with process_limit(None):
        assert allowed_processes() == 6
    with process_limit(3):
        assert allowed_processes() == 3
        with process_limit(9):
            assert allowed_processes() == 3
        with process_limit(1):
            assert allowed_processes() == 1
        assert allowed_processes() == 3
        other = threading.Thread(target=lambda: elsewhere.append(allowed_processes()))
        other.start()
        other.join()
    assert elsewhere == [6]
    assert allowed_processes() == 6
    with process_limit(9):
        assert allowed_processes() == 6
