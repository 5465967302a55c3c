"""The phaze problem: metrics, constraints, bounds, options, and the proof of a whole space."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine
from mohsearch.operators.phaze_crossover import random_designs
from mohsearch.problems.phaze import NOT_PLACED, build
from mohsearch.problems.phaze_options import PAPER, PhazeOptions
from mohsearch.workloads.training_sets import load_models

SMALL = {
    "tensor_cores": [1, 4, 16, 64],
    "vector_cores": [2, 16, 128],
    "widths": [64, 256],
    "depths": [32, 128],
    "global_buffers_mib": [8, 64],
    "microbatches": [2, 8],
    "hbm_gib": [1, 8],
    "recompute": ["none", "full"],
    "tensor_parallel": [1, 2],
    "devices": 64,
    "global_batch": 256,
    "network_gb_per_s": 25.0,
    "schedule_states": 64,
}
FRONT = ("throughput_samples_per_s", "area_mm2", "energy_j", "hbm_bytes")


@pytest.fixture(scope="module")
def problem():
    return build(SMALL, "bert-base")


def all_values(problem):
    X = problem.designs()
    return X, problem.metrics(X)


def search(problem, engine, population, **options):
    archive = Archive(problem)
    made = make_engine(
        ENGINES.load(engine),
        problem,
        SimpleNamespace(),
        options=options,
        population=population,
        seed=1,
        seen=archive.index,
    )
    found = Search(problem, made, archive, Budget(population, 10_000))
    list(found.generations())
    return found


@pytest.mark.parametrize("objectives", [FRONT[:1], FRONT])
def test_the_exhaustive_engine_proves_what_plain_enumeration_finds(objectives):
    problem = build(SMALL, "bert-base", objectives=objectives)
    X, values = all_values(problem)
    fits = (values["unplaced"] == 0) & (values["area_excess_mm2"] == 0)
    F = np.column_stack([values[name] for name in objectives])[fits] * problem.signs
    best = [not ((F <= row).all(1) & (F < row).any(1)).any() for row in F]
    found = search(problem, "exhaustive", 16)
    report = found.engine.report()
    assert report["complete"]
    assert report["designs"] == len(X) == problem.grid.size
    assert report["evaluated"] < len(X)
    front = found.archive.objectives(found.archive.front())
    assert np.allclose(np.unique(F[best], axis=0), np.unique(front, axis=0), rtol=1e-12)
    proven = report["proven_value"]["throughput_samples_per_s"]
    assert proven >= values["throughput_samples_per_s"][fits].max()


def test_schedules_left_open_leave_a_bound_beside_the_best_throughput():
    coarse = SMALL | {"schedule_gap": 0.9, "microbatches": [2], "hbm_gib": [8]}
    open_one = build(coarse, "bert-base", objectives=FRONT[:1])
    found = search(open_one, "exhaustive", 16)
    report = found.engine.report()
    assert report["complete"]
    assert report["status"] == "feasible"
    name = "throughput_samples_per_s"
    gap = report["gap"][name]
    assert 0 < gap < 0.5
    assert report["proven_value"][name] == pytest.approx((1 + gap) * report["found"][name])
    closed = search(
        build(coarse | {"schedule_gap": 0.0}, "bert-base", objectives=FRONT[:1]), "exhaustive", 16
    ).engine.report()
    assert report["found"][name] <= closed["found"][name] <= report["proven_value"][name]
    X = open_one.designs()[:40]
    open_one.metrics(X)
    again = build(coarse, "bert-base", objectives=FRONT[:1])
    assert np.array_equal(open_one.gaps(X), again.gaps(X))  # known without having evaluated them
    assert (again.gaps(X) > 0).any()


def test_open_schedules_leave_area_and_memory_alone_and_bound_the_energy_they_may_save():
    coarse = SMALL | {"schedule_gap": 0.9, "microbatches": [2], "hbm_gib": [8]}
    open_one = build(coarse, "bert-base", objectives=FRONT)
    closed = build(coarse | {"schedule_gap": 0.0}, "bert-base", objectives=FRONT)
    X = open_one.designs()[:60]
    rough, fine = open_one.metrics(X), closed.metrics(X)
    gaps = dict(zip(FRONT, open_one.gaps(X).T, strict=True))
    assert (gaps["throughput_samples_per_s"] > 0).any()
    assert not gaps["area_mm2"].any()
    assert not gaps["hbm_bytes"].any()
    assert (fine["energy_j"] >= (1 - gaps["energy_j"]) * rough["energy_j"] * (1 - 1e-12)).all()
    faster = fine["throughput_samples_per_s"] * (1 - gaps["throughput_samples_per_s"])
    assert (faster <= rough["throughput_samples_per_s"] * (1 + 1e-12)).all()


def test_every_bound_holds_for_every_design(problem):
    X, values = all_values(problem)
    fits = values["unplaced"] == 0
    assert 0 < fits.sum() < len(X)
    for _, tier in problem.optimistic_tiers():
        bounds = tier(X)
        assert (bounds["unplaced"] <= values["unplaced"]).all()
        for card in problem.card.metrics:
            sign = 1.0 if card.sense == "min" else -1.0
            slack = 1e-9 * np.abs(values[card.name])
            worse = sign * (bounds[card.name] - values[card.name]) <= slack
            assert worse[fits].all(), card.name


def test_exploration_visits_every_design_by_falling_area_bins(problem):
    X, number, bins = problem.exploration()
    assert {tuple(row) for row in X.tolist()} == {tuple(row) for row in problem.designs().tolist()}
    assert len(np.unique(number)) == 8
    for s in np.unique(number):
        mine = X[number == s]
        assert len(np.unique(mine[:, 5:], axis=0)) == 1
        area = problem.grid.area_mm2[tuple(mine[:, :5].T)]
        assert np.array_equal(np.floor(area * 100).astype(int), -bins[number == s])
        assert (np.diff(bins[number == s]) >= 0).all()


def test_the_published_search_explores_less_and_never_finds_better(problem):
    single = build(SMALL, "bert-base", objectives=FRONT[:1])
    _, values = all_values(single)
    best = values["throughput_samples_per_s"].max()
    explored = []
    for level in (1, 3):
        found = search(single, "phaze-hysteresis", 32, level=level)
        assert found.stopped == "exhausted"
        assert found.archive.metrics["throughput_samples_per_s"].max() <= best
        explored.append(len(found.archive))
    assert explored[0] < explored[1] <= single.grid.size


def test_a_design_outside_the_budget_or_the_memory_violates_a_constraint(problem):
    outside = np.array([[3, 2, 1, 1, 1, 0, 1, 0]])
    assert not problem.grid.is_admitted(outside[:, :5]).any()
    values = problem.metrics(outside)
    assert values["area_excess_mm2"][0] > 0
    assert values["energy_j"][0] == NOT_PLACED
    tight = build(SMALL | {"hbm_gib": [1], "tensor_parallel": [1]}, "gpt2-xl")
    rows = random_designs(tight.grid, 3, np.random.default_rng(1))
    values = tight.metrics(rows)
    assert (values["unplaced"] == 1).all()
    design = tight.decode(rows[0])
    assert design["models"] == [{"model": "gpt2-xl", "placed": False}]
    with pytest.raises(ValueError, match="outside the grid"):
        problem.metrics(outside + 9)


def test_a_decoded_design_holds_together(problem):
    X, values = all_values(problem)
    deepest = int(np.argmax(np.where(values["unplaced"] == 0, values["iteration_s"], 0)))
    for row in (X[deepest], X[int(values["throughput_samples_per_s"].argmax())]):
        design = json.loads(json.dumps(problem.decode(row), allow_nan=False))
        one = design["models"][0]
        assert sum(stage["layers"] for stage in one["stages"]) == 14
        assert len(one["stages"]) == one["pipeline"]
        hbm = design["training"]["hbm_bytes"]
        assert all(stage["memory_bytes"] <= hbm for stage in one["stages"])
        used = one["pipeline"] * one["data"] * one["tensor"]
        assert design["metrics"]["devices"] == used == sum(s["devices"] for s in one["stages"])
        assert one["throughput_samples_per_s"] == pytest.approx(
            design["metrics"]["throughput_samples_per_s"]
        )
        for layer in one["layers"]:
            for name in ("forward", "backward"):
                ends = [op["end_s"] for op in layer[name]["ops"]]
                assert max(ends) == pytest.approx(layer[name]["makespan_s"])
                assert layer[name]["bound_s"] <= layer[name]["makespan_s"] * (1 + 1e-12)


def test_several_models_are_averaged_as_the_option_says():
    options = SMALL | {"hbm_gib": [8], "recompute": ["full"]}
    both = build(options, "bert-base+gpt2")
    X = random_designs(both.grid, 6, np.random.default_rng(2))
    parts = [build(options, name).metrics(X) for name in ("bert-base", "gpt2")]
    throughput = np.stack([part["throughput_samples_per_s"] for part in parts])
    together = both.metrics(X)
    assert together["throughput_samples_per_s"] == pytest.approx(np.sqrt(throughput.prod(axis=0)))
    assert together["iteration_s"] == pytest.approx(sum(part["iteration_s"] for part in parts))
    plain = build(options | {"mean": "arithmetic"}, "bert-base+gpt2").metrics(X)
    assert plain["throughput_samples_per_s"] == pytest.approx(throughput.mean(axis=0))
    assert len(load_models("phaze-eight")) == 8


def test_best_setting_takes_the_fastest_microbatch_and_mode():
    inner = build(SMALL | {"best_setting": True}, "bert-base")
    outer = build(SMALL, "bert-base")
    rows = random_designs(inner.grid, 5, np.random.default_rng(3))
    found = inner.metrics(rows)["throughput_samples_per_s"]
    every = []
    for microbatch in range(2):
        for mode in range(2):
            rows_outer = rows.copy()
            rows_outer[:, 5], rows_outer[:, 7] = microbatch, mode
            every.append(outer.metrics(rows_outer)["throughput_samples_per_s"])
    assert found == pytest.approx(np.max(every, axis=0))


def test_a_given_architecture_is_outside_the_budget_rule():
    fixed = build({"fixed_architecture": [8, 2, 128, 128, 128], "hbm_gib": [32]}, "bert-base")
    assert fixed.grid.size == 8
    assert fixed.grid.area_mm2.ravel() == pytest.approx([278.82667631216])
    spotlight = build({"fixed_architecture": [1, 1, 1024, 16, 128]}, "bert-base")
    assert spotlight.grid.size == 24


def test_what_the_paper_says_of_a_model_can_be_named():
    spotlight = build({"accelerator": "spotlight", "published_widths": True}, "gpt3-175b")
    assert [axis.tolist() for axis in spotlight.grid.axes] == [[1], [1], [4096], [4], [128]]
    assert spotlight.searches[0].model.widths == (4, 8)
    expert = build({"accelerator": "tpuv4", "placement": "expert"}, "megatron-2.5b")
    plan = expert.searches[0].expert
    assert (plan.pipeline, plan.data, plan.tensor) == (8, 32, 4)
    assert expert.searches[0].model.widths == (4,)


def test_compat_names_every_switch_it_sets_and_spares_what_is_given():
    options = PhazeOptions(compat="paper", clock_ghz=1.05).resolved()
    for name, value in PAPER.items():
        assert getattr(options, name) == (1.05 if name == "clock_ghz" else value)
    cost = options.cost()
    assert (cost.memory_words, cost.glb_words, cost.sharing) == (128.0, 256.0, 1)
    switched = build({"compat": "paper"}, "bert-base").decode(np.array([3, 1, 6, 6, 6, 0, 0, 0]))
    assert switched["training"]["modelled"]["op_costs"] == "paper"
    assert PAPER.keys() <= switched["training"]["modelled"].keys()


@pytest.mark.parametrize(
    ("options", "workload", "message"),
    [
        ({"tensor_parallel": [5]}, "bert-base", "none of the widths 5 cuts bert-base"),
        (
            {"placement": "expert"},
            "bert-base",
            "the paper has no model 'bert-base'; its models: opt",
        ),
        (
            {"accelerator": "spotlight"},
            "gpt2-xl+bert-large",
            "refers to the paper's figures of one",
        ),
        (
            {"accelerator": "tpuv4", "fixed_architecture": [1, 1, 2, 2, 2]},
            "bert-large",
            "give either accelerator or fixed_architecture",
        ),
        ({"hbm_gib": [8, 8]}, "bert-base", "hbm_gib: a value stands twice"),
        ({"area_budget_mm2": 1}, "bert-base", "no accelerator fits the area budget"),
        ({"micro": [1]}, "bert-base", "no such field"),
        ({}, "t5-small", "more than three kinds"),
        ({}, "bert-bass", "did you mean 'bert-base'"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(options, workload, message):
    with pytest.raises(InputError, match=message):
        build(options, workload)


def test_the_digest_follows_options_and_models():
    digests = {
        build(options, name).digest()
        for options in ({}, {"clock_ghz": 1.0}, {"compat": "paper"}, {"devices": 8})
        for name in ("bert-base", "gpt2")
    }
    assert len(digests) == 8
    assert build({}, "gpt2").digest() in digests
