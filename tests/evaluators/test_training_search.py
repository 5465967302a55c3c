"""Training on one accelerator: the best plan over all widths and schedules, with honest bounds."""

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.device_placement.problem import ExpertPlan
from mohsearch.evaluators.device_placement.solver import place
from mohsearch.evaluators.training_architecture import feasible_architectures
from mohsearch.evaluators.training_search import Setting, TrainingCluster, TrainingSearch
from mohsearch.evaluators.training_times import SliceTimes, TrainingModel
from mohsearch.workloads.hf_config import load_model

GIB = 2**30
CLUSTER = TrainingCluster(devices=64, batch=256, bandwidth_bytes_per_s=2e10)


@pytest.fixture(scope="module")
def machines():
    everything = feasible_architectures()
    chosen = np.random.default_rng(11).choice(len(everything), 8, replace=False)
    return everything.take(chosen)


def search_of(name: str, widths=(1, 2, 4), **fields) -> TrainingSearch:
    return TrainingSearch(TrainingModel(load_model(name), widths, **fields), CLUSTER)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_plan_equals_the_best_of_all_widths_with_every_schedule_solved(machines, recompute):
    search = search_of("bert-base", weight_gradients=False)  # no optimizer step in the oracle
    setting = Setting(2, 4 * GIB, recompute)
    found = search.evaluate(machines, [setting])
    for i in range(len(machines)):
        best = np.inf
        for w, width in enumerate(search.model.widths):
            part = SliceTimes(search.model, machines, 2, width)
            times, _ = part.solve(i)
            problem = search.placement_problem(search.chain(setting, w), times, 0, setting)
            best = min(best, place(problem).time_per_batch_s)
        assert found.time_s[i] == pytest.approx(best, rel=1e-12)
        assert found.bound_s[i] <= found.time_s[i]


def test_bounds_stay_below_what_is_reached_and_the_cheaper_is_the_weaker(machines):
    for name in ("bert-base", "gpt2"):
        search = search_of(name)
        for setting in (Setting(1, 16 * GIB, "none"), Setting(4, 8 * GIB, "full")):
            placed_s, placed_j = search.optimistic(search.tables(machines, setting), setting)
            rough = search.roofline(machines, setting)
            balanced_s, balanced_j = search.balanced(rough, setting)
            rough_s, _ = search.optimistic(rough, setting)
            found = search.evaluate(machines, [setting])
            assert np.isfinite(found.time_s).all()
            assert (balanced_s <= rough_s * (1 + 1e-12)).all()
            assert (rough_s <= placed_s * (1 + 1e-12)).all()
            assert (placed_s <= found.bound_s * (1 + 1e-12)).all()
            assert (placed_j <= found.energy_j * (1 + 1e-12)).all()
            assert (balanced_j <= found.energy_j * (1 + 1e-12)).all()
            assert (placed_s > 0.5 * found.time_s).any()


def test_the_fastest_of_several_settings_is_taken(machines):
    search = search_of("bert-base")
    settings = [Setting(b, 4 * GIB, mode) for b in (1, 4) for mode in ("none", "full")]
    together = search.evaluate(machines, settings)
    alone = np.stack([search.evaluate(machines, [setting]).time_s for setting in settings])
    assert together.time_s == pytest.approx(alone.min(axis=0), rel=1e-12)
    for i, k in enumerate(together.setting.tolist()):
        assert alone[k, i] == alone[:, i].min()


def test_energy_adds_up_layer_by_layer(machines):
    search = search_of("bert-base", widths=(2,))
    setting = Setting(2, 3 * GIB // 4, "full")
    found = search.evaluate(machines, [setting])
    part = search.slices(machines, setting)[0]
    chain = search.model.chain(2, "full")
    for i in np.flatnonzero(np.isfinite(found.time_s)):
        times, _ = part.solve(int(i))
        forward, backward = times.forward_j[0], times.backward_j[0]
        inner, last = chain.inner, int(found.plans.last[i])
        total = forward[0] + forward[2] + inner * forward[1]
        total += backward[0] + backward[2] + inner * backward[1]
        if found.plans.stages[i] > 1:
            total += forward[0] + (inner - last) * forward[1]
        weights = chain.weight_bytes[0] @ [1, inner, 1]
        step = found.plans.replicas[i] * weights * part.update.energy_j[i] / CLUSTER.batch
        assert found.energy_j[i] == pytest.approx(2 * (total / 2 + step), rel=1e-9)
    assert (found.plans.stages > 1).any()


def test_a_plan_by_hand_is_never_faster_than_the_best_one(machines):
    best = search_of("bert-base")
    expert = TrainingSearch(best.model, CLUSTER, ExpertPlan(4, 2, 8, 0))
    for setting in (Setting(2, 16 * GIB, "none"), Setting(2, 16 * GIB, "full")):
        given = expert.evaluate(machines, [setting])
        found = best.evaluate(machines, [setting])
        assert np.isfinite(given.time_s).all()
        assert (found.bound_s <= given.time_s).all()
        assert (given.plans.stages == 4).all()
        assert (given.plans.replicas == 8).all()
    nowhere = expert.evaluate(machines, [Setting(2, GIB // 8, "none")])
    assert np.isinf(nowhere.time_s).all()


def test_selective_recomputation_needs_less_memory_than_none_and_repeats_less_than_all():
    model = TrainingModel(load_model("gpt2"), (1,))
    none, selective = model.chain(4, "none"), model.chain(4, "selective")
    assert (selective.activation_bytes[:, 1] < none.activation_bytes[:, 1]).all()
    assert model.transient_bytes(4, "selective") > 0 == model.transient_bytes(4, "none")


def test_models_of_two_stacks_are_refused():
    with pytest.raises(InputError, match="t5-small has layers of more than three kinds"):
        TrainingModel(load_model("t5-small"), (1,)).chain(1, "none")
