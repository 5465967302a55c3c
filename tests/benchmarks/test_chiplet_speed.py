"""Speed of the chiplet search: decoding and costing genomes, operators, a sample of the policy.

`make bench` prints the medians; each group has a yardstick measured in the same run.
"""

import numpy as np
import pytest

from mohsearch.engines.chiplet_features import graph_inputs
from mohsearch.engines.chiplet_options import PolicyOptions
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.chiplet import build

pytestmark = pytest.mark.benchmark

GENOMES = ("labels", "offsets", "segments", "keys")


def large(genome):
    problem = build({"genome": genome, "constraints": "chain"}, "hf_bert_large_prim")
    rng = np.random.default_rng(0)
    X = problem.space.encode(problem.space.sample(20, rng, prior="cuts"), rng)
    problem.metrics(X)
    return problem, X


@pytest.mark.parametrize("genome", GENOMES)
@pytest.mark.benchmark(group="metrics of 20 genomes, 2204 ops, 36 chips (yardstick: labels)")
def test_metrics(benchmark, genome):
    problem, X = large(genome)
    values = benchmark(problem.metrics, X)
    assert np.isfinite(values["interval_s"]).all()


@pytest.mark.parametrize("genome", GENOMES)
@pytest.mark.benchmark(group="a generation of 20 children, 2204 ops (yardstick: their metrics)")
def test_variation(benchmark, genome):
    problem, X = large(genome)
    variation = load_portfolio("chiplet", "cold").build(problem)
    rng = np.random.default_rng(1)

    def breed():
        pairs = variation.crossover._do(problem, X.reshape(2, 10, -1), random_state=rng)
        return variation.mutation._do(problem, pairs.reshape(20, -1), random_state=rng)

    assert problem.space.valid(problem.space.partitions(benchmark(breed))).all()


@pytest.mark.parametrize(("graph", "chips"), [("timm_dla34", 8), ("hf_bert_large_prim", 36)])
@pytest.mark.benchmark(group="one batch of 20 rollouts with its update (target: 2 s on dla34)")
def test_policy_batch(benchmark, graph, chips):
    pytest.importorskip("torch")
    from mohsearch.engines.chiplet_policy import GraphTensors, PolicyTrainer

    problem = build({"genome": "labels", "chips": chips, "constraints": "chain"}, graph)
    inputs = graph_inputs(problem.task)
    trainer, tensors = PolicyTrainer(PolicyOptions(), 0), GraphTensors(inputs)
    rng = np.random.default_rng(0)

    def batch():
        rollouts = trainer.propose(tensors, inputs, None)
        fixed = problem.space.fix(rollouts.labels, rng)
        gained = 1.0 / problem.metrics(fixed)["interval_s"]
        trainer.learn(tensors, rollouts, gained, fixed[:10])
        return gained

    assert len(benchmark.pedantic(batch, rounds=2, iterations=1, warmup_rounds=1)) == 20
