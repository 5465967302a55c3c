"""Every operator turns valid deepflow designs into valid ones, and touches nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.design_space import (
    CLASS_GENES,
    FRACTIONS,
    G_LOGIC,
    G_MEMORY,
    G_NODE_AREA,
    G_ORDER,
    G_STACKS,
    G_STRATEGY,
    G_TDP,
    GENES,
    WHOLE,
    DeepflowSpace,
    enumerate_strategies,
    gene_bounds,
)
from mohsearch.evaluators.crossflow.evaluate import Strategy
from mohsearch.operators import OPERATORS
from mohsearch.operators.deepflow_sampling import combinations
from mohsearch.operators.portfolio import load_ladder, load_portfolio
from mohsearch.testing.contracts import check_repeats

NAMES = [name for name in OPERATORS.names() if name.startswith("deepflow-")]
SAMPLINGS = ["deepflow-dirichlet", "deepflow-balanced", "deepflow-percentages"]
GRID = "deepflow-every-combination"
CROSSOVERS = [name for name in NAMES if name.endswith("crossover")]
MUTATIONS = [n for n in NAMES if n not in {*SAMPLINGS, GRID, *CROSSOVERS}]


def space_of(strategies=None, devices=12, **ranges) -> DeepflowSpace:
    usual = {
        "logic": (0, 3), "memory": (0, 2), "network": (0, 1), "tdp_w": (100, 700),
        "node_area_mm2": (600, 2000), "mapping_order": (0, 23), "extra_stacks": (0, 3),
    }  # fmt: skip
    chosen = strategies or enumerate_strategies(devices, (1, 4))
    bounds = {**usual, "strategy": (0, len(chosen) - 1), **ranges}
    return DeepflowSpace(*gene_bounds(bounds), chosen)


NOTHING = {
    "logic": (0, 0), "memory": (0, 0), "network": (0, 0), "tdp_w": (300, 300),
    "node_area_mm2": (900, 900), "mapping_order": (-1, -1), "extra_stacks": (0, 0),
}  # fmt: skip
SPACES = {
    "everything varies": space_of(),
    "fractions only": space_of((Strategy.parse("d8"),), **NOTHING),
    "some links absent": space_of(
        **{f"{kind}.intra": (0, 0) for kind in ("area", "power", "perimeter")}
    ),
    "part of the area given": space_of(**{"area.core": (0.4, 0.4), "area.L2": (0.25, 0.25)}),
    "one class fixed": space_of(
        **{f"perimeter.{n}": (v, v) for n, v in (("DRAM", 0.5), ("inter", 0.5), ("intra", 0.0))}
    ),
}


def problem_of(space: DeepflowSpace) -> SimpleNamespace:
    return SimpleNamespace(space=space, n_var=GENES, xl=space.lower, xu=space.upper)


def draw(space: DeepflowSpace, count: int, rng: np.random.Generator, name="deepflow-dirichlet"):
    options = {"unspent": 0.3} if name == "deepflow-dirichlet" else {}
    return OPERATORS.load(name)(**options)._do(problem_of(space), count, random_state=rng)


def fault_of(space: DeepflowSpace, x: np.ndarray) -> str | None:
    """Say what is wrong with a design, gene by gene and without the space's own check."""
    for gene in range(GENES):
        if not space.lower[gene] - 1e-9 <= x[gene] <= space.upper[gene] + 1e-9:
            return f"gene {gene} is {x[gene]}, outside its bounds"
        if space.lower[gene] == space.upper[gene] and x[gene] != space.lower[gene]:
            return f"gene {gene} is fixed and was changed"
    for gene in WHOLE:
        if x[gene] != int(x[gene]):
            return f"gene {gene} is no whole number"
    for name, genes in zip(("area", "power", "perimeter"), CLASS_GENES, strict=True):
        if sum(x[genes]) > 1 + 1e-9:
            return f"the fractions of {name} sum to {sum(x[genes])}"
        if min(x[genes]) < 0:
            return f"a fraction of {name} is negative"
    strategy = space.strategies[int(x[G_STRATEGY])]
    counts = {s.devices for s in space.strategies}
    return None if {strategy.devices} == counts else "the strategy takes other devices"


def apply(name: str, space: DeepflowSpace, X: np.ndarray, rng: np.random.Generator):
    operator = OPERATORS.load(name)()
    refusal = getattr(operator, "refusal", None)
    if refusal is not None and refusal(problem_of(space)):
        return None
    if name in CROSSOVERS:
        pairs = X.reshape(2, len(X) // 2, -1)
        return operator._do(problem_of(space), pairs, random_state=rng).reshape(X.shape)
    return operator._do(problem_of(space), X, random_state=rng)


@pytest.mark.parametrize("name", [*CROSSOVERS, *MUTATIONS])
def test_tens_of_thousands_of_applications_leave_every_child_valid(name):
    rng = np.random.default_rng(3)
    for label, space in SPACES.items():
        X = draw(space, 400, rng)
        for _ in range(25):
            before = X.copy()
            children = apply(name, space, X, rng)
            if children is None:
                break
            assert np.array_equal(X, before), f"{label}: a parent was changed"
            good = space.is_valid(children)
            bad = np.flatnonzero(~good)
            assert not bad.size, f"{label}: {fault_of(space, children[bad[0]])}"
            for child in children[:10]:
                assert fault_of(space, child) is None, label
            X = children


@pytest.mark.parametrize("name", [*SAMPLINGS, GRID])
def test_samples_are_valid_and_use_the_whole_space(name):
    for label, space in SPACES.items():
        X = draw(space, 500, np.random.default_rng(1), name)
        assert all(fault_of(space, x) is None for x in X[:50]), label
        assert space.is_valid(X).all(), label
        for gene in (G_LOGIC, G_MEMORY, G_STACKS):
            if space.free[gene] and name != GRID:
                assert len(np.unique(X[:, gene])) == space.upper[gene] + 1, (label, gene)


def test_the_grid_goes_through_every_combination_once():
    space = space_of(mapping_order=(-1, -1), extra_stacks=(0, 0), devices=4)
    count = combinations(space)
    assert count == 4 * 3 * 2 * len(space.strategies)
    X = draw(space, count, np.random.default_rng(5), GRID)
    assert len(np.unique(X[:, WHOLE], axis=0)) == count
    assert (X[:, :FRACTIONS] == X[0, :FRACTIONS]).all()


def test_the_dirichlet_sampling_is_uniform_on_the_simplex():
    space = SPACES["fractions only"]
    X = OPERATORS.load("deepflow-dirichlet")()._do(
        problem_of(space), 20_000, random_state=np.random.default_rng(0)
    )
    share = X[:, CLASS_GENES[0]]
    assert np.allclose(share.sum(axis=1), 1.0)
    # moments of a uniform point of the simplex of seven shares
    assert np.allclose(share.mean(axis=0), 1 / 7, atol=3e-3)
    assert np.allclose(share.var(axis=0), 6 / (49 * 8), rtol=0.06)


def changed(name: str, space: DeepflowSpace, count=2000):
    rng = np.random.default_rng(7)
    X = draw(space, count, rng)
    children = apply(name, space, X, rng)
    return X, children, np.abs(children - X) > 1e-15


@pytest.mark.parametrize(
    ("name", "genes"),
    [
        ("deepflow-strategy", [G_STRATEGY]),
        ("deepflow-order", [G_ORDER]),
        ("deepflow-budget", [G_TDP, G_NODE_AREA]),
        ("deepflow-technology", [17, 18, 19, G_STACKS]),
        ("deepflow-transfer", range(FRACTIONS)),
        ("deepflow-scale", range(FRACTIONS)),
        ("deepflow-jitter", range(FRACTIONS)),
        ("deepflow-spend", range(FRACTIONS)),
    ],
)
def test_a_mutation_changes_what_it_is_named_for_and_nothing_else(name, genes):
    _, _, where = changed(name, SPACES["everything varies"])
    others = np.setdiff1d(np.arange(GENES), list(genes))
    assert not where[:, others].any()
    assert where.any(axis=1).mean() > 0.9


def test_a_transfer_moves_between_exactly_two_components_and_keeps_the_sum():
    X, children, where = changed("deepflow-transfer", SPACES["everything varies"])
    assert (where.sum(axis=1) <= 2).all()
    for genes in CLASS_GENES:
        assert np.allclose(X[:, genes].sum(axis=1), children[:, genes].sum(axis=1), atol=1e-12)


@pytest.mark.parametrize("name", ["deepflow-scale", "deepflow-jitter"])
def test_scaling_shares_keeps_the_sum_of_every_budget(name):
    X, children, _ = changed(name, SPACES["everything varies"])
    for genes in CLASS_GENES:
        assert np.allclose(X[:, genes].sum(axis=1), children[:, genes].sum(axis=1), atol=1e-12)


def test_spending_keeps_the_proportions_within_a_budget():
    X, children, _ = changed("deepflow-spend", SPACES["everything varies"])
    for genes in CLASS_GENES:
        before = X[:, genes] / X[:, genes].sum(axis=1, keepdims=True)
        after = children[:, genes] / children[:, genes].sum(axis=1, keepdims=True)
        assert np.allclose(before, after)
    full = [np.isclose(children[:, g].sum(axis=1), 1.0).mean() for g in CLASS_GENES]
    assert min(full) > 0.1


def test_a_strategy_move_changes_a_factor_between_dimensions_or_the_kind():
    space = SPACES["everything varies"]
    X, children, _ = changed("deepflow-strategy", space)
    for a, b in zip(X[:200, G_STRATEGY], children[:200, G_STRATEGY], strict=True):
        old, new = space.strategies[int(a)], space.strategies[int(b)]
        pairs = zip(
            (old.kp1, old.kp2, old.dp, old.lp), (new.kp1, new.kp2, new.dp, new.lp), strict=True
        )
        differing = sum(x != y for x, y in pairs)
        assert old != new
        assert differing == 2 or (differing == 0 and old.kind != new.kind)


def test_blended_children_of_equal_parents_are_the_parents():
    space = SPACES["everything varies"]
    X = draw(space, 50, np.random.default_rng(2))
    twins = np.concatenate([X, X])
    children = apply("deepflow-blend-crossover", space, twins, np.random.default_rng(9))
    assert np.allclose(children, twins)


def test_a_blend_weighs_every_class_by_itself_unless_together():
    space = SPACES["everything varies"]
    rng = np.random.default_rng(10)
    X = draw(space, 40, rng)
    pairs = np.stack([X[:20], X[20:]])
    for together, distinct in ((True, False), (False, True)):
        operator = OPERATORS.load("deepflow-blend-crossover")(beyond=0.0, together=together)
        child = operator._do(problem_of(space), pairs, random_state=np.random.default_rng(11))[0]
        weights = [
            (child[:, g] - pairs[0][:, g]) / (pairs[1][:, g] - pairs[0][:, g])
            for g in (CLASS_GENES[0].start, CLASS_GENES[1].start, G_TDP)
        ]
        assert np.allclose(weights[0], weights[1]) != distinct
        assert np.allclose(weights[0], weights[2]) != distinct


def test_exchanged_blocks_are_whole_and_nothing_is_lost():
    space = SPACES["everything varies"]
    rng = np.random.default_rng(4)
    X = draw(space, 400, rng)
    children = apply("deepflow-block-crossover", space, X, rng)
    first, second = X[:200], X[200:]
    a, b = children[:200], children[200:]
    assert np.array_equal(np.sort([a, b], axis=0), np.sort([first, second], axis=0))
    own = np.stack([(a[:, g] == first[:, g]).all(axis=1) for g in CLASS_GENES], axis=1)
    swapped = np.stack([(a[:, g] == second[:, g]).all(axis=1) for g in CLASS_GENES], axis=1)
    assert (own | swapped).all()


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        ("deepflow-strategy", "fractions only", "the strategy is fixed"),
        ("deepflow-order", "fractions only", "the mapping order is fixed"),
        ("deepflow-technology", "fractions only", "the technology is fixed"),
        ("deepflow-budget", "fractions only", "power and area are fixed"),
    ],
)
def test_an_operator_that_cannot_act_says_why(name, space, message):
    assert OPERATORS.load(name).refusal(problem_of(SPACES[space])) == message
    portfolio = load_portfolio("deepflow")
    with pytest.raises(InputError, match=r"cannot be used here.*switch off"):
        portfolio.build(problem_of(SPACES[space]))
    assert portfolio.applicable(problem_of(SPACES[space])).build(problem_of(SPACES[space]))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("deepflow-dirichlet", {"alpha": 0.0}),
        ("deepflow-dirichlet", {"unspent": 2.0}),
        ("deepflow-balanced", {"spread": -1.0}),
        ("deepflow-transfer", {"finest": 0.0}),
        ("deepflow-blend-crossover", {"beyond": -1.0}),
    ],
)
def test_senseless_settings_are_refused(name, options):
    with pytest.raises(ValueError, match="must"):
        OPERATORS.load(name)(**options)


@pytest.mark.parametrize("name", [*CROSSOVERS, *MUTATIONS])
def test_a_seed_repeats_an_operator_exactly(name):
    space = SPACES["everything varies"]
    X = draw(space, 100, np.random.default_rng(0))
    check_repeats(lambda seed: apply(name, space, X, np.random.default_rng(seed)))


def test_the_ladder_switches_every_operator_of_the_default_portfolio_off_once():
    steps = load_ladder("deepflow", "ablation")
    varying = steps[0].names("crossover", "mutation")
    assert [step.label for step in steps[1:]] == [f"simplex without {n}" for n in varying]
