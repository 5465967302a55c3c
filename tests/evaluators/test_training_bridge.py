"""From layers and accelerators to schedules and placements."""

import networkx as nx
import numpy as np
import pytest

from mohsearch.evaluators.device_placement.solver import place
from mohsearch.evaluators.op_cost_options import CostOptions
from mohsearch.evaluators.op_schedule.instance import FUSED, TENSOR, VECTOR
from mohsearch.evaluators.op_schedule.solver import ScheduleOptions, solve
from mohsearch.evaluators.training_architecture import feasible_architectures
from mohsearch.evaluators.training_bridge import (
    PASSES,
    WorkloadCosts,
    layer_costs,
    most_at_once,
    placement_problem,
)
from mohsearch.evaluators.training_times import STRICT_SHARING
from mohsearch.workloads.hf_config import load_model
from mohsearch.workloads.training import build_training
from mohsearch.workloads.training_fusion import fuse

SMALL = load_model("bert-base")


@pytest.fixture(scope="module")
def costs() -> WorkloadCosts:
    every = feasible_architectures()
    places = np.random.default_rng(5).integers(0, len(every), 40)
    places[1] = places[0]
    return WorkloadCosts.build(build_training(SMALL), every.take(places))


def test_an_instance_holds_the_fused_graph_and_its_latencies(costs: WorkloadCosts) -> None:
    for which in ("forward", "backward"):
        graph = costs.graphs[1, which]
        instance = costs.instance(1, which, 3)
        assert instance.edges == graph.edges
        kinds = {"tensor": TENSOR, "vector": VECTOR, "fused": FUSED, "collective": VECTOR}
        assert instance.kinds.tolist() == [kinds[op.engine] for op in graph.ops]
        assert instance.tensor_cores == costs.architectures.tensor_cores[3]
        assert (instance.shortest > 0).all()


def test_bounds_enclose_every_optimal_schedule(costs: WorkloadCosts) -> None:
    for which in ("forward", "backward"):
        low, high = costs.lower_bound(1, which), costs.serial(1, which)
        assert (costs.cheap_bound(1, which) <= costs.critical_path(1, which) * (1 + 1e-12)).all()
        assert (costs.critical_path(1, which) <= low).all()
        for number in (0, 9, 23):
            found = solve(costs.instance(1, which, number), ScheduleOptions(time_limit_s=0.2))
            makespan = found.makespan
            assert low[number] <= makespan <= high[number]


@pytest.mark.parametrize("sharing", [2, STRICT_SHARING])
def test_no_schedule_undercuts_the_bounds_where_memory_is_slow(sharing: int) -> None:
    cores = feasible_architectures()
    many = np.flatnonzero((cores.tensor_cores >= 8) & (cores.vector_cores >= 16))[::2000]
    slow = CostOptions(memory_bytes_per_s=1e9, sharing=sharing)
    costs = WorkloadCosts.build(build_training(SMALL, sequence_length=64), cores.take(many), slow)
    for number, low in enumerate(costs.lower_bound(1, "backward")):
        found = solve(costs.instance(1, "backward", number), ScheduleOptions(time_limit_s=0.1))
        assert low <= found.makespan


def test_no_layer_on_the_shelf_has_more_ops_at_once_than_strict_sharing_allows() -> None:
    for name in ("bert-base", "opt-350m", "llama2-7b", "mixtral-8x7b", "t5-small"):
        workload = build_training(
            load_model(name), tensor_parallel=2, sequence_parallel=True, recompute="selective"
        )
        graphs = [g for layer in workload.layers for g in (layer.forward, layer.backward)]
        assert 2 <= max(most_at_once(fuse(graph)) for graph in graphs) <= STRICT_SHARING


def test_the_critical_path_is_the_longest_path_of_the_graph(costs: WorkloadCosts) -> None:
    instance = costs.instance(1, "backward", 7)
    graph = nx.DiGraph()
    for i, length in enumerate(instance.shortest):
        graph.add_edge(("in", i), ("out", i), weight=int(length))
    graph.add_edges_from(((("out", i), ("in", j)) for i, j in instance.edges), weight=0)
    assert nx.dag_longest_path_length(graph) == costs.critical_path(1, "backward")[7]


def test_equal_accelerators_share_one_schedule_problem(costs: WorkloadCosts) -> None:
    first, back = costs.distinct_instances(1, "forward")
    assert back[0] == back[1]
    for number, group in enumerate(back):
        one = costs.instance(1, "forward", number)
        other = costs.instance(1, "forward", int(first[group]))
        np.testing.assert_array_equal(one.alone, other.alone)
        np.testing.assert_array_equal(one.spread, other.spread)
        assert min(one.tensor_cores, len(one)) == min(other.tensor_cores, len(one))


def test_memory_traffic_bounds_a_layer_whatever_its_schedule() -> None:
    every = feasible_architectures().take(np.arange(0, 29360, 3000))
    workload = build_training(SMALL)
    slow = WorkloadCosts.build(workload, every, CostOptions(memory_bytes_per_s=1e9, sharing=32))
    for which in ("forward", "backward"):
        assert (slow.lower_bound(1, which) >= slow.memory_cycles(1, which)).all()
        assert (slow.lower_bound(1, which) <= slow.serial(1, which)).all()
    binds = slow.memory_cycles(1, "backward") > slow.critical_path(1, "backward")
    assert binds.mean() > 0.8


def test_the_paper_costs_need_no_memory_for_vector_ops() -> None:
    every = feasible_architectures().take(np.arange(0, 29360, 3000))
    paper = WorkloadCosts.build(build_training(SMALL), every, CostOptions.paper())
    for which in PASSES:
        assert (paper.lower_bound(1, which) <= paper.serial(1, which)).all()


def test_energy_of_a_pass_is_the_sum_over_its_ops(costs: WorkloadCosts) -> None:
    rows = costs.rows[1, "forward"]
    assert len(rows) == len(costs.graphs[1, "forward"])
    expected = sum(costs.costs.spread_energy_j[row] for row in rows)
    np.testing.assert_allclose(costs.energy_j(1, "forward"), expected)
    assert (costs.energy_j(1, "backward") > costs.energy_j(1, "forward")).all()


def test_layer_costs_follow_the_chain_of_the_model() -> None:
    workload = build_training(SMALL, microbatch=2)
    table = layer_costs(workload, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert table.forward_s.tolist() == [1.0, *[2.0] * 12, 3.0]
    assert table.backward_s.tolist() == [4.0, *[5.0] * 12, 6.0]
    assert len(table.edge_bytes) == 13
    assert set(table.edge_bytes) == {2.0 * 2 * 512 * 768}
    assert table.state_bytes.sum() == sum(x.count * x.state_bytes for x in workload.layers)
    assert table.activation_bytes[1] == workload.layers[1].stash_bytes
    assert not table.sliced.any()


def test_a_placement_over_two_widths_can_be_solved() -> None:
    parts = [
        (build_training(SMALL, tensor_parallel=t), [1e-3 / t] * 3, [2e-3 / t] * 3) for t in (1, 2)
    ]
    problem = placement_problem(
        parts, devices=16, memory_bytes=2**35, bandwidth_bytes_per_s=1e11, batch=65
    )
    assert problem.microbatches == 65
    assert problem.costs[2].sliced.all()
    assert problem.is_chain
    found = place(problem)
    assert found.is_feasible
    assert found.time_per_batch_s >= found.balance_bound_s > 0


def test_parts_that_do_not_belong_together_are_refused() -> None:
    one = build_training(SMALL)
    options = {"devices": 4, "memory_bytes": 1e9, "bandwidth_bytes_per_s": 1e9, "batch": 8}
    with pytest.raises(ValueError, match="twice"):
        placement_problem([(one, [1.0] * 3, [1.0] * 3)] * 2, **options)  # type: ignore[arg-type]
    other = build_training(SMALL, microbatch=2, tensor_parallel=2)
    with pytest.raises(ValueError, match="differ"):
        placement_problem(
            [(one, [1.0] * 3, [1.0] * 3), (other, [1.0] * 3, [1.0] * 3)],
            **options,  # type: ignore[arg-type]
        )
    with pytest.raises(ValueError, match="at least one"):
        placement_problem([], **options)  # type: ignore[arg-type]
