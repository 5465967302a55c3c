"""The deepflow problem: what a genome means, what is feasible, what is proven."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.design_space import (
    CLASS_GENES,
    FRACTIONS,
    G_LOGIC,
    G_MEMORY,
    G_NODE_AREA,
    G_STACKS,
    G_STRATEGY,
    G_TDP,
)
from mohsearch.evaluators.crossflow.evaluate import AUTHORS, CORRECTED, Lstm, Strategy, evaluate
from mohsearch.evaluators.crossflow.layout import A_AREA, A_CHIP_AREA, A_NODE_AREA
from mohsearch.evaluators.crossflow.transformer import Transformer
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.deepflow import NO_COST_USD, NO_TIME_S, build, product_flop
from mohsearch.problems.deepflow_options import DeepflowOptions
from mohsearch.problems.deepflow_workloads import iteration_names, load_iteration
from mohsearch.testing.contracts import check_problem

SMALL = {"devices": 8, "nodes_per_package": 1}
WIDE = {
    **SMALL,
    "logic": ["N12", "N7", "N5"],
    "memory": ["HBM2", "HBM2e"],
    "network": ["NDR_x8", "GDR_x8"],
    "tdp_w": [150, 500],
    "node_area_mm2": [700, 1600],
    "extra_stacks": [0, 3],
}


def sampled(problem, count=40, seed=0, portfolio="simplex"):
    variation = load_portfolio("deepflow", portfolio).applicable(problem).build(problem)
    X = variation.sampling(problem, count, random_state=np.random.default_rng(seed)).get("X")
    return np.asarray(X)


@pytest.fixture(scope="module")
def wide():
    return build(WIDE, "lm_tiny")


@pytest.mark.parametrize("compat", ["none", "deepflow"])
def test_the_problem_keeps_its_promises_with_either_model(compat):
    problem = build({**WIDE, "compat": compat}, "lm_tiny")
    check_problem(problem, sampled(problem, 60))


def test_a_product_keeps_its_promises_too():
    problem = build({"devices": 4, "logic": ["N12", "N7"]}, "gemm_16k", objectives=["time_s"])
    X = sampled(problem, 40)
    check_problem(problem, X)
    assert {s.lp for s in problem.space.strategies} == {1}


def test_times_are_those_of_the_evaluator_called_by_hand():
    problem = build({**SMALL, "strategies": "CR-2-d4", "mapping": "best"}, "lm_tiny")
    X = sampled(problem, 20)
    values = problem.metrics(X)
    rows = np.tile(problem.setup.allocation, (20, 1))
    rows[:, A_AREA:] = X[:, :FRACTIONS]
    # a tenth of a gigabyte: one stack of 100 mm2, and the die takes the rest up to the reticle
    rows[:, A_CHIP_AREA] = min(1230.0 - 100.0, 858.0)
    by_hand = evaluate(
        problem.technologies[0].row, rows, Lstm(256, 4096, 2, 512, 4), Strategy.parse("CR-2-d4"),
        place=_place(8, 2), energy=True,
    )  # fmt: skip
    runs = values["missing_parts"] == 0
    assert runs.sum() > 10
    assert np.allclose(values["time_s"][runs], by_hand.time_s[runs], rtol=1e-12)
    assert np.allclose(values["energy_j"][runs], by_hand.energy_j[runs], rtol=1e-12)
    assert np.isinf(by_hand.time_s[~runs]).all()
    assert (values["time_s"][~runs] == NO_TIME_S).all()


def _place(devices, shared):
    from mohsearch.evaluators.crossflow.evaluate import place_row

    # two rings (kernel and data) leave each device over one port
    return place_row(devices, inter_derate=shared)


def test_the_authors_configuration_takes_the_time_that_their_program_printed():
    shared = {"devices": 64, "compat": "deepflow", "inter_derate": 1.0, "chip_area_mm2": "system"}
    problem = build(
        {**shared, "strategies": "RC-1-16-d4", "memory_limit": "ignored", "fractions": "system"},
        "lm_case_study_4k",
    )
    x = problem.space.lower[None]
    assert problem.metrics(x)["time_s"][0] == pytest.approx(11.331, abs=1e-3)


def test_more_than_a_budget_is_reported_not_hidden(wide):
    x = sampled(wide, 1)
    x[:, CLASS_GENES[1]] *= 1.3 / x[:, CLASS_GENES[1]].sum()
    values = wide.metrics(x)
    assert values["budget_excess"][0] == pytest.approx(0.3)
    assert values["memory_excess"][0] < 0


def test_too_little_memory_is_infeasible_unless_it_is_ignored():
    options = {"devices": 8, "strategies": "d8", "chip_area_mm2": "system", "tdp_w": 300}
    hard = build(options, "lm_case_study_4k")
    ignored = build({**options, "memory_limit": "ignored"}, "lm_case_study_4k")
    x = sampled(hard, 10, portfolio="fractions")
    values, free = hard.metrics(x), ignored.metrics(x)
    runs = values["missing_parts"] == 0
    need = hard.need_bytes[0]
    assert need > 17.2e9
    assert (values["memory_bytes"] == need).all()
    assert (values["memory_excess"][runs] > 0).all()
    assert (values["headroom_bytes"][runs] < 0).all()
    assert (free["memory_excess"] == 0).all()
    assert np.array_equal(values["time_s"], free["time_s"])


def test_the_die_is_the_rest_of_the_node_beside_the_stacks_that_memory_needs():
    problem = build(
        {"devices": 8, "strategies": ["d8", "RC-2-4"], "extra_stacks": [0, 2], "reticle_mm2": None,
         "node_area_mm2": [800, 2500], "memory": ["HBM2", "HBM2e"]},
        "lm_4k",
    )  # fmt: skip
    X = sampled(problem, 30)
    rows = problem.points(X).allocation
    stack_bytes = np.where(X[:, G_MEMORY] == 0, 4 * 2**30, 16 * 2**30)
    stack_mm2 = np.where(X[:, G_MEMORY] == 0, 100.0, 110.0)
    need = problem.need_bytes[X[:, G_STRATEGY].astype(int)]
    stacks = -(-need // stack_bytes) + X[:, G_STACKS]
    expected = np.maximum(X[:, G_NODE_AREA] - stacks * stack_mm2, 0.0)
    assert np.allclose(rows[:, A_CHIP_AREA], expected, rtol=1e-9)
    assert (rows[:, A_NODE_AREA] == X[:, G_NODE_AREA]).all()
    capped = build({"devices": 8, "node_area_mm2": 2000}, "lm_tiny")
    assert capped.points(sampled(capped, 5)).allocation[:, A_CHIP_AREA].max() == 858.0


def test_no_design_beats_the_ideal_point_and_a_die_of_cores_comes_near_it():
    problem = build({"devices": 1, "strategies": "d1", "logic": ["N12", "N7"]}, "gemm_16k")
    ideal = problem.ideal_point()
    X = sampled(problem, 400)
    values = problem.metrics(X)
    assert (values["time_s"] >= ideal["time_s"]).all()
    assert (values["energy_j"] >= ideal["energy_j"]).all()
    assert (values["throughput_per_s"] <= ideal["throughput_per_s"]).all()
    flop, samples = product_flop(problem.workload)
    assert (flop, samples) == (2.0 * 16384**3, 1.0)
    assert values["time_s"].min() < 20 * ideal["time_s"]


def test_the_operations_behind_the_ideal_are_the_fewest_of_all_strategies():
    problem = build({"devices": 12, "logic": ["N7"]}, "lm_tiny")
    X = np.tile(problem.space.lower, (len(problem.space.strategies), 1))
    X[:, :FRACTIONS] = problem.space.known
    X[:, G_STRATEGY] = np.arange(len(X))
    from mohsearch.evaluators.crossflow.design_points import evaluate_points

    found = evaluate_points(problem.points(X), problem.workload, problem.point_options)
    least, _ = product_flop(problem.workload)
    done = found.flop[np.isfinite(found.time_s)]
    assert done.size > 5
    assert (done >= least).all()


def test_a_better_node_and_a_larger_budget_are_never_slower(wide):
    X = sampled(wide, 60)
    X[:, [G_LOGIC, G_STACKS]] = 0
    X[:, G_TDP], X[:, G_NODE_AREA] = 200, 1000
    base = wide.metrics(X)["time_s"]
    for gene, value in ((G_LOGIC, 1), (G_LOGIC, 2), (G_TDP, 400), (G_NODE_AREA, 1150)):
        better = X.copy()
        better[:, gene] = value
        assert (wide.metrics(better)["time_s"] <= base * (1 + 1e-9)).all(), gene


def test_a_design_says_in_words_what_the_genome_holds(wide):
    x = sampled(wide, 1, seed=3)[0]
    design = json.loads(json.dumps(wide.decode(x)))
    assert design["technology"]["logic"] == ["N12", "N7", "N5"][int(x[G_LOGIC])]
    assert Strategy.parse(design["strategy"]).devices == design["devices"] == 8
    assert design["budgets"]["tdp_w"] == x[G_TDP]
    for name, genes in zip(("area", "power", "perimeter"), CLASS_GENES, strict=True):
        shares = design["fractions"][name]
        assert sum(shares.values()) == pytest.approx(1.0)
        assert shares["unspent"] == pytest.approx(max(1 - x[genes].sum(), 0))
    assert design["metrics"]["time_s"] == wide.metrics(x[None])["time_s"][0]
    assert design["chip"]["area_used_mm2"] <= design["budgets"]["chip_area_mm2"] * (1 + 1e-9)
    assert design["chip"]["power_used_w"] <= design["budgets"]["tdp_w"] * (1 + 1e-9)


def test_the_independent_variables_reach_valid_genomes_and_the_systems_fractions(wide):
    box = wide.box()
    rng = np.random.default_rng(1)
    Z = rng.uniform(box.lower, box.upper, (300, len(box.names)))
    X = box.genomes(Z)
    assert wide.space.is_valid(X).all()
    for part in wide.space.classes:
        assert np.allclose(X[:, part.genes].sum(axis=1), part.total)
    start = box.genomes(box.start[None])[0]
    assert np.allclose(start[:FRACTIONS], wide.space.known, atol=0.02)
    assert (box.step > 0).all()
    assert len(box.names) == len(set(box.names)) == len(box.kinds)


def test_links_that_the_system_lacks_get_nothing():
    alone = build({"devices": 1}, "lm_tiny").space
    spread = build({"devices": 8}, "lm_tiny").space
    packed = build({"devices": 8, "nodes_per_package": 8}, "lm_tiny").space
    mixed = build({"devices": 8, "nodes_per_package": 2}, "lm_tiny").space
    free = [[len(part.genes) for part in s.classes] for s in (alone, spread, packed, mixed)]
    assert free == [[5, 5], [6, 6, 2], [6, 6, 2], [7, 7, 3]]
    # with one user of the edge there is nothing to share out
    assert alone.lower[14] == alone.upper[14] == 1.0


def test_switches_reach_the_evaluator():
    authors = DeepflowOptions(
        compat="deepflow", link_release="held", element_wise_traffic="main-memory",
        tile_candidates=30,
    )  # fmt: skip
    expected = replace(AUTHORS, links_kept=True, pass_level=3, candidates=30, choose_bundles=True)
    assert replace(authors.model(), choose_bundles=True) == expected
    assert DeepflowOptions().model() == CORRECTED
    assert not DeepflowOptions(choose_bundles=False).model().choose_bundles


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategies": "d4"}, "d4 takes 4 devices, not 8"),
        ({"strategies": "kp-3"}, "is no strategy such as"),
        ({"tdp_w": [300, 200]}, "the range 300 to 200 is empty"),
        ({"fixed_fractions": {"area.cores": 0.2}}, "no fraction 'area.cores'"),
        ({"fixed_fractions": {"area.core": 0.7, "area.L2": 0.6}}, "sum to 1.3"),
        ({"extra_stacks": [0, 2], "chip_area_mm2": 800}, "needs chip_area_mm2: rest"),
        ({"logic": ["N6"]}, "N6"),
        ({"system": "A40"}, "no CrossFlow allocation"),
        ({"tile_candidates": 10}, "compat: deepflow only"),
        ({"inter_topology": "star"}, "inter_topology"),
        ({"devices": 8, "pipeline_stages": [3]}, "no strategy takes 8 devices"),
    ],
)
def test_a_wrong_option_is_answered_in_one_sentence(options, message):
    with pytest.raises(InputError, match=message):
        build(options, "lm_tiny")


def test_a_memory_without_a_known_price_is_no_matter_unless_cost_is_an_objective():
    problem = build({"system": "P4", "devices": 1}, "gemm_16k", objectives=["time_s"])
    values = problem.metrics(sampled(problem, 5, portfolio="fractions"))
    assert all(np.isfinite(column).all() for column in values.values())
    assert (values["cost_usd"] == NO_COST_USD).all()
    with pytest.raises(InputError, match="no price of memory is known for P4"):
        build({"system": "P4", "devices": 1}, "gemm_16k")


def test_genomes_that_mean_nothing_are_refused(wide):
    x = sampled(wide, 2)
    for gene, value, message in (
        (0, -0.1, "must not be negative"),
        (G_LOGIC, 0.5, "no whole number in its range"),
        (G_LOGIC, 9.0, "no whole number in its range"),
        (3, np.nan, "finite"),
    ):
        wrong = x.copy()
        wrong[1, gene] = value
        with pytest.raises(ValueError, match=message):
            wide.metrics(wrong)
    with pytest.raises(ValueError, match="25 genes, got 3"):
        wide.metrics(np.zeros((2, 3)))


@pytest.mark.parametrize("name", iteration_names())
def test_every_iteration_on_the_shelf_loads(name):
    loaded = load_iteration(name)
    if isinstance(loaded, Transformer):
        assert loaded.batch_size > 0
    else:
        assert loaded.row.shape == (6,)


def test_a_workload_card_with_a_wrong_kind_is_refused(tmp_path):
    card = tmp_path / "mine.yaml"
    card.write_text("kind: gru\nbatch_size: 3\nsource: me\n")
    with pytest.raises(InputError, match="must be one of lstm, gemm"):
        load_iteration(str(card))
    with pytest.raises(InputError, match=r"iteration 'lm_tinny'.*lm_tiny"):
        load_iteration("lm_tinny")


def test_the_digest_changes_with_what_the_metrics_depend_on():
    base = build(SMALL, "lm_tiny").digest()
    assert base == build(SMALL, "lm_tiny").digest()
    changes = [
        build({**SMALL, "logic": "N7"}, "lm_tiny"),
        build({**SMALL, "compat": "deepflow"}, "lm_tiny"),
        build({**SMALL, "tdp_w": 299}, "lm_tiny"),
        build(SMALL, "lm_4k"),
    ]
    assert len({base, *(p.digest() for p in changes)}) == 5
