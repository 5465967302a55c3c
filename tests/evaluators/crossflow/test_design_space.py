"""The genome of the deepflow search: strategies, neighbours, repair."""

import itertools

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.design_space import (
    CLASS_GENES,
    FRACTIONS,
    GENES,
    DeepflowSpace,
    devices_of,
    enumerate_strategies,
    gene_bounds,
    strategy_neighbours,
)
from mohsearch.evaluators.crossflow.evaluate import Strategy


def space(**ranges):
    return DeepflowSpace(*gene_bounds(ranges), (Strategy.parse("d8"),))


def test_there_are_107_strategies_on_512_devices_as_in_the_authors_sweep():
    assert len(enumerate_strategies(512)) == 107


@pytest.mark.parametrize("devices", [1, 2, 6, 12, 30, 64])
def test_the_enumeration_is_that_of_a_plain_search_over_all_sizes(devices):
    expected = set()
    sizes = range(1, devices + 1)
    for a, c, d, p in itertools.product(sizes, sizes, sizes, (1, 4)):
        if a * c * d * p != devices:
            continue
        if a * c == 1:
            expected.add(f"d{d}-p{p}")
            continue
        expected.add(f"RC-{a}-{c}-d{d}-p{p}")
        if c == 1:
            expected.add(f"CR-{a}-d{d}-p{p}")
    found = enumerate_strategies(devices)
    assert len(found) == len(set(found))
    assert {str(s) for s in found} == expected
    assert devices_of(found) == devices


@pytest.mark.parametrize("devices", [8, 12, 512])
def test_every_strategy_is_reached_from_every_other_by_moves(devices):
    strategies = enumerate_strategies(devices)
    near = strategy_neighbours(strategies)
    seen, border = {0}, [0]
    while border:
        border = [int(j) for i in border for j in near[i] if j not in seen and not seen.add(int(j))]
    assert len(seen) == len(strategies)
    for i, others in enumerate(near):
        assert i not in others
        assert len(others)


def test_strategies_without_a_move_between_them_are_all_neighbours():
    pair = (Strategy.parse("d64"), Strategy.parse("RC-8-8"))
    assert [n.tolist() for n in strategy_neighbours(pair)] == [[1], [0]]


def test_repair_keeps_valid_genomes_and_mends_the_others():
    rng = np.random.default_rng(0)
    s = space(logic=(0, 4), tdp_w=(100, 500), node_area_mm2=(500, 900), **{"area.core": (0.3, 0.3)})
    X = rng.normal(0.4, 0.5, (500, GENES))
    X[:, 20] *= 1000
    mended = s.repair(X)
    assert s.is_valid(mended).all()
    assert np.array_equal(s.repair(mended), mended)
    assert (mended[:, 0] == 0.3).all()
    overspent = np.clip(X[:, CLASS_GENES[1]], 0, 1).sum(axis=1) > 1
    assert overspent.any()
    assert np.allclose(mended[overspent][:, CLASS_GENES[1]].sum(axis=1), 1)


def test_validity_looks_at_sums_bounds_and_whole_numbers():
    s = space(logic=(0, 4))
    x = np.zeros(GENES)
    assert s.is_valid(x[None]).all()
    for gene, value in ((0, 1.1), (3, -0.1), (17, 1.5), (17, 9.0), (20, 1.0)):
        wrong = x.copy()
        wrong[gene] = value
        assert not s.is_valid(wrong[None]).any(), gene
    wrong = x.copy()
    wrong[7:14] = 0.2
    assert not s.is_valid(wrong[None]).any()


def test_the_known_fractions_give_out_every_budget_in_the_systems_proportions():
    reference = np.zeros(FRACTIONS)
    reference[:3] = 0.3, 0.1, 0.2
    s = DeepflowSpace(*gene_bounds({}), (Strategy(),), reference)
    assert np.allclose([s.known[g].sum() for g in CLASS_GENES], 1.0)
    assert s.known[0] / s.known[1] == pytest.approx(3.0)
    assert s.known[3] > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: space(**{"area.cores": (0, 1)}), "no gene 'area.cores'"),
        (lambda: space(tdp_w=(3, 2)), "the range of tdp_w is empty"),
        (lambda: space(**{f"area.{n}": (0.6, 0.6) for n in ("core", "L2")}), "sum to 1.2"),
        (lambda: enumerate_strategies(6, (4,)), "no strategy takes 6 devices"),
        (lambda: devices_of([Strategy.parse("d2"), Strategy.parse("d4")]), "equally many"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()
