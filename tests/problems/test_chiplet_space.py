"""Genomes of the chiplet search stand for valid partitions, and encoding undoes decoding."""

import itertools

import numpy as np
import pytest

from mohsearch.evaluators.partition.chip_package import load_chip_package
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.problems.chiplet_baselines import GREEDY, greedy_partitions
from mohsearch.problems.chiplet_space import PartitionSpace
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph

GENOMES = ("labels", "offsets", "segments", "keys")


def space_of(genome, graph="own_dlrm", chips=5, **options):
    task = PartitionTask(load_graph(graph), load_chip_package(), chips)
    return PartitionSpace(task, genome, "chain", **options)


def anywhere(space, rng, count):
    """Genomes drawn uniformly within the bounds."""
    return rng.integers(space.lower, space.upper + 1, size=(count, space.n_var))


@pytest.mark.parametrize("genome", GENOMES[1:])
@pytest.mark.parametrize("graph", ["own_dlrm", "own_tcn", "own_lstm_l1_h256_t16"])
def test_any_genome_within_the_bounds_stands_for_a_valid_partition(genome, graph):
    space = space_of(genome, graph)
    X = anywhere(space, np.random.default_rng(1), 60)
    partitions = space.partitions(X)
    assert are_valid(space.task.graph, partitions, space.chips).all()
    assert (partitions.max(axis=1) < X[:, 0]).all()


@pytest.mark.parametrize("repair", ["fix", "project"])
def test_repaired_labels_are_valid_and_valid_ones_stay(repair):
    space = space_of("labels", "own_tcn", repair=repair)
    rng = np.random.default_rng(2)
    X = space.repair(anywhere(space, rng, 60), rng)
    assert space.valid(X).all()
    assert np.array_equal(space.repair(X, rng), X)


def test_genomes_outside_the_bounds_are_brought_back():
    space = space_of("segments")
    X = space.repair(np.full((1, space.n_var), 10**9), np.random.default_rng(0))
    assert (X == space.upper).all()


@pytest.mark.parametrize("genome", ["labels", "offsets"])
def test_encoding_a_chain_partition_is_exact(genome):
    space = space_of(genome, "own_lstm_l1_h256_t16")
    drawn = space.sample(40, np.random.default_rng(3))
    assert np.array_equal(space.partitions(space.encode(drawn)), drawn)


def test_encoding_cuts_of_the_program_order_as_weights_is_exact():
    space = space_of("segments", "own_ae", chips=6)
    for cuts in itertools.combinations(range(1, 16), 3):
        labels = np.searchsorted(cuts, np.arange(16), side="right")[None]
        assert np.array_equal(space.partitions(space.encode(labels)), labels)


def test_keys_are_no_worse_than_the_partition_they_encode():
    space = space_of("keys", "own_lstm_l1_h256_t16")
    drawn = space.sample(40, np.random.default_rng(4), prior="balanced", sigma=0.5)
    again = space.partitions(space.encode(drawn))
    before = evaluate_partitions(space.task, drawn)["interval_s"]
    after = evaluate_partitions(space.task, again)["interval_s"]
    assert (after <= before * (1 + 1e-9)).all()


def test_a_keys_genome_uses_no_more_chips_than_its_first_gene():
    space = space_of("keys", chips=6)
    X = np.repeat(anywhere(space, np.random.default_rng(5), 1), 6, axis=0)
    X[:, 0] = np.arange(1, 7)
    partitions = space.partitions(X)
    interval = evaluate_partitions(space.task, partitions)["interval_s"]
    assert (partitions.max(axis=1) < np.arange(1, 7)).all()
    assert (np.diff(interval) <= 1e-15).all()


@pytest.mark.parametrize("prior", ["uniform", "balanced", "cuts"])
def test_sampled_partitions_are_valid_and_follow_the_seed(prior):
    space = space_of("labels", "own_tcn")
    first, again = (
        space.sample(30, np.random.default_rng(6), prior=prior, sigma=0.5) for _ in range(2)
    )
    assert space.valid(first).all()
    assert np.array_equal(first, again)


def test_the_balanced_prior_balances():
    space = space_of("labels", "timm_vovnet39a", chips=8)
    rng = np.random.default_rng(7)
    medians = [
        np.median(
            evaluate_partitions(space.task, space.sample(40, rng, prior="balanced", sigma=sigma))[
                "interval_s"
            ]
        )
        for sigma in (0.3, 1.0, 3.0)
    ]
    assert medians == sorted(medians)


def chain_graph(times, sizes, edges=None):
    """A graph whose ops take ``times`` microseconds and hold ``sizes`` weight bytes each."""
    n = len(times)
    graph = PartitionGraph.from_columns(
        "made", ["linear"] * n, flops=[1.0] * n, out_bytes=[1.0] * n,
        edges=edges or [(v, v + 1) for v in range(n - 1)],
        weights=[[v] for v in range(n)], weight_bytes=sizes, element_bytes=1.0,
    )  # fmt: skip
    return PartitionTask(graph, chips=3, time_s=np.asarray(times) * 1e-6)


def test_greedy_by_time_closes_a_chip_at_its_share():
    found = greedy_partitions(chain_graph([4, 1, 1, 3, 1, 2], [1] * 6))
    assert tuple(found) == GREEDY
    assert found["equal-time"].tolist() == [0, 1, 1, 1, 2, 2]


def test_greedy_by_parameters_counts_bytes_not_time():
    found = greedy_partitions(chain_graph([9, 9, 1, 1, 1, 1], [1, 1, 4, 1, 1, 1]))
    assert found["equal-parameters"].tolist() == [0, 0, 0, 1, 1, 1]


def test_first_fit_stays_within_the_share_of_memory():
    sram = load_chip_package().chip.sram_bytes
    found = greedy_partitions(chain_graph([1] * 5, [0.5 * sram, 0.4 * sram, 0.3 * sram, 1, 1]))
    assert found["first-fit-sram"].tolist() == [0, 1, 1, 1, 1]


def test_greedy_cuts_only_where_no_edge_jumps_a_whole_chip():
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 4)]
    task = chain_graph([1, 1, 1, 1, 1, 1], [1] * 6, edges)
    labels = greedy_partitions(task)["equal-time"]
    assert labels.tolist() == [0, 0, 1, 1, 1, 2]
    assert are_valid(task.graph, labels[None], 3).all()


def test_greedy_intervals_on_bert_are_those_of_the_prototype():
    """Figures of an earlier, independent program (1957, 1012 and 890 us), within 1 %."""
    task = PartitionTask(load_graph("hf_bert_large_prim"))
    rows = np.stack(list(greedy_partitions(task).values()))
    interval_us = evaluate_partitions(task, rows)["interval_s"] * 1e6
    assert are_valid(task.graph, rows, 36).all()
    assert interval_us == pytest.approx([1957, 1012, 890], rel=0.01)
