"""Pictures and tables of deepflow results show what the results hold."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from mohsearch.analysis.deepflow_tables import by_technology, read_evaluated
from mohsearch.analysis.fronts import Front, Metric
from mohsearch.analysis.plot_deepflow import COMPONENTS, plot_fractions, plot_scaling
from mohsearch.analysis.plot_roofline import kernel_name, plot_roofline
from mohsearch.analysis.results import read_fronts
from mohsearch.cli.main import cli
from mohsearch.core.errors import InputError
from mohsearch.study import load_study, run_study

TIME = Metric("time_s", "s", "min", "t")
COST = Metric("cost_usd", "USD", "min", "c")


def texts(figure):
    from matplotlib.text import Text

    return " | ".join(t.get_text() for t in figure.findobj(Text) if t.get_text())


def shares(rng):
    row = rng.dirichlet(np.ones(len(COMPONENTS)))
    return dict(zip(COMPONENTS, row.tolist(), strict=True))


def front_of(count):
    rng = np.random.default_rng(0)
    designs = [
        {"fractions": {name: shares(rng) for name in ("area", "power", "perimeter")}}
        for _ in range(count)
    ]
    values = {"time_s": np.linspace(3.0, 1.0, count), "cost_usd": np.linspace(1.0, 9.0, count)}
    return Front("r", {}, (TIME, COST), values, ("time_s", "cost_usd"), {}, designs)


def test_the_legend_of_the_lowest_panel_stands_above_its_curves():
    axes = plot_fractions(front_of(8)).axes[-1]
    highest = max(line.get_ydata().max() for line in axes.lines)
    assert axes.get_legend() is not None
    assert highest * 1.2 <= axes.get_ylim()[1] or axes.get_yscale() == "log"


def test_the_bars_of_a_budget_stack_to_all_of_it_in_the_order_of_the_first_objective():
    front = front_of(12)
    figure = plot_fractions(front)
    assert len(figure.axes) == 4
    for axes, name in zip(figure.axes[:3], ("area", "power", "perimeter"), strict=True):
        bars = [patch for patch in axes.patches if patch.get_height() > 0]
        tops = np.zeros(12)
        for bar in bars:
            place = round(bar.get_x() + bar.get_width() / 2)
            tops[place] = max(tops[place], bar.get_y() + bar.get_height())
        assert np.allclose(tops, 1.0)
        cores = [bar.get_height() for bar in axes.patches[:12]]
        # fastest first: the last design of the front stands leftmost
        expected = [design["fractions"][name]["core"] for design in front.designs[::-1]]
        assert np.allclose(cores, expected)
    shown = texts(figure)
    for wanted in ("Die area", "Power", "Die edge", "cores", "links between packages", "time"):
        assert wanted in shown


def test_a_long_front_is_thinned_and_other_designs_are_refused():
    assert len(plot_fractions(front_of(200)).axes[0].patches) == 60 * len(COMPONENTS)
    bare = Front("r", {}, (TIME,), {"time_s": np.ones(1)}, ("time_s",), {}, [{"instances": []}])
    with pytest.raises(InputError, match="no fractions"):
        plot_fractions(bare)


def rows(label="a", gain=1.5):
    return [
        {"label": label, "logic": logic, "memory": memory, "network": network,
         "best": 1.0 / (i + 1), "data_parallel": gain / (i + 1), "gain": gain}
        for network in ("slow", "fast")
        for memory in ("HBM2", "HBM4")
        for i, logic in enumerate(("N12", "N7", "N5"))
    ]  # fmt: skip


def test_scaling_has_a_panel_per_network_and_label_and_a_line_per_memory():
    figure = plot_scaling([*rows("a", 1.0), *rows("b", 2.0)])
    assert len(figure.axes) == 4
    for axes, lines in zip(figure.axes, (2, 2, 4, 4), strict=True):
        assert len(axes.lines) == lines
        assert axes.get_ylim()[0] == 0.0
        assert np.allclose(axes.lines[0].get_ydata(), [1.0, 0.5, 1 / 3])
    assert "data parallelism" in texts(figure)
    assert "data parallelism" not in texts(plot_scaling(rows("a", 1.0)))
    assert len(plot_scaling(rows("a", np.nan)).axes[0].lines) == 2
    with pytest.raises(InputError, match="no technology has a feasible design"):
        plot_scaling([{**rows()[0], "best": np.nan}])


def test_sizes_of_packages_are_drawn_as_one_line_per_network():
    one = rows("a", 1.0)[0]
    many = [
        {**one, "label": f"{name}-{size}", "best": time / size}
        for name, time in (("chain", 4.0), ("switch", 2.0))
        for size in (16, 1, 4)
    ]
    (axes,) = plot_scaling(many).axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[4, 1, 0.25], [2, 0.5, 0.125]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4", "16"]
    assert len(plot_scaling([*many, {**one, "label": "system"}]).axes) > 1
    assert len(plot_scaling([*many, {**many[0], "memory": "other"}]).axes) > 1


def kernel(part, kind, intensity, rate, time, bound, **sizes):
    return {
        "part": part, "kind": kind, "time_s": time, "flop": rate * time, "bound": bound,
        "flop_per_dram_byte": intensity, "flop_per_s": rate, **sizes,
    }  # fmt: skip


def test_the_roofline_is_the_lower_of_arithmetic_and_memory_and_holds_every_kernel():
    design = {
        "chip": {"flop_per_s": 1e14, "L3_bandwidth_bytes_per_s": 1e12},
        "kernels": [
            kernel("Cf", "gemm", 400.0, 9e13, 1e-3, "compute", m=64.0, k=32.0, n=16.0),
            kernel("Sb", "element-wise", 0.4, 3e11, 2e-4, "L3"),
            {"part": "Rc", "kind": "collective", "time_s": 1e-3, "flop": 0.0, "bound": "network"},
        ],
    }
    figure = plot_roofline(design)
    (axes,) = figure.axes
    x, y = axes.lines[0].get_data()
    assert np.allclose(y, np.minimum(1e14, x * 1e12))
    dots = np.array([c.get_offsets()[0] for c in axes.collections])
    assert sorted(map(tuple, dots.tolist())) == [(0.4, 3e11), (400.0, 9e13)]
    shown = texts(figure)
    for wanted in (
        "100 Tflop/s",
        "1 TB/s",
        "bound by arithmetic",
        "bound by main memory",
        "45% of the kernels' time is elsewhere",
        "cell forward\n64 x 32 x 16",
        "softmax backward, element-wise",
    ):
        assert wanted in shown
    with pytest.raises(InputError, match="no kernels to draw"):
        plot_roofline({"kernels": []})


def test_kernels_are_named_in_words():
    assert kernel_name({"part": "Sb", "kind": "element-wise"}) == "softmax backward, element-wise"
    assert kernel_name({"part": "Rs", "kind": "element-wise"}) == "softmax update, element-wise"
    assert kernel_name({"part": "op 3", "kind": "element-wise"}) == "op 3, element-wise"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deepflow")
    card = folder / "small.yaml"
    options = {"devices": 4, "logic": ["N12", "N7"], "memory": ["HBM2", "HBM2e"]}
    card.write_text(
        json.dumps(
            {
                "name": "small",
                "title": "every combination of a small system",
                "problems": [
                    {"name": "deepflow", "objectives": ["time_s", "cost_usd"], "options": options}
                ],
                "workloads": ["lm_tiny"],
                "engines": [{"engine": "random"}],
                "portfolios": [{"name": "every-combination", "skip_inapplicable": True}],
                "budget": {"population": 36, "generations": 1},
            }
        )
    )
    run_study(load_study(card), folder / "results", workers=1)
    return folder / "results"


def test_the_table_names_the_best_strategy_of_each_technology(study):
    (run,) = read_evaluated(study)
    table = by_technology(run)
    assert [(row["logic"], row["memory"]) for row in table] == [
        ("N12", "HBM2"), ("N12", "HBM2e"), ("N7", "HBM2"), ("N7", "HBM2e"),
    ]  # fmt: skip
    count = len(run.setup.space.strategies)
    assert [row["evaluated"] for row in table] == [count] * 4
    for row in table:
        mine = (run.genomes[:, 17] == ["N12", "N7"].index(row["logic"])) & (
            run.genomes[:, 18] == ["HBM2", "HBM2e"].index(row["memory"])
        )
        times = run.values["time_s"][mine & run.feasible]
        assert row["best"] == times.min()
        assert row["gain"] == row["data_parallel"] / row["best"] >= 1.0
        assert row["feasible"] == len(times)


def test_the_command_line_draws_all_three_from_a_study(study, tmp_path):
    runner = CliRunner()
    for name in ("fractions", "scaling", "roofline"):
        picture = tmp_path / f"{name}.svg"
        result = runner.invoke(cli, ["plot", name, str(study), "-o", str(picture)])
        assert result.exit_code == 0, result.output
        assert picture.stat().st_size > 10_000
    with (tmp_path / "scaling.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 4
    assert all(float(row["gain"]) >= 1.0 for row in table)


def test_the_kernels_of_a_stored_design_take_the_time_of_its_iteration(study):
    (front,) = read_fronts(study)
    design = front.designs[int(np.argmin(front.values["time_s"]))]
    kernels = design["kernels"]
    assert {k["kind"] for k in kernels} >= {"gemm", "element-wise"}
    for k in kernels:
        if "flop_per_s" in k:
            assert k["flop_per_s"] <= design["chip"]["flop_per_s"] * (1 + 1e-9)
            limit = k["flop_per_dram_byte"] * design["chip"]["L3_bandwidth_bytes_per_s"]
            assert k["flop_per_s"] <= limit * (1 + 1e-9)
    # one pass over the kernels is part of the steps of an iteration
    assert sum(k["time_s"] for k in kernels) < design["metrics"]["time_s"]
