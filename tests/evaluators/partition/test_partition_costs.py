"""The cost model against a plain re-statement, and the price of packages."""

import numpy as np
import pytest

from mohsearch.evaluators.partition.bounds import interval_bounds, metric_bounds
from mohsearch.evaluators.partition.chip_package import (
    load_chip_package,
    package_cost_usd,
)
from mohsearch.evaluators.partition.costs import (
    METRICS,
    HardwareModel,
    describe_partition,
    evaluate_partitions,
)
from mohsearch.evaluators.partition.sampler import PartitionSampler, balanced_probabilities
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph

GRAPHS = ("tv_resnet18", "own_lstm_l1_h256_t16", "own_dlrm", "tv_googlenet")


def plain_costs(task: PartitionTask, row, *, double: bool = False) -> dict[str, float]:
    """The definitions of the model, one tensor, chip and step at a time."""
    graph, package = task.graph, task.package
    edges = list(
        zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_bytes, strict=True)
    )
    chips = int(max(row)) + 1
    sent: dict[tuple[int, int], float] = {}
    for u, v, size in edges:
        if row[u] != row[v]:
            sent[u, row[v]] = max(sent.get((u, row[v]), 0.0), size)
    load, links = np.zeros(chips), np.zeros(chips)
    for u in range(task.n):
        load[row[u]] += task.time_s[u]
    for (u, b), size in sent.items():
        load[[row[u], b]] += size / package.link.bandwidth_bytes_per_s
        links[row[u] : b] += size
    start = np.zeros(chips)
    for b in range(chips):
        for a in {row[u] for (u, to) in sent if to == b}:
            start[b] = max(start[b], start[a] + load[a] + (b - a) * package.link.hop_latency_s)
    peak = 0.0
    for chip in range(chips):
        mine = [u for u in range(task.n) if row[u] == chip]
        weights = {w for u in mine for w in weights_of(graph, u)}
        last = {}
        for step, v in enumerate(mine):
            for u in graph.predecessors(v).tolist():
                last[u] = step
        buffers = sum(s for (u, b), s in sent.items() if b == chip or row[u] == chip)
        for step in range(len(mine)):
            live = buffers if double else 0.0
            for (u, b), size in sent.items():
                if b == chip and (double or last[u] >= step):
                    live += size
            for born, u in enumerate(mine[: step + 1]):
                leaves = any(a == u for a, _ in sent) or not len(graph.successors(u))
                if leaves or u not in last or last[u] >= step or born == step:
                    live += graph.out_bytes[u]
            peak = max(peak, live + sum(graph.weight_bytes[w] for w in weights))
    return {
        "interval_s": max(load.max(), links.max() / package.link.bandwidth_bytes_per_s),
        "latency_s": (start + load).max(),
        "hop_bytes": sum(s * (b - row[u]) for (u, b), s in sent.items()),
        "chips": chips,
        "peak_memory_bytes": peak,
        "transfers": len(sent),
    }


def weights_of(graph: PartitionGraph, op: int):
    return graph.weight_ids[graph.weight_starts[op] : graph.weight_starts[op + 1]].tolist()


@pytest.mark.parametrize("name", GRAPHS)
def test_costs_equal_their_definition(name: str) -> None:
    task = PartitionTask(load_graph(name), chips=6)
    rows = PartitionSampler(task, "ladder").sample(6, np.random.default_rng(0)).labels
    values = evaluate_partitions(task, rows)
    for s, row in enumerate(rows.tolist()):
        for metric, expected in plain_costs(task, row).items():
            assert values[metric][s] == pytest.approx(expected, rel=1e-12), metric


def test_double_buffers_are_held_for_the_whole_interval() -> None:
    card = load_chip_package()
    package = card.model_copy(update={"chip": card.chip.model_copy(update={"double_buffer": True})})
    task = PartitionTask(load_graph("tv_resnet18"), package, 6)
    rows = PartitionSampler(task, "ladder").sample(4, np.random.default_rng(0)).labels
    values = evaluate_partitions(task, rows)["peak_memory_bytes"]
    expected = [plain_costs(task, r, double=True)["peak_memory_bytes"] for r in rows.tolist()]
    assert values == pytest.approx(expected, rel=1e-12)
    single = PartitionTask(load_graph("tv_resnet18"), chips=6)
    assert (values > evaluate_partitions(single, rows)["peak_memory_bytes"]).all()


def test_a_tensor_goes_to_each_chip_once_and_over_all_links_in_between() -> None:
    graph = PartitionGraph.from_columns(
        "fan",
        ["op"] * 6,
        flops=[0] * 6,
        out_bytes=[200, 2, 2, 2, 2, 2],
        edges=[(0, 1), (0, 2), (0, 3), (4, 5)],
        element_bytes=1,
    )
    task = PartitionTask(graph, chips=3, time_s=np.zeros(6))
    details = describe_partition(task, [0, 2, 2, 2, 1, 1])
    assert details["metrics"]["hop_bytes"] == 400
    assert [link["bytes"] for link in details["links"]] == [200, 200]
    assert [chip["received_bytes"] for chip in details["chips"]] == [0, 0, 200]
    assert details["binding"]["mostly"] == "transfer"


def test_a_weight_counts_once_a_chip() -> None:
    graph = PartitionGraph.from_columns(
        "tied",
        ["linear", "linear", "embedding"],
        flops=[0] * 3,
        out_bytes=[0] * 3,
        edges=[(0, 1), (1, 2)],
        weights=[[0], [0], [1]],
        weight_bytes=[1000, 5000],
        element_bytes=1,
    )
    task = PartitionTask(graph, chips=2)
    together = describe_partition(task, [0, 0, 0])["chips"]
    apart = describe_partition(task, [0, 1, 1])["chips"]
    assert [chip["weight_bytes"] for chip in together] == [1000]
    assert [chip["weight_bytes"] for chip in apart] == [1000, 1000]


def test_costs_do_not_depend_on_the_batch() -> None:
    task = PartitionTask(load_graph("tv_googlenet"), chips=8)
    rows = PartitionSampler(task, "chain").sample(12, np.random.default_rng(0)).labels
    for fidelity in ("analytic", "hardware"):
        together = evaluate_partitions(task, rows, fidelity)
        for s in (0, 5, 11):
            alone = evaluate_partitions(task, rows[s], fidelity)
            assert all(alone[name][0] == together[name][s] for name in together)


def test_the_hardware_fidelity_differs_follows_its_seed_and_correlates() -> None:
    task = PartitionTask(load_graph("hf_bert_large_op"), chips=36)
    weights = balanced_probabilities(task, 1.0)
    rows = PartitionSampler(task, "chain").sample(400, np.random.default_rng(0), weights).labels
    analytic = evaluate_partitions(task, rows)["interval_s"]
    measured = evaluate_partitions(task, rows, "hardware")["interval_s"]
    again = evaluate_partitions(task, rows, "hardware", hardware=HardwareModel())["interval_s"]
    other = evaluate_partitions(task, rows, "hardware", hardware=HardwareModel(seed=1))
    assert (measured == again).all()
    assert (other["interval_s"] != measured).all()
    assert 0.6 < np.corrcoef(analytic, measured)[0, 1] < 0.99


@pytest.mark.parametrize("fidelity", ["analytic", "hardware"])
@pytest.mark.parametrize("name", ["tv_resnet18", "own_unet", "own_lstm_l1_h256_t16"])
def test_no_partition_is_below_the_bounds(name: str, fidelity: str) -> None:
    task = PartitionTask(load_graph(name), chips=8)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            PartitionSampler(task, "ladder").sample(300, rng).labels,
            PartitionSampler(task, "chain")
            .sample(300, rng, balanced_probabilities(task, 0.3))
            .labels,
        ]
    )
    values = evaluate_partitions(task, rows, fidelity)
    for metric, bound in metric_bounds(task, fidelity).items():
        assert metric in METRICS
        assert (values[metric] >= bound * (1 - 1e-12)).all(), metric


def test_equation_4_bounds_a_u_net_to_two_chips() -> None:
    task = PartitionTask(load_graph("own_unet"), chips=36)
    bounds = interval_bounds(task)
    assert bounds.limiting == "C3"
    assert bounds.skip_s == pytest.approx(4.11 * bounds.balance_s, rel=0.01)


@pytest.mark.parametrize(
    ("chips", "area_mm2", "process", "published_usd"),
    [
        (36, 6, "14nm", 34.98),
        (36, 6, "7nm", 65.40),
        (36, 6, "5nm", 108.85),
        (1, 216, "14nm", 24.23),
        (1, 216, "7nm", 50.44),
        (1, 216, "5nm", 90.76),
        (36, 25, "14nm", 148.76),
        (36, 25, "7nm", 271.24),
        (36, 25, "5nm", 447.41),
        (1, 900, "14nm", 180.59),
        (1, 900, "7nm", 425.36),
        (1, 900, "5nm", 885.99),
    ],
)
def test_package_costs_equal_those_of_chiplet_actuary(
    chips: int, area_mm2: float, process: str, published_usd: float
) -> None:
    assert package_cost_usd(chips, area_mm2, process) == pytest.approx(published_usd, abs=0.006)
