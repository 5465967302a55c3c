"""Random and genetic search: same space, same costs, never better than the exact front."""

import numpy as np
import pytest

from mohsearch.evaluators.mapper.baselines import (
    MappingSampler,
    genetic_search,
    random_search,
    relative_hypervolume,
)
from mohsearch.evaluators.mapper.exact import search_layer
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

LAYER = LayerShape(K=24, C=16, P=12, Q=12, R=3, S=3)


@pytest.mark.parametrize("template", ["eyeriss", "simba", "shidiannao"])
def test_neither_baseline_finds_what_the_exact_front_does_not_cover(template):
    architecture = load_template(template)
    front = search_layer(LAYER, architecture)
    for search in (random_search, genetic_search):
        found = search(LAYER, architecture, 300, np.random.default_rng(1))
        assert len(found)
        covered = front.objectives[:, None, :] <= found[None, :, :] * (1 + 1e-9)
        assert covered.all(axis=2).any(axis=0).all()
        assert 0 < relative_hypervolume(front, found) <= 1 + 1e-9


def test_random_search_covers_a_small_front():
    layer, eyeriss = LayerShape(N=2, K=2, C=4), load_template("eyeriss")
    front = search_layer(layer, eyeriss)
    found = random_search(layer, eyeriss, 500, np.random.default_rng(0))
    assert relative_hypervolume(front, found) == pytest.approx(1.0, rel=1e-6)


def test_budgets_are_kept_and_seeds_repeat():
    architecture = load_template("simba")
    first = genetic_search(LAYER, architecture, 200, np.random.default_rng(7))
    second = genetic_search(LAYER, architecture, 200, np.random.default_rng(7))
    np.testing.assert_array_equal(first, second)
    sampler = MappingSampler(LAYER, architecture, np.random.default_rng(0))
    for _ in range(50):
        sampler.random()
    assert sampler.evaluations == 50
