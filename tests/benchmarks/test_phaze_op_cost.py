"""Speed of the operator costs over all 29,360 accelerators."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mohsearch.evaluators.op_cost import bound_ops
from mohsearch.evaluators.training_architecture import feasible_architectures
from mohsearch.evaluators.training_bridge import WorkloadCosts
from mohsearch.workloads.hf_config import load_model
from mohsearch.workloads.training import build_training

pytestmark = pytest.mark.benchmark
MODELS = (
    ("opt-350m", 1),
    ("bert-large", 1),
    ("gpt2-xl", 1),
    ("llama2-7b", 1),
    ("megatron-bert", 2),
    ("megatron-2.5b", 4),
    ("megatron-8.3b", 8),
    ("gpt3-175b", 4),
)


def test_all_ops_of_the_eight_models_on_all_accelerators(benchmark, capsys):
    every = feasible_architectures()
    small = every.take(np.arange(2))
    WorkloadCosts.build(build_training(load_model("bert-base")), small)  # compiles
    with capsys.disabled():
        print(f"\n{'model':16s} {'ops':>4s} {'CPU-s':>6s} {'bounds':>7s} {'us each':>8s}")
        for name, width in MODELS:
            workload = build_training(load_model(name), tensor_parallel=width)
            start = time.process_time()
            costs = WorkloadCosts.build(workload, every)
            spent = time.process_time() - start
            start = time.process_time()
            bound_ops(costs.distinct_ops, every)
            bounds = time.process_time() - start
            each = spent / len(costs.distinct_ops) / len(every) * 1e6
            print(f"{name:16s} {len(costs.distinct_ops):4d} {spent:6.2f} {bounds:7.2f} {each:8.2f}")
    workload = build_training(load_model("gpt3-175b"), tensor_parallel=4)
    benchmark.pedantic(WorkloadCosts.build, (workload, every), rounds=2)
