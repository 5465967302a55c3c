"""The generic comparison: any row of numbers can be read as a package."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.operators.moham_keys import KeysCrossover, KeysMutation, decode_keys, encode_keys
from mohsearch.testing.moham import random_genomes, random_space


def problem_of(space: MohamSpace) -> SimpleNamespace:
    return SimpleNamespace(space=space, n_var=space.n_var, xl=space.lower, xu=space.upper)


@pytest.mark.parametrize("seed", range(6))
def test_a_valid_package_survives_encoding_and_decoding(seed):
    space = random_space(np.random.default_rng(seed), layers=9, fixed=seed % 2 == 1)
    X = random_genomes(space, np.random.default_rng(seed), 100)
    assert np.array_equal(decode_keys(space, encode_keys(space, X)), X)
    pairs = X.reshape(2, 50, -1)
    assert np.array_equal(decode_keys(space, encode_keys(space, pairs)), pairs)


@pytest.mark.parametrize("seed", range(6))
def test_any_numbers_decode_to_a_valid_package(seed):
    rng = np.random.default_rng(seed)
    space = random_space(rng, layers=9, max_instances=3 + seed, fixed=seed % 3 == 2)
    whole = rng.integers(-100, 100, size=(500, space.n_var))
    real = rng.normal(size=(500, space.n_var)) * 10
    for keys in (whole, real, np.zeros((1, space.n_var))):
        before = keys.copy()
        assert space.is_valid(decode_keys(space, keys)).all()
        assert np.array_equal(keys, before)


def hard_space(slots: int) -> MohamSpace:
    """Layers 0 and 1 run on template 0 only, layer 2 on template 1 only; layer 1 needs layer 2."""
    return MohamSpace.from_arrays(
        [0, 0, 1], [[], [2], []], [0, 3, 3, 3, 5], np.ones((5, 3)), templates=2,
        max_instances=slots,
    )  # fmt: skip


def test_the_steps_of_the_repair_follow_their_description():
    space = hard_space(3)
    #        order keys  mapping    slot      template   tile
    keys = [5, 1, 9, 4, -1, 7, 4, 1, 4, 9, 1, 0, 8, 8, -2]
    # order: layers 0 and 2 are ready, 0 has the lesser key, then 2, then 1
    # slots 4, 1, 4 -> 1, 1, 1; templates 9, 1, 0 -> 1, 1, 0
    # layer 0 cannot run on slot 1 (template 1) and nothing else is occupied: it takes the next
    # empty slot, 2, whose template 0 suits; layer 1 finds slot 2 occupied; layer 2 stays
    # mappings 4 % 3, -1 % 3, 7 % 2; tiles: -2 first, then the two eights by slot
    child = [0, 2, 1, 1, 2, 1, 2, 2, 1, -1, 1, 0, 1, 2, 0]
    assert decode_keys(space, np.array([keys])).tolist() == [child]


def test_conflicts_without_an_empty_slot_are_resolved():
    rng = np.random.default_rng(3)
    for slots in (2, 3):
        space = hard_space(slots)
        keys = rng.integers(-9, 9, size=(300, space.n_var))
        assert space.is_valid(decode_keys(space, keys)).all()


@pytest.mark.parametrize("method", ["sbx", "uniform"])
def test_generic_crossover_of_a_package_with_itself_changes_nothing(method):
    space = random_space(np.random.default_rng(4))
    X = random_genomes(space, np.random.default_rng(5), 40)
    operator = KeysCrossover(method=method)
    pairs = np.stack([X, X])
    children = operator._do(problem_of(space), pairs, random_state=np.random.default_rng(6))
    assert np.array_equal(children, pairs)


@pytest.mark.parametrize("method", ["polynomial", "reset"])
def test_generic_mutation_changes_a_gene_with_its_probability(method):
    space = MohamSpace.from_arrays(
        [0] * 200, [[]] * 200, [0, 50], np.ones((50, 3)), templates=1, max_instances=1
    )
    X = random_genomes(space, np.random.default_rng(7), 1).repeat(100, axis=0)
    operator = KeysMutation(method=method, prob_var=0.1)
    children = operator._do(problem_of(space), X, random_state=np.random.default_rng(8))
    changed = (space.view(children).mapping != space.view(X).mapping).mean()
    expected = 0.1 * (1 - 1 / 50) if method == "reset" else 0.1
    assert changed == pytest.approx(expected, abs=0.012)


@pytest.mark.parametrize("kind", [KeysCrossover, KeysMutation])
def test_an_unknown_method_is_refused(kind):
    with pytest.raises(ValueError, match="method must be"):
        kind(method="magic")
