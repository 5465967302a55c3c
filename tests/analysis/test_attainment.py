"""Attainment surfaces against counting, point by point."""

import numpy as np
import pytest

from mohsearch.analysis.attainment import attainment
from mohsearch.analysis.fronts import Front, Metric
from mohsearch.analysis.plot_attainment import plot_attainment
from mohsearch.core.errors import InputError

METRICS = (
    Metric("latency_s", "s", "min", "latency"),
    Metric("throughput_per_s", "1/s", "max", "throughput"),
    Metric("area_mm2", "mm2", "min", "area"),
)


def fronts(count, seed, objectives):
    rng = np.random.default_rng(seed)
    made = []
    for run in range(count):
        values = {m.name: rng.integers(1, 9, 7).astype(float) for m in METRICS}
        made.append(Front(f"r{run}", {"engine": "e"}, METRICS, values, objectives))
    return made


def attained_by(runs, names, point):
    """How many runs have a solution at least as good as a point of losses."""
    return sum(bool((run.losses(names) <= point).all(axis=1).any()) for run in runs)


@pytest.mark.parametrize(
    "names", [("latency_s", "throughput_per_s"), tuple(m.name for m in METRICS)]
)
@pytest.mark.parametrize("seed", range(4))
def test_a_surface_holds_exactly_the_best_points_that_enough_runs_attain(names, seed):
    runs = fronts(5, seed, names)
    (found,) = attainment(runs, levels=[20, 50, 75, 100])
    signs = np.array([1.0 if m.sense == "min" else -1.0 for m in METRICS if m.name in names])
    grids = np.meshgrid(*[np.arange(1, 9) * s for s in signs], indexing="ij")
    grid = np.stack([g.ravel() for g in grids], axis=1)
    counts = np.array([attained_by(runs, names, p) for p in grid])
    for level, needed in ((20, 1), (50, 3), (75, 4), (100, 5)):
        inside = grid[counts >= needed]
        best = [
            p for p in inside if not ((inside <= p).all(axis=1) & (inside < p).any(axis=1)).any()
        ]
        expected = {tuple(p * signs) for p in best}
        assert {tuple(p) for p in found.surfaces[level]} == expected


def test_records_have_one_row_per_point_with_natural_values():
    (found,) = attainment(fronts(3, 1, ("latency_s", "area_mm2")), levels=[100])
    rows = found.records()
    assert len(rows) == len(found.surfaces[100.0])
    assert rows[0]["runs"] == 3
    assert rows[0]["percent_of_runs"] == 100


def test_four_metrics_are_too_many_and_one_too_few():
    with pytest.raises(InputError, match="two or three metrics, got 1"):
        attainment(fronts(2, 1, ("latency_s",)))
    with pytest.raises(InputError, match="two objectives or more"):
        plot_attainment(fronts(2, 1, ("latency_s",)))


def test_the_picture_has_a_plane_per_pair_and_three_lines_per_contender():
    figure = plot_attainment(fronts(5, 2, tuple(m.name for m in METRICS)))
    assert len(figure.axes) == 3
    assert all(len(axes.lines) == 3 for axes in figure.axes)


def test_six_planes_stand_in_two_rows_and_a_single_point_is_drawn():
    names = ("a", "b", "c", "d")
    metrics = tuple(Metric(name, "1", "min", name) for name in names)
    values = {name: np.array([2.0]) for name in names}
    figure = plot_attainment([Front("r", {"engine": "e"}, metrics, values, names)])
    rows = {round(axes.get_position().y0, 3) for axes in figure.axes}
    assert len(figure.axes) == 6
    assert len(rows) == 2
    assert all(axes.lines[0].get_marker() == "o" for axes in figure.axes)
    assert len(plot_attainment([Front("r", {}, metrics[:2], values, names[:2])]).axes) == 1
