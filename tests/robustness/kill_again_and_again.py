"""Kill a study at random moments until it is done; say whether it ended as if undisturbed.

usage: python kill_again_and_again.py STUDY.yaml FOLDER KILLS SEED

Everything is imported and compiled once; each session is a fork of this process.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from mohsearch.study import load_study, plan_study
from mohsearch.study.objects import build_problem, build_search


def session(path: Path, output: Path) -> None:
    """Run the study to its end in this process, and leave it."""
    from mohsearch.study import run_study, store

    store.FLUSH_S = 0.0
    os._exit(run_study(load_study(path), output, workers=1).exit_code)


def forked(path: Path, output: Path) -> int:
    """Start a session; return its process."""
    process = os.fork()
    if not process:
        try:
            session(path, output)
        except BaseException as error:
            print(f"session failed: {error}", file=sys.stderr, flush=True)
        os._exit(3)
    return process


def digests(output: Path) -> list[str]:
    """Return what the runs found, read in a process of its own as Zarr starts threads."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        from mohsearch.study import open_results

        tree = open_results(output)
        found = [str(node.attrs["digest"]) for node in tree.children.values()]
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(process, 0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        return list(json.loads(stream.read()))


def warm(path: Path) -> None:
    """Build and compile what the study needs."""
    study = load_study(path)
    for run in plan_study(study).runs[:1]:
        problem = build_problem(study, run.key)
        next(build_search(study, run, problem).generations())


def wait_for_writing(output: Path, since: float, most_s: float) -> None:
    """Wait until a session has written a generation, or for a while."""
    end = time.time() + most_s
    while time.time() < end:
        flags = output.glob("results.zarr/*/history/done/c/*")
        if any(flag.stat().st_mtime > since for flag in flags):
            return
        time.sleep(0.01)


def main(path: Path, folder: Path, kills: int, seed: int) -> dict[str, object]:
    """Return how many sessions were killed, what that cost, and whether every result agreed."""
    warm(path)
    rng = random.Random(seed)
    began = time.monotonic()
    _, code = os.waitpid(forked(path, folder / "whole"), 0)
    assert code == 0, "the undisturbed study failed"
    whole_s, whole = time.monotonic() - began, digests(folder / "whole")
    killed, rounds, lost_s = 0, 0, []
    cut = folder / "cut"
    while killed < kills or cut.exists():
        process = forked(path, cut)
        started = time.time()
        # the last session of each round is left alone
        if killed < kills:
            if rng.random() < 0.7:  # once it has written something, else at any moment
                wait_for_writing(cut, started, whole_s)
                time.sleep(rng.random() * 0.3)
            else:
                time.sleep(rng.random() * min(0.6 * whole_s, 2.5))
            os.kill(process, signal.SIGKILL)
        _, code = os.waitpid(process, 0)
        if os.WIFSIGNALED(code):
            killed += 1
            flags = list(cut.glob("results.zarr/*/history/done/c/*"))
            last = max([started, *(flag.stat().st_mtime for flag in flags)])
            lost_s.append(time.time() - last)
            continue
        assert code == 0, f"a resumed session failed with {code}"
        assert digests(cut) == whole, f"another result after {killed} kills"
        rounds += 1
        shutil.rmtree(cut)
    return {"killed": killed, "rounds": rounds, "session_s": whole_s, "lost_s": sorted(lost_s)}


if __name__ == "__main__":
    print(
        json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    )
