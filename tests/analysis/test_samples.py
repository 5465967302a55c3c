"""Best against samples, correlation of cost models, and the pictures of the chiplet search."""

from itertools import pairwise

import numpy as np
import pytest

from mohsearch.analysis.correlation import matched_pairs
from mohsearch.analysis.fronts import Front, Metric
from mohsearch.analysis.plot_chiplet import chip_colours, op_places, partition_facts, plot_partition
from mohsearch.analysis.plot_correlation import plot_correlation
from mohsearch.analysis.plot_samples import plot_samples
from mohsearch.analysis.results import History
from mohsearch.analysis.samples import (
    improvements,
    sample_curves,
    sample_table,
    samples_until,
)
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.problems.chiplet import build

INTERVAL = Metric("interval_s", "s", "min", "interval")
EXCESS = Metric("memory_excess", "1", "min", "memory")


def history(
    engine, seed, values, *, workload="a", excess=None, per=2, greedy=8.0, problem="chiplet"
):
    """A run of one objective that evaluated ``values``, ``per`` of them in a generation."""
    values = np.array(values, dtype=float)
    attrs = {
        "problem": "chiplet",
        "problem_label": problem,
        "workload": workload,
        "engine": engine,
        "engine_label": engine,
        "portfolio": "cold",
        "seed": seed,
        "constraints": ["memory_excess"] if excess is not None else [],
        "certificate": {"baselines_interval_s": {"greedy": greedy, "other": 2 * greedy}},
    }
    held = {"interval_s": values}
    if excess is not None:
        held["memory_excess"] = np.array(excess, dtype=float)
    metrics = (INTERVAL, EXCESS) if excess is not None else (INTERVAL,)
    empty = {m.name: np.zeros(0) for m in metrics}
    front = Front(
        f"{engine}-{workload}-{seed}", attrs, metrics, empty, ("interval_s",), {"interval_s": 1.0}
    )
    counts = np.arange(per, len(values) + 1, per)
    return History(front, counts, counts, held)


def test_the_best_so_far_never_gets_worse_and_skips_the_infeasible():
    run = history("x", 1, [5, 4, 1, 3, 9, 2], excess=[-1, 1, 1, -1, -1, -1])
    (curve,) = sample_curves([run])
    assert curve.best.tolist() == [5, 3, 2]
    assert curve.bound == 1.0


def test_nothing_feasible_yet_is_no_number():
    (curve,) = sample_curves([history("x", 1, [5, 4, 3, 2], excess=[1, 1, 1, -1])])
    assert np.isnan(curve.best[0])
    assert curve.best[1] == 2


def test_improvement_is_the_geometric_mean_over_graphs_of_each_seed():
    runs = [
        history("x", seed, [8, value * seed], workload=workload, per=1)
        for seed in (1, 2)
        for workload, value in (("a", 1), ("b", 4))
    ]
    table = improvements(sample_curves(runs), "greedy", [1, 2])
    assert table["x"] == pytest.approx(np.array([[1.0, 4.0], [1.0, 2.0]]))


def test_a_run_that_ended_keeps_its_last_value_and_before_its_first_there_is_none():
    table = improvements(sample_curves([history("x", 1, [4, 2])]), "greedy", [1, 2, 100])
    assert np.isnan(table["x"][0, 0])
    assert table["x"][0, 1:].tolist() == [4.0, 4.0]


def test_samples_until_a_threshold_follow_the_mean_over_seeds():
    runs = [history("x", 1, [8, 4, 2, 1], per=1), history("x", 2, [8, 8, 8, 8], per=1)]
    assert samples_until(sample_curves(runs), "greedy", [1.4, 2.5, 9])["x"] == [2, 3, None]


def test_the_table_lists_the_best_first_with_mean_deviation_and_gap():
    runs = [history("slow", s, [8, 4]) for s in (1, 2)] + [
        history("fast", s, [2, s]) for s in (1, 2)
    ]
    rows = sample_table(sample_curves(runs), [2], [2.0, 5.0])
    assert [row["contender"] for row in rows] == ["fast", "slow"]
    assert rows[0]["interval_s@2"] == 1.5
    assert rows[0]["sd@2"] == pytest.approx(np.std([1, 2], ddof=1))
    assert rows[0]["gap"] == pytest.approx(0.5)
    assert rows[0]["greedy@2"] == pytest.approx(6.0)
    assert rows[1]["greedy>=5"] is None
    assert rows[1]["other>=2"] == 2


def test_an_unknown_baseline_names_those_there_are():
    curves = sample_curves([history("x", 1, [2, 1])])
    with pytest.raises(UnknownNameError, match="greedy, other"):
        improvements(curves, "gredy", [2])


def test_samples_are_drawn_with_one_line_per_contender():
    runs = [history(e, s, [8, 4, 3, 2]) for e in ("x", "y") for s in (1, 2)]
    figure = plot_samples(sample_curves(runs), "greedy")
    assert len(figure.axes[0].get_lines()) == 2
    assert "greedy" in figure.axes[0].get_ylabel()


def test_pairs_are_matched_by_what_drew_them_and_correlated():
    x = [1.0, 2.0, 3.0, 5.0]
    runs = [history("r", 1, x, problem="model"), history("r", 1, [2, 4, 6, 10], problem="chip")]
    (pair,) = matched_pairs(runs)
    assert (pair.first, pair.second) == ("model", "chip")
    assert pair.pearson == pytest.approx(1.0)
    assert len(plot_correlation([pair]).axes) == 1


def test_runs_of_other_designs_are_no_pair():
    one, two = (history("r", 1, [1, 2], problem=p) for p in ("a", "b"))
    one.values["chips"], two.values["chips"] = np.array([1, 2]), np.array([2, 2])
    with pytest.raises(InputError, match="different designs"):
        matched_pairs([one, two])
    with pytest.raises(InputError, match="no two runs"):
        matched_pairs([one])


@pytest.fixture(scope="module")
def partition():
    problem = build({"chips": 4, "genome": "labels", "constraints": "chain"}, "own_dlrm")
    labels = problem.space.sample(1, np.random.default_rng(0), prior="cuts")
    return problem, problem.decode(labels[0])


def test_a_partition_is_drawn_with_every_op_chip_and_link(partition):
    problem, design = partition
    figure = plot_partition(design, problem.task.graph)
    ops, load, ring = figure.axes
    assert len(ops.collections[-1].get_offsets()) == 39
    used = len(design["chips"])
    assert len(load.patches) == 2 * used
    assert len(ring.patches) == used
    assert len(ring.lines) == used - 1
    assert len(plot_partition(design).axes) == 2


def test_neighbouring_chips_have_different_colours():
    colours = chip_colours(36)
    assert all(a != b for a, b in pairwise(colours))


def test_ops_have_places_of_their_own(partition):
    problem, _ = partition
    x, y = op_places(np.asarray(problem.task.graph.levels, dtype=np.int64))
    assert len({*zip(x, y, strict=True)}) == 39


def test_what_is_no_partition_is_not_drawn(partition):
    problem, design = partition
    with pytest.raises(InputError, match="no partition"):
        plot_partition({"instances": []})
    with pytest.raises(InputError, match="no partition"):
        partition_facts({"instances": [], "metrics": {"latency_s": 1.0}})
    with pytest.raises(InputError, match="39 ops"):
        plot_partition({**design, "labels": [0, 1]}, problem.task.graph)


def test_numbers_of_chips_do_not_cover_each_other():
    problem = build({"chips": 16, "genome": "labels"}, "own_lstm_l1_h256_t16")
    rows = problem.space.sample(20, np.random.default_rng(0), prior="balanced")
    labels = rows[rows.max(axis=1).argmax()]
    figure = plot_partition(problem.decode(labels), problem.task.graph)
    figure.canvas.draw()
    numbers = [text for text in figure.axes[0].texts if text.get_text().isdigit()]
    boxes = [text.get_window_extent() for text in numbers]
    assert len(boxes) == labels.max() + 1 > 8
    assert len({round(box.y0) for box in boxes}) > 1
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_seed_without_every_workload_does_not_count():
    runs = [
        history("x", 1, [4, 4], workload="a"),
        history("x", 1, [2, 2], workload="b"),
        history("x", 2, [1, 1], workload="a"),
        history("y", 1, [1, 1], workload="a"),
    ]
    (row,) = sample_table(sample_curves(runs), [2])
    assert row["contender"] == "x"
    assert row["seeds"] == 1
    assert row["greedy@2"] == pytest.approx(np.sqrt(2 * 4))
    with pytest.raises(InputError, match="no contender has a seed with every workload: a, b"):
        sample_curves(runs[1:])
