"""The static constraints, with the traps of equation (4)."""

import itertools

import networkx as nx
import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.downsets import solve_downsets
from mohsearch.evaluators.partition.enumeration import forward_assignments
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid, check_partition
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph


def graph_of(n: int, edges) -> PartitionGraph:
    return PartitionGraph.from_columns(
        "test", ["op"] * n, flops=[1e6] * n, out_bytes=[1e3] * n, edges=edges
    )


def valid_by_definition(graph: PartitionGraph, row, chips: int) -> bool:
    """Equations (2) to (4) with networkx: the chip graph is its own transitive reduction."""
    edges = list(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True))
    if any(row[u] > row[v] for u, v in edges) or set(row) != set(range(max(row) + 1)):
        return False
    quotient = nx.DiGraph((row[u], row[v]) for u, v in edges if row[u] != row[v])
    reduced = nx.transitive_reduction(quotient)
    return max(row) < chips and set(quotient.edges) == set(reduced.edges)


def test_two_chips_fed_by_the_first_beside_a_chain_are_allowed() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (0, 3)])
    assert check_partition(graph, [0, 1, 2, 3], 4).valid


def test_a_direct_dependency_beside_an_indirect_one_is_not() -> None:
    graph = graph_of(4, [(0, 2), (0, 1), (1, 3)])
    verdict = check_partition(graph, [0, 1, 2, 2], 3)
    assert verdict.broken == "C3"
    assert "chip 0 sends to chip 2" in verdict.message


def test_a_path_may_enter_a_chip_by_one_op_and_leave_it_by_another() -> None:
    # 0 -> 1 and 2 -> 3 are no path of ops, but chips 0 -> 1 -> 2 are one of chips
    graph = graph_of(5, [(0, 1), (2, 3), (0, 4)])
    assert check_partition(graph, [0, 1, 1, 2, 2], 3).broken == "C3"


def test_parallel_branches_may_stand_on_different_chips() -> None:
    graph = graph_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert check_partition(graph, [0, 1, 2, 3], 4).valid


def test_not_every_chip_must_be_used_but_none_may_be_skipped() -> None:
    graph = graph_of(3, [(0, 1), (1, 2)])
    assert check_partition(graph, [0, 0, 1], 36).valid
    verdict = check_partition(graph, [0, 0, 2], 36)
    assert (verdict.broken, verdict.message[:6]) == ("C2", "chip 1")
    assert check_partition(graph, [1, 1, 2], 36).broken == "C2"


def test_the_first_broken_constraint_is_named_with_its_ops() -> None:
    graph = graph_of(3, [(0, 1), (1, 2)])
    backward = check_partition(graph, [1, 0, 1], 2)
    assert (backward.broken, "op 0 on chip 1 feeds op 1" in backward.message) == ("C1", True)
    outside = check_partition(graph, [0, 0, 2], 2)
    assert (outside.broken, "op 2 is on 2" in outside.message) == ("range", True)
    assert check_partition(graph, [-1, 0, 0], 2).broken == "range"


def test_labels_of_a_wrong_shape_or_kind_are_refused() -> None:
    graph = graph_of(3, [(0, 1)])
    with pytest.raises(InputError, match="shape"):
        are_valid(graph, [[0, 0]], 2)
    with pytest.raises(InputError, match="integers"):
        are_valid(graph, [[0.0, 0.5, 1.0]], 2)
    with pytest.raises(InputError, match="1 to 64"):
        are_valid(graph, [[0, 0, 0]], 65)


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_equal_the_transitive_reduction_of_the_chip_graph(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = [pair for pair in itertools.combinations(range(6), 2) if rng.random() < 0.35]
    graph = graph_of(6, edges)
    rows = forward_assignments(graph, 4)
    rows = rows[rng.permutation(len(rows))[:300]]
    expected = [valid_by_definition(graph, row.tolist(), 4) for row in rows]
    assert are_valid(graph, rows, 4).tolist() == expected
    assert 0 < sum(expected) < len(rows)


def test_a_residual_block_stands_on_two_chips_at_most() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    rows = forward_assignments(graph, 4)
    assert rows[are_valid(graph, rows, 4)].max() == 1


def test_a_mask_that_every_layer_reads_leaves_few_chips_usable() -> None:
    masked = PartitionTask(load_graph("hf_bert_large_mask_op"), chips=36)
    plain = PartitionTask(load_graph("hf_bert_large_op"), chips=36)
    with_mask, without = solve_downsets(masked), solve_downsets(plain)
    assert (int(with_mask.chips[-1]), int(without.chips[-1])) == (12, 36)
    assert with_mask.interval_s.min() > 15 * without.interval_s.min()
