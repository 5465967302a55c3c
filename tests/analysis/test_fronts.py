import numpy as np
import pytest

from mohsearch.analysis.fronts import (
    Front,
    Metric,
    choose,
    common_objectives,
    distance_to_ideal,
    extremes,
    highlights,
    knee,
    merge,
    order,
    spread,
)
from mohsearch.analysis.labels import by_workload, labels, pool_seeds, varying_fields
from mohsearch.core.errors import InputError, UnknownNameError

METRICS = (
    Metric("latency_s", "s", "min", "latency"),
    Metric("throughput_per_s", "1/s", "max", "throughput"),
)


def make_front(latency, throughput, run="run", **attrs):
    return Front(
        run=run,
        attrs=attrs,
        metrics=METRICS,
        values={"latency_s": np.array(latency), "throughput_per_s": np.array(throughput)},
        objectives=("latency_s", "throughput_per_s"),
        ideal_point={"latency_s": 1.0, "throughput_per_s": 10.0},
        designs=tuple({"name": f"{run}-{k}"} for k in range(len(latency))),
    )


def test_metrics_to_maximise_are_negated_as_losses_and_sorted_best_first():
    front = make_front([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert front.losses().tolist() == [[1.0, -4.0], [2.0, -5.0], [3.0, -6.0]]
    assert order(front, "throughput_per_s").tolist() == [2, 1, 0]
    assert extremes(front) == {"latency_s": 0, "throughput_per_s": 2}


def test_the_knee_is_the_point_farthest_below_the_line_through_the_ends():
    rng = np.random.default_rng(1)
    x = np.sort(rng.random(50))
    losses = np.column_stack([x, (1 - np.sqrt(x)) ** 2 * 1000])
    scaled = (losses - losses.min(0)) / np.ptp(losses, axis=0)
    below = (1 - scaled.sum(axis=1)) / np.sqrt(2)
    assert knee(losses) == int(np.argmax(below))


def test_a_solution_is_chosen_by_word_metric_or_number():
    front = make_front([1.0, 2.0, 9.0], [1.0, 8.0, 9.0])
    assert choose(front, "knee") == 1
    assert choose(front, "fastest") == 0
    assert choose(front, "throughput_per_s") == 2
    assert choose(front, "2") == 2
    with pytest.raises(InputError, match="solutions 0 to 2"):
        choose(front, "3")
    with pytest.raises(UnknownNameError, match="did you mean 'knee'"):
        choose(front, "kne")
    with pytest.raises(InputError, match="empty"):
        choose(make_front([], []), "knee")


def test_highlights_hold_the_extremes_the_knee_and_a_spread():
    rng = np.random.default_rng(2)
    angle = np.sort(rng.uniform(0, np.pi / 2, 60))
    front = make_front(1 - np.sin(angle) + 1e-9, 1 - np.cos(angle))
    shown = highlights(front, 8)
    assert len(shown) == 8
    words = " ".join(shown.values())
    assert "fastest" in words
    assert "best throughput_per_s" in words
    assert "knee" in words
    assert list(shown) == sorted(shown, key=lambda i: front.values["latency_s"][i])


def test_a_spread_takes_the_farthest_solution_each_time():
    losses = np.array([[0.0, 1.0], [0.01, 0.99], [0.5, 0.5], [1.0, 0.0]])
    assert spread(losses, 3, keep=[0]) == [0, 3, 2]
    assert spread(np.array([[1.0, 1.0], [1.0, 1.0]]), 2) == [0]


def test_distances_to_the_ideal_are_relative_and_positive_for_both_senses():
    front = make_front([1.5], [8.0])
    gaps = distance_to_ideal(front)
    assert gaps["latency_s"].tolist() == [0.5]
    assert gaps["throughput_per_s"].tolist() == pytest.approx([0.2])


def test_merging_keeps_what_no_other_run_dominates():
    a = make_front([1.0, 3.0], [5.0, 6.0], "a")
    b = make_front([2.0, 2.5], [4.0, 7.0], "b")
    left, right = merge([a, b])
    assert left.values["latency_s"].tolist() == [1.0]
    assert right.values["latency_s"].tolist() == [2.5]
    assert right.designs == ({"name": "b-1"},)


def test_runs_of_other_problems_cannot_be_compared():
    a = make_front([1.0], [1.0], "a")
    b = Front("b", {}, METRICS[:1], {"latency_s": np.ones(1)}, ("latency_s",))
    with pytest.raises(InputError, match="run b: has no metric 'throughput_per_s'"):
        common_objectives([a, b])


def test_labels_say_what_differs_and_the_seed_only_if_needed():
    runs = [
        make_front([1.0], [1.0], "x", engine_label="nsga2", seed=1, workload="w"),
        make_front([1.0], [1.0], "y", engine_label="random", seed=1, workload="w"),
    ]
    assert labels(runs) == ["nsga2", "random"]
    runs.append(make_front([1.0], [1.0], "z", engine_label="random", seed=2, workload="w"))
    assert labels(runs) == ["nsga2, seed 1", "random, seed 1", "random, seed 2"]


def test_pooling_seeds_keeps_the_best_of_all_repetitions():
    runs = [
        make_front([1.0, 3.0], [5.0, 6.0], "a", engine="e", seed=1),
        make_front([2.0, 2.5], [4.0, 7.0], "b", engine="e", seed=2),
    ]
    (pooled,), names = pool_seeds(runs)
    assert pooled.values["latency_s"].tolist() == [1.0, 2.5]
    assert names == ["2 seeds"]


def test_a_field_that_another_implies_does_not_clutter_labels():
    runs = [
        make_front([1.0], [1.0], f"{problem}-{workload}", problem_label=problem,
                   portfolio=portfolio, workload=workload)
        for problem, portfolio in (("both", "paper"), ("mapping", "mapping"), ("hardware", "paper"))
        for workload in ("mobile", "edge")
    ]  # fmt: skip
    assert varying_fields(runs) == ("problem", "workload")
    assert list(by_workload(runs)) == ["mobile", "edge"]
    assert labels(by_workload(runs)["edge"]) == ["both", "mapping", "hardware"]
