"""The chiplet problem: metrics against a plain recount, limits, designs, seeds."""

import itertools
import json

import numpy as np
import pytest

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.problems.chiplet import build
from mohsearch.testing.contracts import check_problem

GENOMES = ("labels", "offsets", "segments", "keys")


def problem_of(graph="own_ae", **options):
    return build({"chips": 4, "constraints": "chain", **options}, graph)


def draw(problem, count=8, seed=0):
    rng = np.random.default_rng(seed)
    return problem.space.encode(problem.space.sample(count, rng, prior="cuts"))


@pytest.mark.parametrize("fidelity", ["analytic", "hardware"])
@pytest.mark.parametrize("genome", GENOMES)
def test_every_genome_and_fidelity_keeps_the_contract(genome, fidelity):
    problem = problem_of("own_dlrm", genome=genome, fidelity=fidelity)
    check_problem(problem, draw(problem))


def recount_s(task, labels):
    """Interval and latency of a chain partition, added up op by op."""
    graph, chip, link = task.graph, task.package.chip, task.package.link
    chips = int(labels.max()) + 1
    load = [0.0] * chips
    for v in range(graph.n):
        own = sum(graph.weight_bytes[w] for w in weights_of(graph, v))
        read = sum(b for v2, b in zip(graph.edge_dst, graph.edge_bytes, strict=True) if v2 == v)
        touched = (own + read + graph.out_bytes[v]) / chip.sram_bandwidth_bytes_per_s
        load[labels[v]] += max(graph.flops[v] / chip.peak_ops_per_s, touched) + chip.op_overhead_s
    sent = {}
    edges = zip(graph.edge_src, graph.edge_dst, graph.edge_bytes, strict=True)
    for u, v, size in edges:
        if labels[u] != labels[v]:
            key = (u, labels[v])
            sent[key] = max(sent.get(key, 0.0), size)
    for (u, there), size in sent.items():
        load[labels[u]] += size / link.bandwidth_bytes_per_s
        load[there] += size / link.bandwidth_bytes_per_s
    return max(load)


def weights_of(graph, v):
    return graph.weight_ids[graph.weight_starts[v] : graph.weight_starts[v + 1]]


def test_the_interval_is_a_plain_recount_of_chips():
    problem = problem_of("own_dlrm", genome="labels")
    X = problem.space.sample(12, np.random.default_rng(1))
    expected = [recount_s(problem.task, x) for x in X]
    assert problem.metrics(X)["interval_s"] == pytest.approx(expected, rel=1e-12)


def test_the_first_seed_is_the_best_of_all_cuts_of_a_chain():
    problem = problem_of("own_ae", genome="labels")
    everything = np.array(
        [
            np.searchsorted(cuts, np.arange(16), side="right")
            for k in range(4)
            for cuts in itertools.combinations(range(1, 16), k)
        ]
    )
    best = evaluate_partitions(problem.task, everything)["interval_s"].min()
    seeds = problem.metrics(problem.seeds)
    assert seeds["interval_s"][0] == pytest.approx(best, rel=1e-9)
    assert sorted(set(seeds["chips"])) == [1, 2, 3, 4]


def test_among_seeds_no_cut_of_a_chain_has_less_traffic_at_the_same_interval():
    problem = problem_of("own_ae", genome="labels")
    costs = problem.metrics(problem.seeds)
    two = np.flatnonzero(costs["chips"] == 2)
    cuts = np.array([(np.arange(16) >= c).astype(int) for c in range(1, 16)])
    every = evaluate_partitions(problem.task, cuts)
    best = every["hop_bytes"].min()
    assert costs["hop_bytes"][two].min() == best


def test_a_partition_that_breaks_the_constraints_has_no_metrics():
    problem = problem_of("own_ae", genome="labels")
    backwards = np.arange(16)[None, ::-1] // 4
    with pytest.raises(ValueError, match="1 of 1 partitions break constraints 1 to 3"):
        problem.metrics(backwards)


def test_a_genome_outside_its_bounds_has_no_metrics():
    problem = problem_of()
    with pytest.raises(ValueError, match="leaves the bounds"):
        problem.metrics(np.full((1, problem.n_var), -1))


def test_memory_is_a_constraint_unless_switched_off():
    tight = problem_of(genome="labels", sram_mb=0.01)
    free = problem_of(genome="labels", sram_mb=0.01, memory_limit=False)
    X = np.zeros((1, 16), dtype=int)
    assert tight.n_ieq_constr == 1
    assert free.n_ieq_constr == 0
    values = tight.metrics(X)
    expected = values["peak_memory_bytes"] / (0.01 * 2**20) - 1
    assert values["memory_excess"] == pytest.approx(expected)
    assert values["memory_excess"][0] > 0


def test_a_wider_element_takes_more_memory_and_time():
    narrow, wide = (problem_of(genome="labels", element_bytes=b) for b in (1, 2))
    X = np.zeros((1, 16), dtype=int)
    one, two = narrow.metrics(X), wide.metrics(X)
    assert two["peak_memory_bytes"] == pytest.approx(2 * one["peak_memory_bytes"])
    assert two["interval_s"][0] > one["interval_s"][0]


def test_the_hardware_differs_from_the_analytic_model_and_by_its_seed():
    problems = [
        problem_of("own_dlrm", genome="labels", **options)
        for options in (
            {},
            {"fidelity": "hardware"},
            {"fidelity": "hardware", "hardware_seed": 1},
        )
    ]
    X = problems[0].space.sample(20, np.random.default_rng(2), prior="cuts")
    intervals = [tuple(p.metrics(X)["interval_s"]) for p in problems]
    assert len(set(intervals)) == 3
    assert len({p.digest() for p in problems}) == 3


@pytest.mark.parametrize(
    ("genome", "names"),
    [
        ("labels", ["chip"]),
        ("offsets", ["chips", "offset"]),
        ("segments", ["chips", "weight"]),
        ("keys", ["chips", "key"]),
    ],
)
def test_the_card_shows_the_variables_of_the_genome(genome, names):
    assert [v.name for v in problem_of(genome=genome).card.variables] == names


def test_a_design_has_chips_links_bound_and_baselines():
    problem = problem_of("own_dlrm")
    x = draw(problem, 1)[0]
    design = json.loads(json.dumps(problem.decode(x)))
    interval = design["metrics"]["interval_s"]
    assert max(chip["load_s"] for chip in design["chips"]) == pytest.approx(interval)
    assert len(design["labels"]) == design["ops"] == 39
    assert design["bound"]["gap"] == pytest.approx(interval / design["bound"]["interval_s"] - 1)
    assert design["bound"]["gap"] >= 0
    assert set(design["baselines_interval_s"]) == {
        "first-fit-sram", "equal-parameters", "equal-time",
    }  # fmt: skip


def test_the_best_seed_of_a_solved_graph_is_at_its_bound_on_the_analytic_model_alone():
    problem = problem_of("own_ae", genome="labels", constraints="ladder")
    design = problem.decode(problem.seeds[0])
    assert 0 <= design["bound"]["gap"] < 1e-6
    assert problem.certificate()["interval_bound_s"] == problem.ideal_point()["interval_s"]
    other = problem_of("own_ae", genome="labels", fidelity="hardware")
    assert 0.02 < other.decode(problem.seeds[0])["bound"]["gap"] < 1


def test_an_unknown_graph_or_option_is_one_clear_error():
    with pytest.raises(UnknownNameError, match="tv_resnet50"):
        build({}, "tv_resnet5")
    with pytest.raises(InputError, match="genome"):
        build({"genome": "bits"}, "own_ae")
