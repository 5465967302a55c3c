import networkx
import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.package_space import (
    MohamSpace,
    reduce_dependencies,
    transform_table,
)
from mohsearch.testing.moham import random_dependencies, random_genomes, random_space


def valid_by_definition(space, x):
    order, mapping, slot, template, tile = (block.tolist() for block in space.view(x))
    n, m = space.n_layers, space.max_instances
    if sorted(order) != list(range(n)) or sorted(tile) != list(range(m)):
        return False
    for v in range(n):
        low, high = space.predecessor_offsets[v : v + 2]
        if any(order.index(p) > order.index(v) for p in space.predecessors[low:high]):
            return False
        if not 0 <= slot[v] < m or not 0 <= template[slot[v]] < space.n_templates:
            return False
        if not 0 <= mapping[v] < space.candidates[v, template[slot[v]]]:
            return False
    if space.fixed_templates is not None:
        return template == space.fixed_templates.tolist()
    return all(
        0 <= template[s] < space.n_templates if s in slot else template[s] == -1 for s in range(m)
    )


@pytest.mark.parametrize("fixed", [False, True])
def test_validity_is_what_its_definition_says(fixed):
    rng = np.random.default_rng(1)
    verdicts = []
    for _ in range(25):
        space = random_space(rng, fixed=fixed)
        X = random_genomes(space, rng, 12)
        assert space.is_valid(X).all()
        assert ((space.lower <= X) & (space.upper >= X)).all()
        for x in X[2:]:
            for gene in rng.integers(space.n_var, size=rng.integers(1, 3)):
                x[gene] += rng.integers(-2, 3)
            a, b = rng.integers(space.n_layers, size=2)
            if rng.random() < 0.5:
                x[[a, b]] = x[[b, a]]
        expected = [valid_by_definition(space, x) for x in X]
        assert space.is_valid(X).tolist() == expected
        verdicts += expected[2:]
    assert 0.05 < np.mean(verdicts) < 0.95


def test_genomes_far_outside_the_bounds_are_invalid_and_harmless():
    space = random_space(np.random.default_rng(2))
    for value in (-(2**40), -1, 2**40):
        X = np.tile(random_genomes(space, np.random.default_rng(3), 1), (space.n_var, 1))
        X[np.arange(space.n_var), np.arange(space.n_var)] = value
        allowed = [i for i, x in enumerate(X) if valid_by_definition(space, x)]
        assert np.flatnonzero(space.is_valid(X)).tolist() == allowed


def test_views_share_memory_with_the_genomes():
    space = random_space(np.random.default_rng(4))
    X = random_genomes(space, np.random.default_rng(4), 3)
    blocks = space.view(X)
    assert [b.shape[1] for b in blocks] == [space.n_layers] * 3 + [space.max_instances] * 2
    blocks.tile[0, 0] = 77
    assert X[0, -space.max_instances] == 77
    with pytest.raises(ValueError, match="genes"):
        space.view(X[:, 1:])


def test_mapping_rows_belong_to_the_layer_and_the_template_of_its_slot():
    rng = np.random.default_rng(5)
    space = random_space(rng)
    X = random_genomes(space, rng, 20).astype(np.int16)
    rows = space.rows_of(X)
    for x, found in zip(X, rows, strict=True):
        blocks = space.view(x)
        for v in range(space.n_layers):
            cell = space.unique_of_layer[v] * space.n_templates + blocks.template[blocks.slot[v]]
            assert space.offsets[cell] <= found[v] < space.offsets[cell + 1]


def test_dependencies_are_reduced_as_networkx_reduces_them():
    rng = np.random.default_rng(6)
    for _ in range(40):
        edges = random_dependencies(rng, int(rng.integers(1, 25)), width=0.5)
        graph = networkx.DiGraph((p, v) for v, before in enumerate(edges) for p in before)
        graph.add_nodes_from(range(len(edges)))
        expected = networkx.transitive_reduction(graph)
        reduced = reduce_dependencies(edges)
        found = {(p, v) for v, before in enumerate(reduced) for p in before}
        assert found == set(expected.edges)


def test_successors_are_the_predecessors_seen_from_the_other_end():
    space = random_space(np.random.default_rng(7), layers=30)

    def edges(offsets, ends):
        return [(v, int(e)) for v in range(30) for e in ends[offsets[v] : offsets[v + 1]]]

    forwards = edges(space.predecessor_offsets, space.predecessors)
    backwards = edges(space.successor_offsets, space.successors)
    assert sorted((p, v) for v, p in forwards) == sorted(backwards)


def test_the_transform_finds_the_nearest_mapping_of_the_same_layer():
    rng = np.random.default_rng(8)
    space = random_space(rng, unique=6, templates=3, most=7)
    templates = space.n_templates
    logs = np.log(space.features)
    for u in range(6):
        edges = space.offsets[u * templates : (u + 1) * templates + 1]
        block = logs[edges[0] : edges[-1]]
        spread = np.ptp(block, axis=0)
        for row in range(edges[0], edges[-1]):
            own = np.searchsorted(edges, row, side="right") - 1
            for t in range(templates):
                target = range(edges[t], edges[t + 1])
                if t == own:
                    assert space.transform[row, t] == row - edges[t]
                elif len(target) == 0:
                    assert space.transform[row, t] == -1
                else:
                    apart = [
                        sum(
                            ((logs[row, f] - logs[r, f]) / spread[f]) ** 2
                            for f in range(3)
                            if spread[f] > 0
                        )
                        for r in target
                    ]
                    assert apart[space.transform[row, t]] == pytest.approx(min(apart), abs=1e-12)


def test_twins_keep_their_own_index_and_a_constant_feature_does_not_matter():
    features = np.array([[1.0, 5, 2], [1, 5, 2], [1, 7, 2], [1, 6.9, 2], [1, 5.1, 2]])
    table = transform_table(np.array([0, 3, 5]), 2, features)
    assert table.tolist() == [[0, 1], [1, 1], [2, 0], [2, 0], [0, 1]]


def test_the_best_candidates_are_least_in_their_feature():
    space = random_space(np.random.default_rng(9), templates=3)
    for f, best in enumerate((space.fastest, space.least_energy, space.smallest)):
        for v in range(space.n_layers):
            for t in range(3):
                low, high = space.offsets[space.unique_of_layer[v] * 3 + t :][:2]
                if low == high:
                    assert best[v, t] == -1
                else:
                    column = space.features[low:high, f]
                    assert column[best[v, t]] == column.min()


ONE = np.ones((1, 3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0], [[0]], [0, 1], ONE), ValueError, "cycle"),
        (([0, 0], [[], [2]], [0, 1], ONE), ValueError, "predecessor is not one"),
        (([0, 0], [[]], [0, 1], ONE), ValueError, "predecessor lists"),
        (([], [], [0, 1], ONE), ValueError, "non-empty"),
        (([0], [[]], [0, 2], ONE), ValueError, "offsets"),
        (([1], [[]], [0, 1], ONE), ValueError, "cells"),
        (([0], [[]], [0, 1], -ONE), ValueError, "features"),
        (([0], [[]], [0, 0], ONE[:0]), InfeasibleError, "layer 0 has no mapping"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        MohamSpace.from_arrays(*arguments, templates=1)


def test_fixed_templates_bound_the_template_genes():
    space = random_space(np.random.default_rng(10), fixed=True)
    assert (space.view(space.lower).template == space.fixed_templates).all()
    assert (space.view(space.upper).template == space.fixed_templates).all()
    with pytest.raises(ValueError, match="fixed_templates"):
        MohamSpace.from_arrays([0], [[]], [0, 1], ONE, templates=1, fixed_templates=[0, 0, 3])


def test_a_layer_that_no_fixed_instance_can_run_is_infeasible():
    with pytest.raises(InfeasibleError, match="layer 1"):
        MohamSpace.from_arrays(
            [0, 1], [[], []], [0, 1, 2, 2, 3], np.ones((3, 3)),
            templates=2, max_instances=1, fixed_templates=[0],
        )  # fmt: skip
