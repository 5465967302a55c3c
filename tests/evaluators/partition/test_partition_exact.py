"""Exact programs against enumeration, each other and the reference cases."""

import itertools
import json

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.chip_package import load_chip_package
from mohsearch.evaluators.partition.contiguous import (
    contiguous_front,
    order_from_keys,
    split_orders,
)
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.cpsat import solve_cpsat
from mohsearch.evaluators.partition.downsets import count_downsets, solve_downsets
from mohsearch.evaluators.partition.enumeration import count_partitions, forward_assignments
from mohsearch.evaluators.partition.local_search import anneal_chain
from mohsearch.evaluators.partition.solve import best_partition, certify
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph

CASES = json.loads(
    (builtin_root() / "evaluators/reference/chiplet/partition_cases.json").read_text()
)


def random_task(seed: int, n: int = 7) -> PartitionTask:
    """A connected graph with edges of different sizes, so that transfers matter."""
    rng = np.random.default_rng(seed)
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.3]
    pairs += [(int(rng.integers(v)), v) for v in range(1, n)]
    graph = PartitionGraph.from_columns(
        f"random{seed}",
        ["op"] * n,
        flops=rng.integers(1, 20, n) * 4e6,
        out_bytes=[6e4] * n,
        edges=pairs,
        edge_bytes=[float(rng.integers(1, 4) * 2e4) for _ in pairs],
    )
    return PartitionTask(graph, chips=3 + seed % 2)


def enumerated(task: PartitionTask):
    """All valid partitions, their intervals, and which of them are chains."""
    rows = forward_assignments(task.graph, task.chips)
    rows = rows[are_valid(task.graph, rows, task.chips)]
    span = rows[:, task.graph.edge_dst] - rows[:, task.graph.edge_src]
    return rows, evaluate_partitions(task, rows)["interval_s"], (span <= 1).all(axis=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_counts_and_optima_equal_the_reference(case) -> None:
    n = case["n"]
    graph = PartitionGraph.from_columns(
        case["id"],
        ["op"] * n,
        flops=[0] * n,
        out_bytes=[0] * n,
        edges=[tuple(edge) for edge in case["edges"]],
    )
    counts = count_partitions(
        graph, case["chips"], case["latency"], case["size"], case["chip_capacity"]
    )
    published = case["valid_counts"]
    assert counts.total == case["total_assignments"]
    assert counts.forward == published["eq2"]
    assert counts.no_skip == published["eq2+3"]
    assert counts.valid == published["eq2+3+4"]
    assert counts.fitting == published["+mem"]
    assert (counts.best_load, counts.n_best) == (case["opt_max_load"], case["n_optimal"])
    assert counts.best_fitting_load == case["opt_max_load_with_memory"]


@pytest.mark.parametrize("seed", range(24))
def test_downsets_give_the_chain_optimum_for_every_number_of_chips(seed: int) -> None:
    task = random_task(seed)
    rows, intervals, chain = enumerated(task)
    solution = solve_downsets(task)
    used = rows.max(axis=1) + 1
    assert solution.chips.tolist() == sorted(set(used[chain].tolist()))
    for k, labels, interval in zip(
        solution.chips, solution.labels, solution.interval_s, strict=True
    ):
        assert interval == pytest.approx(intervals[chain & (used == k)].min(), rel=1e-12)
        assert evaluate_partitions(task, labels)["interval_s"][0] == pytest.approx(interval)
    assert interval_bounds(task).bound_s <= intervals.min() * (1 + 1e-12)


def check_against_cpsat(task: PartitionTask) -> None:
    _, intervals, chain = enumerated(task)
    general, chained = solve_cpsat(task), solve_cpsat(task, model="chain")
    assert (general.status, general.interval_s) == (
        "optimal", pytest.approx(intervals.min(), rel=1e-9),
    )  # fmt: skip
    assert chained.interval_s == pytest.approx(intervals[chain].min(), rel=1e-9)
    assert chained.interval_s == pytest.approx(solve_downsets(task).interval_s.min(), rel=1e-9)
    assert chained.status == "chain-optimal" or chained.gap < 1e-6


def test_cpsat_downsets_and_enumeration_agree() -> None:
    pytest.importorskip("ortools")
    check_against_cpsat(random_task(1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(22))
def test_cpsat_downsets_and_enumeration_agree_on_many_graphs(seed: int) -> None:
    pytest.importorskip("ortools")
    check_against_cpsat(random_task(seed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "chips"),
    [("tv_squeezenet1_1", 4), ("tv_squeezenet1_1", 8), ("tv_resnet18", 4), ("tv_resnet18", 8),
     ("hf_distilbert", 4), ("own_unet", 4), ("own_tcn", 4), ("own_ae", 8)],
)  # fmt: skip
def test_cpsat_proves_the_chain_optimum_of_real_graphs_optimal(name: str, chips: int) -> None:
    pytest.importorskip("ortools")
    task = PartitionTask(load_graph(name), chips=chips)
    exact = best_partition(task)
    general = solve_cpsat(task, exact.labels, time_limit_s=60)
    assert general.status == "optimal"
    assert exact.interval_s == pytest.approx(general.interval_s, rel=1e-9)


def test_parallel_branches_can_beat_every_chain() -> None:
    heavy = {1, 2, 3}
    graph = PartitionGraph.from_columns(
        "parallel",
        ["op"] * 5,
        flops=[4e9 if u in heavy else 4e5 for u in range(5)],
        out_bytes=[2] * 5,
        edges=[(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)],
    )
    task = PartitionTask(graph, chips=5)
    _, intervals, chain = enumerated(task)
    assert intervals.min() == pytest.approx(1000e-6, rel=1e-2)
    assert intervals[chain].min() == pytest.approx(2000e-6, rel=1e-2)
    assert solve_downsets(task).interval_s.min() == pytest.approx(intervals[chain].min())


@pytest.mark.parametrize("seed", range(8))
def test_cuts_of_an_order_equal_the_best_of_all_cuts(seed: int) -> None:
    task = random_task(seed, 8)
    keys = np.random.default_rng(seed).random((3, task.n))
    for order in order_from_keys(task.graph, keys):
        rows, found = [], {}
        for cuts in itertools.product([0, 1], repeat=task.n - 1):
            if sum(cuts) < task.chips:
                row = np.empty(task.n, np.int16)
                row[order] = np.concatenate([[0], np.cumsum(cuts)])
                rows.append(row)
        span = np.stack(rows)[:, task.graph.edge_dst] - np.stack(rows)[:, task.graph.edge_src]
        chains = np.stack(rows)[span.max(axis=1) <= 1]
        values = evaluate_partitions(task, chains)
        for row, interval in zip(chains, values["interval_s"], strict=True):
            k = int(row.max()) + 1
            found[k] = min(found.get(k, np.inf), interval)
        labels, interval = split_orders(task, order)
        assert interval[0] == pytest.approx(min(found.values()), rel=1e-8)
        assert evaluate_partitions(task, labels)["interval_s"] == pytest.approx(interval)
        front = contiguous_front(task, order)
        assert dict(zip(front.chips.tolist(), front.interval_s, strict=True)) == pytest.approx(
            found
        )
        limit = 1.2 * interval[0]
        least = contiguous_front(task, order, limit)
        fine = values["interval_s"] <= limit
        for k, moved in zip(least.chips, least.cut_bytes, strict=True):
            same = fine & (chains.max(axis=1) + 1 == k)
            assert moved == pytest.approx(values["hop_bytes"][same].min())


def test_orders_that_are_not_topological_are_refused() -> None:
    task = PartitionTask(load_graph("own_ae"), chips=2)
    with pytest.raises(InputError, match="topological"):
        split_orders(task, np.arange(16)[::-1])
    with pytest.raises(InputError, match="permutation"):
        split_orders(task, np.zeros(16, int))


def test_too_many_downsets_are_refused_not_cut_off() -> None:
    task = PartitionTask(load_graph("own_dlrm"), chips=4)
    assert count_downsets(task, 500) == 501
    with pytest.raises(InfeasibleError, match="more than 500 downsets"):
        solve_downsets(task, 500)
    assert count_downsets(PartitionTask(load_graph("hf_bert_large_op"), chips=4)) == 583


def test_annealing_never_loses_and_finds_what_orders_miss() -> None:
    task = PartitionTask(load_graph("own_lstm_l4_h512_t8"), chips=8)
    labels, interval = split_orders(task)
    row, better = anneal_chain(task, labels[0], np.random.default_rng(0), 400_000)
    assert are_valid(task.graph, row, 8).all()
    assert better < 0.45 * interval[0]
    same, kept = anneal_chain(task, row, np.random.default_rng(0), 0)
    assert ((same == row).all(), kept) == (True, better)
    with pytest.raises(InputError, match="form a chain"):
        anneal_chain(task, np.arange(task.n) % 8, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "chips", "moves"),
    [("own_lstm_l4_h512_t8", 8, 1_000_000), ("timm_nasnetalarge", 16, 4_000_000)],
)
def test_wide_graphs_come_within_a_tenth_of_the_bound(name: str, chips: int, moves: int) -> None:
    best = best_partition(PartitionTask(load_graph(name), chips=chips), moves=moves)
    assert best.status == "feasible"
    assert 0.0 < best.gap < 0.10
    assert best.interval_s < 1.05 * best.chain_bound_s


def test_a_wrong_certificate_is_refused() -> None:
    task = PartitionTask(load_graph("own_ae"), chips=2)
    with pytest.raises(InfeasibleError, match="invalid partition"):
        certify(task, np.array([1] * 8 + [0] * 8), "feasible", "a wrong solver", 0.0)
    with pytest.raises(InfeasibleError, match="below the bound"):
        certify(task, np.zeros(16, int), "feasible", "a wrong solver", 0.0, bound_s=1.0)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_more_chips_than_ops_are_no_way_out(n: int) -> None:
    graph = PartitionGraph.from_columns(
        f"path{n}",
        ["op"] * n,
        flops=[4e6 * (1 + u % 2) for u in range(n)],
        out_bytes=[100.0] * n,
        edges=[(u, u + 1) for u in range(n - 1)],
    )
    task = PartitionTask(graph, chips=6)
    _, costs, _ = enumerated(task)
    labels, interval_s = split_orders(task)
    assert are_valid(graph, labels, 6).all()
    assert interval_s[0] == pytest.approx(costs.min(), rel=1e-8)
    assert best_partition(task, max_downsets=0, moves=100, orders=2).interval_s == pytest.approx(
        costs.min(), rel=1e-8
    )


def test_a_graph_that_takes_no_time_is_refused() -> None:
    package = load_chip_package()
    chip = package.chip.model_copy(update={"op_overhead_s": 0.0})
    task = PartitionTask(
        PartitionGraph.from_columns("idle", ["op"] * 2, flops=[0, 0], out_bytes=[0, 0], edges=[]),
        package.model_copy(update={"chip": chip}),
        chips=2,
    )
    with pytest.raises(InputError, match="no op of idle takes any time"):
        best_partition(task)
