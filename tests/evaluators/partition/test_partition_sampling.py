"""SAMPLE, FIX, projection and the propagator."""

import itertools

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.enumeration import forward_assignments
from mohsearch.evaluators.partition.propagator import Propagator
from mohsearch.evaluators.partition.sampler import (
    PartitionSampler,
    balanced_probabilities,
    project,
)
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.testing.contracts import check_repeats
from mohsearch.workloads.op_graph import PartitionGraph
from mohsearch.workloads.op_graph_files import load_graph


def small_task(seed: int, n: int = 6, chips: int = 3, density: float = 0.35) -> PartitionTask:
    rng = np.random.default_rng(seed)
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < density]
    graph = PartitionGraph.from_columns(
        f"random{seed}",
        ["op"] * n,
        flops=rng.integers(1, 20, n) * 4e6,
        out_bytes=[2e4] * n,
        edges=edges,
    )
    return PartitionTask(graph, chips=chips)


def all_valid(task: PartitionTask):
    rows = forward_assignments(task.graph, task.chips)
    return rows[are_valid(task.graph, rows, task.chips)]


@pytest.mark.parametrize(
    ("mode", "count"), [("chain", 80_000), ("ladder", 15_000), ("general", 5_000)]
)
def test_no_sample_is_invalid(mode: str, count: int) -> None:
    task = PartitionTask(load_graph("tv_squeezenet1_1"), chips=8)
    sampled = PartitionSampler(task, mode, fails=20).sample(count, np.random.default_rng(0))
    found = sampled.rung >= 0
    assert are_valid(task.graph, sampled.labels[found], 8).all()
    assert found.all() or mode == "general"
    assert found.mean() > 0.9


@pytest.mark.parametrize("mode", ["chain", "general", "ladder"])
def test_fix_leaves_valid_partitions_alone_and_mends_others(mode: str) -> None:
    task = PartitionTask(load_graph("tv_resnet18"), chips=8)
    rng = np.random.default_rng(1)
    sampler = PartitionSampler(task, mode)
    valid = PartitionSampler(task, "ladder").sample(200, rng).labels
    assert (sampler.fix(valid, rng).labels == valid).all()
    noise = rng.integers(-2, 12, (200, task.n))
    mended = sampler.fix(noise, rng)
    found = mended.rung >= 0
    assert are_valid(task.graph, mended.labels[found], 8).all()
    assert found.mean() > 0.9


def test_fix_keeps_most_of_a_partition_with_one_wrong_label() -> None:
    task = PartitionTask(load_graph("tv_vgg16"), chips=6)
    rng = np.random.default_rng(2)
    labels = np.sort(rng.integers(0, 6, task.n))
    labels = np.searchsorted(np.unique(labels), labels)
    broken = labels.copy()
    broken[20] = 0
    kept = PartitionSampler(task, "ladder").fix(np.tile(broken, (50, 1)), rng).labels
    assert np.median((kept == labels).sum(axis=1)) > 0.6 * task.n


@pytest.mark.parametrize("mode", ["chain", "ladder"])
def test_rows_repeat_for_a_seed_and_do_not_depend_on_their_batch(mode: str) -> None:
    task = PartitionTask(load_graph("tv_resnet18"), chips=8)
    sampler = PartitionSampler(task, mode)
    check_repeats(lambda seed: sampler.sample(20, np.random.default_rng(seed)).labels)
    together = sampler.sample(9, np.random.default_rng(5)).labels
    rng = np.random.default_rng(5)
    parts = [sampler.sample(count, rng).labels for count in (4, 5)]
    assert (np.concatenate(parts) == together).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_propagator_never_rules_out_a_valid_partition(seed: int) -> None:
    task = small_task(seed)
    rng = np.random.default_rng(seed)
    for row in rng.permutation(all_valid(task))[:60]:
        solver = Propagator(task)
        for op in rng.permutation(task.n):
            assert row[op] in solver.get_domain(op)
            assert solver.set_domain(op, [int(row[op])])


def test_sampling_reaches_every_valid_partition_of_a_small_graph() -> None:
    task = small_task(1)
    valid = {tuple(row) for row in all_valid(task).tolist()}
    sampled = PartitionSampler(task, "general").sample(6_000, np.random.default_rng(0))
    assert {tuple(row) for row in sampled.labels[sampled.rung >= 0].tolist()} == valid
    assert len(valid) > 30


def test_an_op_between_two_placed_ones_shares_a_chip_with_them() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    graph = PartitionGraph.from_columns(
        "skip", ["op"] * 4, flops=[1] * 4, out_bytes=[1] * 4, edges=edges
    )
    solver = Propagator(PartitionTask(graph, chips=4))
    assert solver.get_domain(3) == [0, 1]
    assert solver.set_domain(1, [1])
    assert [solver.get_domain(op) for op in range(4)] == [[0], [1], [1], [1]]
    solver.undo()
    assert solver.get_domain(1) == [0, 1]
    assert not solver.set_domain(0, [2])
    with pytest.raises(InputError, match="nothing to take back"):
        solver.undo()
    with pytest.raises(InputError, match="chips are 0 to 3"):
        solver.set_domain(0, [4])


def test_weights_decide_what_is_drawn_and_zero_excludes() -> None:
    task = PartitionTask(load_graph("own_ae"), chips=4)
    weights = np.zeros((16, 4))
    weights[:, 0] = 1.0
    rows = PartitionSampler(task, "chain").sample(30, np.random.default_rng(0), weights).labels
    assert (rows == 0).all()
    centred = balanced_probabilities(task, 0.2)
    rows = PartitionSampler(task, "chain").sample(30, np.random.default_rng(0), centred).labels
    even = np.floor(4 * task.share_before)
    assert (rows.max(axis=1) == 3).all()
    assert np.abs(rows - even).mean() < 0.3


def test_a_given_order_places_the_first_op_freely() -> None:
    task = PartitionTask(load_graph("own_ae"), chips=3)
    weights = np.ones((16, 3))
    weights[9] = [0, 0, 1]
    order = [9, *range(9), *range(10, 16)]
    sampler = PartitionSampler(task, "general")
    rows = sampler.sample(40, np.random.default_rng(0), weights, order).labels
    assert (rows[:, 9] == 2).all()


@pytest.mark.parametrize("seed", range(3))
def test_projection_is_nearest_in_the_largest_distance(seed: int) -> None:
    task = small_task(seed, chips=4, density=0.6)
    points = np.random.default_rng(seed).uniform(0, 3, (40, task.n))
    rows = all_valid(task)
    span = rows[:, task.graph.edge_dst] - rows[:, task.graph.edge_src]
    chains = rows[span.max(axis=1) <= 1]
    near = project(task, points)
    assert are_valid(task.graph, near, 4).all()
    assert (project(task, chains) == chains).all()
    for point, row in zip(points, near, strict=True):
        shifts = [np.abs(chains + s - point).max(axis=1).min() for s in range(4)]
        distance = min(np.abs(row + s - point).max() for s in range(4))
        assert distance <= min(shifts) + 0.5 + 1e-9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probabilities": np.ones((3, 3))}, "probabilities must have shape"),
        ({"probabilities": -np.ones((16, 3))}, "not negative"),
        ({"order": "backwards"}, "unknown order"),
        ({"order": [0] * 16}, "permutation"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message: str) -> None:
    sampler = PartitionSampler(PartitionTask(load_graph("own_ae"), chips=3), "chain")
    with pytest.raises(InputError, match=message):
        sampler.sample(2, np.random.default_rng(0), **arguments)


def test_components_that_do_not_touch_use_the_chips_from_the_first_on() -> None:
    graph = PartitionGraph.from_columns(
        "two", ["op"] * 6, flops=[1] * 6, out_bytes=[1] * 6, edges=[(0, 1), (2, 3), (4, 5)]
    )
    task = PartitionTask(graph, chips=5)
    for mode in ("chain", "ladder"):
        rows = PartitionSampler(task, mode).sample(500, np.random.default_rng(3)).labels
        assert are_valid(graph, rows, 5).all()
        assert rows.max() > 1
