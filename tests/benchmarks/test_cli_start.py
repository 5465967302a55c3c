"""Processor time of `mohsearch --help`, beside that of an empty Python process."""

import resource
import statistics
import subprocess
import sys

import pytest

TARGET_S = 0.3


def cpu_s(*command):
    """Return the processor time of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.benchmark
def test_help_starts_in_a_small_multiple_of_an_empty_process(benchmark, capsys):
    def measure():
        empty = cpu_s(sys.executable, "-c", "pass")
        return cpu_s(sys.executable, "-m", "mohsearch", "--help"), empty

    pairs = [benchmark.pedantic(measure, rounds=1) if k == 0 else measure() for k in range(7)]
    help_s, empty_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    with capsys.disabled():
        print(
            f"\nmohsearch --help: {help_s:.3f} CPU-s (target {TARGET_S}), "
            f"{help_s / empty_s:.1f} x an empty Python process ({empty_s:.3f} CPU-s)"
        )
    assert help_s > 0
