"""First populations: valid, diverse and, where asked for, made of the best mappings."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.operators.moham_sampling import (
    RandomPackages,
    SeededPackages,
    random_packages,
    seeded_packages,
)
from mohsearch.testing.contracts import check_repeats
from mohsearch.testing.moham import random_space

ONE_MAPPING = np.array([[1.0, 1.0, 1.0]])


def free_space(layers: int, dependencies: list[list[int]], slots: int = 1) -> MohamSpace:
    return MohamSpace.from_arrays(
        [0] * layers, dependencies, [0, 1], ONE_MAPPING, templates=1, max_instances=slots
    )


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("kind", [RandomPackages, SeededPackages])
@pytest.mark.parametrize("seed", range(5))
def test_samples_are_valid_whatever_the_space(kind, fixed, seed):
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(1, 30))
    space = random_space(rng, layers=layers, max_instances=int(rng.integers(1, 9)) + 2, fixed=fixed)
    X = kind()._do(SimpleNamespace(space=space), 300, random_state=rng)
    assert X.shape == (300, space.n_var)
    assert space.is_valid(X).all()
    assert kind()._do(SimpleNamespace(space=space), 0, random_state=rng).shape == (0, space.n_var)


@pytest.mark.parametrize("sample", [random_packages, seeded_packages])
def test_sampling_repeats_for_a_seed_and_moves_no_global_generator(sample):
    space = random_space(np.random.default_rng(0))
    check_repeats(lambda seed: sample(space, 50, np.random.default_rng(seed)))


def test_every_number_of_instances_up_to_the_most_is_equally_frequent():
    space = free_space(6, [[]] * 6, slots=4)
    X = random_packages(space, 20_000, np.random.default_rng(1))
    counts = np.bincount((space.view(X).template >= 0).sum(axis=1), minlength=5)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 5000).max() < 5 * (20_000 * 0.25 * 0.75) ** 0.5


def test_templates_mappings_and_tiles_are_uniform():
    space = MohamSpace.from_arrays(
        [0] * 5, [[]] * 5, [0, 2, 5], np.ones((5, 3)), templates=2, max_instances=3
    )
    blocks = space.view(random_packages(space, 20_000, np.random.default_rng(2)))
    used = blocks.template[blocks.template >= 0]
    assert abs(used.mean() - 0.5) < 0.02
    template = np.take_along_axis(blocks.template, blocks.slot, axis=1)
    for t, count in enumerate((2, 3)):
        drawn = np.bincount(blocks.mapping[template == t], minlength=count)
        assert drawn / drawn.sum() == pytest.approx([1 / count] * count, abs=0.01)
    tiles = Counter(tuple(t) for t in blocks.tile.tolist())
    assert len(tiles) == 6
    assert max(tiles.values()) / min(tiles.values()) < 1.2


@pytest.mark.parametrize("sample", [random_packages, seeded_packages])
def test_given_instances_stand_on_every_permutation_of_the_tiles(sample):
    space = MohamSpace.from_arrays(
        [0] * 5, [[]] * 5, [0, 2, 5], np.ones((5, 3)), templates=2, max_instances=3,
        fixed_templates=[1, 0, 1],
    )  # fmt: skip
    blocks = space.view(sample(space, 12_000, np.random.default_rng(2)))
    assert (blocks.template == [1, 0, 1]).all()
    tiles = Counter(tuple(t) for t in blocks.tile.tolist())
    assert len(tiles) == 6
    assert max(tiles.values()) / min(tiles.values()) < 1.2


def test_unordered_layers_come_in_every_order():
    space = free_space(4, [[]] * 4)
    X = random_packages(space, 5000, np.random.default_rng(3))
    assert len(np.unique(space.view(X).order, axis=0)) == 24


def test_without_spread_all_orders_of_a_forest_are_equally_frequent(monkeypatch):
    monkeypatch.setattr("mohsearch.operators.moham_sampling.SPREADS", (0.0,))
    # two chains of three: 20 interleavings; a walk that picks any ready layer evenly would favour
    # those that alternate
    space = free_space(6, [[], [0], [1], [], [3], [4]])
    X = random_packages(space, 40_000, np.random.default_rng(4))
    _, counts = np.unique(space.view(X).order, axis=0, return_counts=True)
    assert len(counts) == 20
    assert ((counts - 2000) ** 2 / 2000).sum() < 19 + 5 * (2 * 19) ** 0.5


def test_orders_range_from_interleaved_networks_to_one_after_the_other():
    length = 20
    chain = [[k - 1] if k % length else [] for k in range(3 * length)]
    orders = space_orders = free_space(3 * length, chain)
    orders = space_orders.view(random_packages(space_orders, 600, np.random.default_rng(5))).order
    changes = (np.diff(orders // length, axis=1) != 0).sum(axis=1)
    assert changes.min() <= 4
    assert changes.max() >= 1.5 * length
    assert len(np.unique(orders, axis=0)) > 500


def test_layers_that_few_templates_can_run_are_covered_even_in_small_packages():
    # layer 0 runs on template 0 only, layer 1 on template 1 only: one instance never does
    space = MohamSpace.from_arrays(
        [0, 1, 0, 1], [[]] * 4, [0, 1, 1, 1, 2], np.ones((2, 3)), templates=2, max_instances=2
    )
    X = random_packages(space, 200, np.random.default_rng(6))
    assert space.is_valid(X).all()
    assert {tuple(t) for t in space.view(X).template.tolist()} == {(0, 1), (1, 0)}


def test_a_package_too_small_for_the_templates_it_needs_is_reported():
    space = MohamSpace.from_arrays(
        [0, 1], [[]] * 2, [0, 1, 1, 1, 2], np.ones((2, 3)), templates=2, max_instances=1
    )
    with pytest.raises(InfeasibleError, match="no 1 instances can run all layers"):
        random_packages(space, 1, np.random.default_rng(7))


def test_the_first_seeds_hold_every_layers_best_mapping_on_one_instance_per_template():
    rng = np.random.default_rng(8)
    space = random_space(rng, layers=10, templates=3, max_instances=6)
    X = seeded_packages(space, 12, rng)
    rows = space.rows_of(X)
    for i, (alone, feature) in enumerate((a, f) for a in (None, 0, 1, 2) for f in range(3)):
        blocks = space.view(X[i])
        templates = blocks.template[blocks.template >= 0]
        assert len(templates) == len(set(templates.tolist()))
        for layer in range(space.n_layers):
            cells = space.unique_of_layer[layer] * 3 + np.arange(3)
            known = {t: space.features[space.offsets[c] : space.offsets[c + 1], feature]
                     for t, c in enumerate(cells)}  # fmt: skip
            known = {t: values for t, values in known.items() if len(values)}
            if alone in known:
                known = {alone: known[alone]}
            best = min(values.min() for values in known.values())
            assert space.features[rows[i, layer], feature] == best


def test_further_seeds_spread_the_same_mappings_over_more_instances():
    rng = np.random.default_rng(9)
    space = random_space(rng, layers=30, templates=3, max_instances=8)
    X = seeded_packages(space, 400, rng)
    instances = (space.view(X).template >= 0).sum(axis=1)
    assert instances[:12].max() <= 3
    assert set(range(3, 9)) <= set(instances[12:].tolist())
    rows = space.rows_of(X)
    assert np.array_equal(rows[12:24], rows[:12])


def test_seeds_with_fewer_slots_than_templates_are_still_valid():
    rng = np.random.default_rng(10)
    space = random_space(rng, layers=20, unique=12, templates=5, max_instances=2, fixed=False)
    assert space.is_valid(seeded_packages(space, 100, rng)).all()
