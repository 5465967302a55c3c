import numpy as np
import pytest

from mohsearch.analysis import style
from mohsearch.analysis.convergence import curves
from mohsearch.analysis.fronts import Front, Metric
from mohsearch.analysis.plot_convergence import plot_convergence
from mohsearch.analysis.plot_front import plot_front
from mohsearch.analysis.plot_gantt import plot_gantt
from mohsearch.analysis.results import read_fronts, read_histories
from mohsearch.core.errors import InputError
from tests.analysis.synthetic_results import design, two_engines


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return two_engines(tmp_path_factory.mktemp("pictures"), seeds=2)


def texts(figure):
    from matplotlib.text import Text

    return " | ".join(t.get_text() for t in figure.findobj(Text) if t.get_text())


def test_a_front_picture_has_three_planes_with_units_and_the_ideal_point(study):
    fronts = read_fronts(study, ["*-1"], designs=False)
    figure = plot_front(fronts)
    assert len(figure.axes) == 4
    shown = texts(figure)
    for wanted in ("latency (ms)", "energy (mJ)", "area (mm²)", "knee", "ideal point", "random"):
        assert wanted in shown


def test_every_solution_is_drawn_in_every_plane(study):
    (front,) = read_fronts(study, ["nsga2-1"], designs=False)
    figure = plot_front([front])
    for axes in figure.axes[:3]:
        drawn = sum(len(c.get_offsets()) for c in axes.collections)
        assert drawn == len(front) + 2  # knee and ideal point besides


def test_two_objectives_give_one_plane_and_one_is_refused(study):
    fronts = read_fronts(study, designs=False)
    assert len(plot_front(fronts, ["latency_s", "area_mm2"]).axes) == 1
    with pytest.raises(InputError, match="two objectives or more"):
        plot_front(fronts, ["latency_s"])


def test_wide_ranges_get_log_axes_unless_told_otherwise():
    metrics = (Metric("latency_s", "s", "min", "l"), Metric("energy_j", "J", "min", "e"))
    values = {"latency_s": np.array([1e-3, 1.0]), "energy_j": np.array([2.0, 1.0])}
    front = Front("r", {}, metrics, values, ("latency_s", "energy_j"))
    (axes,) = plot_front([front]).axes
    assert (axes.get_yscale(), axes.get_xscale()) == ("log", "linear")
    (axes,) = plot_front([front], log=False).axes
    assert axes.get_yscale() == "linear"


def test_counts_have_ticks_at_whole_numbers_only():
    metrics = (Metric("chips", "1", "min", "c"), Metric("energy_j", "J", "min", "e"))
    values = {"chips": np.array([3.0, 4.0, 5.0]), "energy_j": np.array([2.0, 1.5, 1.0])}
    (axes,) = plot_front([Front("r", {}, metrics, values, ("chips", "energy_j"))]).axes
    assert set(axes.get_yticks() % 1) == {0.0}
    assert set(axes.get_xticks() % 1) != {0.0}


def test_a_gantt_chart_has_one_bar_per_layer_at_its_time_and_black_where_it_waits():
    from matplotlib.collections import PolyCollection

    made = design(np.random.default_rng(3))
    figure = plot_gantt(made, heading="Knee")
    schedule, areas = figure.axes
    bars, stalls = [], []
    for collection in schedule.findobj(PolyCollection):
        for path, colour in zip(
            collection.get_paths(),
            np.resize(collection.get_facecolor(), (len(collection.get_paths()), 4)),
            strict=True,
        ):
            box = path.get_extents()
            (stalls if tuple(colour[:3]) == (0, 0, 0) else bars).append((box.x0, box.x1))
    expected = [(x["start_s"] * 1e3, x["end_s"] * 1e3) for x in made["layers"]]
    assert np.allclose(sorted(bars), sorted(expected))
    waited = sum(x["stalled_s"] for x in made["layers"]) * 1e3
    assert sum(high - low for low, high in stalls) == pytest.approx(waited)
    assert len(schedule.get_yticklabels()) == len(made["instances"])
    assert sum(p.get_width() for p in areas.patches) == pytest.approx(
        sum(i["area_mm2"] for i in made["instances"])
    )
    assert "Knee" in texts(figure)


def test_designs_without_schedule_are_refused():
    with pytest.raises(InputError, match="no schedule to draw"):
        plot_gantt({"depth": 3})


def test_a_convergence_picture_states_its_reference_point_rule(study):
    figure = plot_convergence(curves(read_histories(study)))
    shown = texts(figure).replace("\n", " ")
    assert "reference point at 1.1 in each" in shown
    assert "pymoo nsga2 (median of 2 runs)" in shown


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_pictures_are_written_by_suffix_and_the_same_each_time(tmp_path, suffix):
    def draw(name):
        made = design(np.random.default_rng(4), instances=2, layers_each=3)
        return style.save(plot_gantt(made), tmp_path / f"{name}{suffix}").read_bytes()

    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    first = draw("a")
    assert first.startswith(starts[suffix])
    if suffix != ".svg":  # its element ids are random by matplotlib's default
        assert draw("b") == first


def test_another_suffix_is_refused_with_those_that_exist(tmp_path):
    with pytest.raises(InputError, match=r"cannot write '.gif'; use .png, .svg, .pdf"):
        style.save(style.new_figure(1, 1), tmp_path / "a.gif")


def test_drawing_leaves_matplotlib_settings_alone(study):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot_front(read_fronts(study, designs=False))
    plot_gantt(design(np.random.default_rng(5)))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("senses", [("min", "min"), ("min", "max"), ("max", "min"), ("max", "max")])
def test_the_line_of_a_front_bounds_what_its_points_dominate(senses):
    from matplotlib.cbook import STEP_LOOKUP_MAP

    metrics = tuple(Metric(n, "1", s, n) for n, s in zip("ab", senses, strict=True))
    signs = np.array([m.sign for m in metrics])
    losses = np.array([[1.0, 4.0], [2.0, 2.0], [5.0, 1.0]])
    values = dict(zip("ab", (10 + losses * signs).T, strict=True))
    (axes,) = plot_front([Front("r", {}, metrics, values, ("a", "b"))], log=False).axes
    line = next(drawn for drawn in axes.lines if len(drawn.get_xdata()) == 3)
    corners = np.transpose(STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data()))
    corners = (corners[:, ::-1] - 10) * signs  # the first objective is drawn upwards
    assert len(corners) == 5
    assert all((losses <= corner).all(axis=1).any() for corner in corners)
