"""Sampling and repair on small random graphs of every shape, and figures at the ends of ranges."""

import itertools

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.enumeration import forward_assignments
from mohsearch.evaluators.partition.propagator import Propagator
from mohsearch.evaluators.partition.sampler import PartitionSampler
from mohsearch.evaluators.partition.solve import best_partition
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.workloads.op_graph import PartitionGraph


def graph_of(n: int, edges, **columns) -> PartitionGraph:
    given = {"flops": [1e6] * n, "out_bytes": [1e3] * n, **columns}
    return PartitionGraph.from_columns("property", ["op"] * n, edges=edges, **given)


def shaped(seed: int) -> PartitionTask:
    """1 to 6 ops, sparse to dense, in one or more components, on 1 to 8 chips."""
    rng = np.random.default_rng(seed)
    n, chips = int(rng.integers(1, 7)), int(rng.choice([1, 2, 3, 4, 8]))
    density = rng.choice([0.0, 0.3, 0.6])
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < density]
    return PartitionTask(graph_of(n, edges), chips=chips)


def all_valid(task: PartitionTask) -> np.ndarray:
    rows = forward_assignments(task.graph, task.chips)
    return rows[are_valid(task.graph, rows, task.chips)]


@pytest.mark.parametrize("seed", range(60))
def test_every_valid_partition_can_be_drawn_and_stays_when_it_is_fixed(seed: int) -> None:
    task = shaped(seed)
    valid = all_valid(task)
    rng = np.random.default_rng(seed)
    for mode in ("general", "ladder", "chain"):
        sampler = PartitionSampler(task, mode)
        assert (sampler.fix(valid, rng).labels == valid).all()
    # weights that leave each op one chip: what is drawn is that partition or the weights are void
    chosen = valid[rng.permutation(len(valid))[:40]]
    tables = np.eye(task.chips)[chosen]
    drawn = PartitionSampler(task, "general").sample(len(chosen), rng, tables)
    assert (drawn.rung == 0).all()
    assert (drawn.labels == chosen).all()
    # in every order, each step of the paper's procedure leaves the partition's chip to choose
    for row in chosen[:5]:
        solver = Propagator(task)
        for op in rng.permutation(task.n).tolist():
            assert int(row[op]) in solver.get_domain(op)
            assert solver.set_domain(op, [int(row[op])])


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_repaired_or_drawn_is_valid(seed: int) -> None:
    task = shaped(seed)
    rng = np.random.default_rng(seed)
    noise = rng.integers(-3, task.chips + 3, (50, task.n))
    for mode in ("general", "ladder", "chain"):
        sampler = PartitionSampler(task, mode)
        for rows in (sampler.sample(50, rng), sampler.fix(noise, rng)):
            assert are_valid(task.graph, rows.labels, task.chips)[rows.rung >= 0].all()
            assert (rows.rung >= 0).all() or mode == "general"


def test_one_op_or_one_chip_leaves_one_partition() -> None:
    for n, chips in ((1, 1), (1, 64), (5, 1)):
        task = PartitionTask(graph_of(n, [(u, u + 1) for u in range(n - 1)]), chips=chips)
        assert all_valid(task).tolist() == [[0] * n]
        for mode in ("general", "ladder", "chain"):
            rows = PartitionSampler(task, mode).sample(20, np.random.default_rng(0)).labels
            assert (rows == 0).all()
        best = best_partition(task)
        assert (best.status, best.labels.tolist()) == ("optimal", [0] * n)


def test_more_chips_than_ops_are_not_all_used() -> None:
    task = PartitionTask(graph_of(3, [(0, 1), (1, 2)]), chips=64)
    rows = PartitionSampler(task, "general").sample(500, np.random.default_rng(0)).labels
    assert {tuple(row) for row in rows.tolist()} == {(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 2)}


def test_ops_that_take_no_time_neither_divide_by_zero_nor_need_a_chip() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (2, 3)])
    task = PartitionTask(graph, chips=4, time_s=np.array([0.0, 1e-3, 0.0, 0.0]))
    best = best_partition(task)
    assert best.interval_s == pytest.approx(1e-3)
    assert best.gap == 0.0
    idle = PartitionTask(graph, chips=4, time_s=np.zeros(4))
    assert np.isfinite(idle.share_before).all()
    with pytest.raises(InputError, match="takes no time"):
        evaluate_partitions(idle, [[0, 0, 0, 0]])


NEAR_2_62_NS = 2.0**62 * 1e-9


@pytest.mark.parametrize("size", [1.0, 1e18])
def test_times_near_2_62_nanoseconds_and_sizes_of_exabytes_are_added_up_right(size: float) -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (2, 3)], out_bytes=[size] * 4, element_bytes=1)
    time_s = np.array([4.0, 3.0, 2.0, 1.0]) * NEAR_2_62_NS
    task = PartitionTask(graph, chips=2, time_s=time_s)
    rate = task.package.link.bandwidth_bytes_per_s
    rows = all_valid(task)
    expected = []
    for row in rows.tolist():
        load = [float(time_s[np.array(row) == c].sum()) for c in range(2)]
        moved = size / rate if max(row) else 0.0
        expected.append(max(x + moved for x in load))
    values = evaluate_partitions(task, rows)
    assert values["interval_s"] == pytest.approx(expected, rel=1e-12)
    assert values["peak_memory_bytes"].min() >= size
    best = best_partition(task)
    assert best.interval_s == pytest.approx(min(expected), rel=1e-9)
    assert interval_bounds(task).bound_s <= best.interval_s


def test_cpsat_refuses_times_that_do_not_fit_its_integers() -> None:
    pytest.importorskip("ortools")
    from mohsearch.evaluators.partition.cpsat import solve_cpsat

    graph = graph_of(3, [(0, 1), (1, 2)])
    task = PartitionTask(graph, chips=2, time_s=np.full(3, NEAR_2_62_NS))
    with pytest.raises(InputError, match="too long for whole picoseconds"):
        solve_cpsat(task, time_limit_s=5.0)
