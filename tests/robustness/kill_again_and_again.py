"""Kill a study at random moments until it is done; say whether it ended as if undisturbed.

usage: python kill_again_and_again.py STUDY.yaml FOLDER KILLS SEED

Everything is imported and compiled once; each session is a fork of this process, which tells over a
pipe what it does. Of ten kills about seven come after a random number of further generations, two
after a random time and one while the front is written.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mohsearch.study import load_study, plan_study
from mohsearch.study.objects import build_problem, build_search

STRIDE = 16
"""A session is killed after at most one generation in so many."""


def session(path: Path, output: Path, flush_s: float, tell: int) -> None:
    """Run the study to its end in this process, and leave it."""
    from mohsearch.engines.driver import Search
    from mohsearch.study import carry_out, run_study, store

    store.FLUSH_S, carry_out.REPORT_S = flush_s, 0.0
    compute = Search._compute

    def counted(self: Any, rows: Any) -> Any:
        os.write(tell, f"evaluated {len(rows)}\n".encode())
        return compute(self, rows)

    Search._compute = counted  # type: ignore[method-assign]
    outcome = run_study(
        load_study(path),
        output,
        workers=1,
        progress=lambda event: os.write(tell, f"{event.kind} {event.generation}\n".encode()),
    )
    os._exit(outcome.exit_code)


class Session:
    """A session in a process of its own, and what it has told so far."""

    def __init__(self, path: Path, output: Path, flush_s: float = 0.0) -> None:
        self._hears, tell = os.pipe()
        self.started = time.time()
        self.process = os.fork()
        if not self.process:
            try:
                os.close(self._hears)
                session(path, output, flush_s, tell)
            except BaseException as error:
                print(f"session failed: {error}", file=sys.stderr, flush=True)
            os._exit(3)
        os.close(tell)
        self._partial = b""
        self.ended = False
        self.generations = 0
        self.evaluated = 0

    def listen(self, most_s: float) -> None:
        """Take in what the session tells within a time."""
        if self.ended or not select.select([self._hears], [], [], most_s)[0]:
            return
        heard = os.read(self._hears, 2**16)
        self.ended = not heard
        *lines, self._partial = (self._partial + heard).split(b"\n")
        for line in lines:
            kind, count = line.split()
            if kind == b"evaluated":
                self.evaluated += int(count)
            elif kind == b"generation":
                self.generations += 1

    def follow(self, generations: int, most_s: float) -> None:
        """Wait until the session has made so many generations, has ended, or a while."""
        end = time.monotonic() + most_s
        while self.generations < generations and not self.ended and time.monotonic() < end:
            self.listen(end - time.monotonic())

    def end(self) -> int:
        """Hear the session out; return how its process ended."""
        while not self.ended:
            self.listen(60.0)
        os.close(self._hears)
        return os.waitpid(self.process, 0)[1]


def read(output: Path) -> list[dict[str, Any]]:
    """Return what the runs hold, read in a process of its own as Zarr starts threads."""
    hears, tell = os.pipe()
    process = os.fork()
    if not process:
        with os.fdopen(tell, "w") as stream:
            json.dump(ledgers(output), stream)
        os._exit(0)
    os.close(tell)
    with os.fdopen(hears) as stream:
        found = stream.read()
    os.waitpid(process, 0)
    return list(json.loads(found))


def ledgers(output: Path) -> list[dict[str, Any]]:
    """Return digest, evaluations and archive of each complete run, checked as every reader does."""
    import numpy as np

    from mohsearch.study import open_results

    found = []
    for node in open_results(output).children.values():
        distinct = int(node.attrs["distinct_genomes"])
        genomes = node["archive"]["genome"].to_numpy()[:distinct]
        found.append(
            {
                "digest": str(node.attrs["digest"]),
                "evaluations": int(node.attrs["evaluations"]),
                "distinct": distinct,
                "repeated": distinct - len(np.unique(genomes, axis=0)),
            }
        )
    return found


def written_at(output: Path, otherwise: float) -> float:
    """Return when a generation was last written."""
    flags = output.glob("results.zarr/*/history/done/c/*")
    return max([otherwise, *(flag.stat().st_mtime for flag in flags)])


def warm(path: Path) -> int:
    """Import, build and compile what the study needs; return its generations."""
    for name in ("mohsearch.study.executor", "xarray", "zarr"):
        importlib.import_module(name)
    study = load_study(path)
    for run in plan_study(study).runs[:1]:
        problem = build_problem(study, run.key)
        next(build_search(study, run, problem).generations())
    return int(study.spec.budget.generations)


def place_of(output: Path, process: Session) -> str:
    """Return what a killed session was doing: starting, searching or writing the front."""
    if list(output.glob(".staging/*-front")) or list(output.glob("results.zarr/*/front")):
        return "end"
    return "search" if process.generations else "start"


def main(path: Path, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Return how many sessions were killed and where, and what that cost; all results agreed."""
    generations = warm(path)
    rng = random.Random(seed)
    undisturbed = Session(path, folder / "whole")
    undisturbed.follow(1, 600.0)
    start_s = time.time() - undisturbed.started
    assert undisturbed.end() == 0, "the undisturbed study failed"
    whole_s, whole = time.time() - undisturbed.started, read(folder / "whole")
    places: Counter[str] = Counter()
    rounds, evaluated, lost_s, again = 0, 0, [], 0
    missing = repeated = 0
    cut = folder / "cut"
    while sum(places.values()) < kills or cut.exists():
        current = Session(path, cut, flush_s=rng.choice([0.0, 1.0]))
        if sum(places.values()) < kills:  # the last session of each round is left alone
            strike(current, rng, generations, 1.5 * start_s, cut)
        code = current.end()
        evaluated += current.evaluated
        if os.WIFSIGNALED(code):
            places[place_of(cut, current)] += 1
            lost_s.append(time.time() - written_at(cut, current.started))
            continue
        assert code == 0, f"a resumed session failed with {code}"
        found = read(cut)
        assert [f["digest"] for f in found] == [w["digest"] for w in whole], "another result"
        missing += sum(
            w["evaluations"] - f["evaluations"] for w, f in zip(whole, found, strict=True)
        )
        repeated += sum(f["repeated"] for f in found)
        again += evaluated - sum(f["distinct"] for f in found)
        rounds, evaluated = rounds + 1, 0
        shutil.rmtree(cut)
    return {
        "killed": sum(places.values()),
        "places": dict(places),
        "rounds": rounds,
        "missing": missing,
        "repeated": repeated,
        "again": again,
        "distinct": sum(w["distinct"] for w in whole),
        "session_s": whole_s,
        "lost_s": sorted(lost_s),
    }


def strike(
    current: Session, rng: random.Random, generations: int, start_s: float, output: Path
) -> None:
    """Kill a session at a random moment."""
    kind = rng.random()
    if kind < 0.2:
        current.follow(generations, rng.random() * start_s)
    elif kind < 0.9:
        current.follow(rng.randint(1, max(1, generations // STRIDE)), 600.0)
        current.follow(generations, rng.random() * 0.03)
    else:
        while not current.ended and not list(output.glob(".staging/*-front")):
            current.listen(0.001)
        time.sleep(rng.random() * 0.03)
    os.kill(current.process, signal.SIGKILL)


if __name__ == "__main__":
    print(
        json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    )
