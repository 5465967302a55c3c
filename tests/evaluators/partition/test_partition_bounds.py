"""Bounds that count transfers, and partitions that are no chains, against enumeration."""

import itertools

import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.cut_bound import cut_bounds
from mohsearch.evaluators.partition.downsets import solve_downsets
from mohsearch.evaluators.partition.enumeration import forward_assignments
from mohsearch.evaluators.partition.general_program import solve_general
from mohsearch.evaluators.partition.sampler import PartitionSampler
from mohsearch.evaluators.partition.solve import best_partition, proven_interval_s
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph

CLOSE = 2e-6


def odd_task(seed: int) -> PartitionTask:
    """1 to 8 ops, often in several components, some without time or bytes, on 1 to 5 chips."""
    rng = np.random.default_rng(seed)
    n, chips = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    density = rng.choice([0.1, 0.25, 0.5])
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < density]
    if rng.random() < 0.6:
        edges += [(int(rng.integers(v)), v) for v in range(1, n)]
    most_bytes = rng.choice([0, 2e4, 3e5])
    graph = PartitionGraph.from_columns(
        f"odd{seed}",
        ["op"] * n,
        flops=[1.0] * n,
        out_bytes=[1.0] * n,
        edges=edges,
        edge_bytes=[float(rng.integers(0, 4) * most_bytes) for _ in edges],
        element_bytes=1,
    )
    time_s = rng.integers(seed % 3 > 0, 15, n) * 1e-6
    time_s[0] += 1e-6
    return PartitionTask(graph, chips=chips, time_s=time_s)


def optima(task: PartitionTask) -> tuple[float, float]:
    """The least interval of all partitions, and of all chains, by listing them."""
    graph = task.graph
    rows = forward_assignments(graph, task.chips)
    rows = rows[are_valid(graph, rows, task.chips)]
    intervals = evaluate_partitions(task, rows)["interval_s"]
    chain = (rows[:, graph.edge_dst] - rows[:, graph.edge_src] <= 1).all(axis=1)
    return float(intervals.min()), float(intervals[chain].min())


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_certificates_hold_on_graphs_of_every_shape(first: int) -> None:
    statuses = set()
    for seed in range(first, first + 40):
        task = odd_task(seed)
        least, least_chain = optima(task)
        bounds = cut_bounds(task)
        assert interval_bounds(task).bound_s * (1 - CLOSE) <= proven_interval_s(task) <= least
        assert bounds.chain_s <= least_chain * (1 + CLOSE)
        assert bounds.general_s <= least * (1 + CLOSE)
        for best in (
            best_partition(task),
            best_partition(task, max_downsets=0, moves=1000, orders=2),
        ):
            assert best.bound_s <= least * (1 + CLOSE)
            assert best.chain_bound_s <= least_chain * (1 + CLOSE)
            assert best.interval_s >= least * (1 - CLOSE)
            if best.status == "optimal":
                assert best.interval_s == pytest.approx(least, rel=CLOSE)
            if best.status == "chain-optimal":
                assert best.interval_s <= least_chain * (1 + CLOSE)
            statuses.add(best.status)
    assert "optimal" in statuses


def test_counting_transfers_lifts_the_bound_of_chains() -> None:
    tasks = [odd_task(seed) for seed in range(100)]
    least = np.array([optima(task)[1] for task in tasks])
    plain = np.array([interval_bounds(task).bound_s for task in tasks]) / least
    both = np.maximum(plain, np.array([cut_bounds(task).chain_s for task in tasks]) / least)
    assert np.mean(both > 1 - CLOSE) > np.mean(plain > 1 - CLOSE) + 0.05
    assert np.mean(both) > np.mean(plain) + 0.01


@pytest.mark.parametrize("seed", range(30))
def test_no_better_partition_than_the_general_program_says(seed: int) -> None:
    task = odd_task(seed)
    least, least_chain = optima(task)
    found = solve_general(task, least_chain)
    assert found.bound_s <= least * (1 + CLOSE)
    assert found.interval_s >= least * (1 - CLOSE)
    assert are_valid(task.graph, found.labels, task.chips).all()
    if len(found.labels):
        assert found.interval_s < least_chain
        assert evaluate_partitions(task, found.labels)["interval_s"][-1] == found.interval_s
        assert (np.diff(found.labels.max(axis=1)) > 0).all()


def three_branches() -> PartitionTask:
    """Three long ops between a short one and another: the best chain has two of them together."""
    graph = PartitionGraph.from_columns(
        "branches",
        ["op"] * 5,
        flops=[1.0] * 5,
        out_bytes=[1.0] * 5,
        edges=[(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)],
        element_bytes=1,
    )
    return PartitionTask(graph, chips=5, time_s=np.array([1, 1000, 1000, 1000, 1]) * 1e-6)


def test_parallel_branches_go_to_chips_of_their_own() -> None:
    task = three_branches()
    chain_s = float(solve_downsets(task).interval_s.min())
    best = best_partition(task)
    assert (best.status, chain_s) == ("optimal", pytest.approx(2000e-6, rel=1e-2))
    assert best.interval_s == pytest.approx(optima(task)[0])
    assert best.interval_s < 0.51 * chain_s
    assert best.chain_bound_s == pytest.approx(chain_s)


def test_a_graph_of_many_downsets_is_left_to_other_programs() -> None:
    with pytest.raises(InfeasibleError, match="more than 3 downsets"):
        solve_general(three_branches(), 1.0, limit=3)


def test_no_sample_of_a_wide_graph_is_below_its_cut_bounds() -> None:
    task = PartitionTask(load_graph("own_lstm_l1_h256_t16"), chips=8)
    bounds = cut_bounds(task)
    assert interval_bounds(task).bound_s < bounds.general_s <= bounds.chain_s
    rng = np.random.default_rng(0)
    for mode, bound in (("chain", bounds.chain_s), ("ladder", bounds.general_s)):
        rows = PartitionSampler(task, mode).sample(200, rng).labels
        assert (evaluate_partitions(task, rows)["interval_s"] >= bound).all()


@pytest.mark.parametrize(
    ("name", "chips", "interval_us"),
    [("hf_bert_large_prim", 36, 693.23), ("hf_bert_large_op", 36, 608.38),
     ("tv_resnet50", 36, 184.22), ("timm_dla34", 36, 154.37), ("timm_dla34", 8, 247.85)],
)  # fmt: skip
def test_these_graphs_are_solved_to_the_end(name: str, chips: int, interval_us: float) -> None:
    best = best_partition(PartitionTask(load_graph(name), chips=chips))
    assert (best.status, best.gap) == ("optimal", pytest.approx(0.0, abs=CLOSE))
    assert best.interval_s * 1e6 == pytest.approx(interval_us, abs=0.01)
