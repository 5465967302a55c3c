"""The operator schedule of transformer layers: proofs, gaps and processor time.

Forward layers stand beside a prototype (CP-SAT with decomposition and the two-budget cut) measured
on a machine of this kind. Backward layers are made from the forward ones: input gradients in
reverse order; behind every product of activations and weights a weight gradient nothing waits for;
behind every product of two activations the gradient of the second; behind normalisations and biases
theirs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mohsearch.evaluators.op_schedule.bounds import two_budget
from mohsearch.evaluators.op_schedule.files import read_instances
from mohsearch.evaluators.op_schedule.instance import FUSED, TENSOR, ScheduleInstance
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, solve

pytestmark = pytest.mark.benchmark
SHELF = Path(__file__).resolve().parents[2] / "evaluators" / "reference" / "phaze"
CASES = SHELF / "schedule_cases.json"
SECONDS = 10.0


def backward(case, forward):
    """Return the backward pass of a forward layer whose operators have names."""
    names = [op.get("name", "") for op in case["ops"]]
    inner = [(j, i) for i, j in forward.edges]
    kinds = [TENSOR if kind == FUSED else int(kind) for kind in forward.kinds]
    alone, spread = forward.alone.tolist(), forward.spread.tolist()
    edges = []
    for i, name in enumerate(names):
        product = kinds[i] == TENSOR
        if not product and not name.startswith(("ln", "bias", "norm")):
            continue
        new = len(kinds)
        kinds.append(kinds[i])
        alone.append(alone[i])
        spread.append(spread[i])
        edges += [(p, new) for p, j in inner if j == i]
        if product and name.startswith(("qk", "av")):
            second = next(p for p, j in forward.edges if j == i)
            inner.remove((i, second))
            edges.append((new, second))
    cores = (forward.tensor_cores, forward.vector_cores)
    return ScheduleInstance.build(kinds, alone, spread, inner + edges, *cores)


def measured(instance, limit_s=SECONDS):
    begin = time.process_time()
    result = solve(instance, ScheduleOptions(time_limit_s=limit_s))
    return result, time.process_time() - begin


def line(name, instance, result, spent, other):
    loose = 1 - two_budget(instance) / result.serial
    return (
        f"{name:22s} {len(instance):4d} {result.serial:9d} {result.makespan:9d} "
        f"{100 * loose:7.2f}% {100 * result.gap:7.3f}% {spent:8.3f} {other}"
    )


def test_transformer_layers(benchmark, capsys):
    cases = {case["id"]: case for case in json.loads(CASES.read_text())["cases"]}
    layers = [c for c in read_instances(CASES) if c.name.startswith(("gen", "layer"))]
    solve(layers[0].instance)
    with capsys.disabled():
        print(
            f"\n{'layer':22s} {'ops':>4s} {'serial':>9s} {'makespan':>9s} {'serial over':>8s} "
            f"{'gap':>4s} {'CPU-s':>8s} prototype CPU-s\n{'':47s}two-budget"
        )
        for layer in layers:
            result, spent = measured(layer.instance)
            known = cases[layer.name]["expected"]
            print(line(layer.name, layer.instance, result, spent, known["cpu_s"]))
            assert result.makespan == known["optimum"]
        for layer in layers:
            if "_fwd_" in layer.name:
                instance = backward(cases[layer.name], layer.instance)
                result, spent = measured(instance)
                name = layer.name.replace("_fwd_", "_bwd_")
                print(line(name, instance, result, spent, ""))
                assert result.bound <= result.makespan <= result.serial
    assert benchmark(solve, layers[0].instance).is_optimal


def test_attention_layers_that_a_general_solver_left_open(capsys):
    cases = {case["id"]: case for case in json.loads(CASES.read_text())["cases"]}
    with capsys.disabled():
        print(f"\n{'layer':22s} {'ops':>4s} {'makespan':>8s} {'bound':>6s} {'CPU-s':>7s} CP-SAT")
        for layer in read_instances(CASES):
            known = cases[layer.name]["expected"]
            if known["optimum"] is not None:
                continue
            result, spent = measured(layer.instance)
            print(
                f"{layer.name:22s} {len(layer.instance):4d} {result.makespan:8d} "
                f"{result.bound:6d} {spent:7.2f} {known['best']} >= {known['bound']}"
            )
            assert known["bound"] <= result.makespan <= known["best"]
