"""Every operator turns valid packages into valid packages, and touches nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.operators import OPERATORS
from mohsearch.testing.contracts import check_repeats
from mohsearch.testing.moham import random_dependencies, random_genomes, random_space, random_table

CROSSOVERS = [
    "moham-scheduling-crossover",
    "moham-mapping-crossover",
    "moham-instance-crossover",
    "moham-keys-crossover",
]
MUTATIONS = [
    "moham-scheduling-mutation",
    "moham-mapping-mutation",
    "moham-assignment-mutation",
    "moham-splitting-mutation",
    "moham-merging-mutation",
    "moham-position-mutation",
    "moham-template-mutation",
    "moham-keys-mutation",
]
LAYERED = MUTATIONS[:3]
HARDWARE = [
    "moham-splitting-mutation",
    "moham-merging-mutation",
    "moham-template-mutation",
]


def problem_of(space: MohamSpace) -> SimpleNamespace:
    return SimpleNamespace(space=space, n_var=space.n_var, xl=space.lower, xu=space.upper)


def patchy_space(seed: int, unmappable: float = 0.6, **sizes: int) -> MohamSpace:
    """A space in which many layers have mappings on few templates only."""
    rng = np.random.default_rng(seed)
    layers, m = sizes.get("layers", 9), sizes.get("max_instances", 5)
    table = random_table(rng, unique=6, templates=4, most=4, unmappable=unmappable)
    features = np.column_stack([table.cycles, table.fixed_energy_pj, table.size_words.sum(axis=1)])
    return MohamSpace.from_arrays(
        rng.integers(6, size=layers),
        random_dependencies(rng, layers),
        table.offsets,
        features.astype(float),
        templates=4,
        max_instances=m,
    )


def spaces() -> dict[str, MohamSpace]:
    def rng() -> np.random.Generator:
        return np.random.default_rng(5)

    return {
        "usual": random_space(rng()),
        "patchy": patchy_space(1),
        "very patchy": patchy_space(2, 0.75, layers=14),
        "many slots": random_space(rng(), layers=3, max_instances=7),
        "one layer": random_space(rng(), layers=1, unique=1, max_instances=2),
        "one slot": random_space(rng(), templates=1, max_instances=1),
        "fixed hardware": random_space(rng(), fixed=True),
        "wide": random_space(rng(), layers=40, unique=9, max_instances=16, networks=40),
    }


SPACES = spaces()


def fault_of(space: MohamSpace, genome: np.ndarray) -> str | None:
    """Say what is wrong with a genome, in plain Python and from the raw genes."""
    n, m = space.n_layers, space.max_instances
    genes = [int(g) for g in genome]
    order, mapping, slot = genes[:n], genes[n : 2 * n], genes[2 * n : 3 * n]
    template, tile = genes[3 * n : 3 * n + m], genes[3 * n + m :]
    if sorted(order) != list(range(n)):
        return "order is no permutation"
    for layer in range(n):
        low, high = space.predecessor_offsets[layer : layer + 2]
        for before in space.predecessors[low:high]:
            if order.index(int(before)) > order.index(layer):
                return f"layer {layer} runs before layer {before}"
        if not 0 <= slot[layer] < m:
            return f"layer {layer} is on no slot"
        t = template[slot[layer]]
        if t == -1:
            return f"layer {layer} is on a slot without template"
        cell = int(space.unique_of_layer[layer]) * space.n_templates + t
        known = int(space.offsets[cell + 1] - space.offsets[cell])
        if not 0 <= mapping[layer] < known:
            return f"layer {layer} has no mapping {mapping[layer]} on template {t}"
    for s in range(m):
        if space.fixed_templates is not None:
            if template[s] != space.fixed_templates[s]:
                return f"slot {s} lost its fixed template"
        elif (template[s] >= 0) != (s in slot):
            return f"slot {s} has template {template[s]} and {slot.count(s)} layers"
        elif template[s] >= space.n_templates:
            return f"slot {s} has an unknown template"
    if sorted(tile) != list(range(m)):
        return "tile is no permutation"
    return None


def apply(name: str, space: MohamSpace, X: np.ndarray, rng: np.random.Generator, **options):
    operator = OPERATORS.load(name)(**options)
    if name in CROSSOVERS:
        pairs = X.reshape(2, len(X) // 2, -1)
        return operator._do(problem_of(space), pairs, random_state=rng).reshape(X.shape)
    return operator._do(problem_of(space), X, random_state=rng)


@pytest.mark.parametrize("name", [*CROSSOVERS, *MUTATIONS])
def test_a_hundred_thousand_applications_leave_every_child_valid(name):
    rng = np.random.default_rng(17)
    per_space = 100_000 // len(SPACES)
    applied = 0
    for label, space in SPACES.items():
        X = random_genomes(space, rng, 50)
        while applied < per_space * (1 + list(SPACES).index(label)):
            many = X[rng.integers(len(X), size=2 * (per_space // 10))]
            before = many.copy()
            children = apply(name, space, many, rng)
            assert np.array_equal(many, before), f"{label}: a parent was changed"
            assert children.dtype == np.int64
            bad = np.flatnonzero(~space.is_valid(children))
            assert not bad.size, f"{label}: {fault_of(space, children[bad[0]])}"
            for child in children[:5]:
                assert fault_of(space, child) is None, label
            applied += len(many) // (2 if name in CROSSOVERS else 1)
            X = children[rng.integers(len(children), size=50)]
    assert applied >= 100_000


@pytest.mark.parametrize("name", LAYERED)
def test_application_to_each_layer_leaves_every_child_valid(name):
    rng = np.random.default_rng(18)
    for label, space in SPACES.items():
        X = np.repeat(random_genomes(space, rng, 20), 25, axis=0)
        for rate in (0.01, 0.3, 1.0):
            X = apply(name, space, X, rng, layer_probability=rate)
            bad = np.flatnonzero(~space.is_valid(X))
            assert not bad.size, f"{label}: {fault_of(space, X[bad[0]])}"
            assert all(fault_of(space, x) is None for x in X[:20])


@pytest.mark.parametrize("name", [*CROSSOVERS, *MUTATIONS])
def test_a_seed_repeats_and_no_global_generator_moves(name):
    space = SPACES["usual"]
    X = random_genomes(space, np.random.default_rng(3), 200)
    check_repeats(lambda seed: apply(name, space, X, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", HARDWARE)
def test_operators_on_hardware_do_nothing_when_it_is_fixed(name):
    space = SPACES["fixed hardware"]
    X = random_genomes(space, np.random.default_rng(3), 100)
    assert np.array_equal(apply(name, space, X, np.random.default_rng(4)), X)


@pytest.mark.parametrize("name", [*CROSSOVERS[:3], *MUTATIONS[:7]])
def test_an_operator_changes_only_its_own_blocks(name):
    own = {
        "moham-scheduling-crossover": {"order"},
        "moham-scheduling-mutation": {"order"},
        "moham-mapping-crossover": {"mapping"},
        "moham-mapping-mutation": {"mapping"},
        "moham-position-mutation": {"tile"},
        "moham-assignment-mutation": {"mapping", "slot", "template"},
        "moham-merging-mutation": {"mapping", "slot", "template"},
        "moham-template-mutation": {"mapping", "slot", "template"},
        "moham-splitting-mutation": {"slot", "template", "tile"},
        "moham-instance-crossover": {"mapping", "slot", "template", "tile"},
    }
    space = SPACES["very patchy"]
    X = random_genomes(space, np.random.default_rng(3), 500)
    children = apply(name, space, X, np.random.default_rng(4))
    old, new = space.view(X)._asdict(), space.view(children)._asdict()
    changed = {block for block in old if not np.array_equal(old[block], new[block])}
    assert changed == own[name]


def test_under_fixed_hardware_the_other_operators_leave_the_templates_alone():
    own = {
        "moham-scheduling-crossover": {"order"},
        "moham-scheduling-mutation": {"order"},
        "moham-mapping-crossover": {"mapping"},
        "moham-mapping-mutation": {"mapping"},
        "moham-position-mutation": {"tile"},
        "moham-assignment-mutation": {"mapping", "slot"},
        "moham-instance-crossover": {"mapping", "slot"},
        "moham-keys-crossover": {"order", "mapping", "slot", "tile"},
        "moham-keys-mutation": {"order", "mapping", "slot", "tile"},
    }
    assert {*own, *HARDWARE} == {*CROSSOVERS, *MUTATIONS}
    space = SPACES["fixed hardware"]
    X = random_genomes(space, np.random.default_rng(3), 500)
    for name, blocks in own.items():
        children = apply(name, space, X, np.random.default_rng(4))
        old, new = space.view(X)._asdict(), space.view(children)._asdict()
        assert {b for b in old if not np.array_equal(old[b], new[b])} == blocks, name


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_a_layer_probability_outside_its_range_is_refused(rate):
    with pytest.raises(ValueError, match="layer_probability"):
        OPERATORS.load("moham-mapping-mutation")(layer_probability=rate)
