"""The placement of uniform chains finds the optimum of the general program."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.device_placement.plan import evaluate_plan
from mohsearch.evaluators.device_placement.solver import place
from mohsearch.evaluators.uniform_placement import (
    Cluster,
    UniformChain,
    place_uniform,
    stage_sizes,
)


def random_case(rng: np.random.Generator):
    """A chain, a cluster, latencies, memory and mode that exercise every branch."""
    layers = int(rng.integers(1, 12))
    count = int(rng.integers(1, 4))
    widths = 2 ** np.sort(rng.choice(4, count, replace=False))

    def draw(*shape: int):
        return rng.uniform(0.05, 1, shape) * rng.choice([0.05, 1, 1], size=shape)

    chain = UniformChain(
        inner=layers,
        widths=widths,
        weight_bytes=draw(count, 3),
        state_bytes=2 * draw(count, 3),
        activation_bytes=draw(count, 3),
        boundary_bytes=draw(count) * 10.0 ** rng.uniform(-3, 1),
        input_bytes=float(rng.choice([0.0, 0.3])),
    )
    cluster = Cluster(
        devices=int(rng.integers(1, 40)),
        microbatches=int(rng.integers(1, 50)),
        bandwidth_bytes_per_s=1.0,
        sync_factor=float(rng.choice([2.0, 4.0])),
        overlap_recompute=bool(rng.integers(2)),
    )
    memory = 10 ** rng.uniform(0.1, 2)
    return chain, cluster, draw(count, 3), draw(count, 3), memory, bool(rng.integers(2))


def test_uniform_placement_equals_the_general_program_and_its_plan_costs_what_it_says():
    rng = np.random.default_rng(7)
    depths = []
    for _ in range(400):
        chain, cluster, forward, backward, memory, recompute = random_case(rng)
        plans = place_uniform(
            chain, cluster, forward[None], backward[None], np.array([memory]), np.array([recompute])
        )
        problem = cluster.problem(chain, forward, backward, memory, recompute)
        best = place(problem)
        if not best.is_feasible:
            assert np.isinf(plans.time_s[0])
            assert plans.width[0] == -1
            continue
        assert plans.time_s[0] == pytest.approx(best.time_per_batch_s, rel=1e-12)
        width = int(plans.width[0])
        shape = [int(plans[k][0]) for k in (2, 4, 5, 6)]
        sizes = stage_sizes(chain, width, memory, recompute, shape)
        ends = np.cumsum(sizes) + 1
        ends[-1] += 1
        stages = [list(range(a, b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        again = evaluate_plan(problem, int(chain.widths[width]), int(plans.replicas[0]), stages)
        assert again.time_per_batch_s == pytest.approx(plans.time_s[0], rel=1e-12)
        depths.append(len(stages))
    assert depths.count(1) < 0.7 * len(depths)
    assert max(depths) > 6
    assert len(depths) < 400  # some did not fit


def test_lower_latencies_never_take_longer():
    rng = np.random.default_rng(8)
    for _ in range(50):
        chain, cluster, forward, backward, memory, recompute = random_case(rng)
        scale = rng.uniform(0.3, 1, size=(20, *forward.shape))
        memories, modes = np.full(21, memory), np.full(21, recompute)
        plans = place_uniform(
            chain,
            cluster,
            np.concatenate([forward[None], forward * scale]),
            np.concatenate([backward[None], backward * scale]),
            memories,
            modes,
        )
        assert (plans.time_s[1:] <= plans.time_s[0]).all()


def test_an_accelerator_that_cannot_run_a_layer_has_no_plan():
    rng = np.random.default_rng(9)
    chain, cluster, forward, backward, _, _ = random_case(rng)
    forward[:, 1] = np.inf
    plans = place_uniform(
        chain, cluster, forward[None], backward[None], np.array([1e9]), np.array([False])
    )
    assert np.isinf(plans.time_s).all()
    assert (plans.width == -1).all()


def partitions(layers: int, stages: int):
    """All ways to cut a chain into stages, as lists of positions."""
    for cuts in combinations(range(1, layers), stages - 1):
        yield [list(range(a, b)) for a, b in pairwise([0, *cuts, layers])]


def test_the_optimizer_step_of_the_first_stage_counts_in_the_choice():
    rng = np.random.default_rng(10)
    differ = 0
    for _ in range(60):
        chain, cluster, forward, backward, memory, recompute = random_case(rng)
        if chain.inner > 5:
            continue
        problem = cluster.problem(chain, forward, backward, memory, recompute)
        step = 10 ** rng.uniform(-1, 1.5)
        best = np.inf
        for _w, width in enumerate(chain.widths.tolist()):
            for stages in range(1, chain.inner + 3):
                for cut in partitions(chain.inner + 2, stages):
                    for data in range(1, min(cluster.devices, cluster.microbatches) + 1):
                        try:
                            plan = evaluate_plan(problem, width, data, cut)
                        except InfeasibleError:
                            break
                        weights = problem.costs[width].weight_bytes[cut[0]].sum()
                        best = min(best, plan.time_per_batch_s + step * weights)
        arrays = (forward[None], backward[None], np.array([memory]), np.array([recompute]))
        plans = place_uniform(chain, cluster, *arrays, np.array([step]))
        assert plans.time_s[0] == pytest.approx(best, rel=1e-12)
        differ += plans.stages[0] != place_uniform(chain, cluster, *arrays).stages[0]
    assert differ > 3


def test_memory_far_beyond_what_layers_need_holds_them_all():
    one = np.ones((1, 3))
    chain = UniformChain(
        inner=3,
        widths=np.array([1]),
        weight_bytes=1e-60 * one,
        state_bytes=1e-60 * one,
        activation_bytes=1e-60 * one,
        boundary_bytes=np.array([1e-60]),
        input_bytes=0.0,
    )
    cluster = Cluster(
        devices=1,
        microbatches=1,
        bandwidth_bytes_per_s=1.0,
        sync_factor=2.0,
        overlap_recompute=False,
    )
    plans = place_uniform(
        chain, cluster, one[None], one[None], np.array([1e-30]), np.array([False])
    )
    assert plans.time_s[0] == pytest.approx(10.0)
