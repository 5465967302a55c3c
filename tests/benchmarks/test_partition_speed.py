"""Speed of partition sampling, evaluation and exact cuts, beside one pass over the graph."""

import time

import numpy as np
import pytest

from mohsearch.evaluators.partition.contiguous import contiguous_front, split_orders
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.downsets import solve_downsets
from mohsearch.evaluators.partition.sampler import PartitionSampler
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.workloads.op_graph_files import load_graph

pytestmark = pytest.mark.benchmark

GRAPHS = ("tv_resnet34", "tv_resnet152", "hf_bert_large_prim")
ROWS = 200


@pytest.fixture(params=GRAPHS)
def task(request: pytest.FixtureRequest) -> PartitionTask:
    return PartitionTask(load_graph(request.param), chips=36)


def cpu_seconds(action) -> float:
    action()
    start = time.process_time()
    action()
    return time.process_time() - start


@pytest.mark.parametrize("mode", ["chain", "ladder"])
def test_sampling_against_evaluating(task: PartitionTask, mode: str, benchmark) -> None:
    sampler = PartitionSampler(task, mode)
    rows = sampler.sample(ROWS, np.random.default_rng(0))
    assert are_valid(task.graph, rows.labels, 36).all()
    evaluation = cpu_seconds(lambda: evaluate_partitions(task, rows.labels))
    sampling = cpu_seconds(lambda: sampler.sample(ROWS, np.random.default_rng(0)))
    benchmark.extra_info["general"] = float((rows.rung == 0).mean())
    print(
        f"\n{task.graph.name} (n={task.n}) {mode}: {ROWS / sampling:,.0f} valid a CPU second, "
        f"{benchmark.extra_info['general']:.0%} in full generality; one costs "
        f"{sampling / evaluation:.1f} evaluations of {evaluation / ROWS * 1e6:.0f} us"
    )
    benchmark(lambda: sampler.sample(20, np.random.default_rng(0)))


def test_repair_of_random_labels(task: PartitionTask, benchmark) -> None:
    noise = np.random.default_rng(0).integers(0, 36, (20, task.n))
    sampler = PartitionSampler(task, "chain")
    benchmark(lambda: sampler.fix(noise, np.random.default_rng(0)))


def test_cuts_of_one_order_against_all_numbers_of_chips(task: PartitionTask, benchmark) -> None:
    one = cpu_seconds(lambda: split_orders(task))
    every = cpu_seconds(lambda: contiguous_front(task))
    print(
        f"\n{task.graph.name}: best split {one * 1e3:.2f} ms, of every number {every * 1e3:.1f} ms"
    )
    benchmark(lambda: split_orders(task))


@pytest.mark.parametrize("name", ["hf_bert_large_op", "hf_bert_large_aten", "hf_mobilebert"])
def test_downset_program(name: str, benchmark) -> None:
    task = PartitionTask(load_graph(name), chips=36)
    found = solve_downsets(task)
    seconds = cpu_seconds(lambda: solve_downsets(task))
    print(f"\n{name}: {found.downsets} downsets in {seconds:.3f} CPU-s")
    benchmark.pedantic(lambda: solve_downsets(task), rounds=3)
