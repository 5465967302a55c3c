"""The operator schedule of transformer layers: proofs, gaps and processor time.

Forward layers stand beside a prototype (CP-SAT with decomposition and the two-budget cut) measured
on a machine of this kind. Backward layers are made from the forward ones; the one that the
prototype left on file comes out the same.
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


SEQUENCE, HIDDEN, HEADS, FEED_FORWARD = 2048, 2048, 16, 8192
SHAPES = {
    "qk": (HEADS, SEQUENCE, HIDDEN // HEADS, SEQUENCE),
    "av": (HEADS, SEQUENCE, SEQUENCE, HIDDEN // HEADS),
    "fc1": (1, SEQUENCE, HIDDEN, FEED_FORWARD),
    "up": (1, SEQUENCE, HIDDEN, FEED_FORWARD),
    "fc2": (1, SEQUENCE, FEED_FORWARD, HIDDEN),
}
"""Batch, rows, inner and columns of a forward product; others are hidden times hidden."""
SIDES = {"A": 256, "B": 128, "D": 128}
"""Side of a tensor core's array in a core set."""
PEERS = {
    "layer_gpt_bwd_A": "CBC 29-31 %, HiGHS 52 %, CP-SAT none; with cuts 0.08 %",
    "layer_gpt_bwd_B": "HiGHS 29 %, CP-SAT 48 %; with cuts 2.4 %",
    "layer_gpt_bwd_D": "with cuts proven",
    "layer_gpt2_bwd_A": "with cuts 0.03-0.11 %",
    "layer_gpt2_bwd_B": "with cuts 2.4-5.8 %",
    "layer_gpt2_bwd_D": "with cuts proven",
    "layer_llama_bwd_A": "with cuts 0.03-0.11 % (59 ops)",
    "layer_llama_bwd_B": "with cuts 2.4-5.8 % (59 ops)",
    "layer_llama_bwd_D": "with cuts 2.8 % (59 ops)",
}
"""Gaps of a prototype: integer programs as published after 60 s; CP-SAT with decomposition and the
two-budget cut ("with cuts")."""


def backward(case, forward):
    """Return the backward pass of a forward layer whose operators have names.

    Input gradients in reverse order; behind every product of activations and weights a weight
    gradient nothing waits for; behind every product of two activations the gradient of the second;
    behind normalisations and biases theirs. A gradient of weights folds rows and columns on the
    array and streams the inner dimension through it; products without their element-wise ops take
    all tensor cores without loss.
    """
    names = [op.get("name", "") for op in case["ops"]]
    place = {name: k for k, name in enumerate(names)}
    kinds = [TENSOR if kind == FUSED else int(kind) for kind in forward.kinds]
    alone, spread = forward.alone.tolist(), forward.spread.tolist()
    for i, kind in enumerate(kinds):
        spread[i] = alone[i] // forward.tensor_cores if kind == TENSOR else spread[i]
    inner = [(j, i) for i, j in forward.edges]
    edges, gradient = [], {}
    for i, name in enumerate(names):
        product = kinds[i] == TENSOR
        if not product and not name.startswith(("ln", "bias", "norm")):
            continue
        gradient[name] = new = len(kinds)
        length, shared = gradient_cycles(case, name) if product else (alone[i], spread[i])
        kinds.append(kinds[i])
        alone.append(length)
        spread.append(shared)
        edges += [(p, new) for p, j in inner if j == i]
    edges += [(gradient[a], gradient[b]) for a, b in (("qk", "k"), ("av", "v"))]
    assert place["qk"] < place["av"]
    cores = (forward.tensor_cores, forward.vector_cores)
    return ScheduleInstance.build(kinds, alone, spread, inner + edges, *cores)


def gradient_cycles(case, name):
    """Return the cycles of a product's gradient of weights on one tensor core and on all."""
    side = SIDES[case["id"][-1]]
    batch, rows, inner, columns = SHAPES.get(name, (1, SEQUENCE, HIDDEN, HIDDEN))
    folds = -(-rows // side) * -(-columns // side)
    cycles = batch * folds * (inner + 2 * side)
    return cycles, cycles // case["num_tc"]


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
    assert benchmark(solve, layers[0].instance).is_optimal


def backward_layers():
    """Yield name and instance of every backward layer with a prototype's figure."""
    cases = {case["id"]: case for case in json.loads(CASES.read_text())["cases"]}
    for layer in read_instances(CASES):
        name = layer.name.replace("_fwd_", "_bwd_")
        if "_fwd_" in layer.name and name in PEERS:
            yield name, backward(cases[layer.name], layer.instance)


def test_the_backward_layer_on_file_comes_out_the_same():
    layers = dict(backward_layers())
    kept = {case.name: case.instance for case in read_instances(CASES)}
    made, given = layers["layer_gpt_bwd_D"], kept["layer_gpt_bwd_D"]
    assert (made.kinds == given.kinds).all()
    for column in ("alone", "spread"):
        assert sorted(getattr(made, column)) == sorted(getattr(given, column))
    assert made.serial == given.serial == 6242304
    assert (layers["layer_gpt_bwd_A"].serial, layers["layer_gpt_bwd_B"].serial) == (
        2744096,
        9670656,
    )


def test_backward_layers(capsys):
    """Print gaps of the search alone and with local search and the bound by phases."""
    effort = {"time_limit_s": 1e9, "max_width": 2048, "fall_back": False}
    steps = (
        ScheduleOptions(**effort, steps=0, phase_nodes=-1),
        ScheduleOptions(time_limit_s=1e9, max_width=32, fall_back=False, phase_nodes=0),
        ScheduleOptions(**effort, phase_nodes=1_000),
    )
    solve(ScheduleInstance.build([0, 1, 1], [4, 3, 3], [3, 2, 2], [], 1, 1))
    with capsys.disabled():
        print(
            f"\n{'layer':18s} {'ops':>3s} search alone, quick, full: gap and CPU-s each; makespan"
        )
        for name, instance in backward_layers():
            texts = []
            for options in steps:
                begin = time.process_time()
                result = solve(instance, options)
                spent = time.process_time() - begin
                texts.append(f"{100 * result.gap:6.3f}% {spent:6.2f}")
                assert result.bound <= result.makespan <= result.serial
            print(
                f"{name:18s} {len(instance):3d} {'  '.join(texts)} {result.makespan:9d} "
                f"serial {result.serial:9d} | {PEERS[name]}"
            )


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
