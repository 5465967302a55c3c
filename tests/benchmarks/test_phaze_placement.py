"""Speed of the placement program, beside the published program on the same inputs."""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest

from mohsearch.evaluators.device_placement.files import read_problems
from mohsearch.evaluators.device_placement.problem import LayerCosts, PlacementProblem
from mohsearch.evaluators.device_placement.solver import place

pytestmark = pytest.mark.benchmark
SHELF = Path(__file__).resolve().parents[2] / "evaluators" / "reference" / "phaze"


def cpu_s(problem, repeats=5):
    place(problem)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        place(problem)
        times.append(time.process_time() - start)
    return sorted(times)[repeats // 2]


def network(layers, devices, widths=(1, 2, 4, 8)):
    """A transformer of ``layers`` equal layers behind an embedding, as in the published cases."""
    n = layers + 1
    costs = {}
    for t in widths:
        weight = np.full(n, 3.6e9 / t)
        costs[t] = LayerCosts(
            forward_s=np.full(n, 0.02 / t + 0.001),
            backward_s=np.full(n, 0.04 / t + 0.001),
            weight_bytes=weight,
            state_bytes=2 * weight,
            activation_bytes=np.full(n, 6e8 / t),
            sliced=np.full(n, t > 1),
            edge_bytes=np.full(n - 1, 5e7),
        )
    chain = np.arange(n - 1)
    return PlacementProblem(
        tuple(range(n)), chain, chain + 1, costs, devices, 80 * 2**30, 2.0**32, 4096, recompute=True
    )


def test_placement_beside_the_published_program(benchmark, tmp_path, capsys):
    cases = json.loads(gzip.decompress((SHELF / "placement_cases.json.gz").read_bytes()))["cases"]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases))
    theirs = {case["id"]: case["expected"]["cpu_s"] for case in cases}
    with capsys.disabled():
        print(f"\n{'case':24s} {'CPU-ms':>8s} {'published':>10s} {'ratio':>7s}")
        for name, problem in read_problems(path).items():
            if name.startswith("L"):
                own = cpu_s(problem)
                other = theirs[name]
                print(f"{name:24s} {own * 1e3:8.2f} {other * 1e3:10.1f} {other / own:6.0f}x")
    problem = network(96, 1024)
    assert benchmark(place, problem).is_feasible


def test_growth_with_layers_and_devices(capsys):
    with capsys.disabled():
        print(f"\n{'layers':>7s} {'K':>6s} {'CPU-ms':>8s}")
        for layers in (12, 24, 48, 96, 192):
            print(f"{layers + 1:7d} {1024:6d} {cpu_s(network(layers, 1024)) * 1e3:8.2f}")
        for devices in (64, 256, 1024, 4096, 16384):
            print(f"{97:7d} {devices:6d} {cpu_s(network(96, devices)) * 1e3:8.2f}")
    problem = dataclasses.replace(network(12, 64), microbatches=64)
    assert place(problem).is_feasible
