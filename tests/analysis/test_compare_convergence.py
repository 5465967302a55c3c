import numpy as np
import pytest

from mohsearch.analysis.compare import compare
from mohsearch.analysis.convergence import bands, curves
from mohsearch.analysis.fronts import Front, Metric
from mohsearch.analysis.indicators import common_box, hypervolume
from mohsearch.analysis.results import read_fronts, read_histories
from mohsearch.core.errors import InputError, UnknownNameError
from tests.analysis.synthetic_results import METRICS, run_groups, two_engines, write_results


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return two_engines(tmp_path_factory.mktemp("study"))


def test_the_better_engine_ranks_first_over_seeds(study):
    fronts = read_fronts(study, designs=False)
    result = compare(fronts, "engine")
    assert [s.contender for s in result.standings] == ["pymoo nsga2", "random"]
    assert [s.rank for s in result.standings] == [1, 2]
    best, worst = result.standings
    assert len(best.hypervolumes) == len(worst.hypervolumes) == 3
    assert worst.dominated["pymoo nsga2"] > best.dominated["random"]
    assert best.igd_plus < worst.igd_plus


def test_hypervolumes_of_a_comparison_are_those_of_the_fronts_in_its_box(study):
    fronts = read_fronts(study, designs=False)
    result = compare(fronts)
    box, other = result.boxes.values()
    assert box is other, "contenders of a case share their box"
    by_run = {front.run: hypervolume(front.losses(), box).value for front in fronts}
    for standing in result.standings:
        assert standing.hypervolumes == tuple(by_run[run] for run in standing.runs)
        low, middle, high = standing.quartiles()
        assert low <= middle == np.median(standing.hypervolumes) <= high


def test_contenders_are_only_compared_on_the_same_workload(tmp_path):
    groups = {}
    for workload in ("mobile", "edge"):
        for engine, quality in (("good", 9.0), ("poor", 2.0)):
            groups |= run_groups(
                f"{workload}-{engine}", quality=quality, workload=workload, engine_label=engine
            )
    result = compare(read_fronts(write_results(tmp_path, groups), designs=False), "engine")
    assert [(s.case, s.contender, s.rank) for s in result.standings] == [
        ("edge", "good", 1),
        ("edge", "poor", 2),
        ("mobile", "good", 1),
        ("mobile", "poor", 2),
    ]


def front(points, metrics=("time", "area"), **attrs):
    """A front of two metrics to minimise, shape (solutions, 2)."""
    columns = np.asarray(points, dtype=float).reshape(-1, 2).T
    return Front(
        "-".join(str(value) for value in attrs.values()),
        attrs,
        tuple(Metric(name, "1", "min", name) for name in metrics),
        dict(zip(metrics, columns, strict=True)),
        metrics,
    )


def workloads_by_portfolio(seeds):
    """Two workloads searched by two portfolios, one of which is far behind everywhere."""
    return [
        front(
            scale * (1 + seed / 100) * np.array([(1.0, 4.0), (middle, middle), (4.0, 1.0)]),
            workload=workload,
            portfolio=portfolio,
            seed=seed,
        )
        for workload, middle in (("mobile", 3.0), ("edge", 2.0))
        for portfolio, scale in (("whole", 1.0), ("mapping-only", 100.0))
        for seed in seeds
    ]


def test_workloads_as_contenders_are_measured_by_the_runs_of_their_own_case():
    """In a box of all portfolios the one that is far behind reaches nothing at all."""
    fronts = workloads_by_portfolio(seeds=(0, 1))
    result = compare(fronts, "workload")
    assert result.cases == ("mapping-only", "whole")
    assert len({id(box) for box in result.boxes.values()}) == 4
    for standing in result.standings:
        mine = [f for f in fronts if f.run in standing.runs]
        box = common_box([f.losses() for f in mine])
        assert standing.hypervolumes == tuple(hypervolume(f.losses(), box).value for f in mine)
        assert min(standing.hypervolumes) > 0.2
    assert {s.hypervolumes for s in compare(fronts, "portfolio").standings[1::2]} == {(0.0, 0.0)}


def test_no_workload_is_called_better_than_another():
    fronts = [f for f in workloads_by_portfolio(range(1, 5)) if f.attrs["portfolio"] == "whole"]
    result = compare(fronts, "workload")
    (test,) = result.tests[""]
    assert test.verdict == "edge is better"
    assert result.verdict(test) == "edge is reached more nearly"
    alone = compare(fronts[::4], "workload")
    assert any("a workload with one run" in note for note in alone.notes)


def test_problems_with_different_metrics_are_cases_with_objectives_of_their_own():
    fronts = [
        front(points, (metric, "area"), problem=problem, workload=problem, engine=engine)
        for problem, metric in (("chips", "interval"), ("trains", "time"))
        for engine, points in (("good", [(1, 2), (2, 1)]), ("poor", [(3, 4), (4, 3)]), ("none", []))
    ]
    result = compare(fronts, "engine")
    assert result.objectives == {"chips": ("interval", "area"), "trains": ("time", "area")}
    assert [s.contender for s in result.standings][::3] == ["good", "good"]
    none = [s for s in result.standings if s.contender == "none"]
    assert [s.hypervolumes for s in none] == [(0.0,), (0.0,)]
    assert "2 of 6 runs found no solution" in " ".join(result.notes)
    assert "trains: time, area" in result.objectives_in_words()
    with pytest.raises(UnknownNameError, match="unknown metric 'interval'"):
        compare(fronts, "engine", ["interval"])


def test_an_unknown_field_is_answered_with_those_that_exist(study):
    with pytest.raises(
        UnknownNameError, match="engine, portfolio, problem, seed, template, workload"
    ):
        compare(read_fronts(study, designs=False), "colour")


def test_curves_never_fall_and_end_at_the_fronts_hypervolume(study):
    histories = read_histories(study)
    fronts = {front.run: front for front in read_fronts(study, designs=False)}
    for curve in curves(histories):
        assert (np.diff(curve.hypervolumes) >= 0).all()
        final = hypervolume(fronts[curve.run].losses(), curve.box).value
        assert curve.hypervolumes[-1] == pytest.approx(final, rel=1e-12)
        assert curve.evaluations.tolist() == [20, 40, 60, 80, 100, 120]


def test_a_band_holds_the_quartiles_of_its_runs(study):
    found = curves(read_histories(study))
    best, worst = bands(found)
    assert best.contender == "pymoo nsga2"
    assert best.runs == 3
    group = [c.hypervolumes for c in found if c.contender == worst.contender]
    assert worst.median.tolist() == np.median(group, axis=0).tolist()
    assert (worst.low <= worst.median).all()
    assert (worst.median <= worst.high).all()


def test_generations_that_are_not_done_do_not_count(tmp_path):
    groups = run_groups("unfinished", generations=6, done=2)
    (history,) = read_histories(write_results(tmp_path, groups))
    assert history.evaluations.tolist() == [20, 40]
    assert len(history.values["latency_s"]) == 40
    with pytest.raises(InputError, match=r"no run has a front yet \(unfinished: running\)"):
        read_fronts(tmp_path)


def test_infeasible_genomes_do_not_count(tmp_path):
    groups = run_groups("run", constraints=["area_mm2"])
    archive = groups["/run/archive"]
    archive["area_mm2"][:] = np.where(np.arange(archive.sizes["genome_id"]) < 30, 1.0, -1.0)
    (history,) = read_histories(write_results(tmp_path, groups))
    (curve,) = curves([history])
    assert curve.hypervolumes[0] == 0.0
    assert curve.hypervolumes[1] > 0.0


def test_a_front_keeps_units_objectives_bounds_and_designs(study):
    front = read_fronts(study, ["random-2"])[0]
    assert front.run == "moham-arvr-random-2"
    assert front.objectives == tuple(METRICS)
    assert front.metric("area_mm2").unit == "mm2"
    assert front.ideal_point["area_mm2"] == 1.0
    assert len(front.designs) == len(front)
    assert {"instances", "layers", "package"} <= set(front.designs[-1])
    assert front.attrs["certificate"] == {"mapper": "complete"}


def test_folders_without_results_say_so(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_fronts(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no results"):
        read_fronts(tmp_path)


def test_a_wrong_run_pattern_lists_the_runs(study):
    with pytest.raises(UnknownNameError, match=r"unknown run 'nsga9'.*moham-arvr-nsga2-1"):
        read_fronts(study, ["nsga9"])
    assert len(read_fronts(study, ["*-1"], designs=False)) == 2
