import csv
import io
import json
import re

import pytest

from tests.analysis.synthetic_results import run_groups, two_engines, write_results
from tests.command_line import run


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return two_engines(tmp_path_factory.mktemp("results"), seeds=2)


def test_show_prints_a_table_per_run_with_units_bounds_and_designs(study):
    out = run("front", "show", study, "--limit", 5).stdout
    assert out.count("solutions; all of them with --all") == 4
    assert "latency (ms)" in out
    assert "proven bound for any solution: latency 4.000 ms, energy 20.00 mJ" in out
    assert "%" in out.splitlines()[2]
    assert "MACs" in out


def test_show_sorts_by_a_metric(study):
    out = run(
        "front", "show", study, "--run", "nsga2-1", "--sort", "area_mm2", "--all"
    ).stdout.splitlines()
    exported = run("front", "export", study, "--run", "nsga2-1", "--sort", "area_mm2").stdout
    rows = list(csv.DictReader(io.StringIO(exported)))
    areas = [float(row["area_mm2"]) for row in rows]
    assert areas == sorted(areas)
    body = [line.split()[0] for line in out[2 : 2 + len(rows)]]
    assert body == [row["solution"] for row in rows]
    assert "smallest" in out[2]


def test_show_a_solution_lists_its_instances(study):
    out = run("front", "show", study, "--run", "nsga2-1", "--solution", "knee").stdout
    assert "template" in out
    assert "busy" in out
    assert "latency" in out


def test_an_unknown_metric_or_solution_lists_what_exists(study):
    result = run("front", "show", study, "--sort", "latency", code=2)
    assert "unknown metric 'latency'; did you mean 'latency_s'?" in result.stderr
    result = run("plot", "gantt", study, "--solution", "quickest", code=2)
    assert "unknown solution 'quickest'" in result.stderr
    assert "least-energy" in result.stderr


def test_csv_and_json_hold_every_solution_of_every_run(study, tmp_path):
    rows = list(csv.DictReader(io.StringIO(run("front", "export", study).stdout)))
    run("front", "export", study, "-o", tmp_path / "sub" / "front.json")
    document = json.loads((tmp_path / "sub" / "front.json").read_text())
    assert len(document["runs"]) == 4
    assert len(rows) == sum(len(r["solutions"]) for r in document["runs"])
    first = document["runs"][0]
    assert first["metrics"]["latency_s"]["unit"] == "s"
    same = next(r for r in rows if r["run"] == first["run"])
    solution = first["solutions"][0]
    assert int(same["solution"]) == solution["solution"]
    assert float(same["energy_j"]) == solution["metrics"]["energy_j"]
    over = solution["metrics"]["area_mm2"] / first["ideal_point"]["area_mm2"] - 1
    assert float(same["area_mm2_over_bound"]) == pytest.approx(over)
    assert {"instances", "layers"} <= set(solution["design"])


def test_netcdf_opens_with_one_group_per_run(study, tmp_path):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    run("front", "export", study, "-o", tmp_path / "front.nc", "--limit", 3)
    with xr.open_datatree(tmp_path / "front.nc", engine="h5netcdf") as tree:
        group = tree["moham-arvr-random-1"]
        assert group["energy_j"].attrs["units"] == "J"
        assert group.sizes["solution"] == 3
        assert "layers" in json.loads(str(group["design"].values[0]))


def test_an_export_without_a_known_suffix_is_refused(study, tmp_path):
    result = run("front", "export", study, "-o", tmp_path / "front.xlsx", code=2)
    assert ".csv, .json, .nc" in result.stderr


@pytest.mark.parametrize("kind", ["front", "gantt", "convergence", "attainment"])
def test_pictures_are_written_into_the_results_folder_by_default(study, kind):
    result = run("plot", kind, study)
    assert f"wrote {study / kind}.png" in result.stderr
    assert (study / f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_a_gantt_chart_of_several_runs_takes_the_best_and_says_so(study, tmp_path):
    result = run("plot", "gantt", study, "-o", tmp_path / "g.svg")
    assert "the run with the largest hypervolume; for another: --run" in result.stderr
    assert "taking moham-arvr-nsga2-" in result.stderr
    assert (tmp_path / "g.svg").read_text().startswith("<?xml")


def test_compare_ranks_the_engines_and_writes_csv(study, tmp_path):
    out = run("compare", study, "--by", "engine", "--format", "table").stdout
    lines = out.splitlines()
    assert lines[1].split()[:3] == ["1", "pymoo", "nsga2"]
    assert "dominated by random" in lines[0]
    assert "reference point at 1.1 in each" in out
    assert re.search(r"best above the proven bound +latency +energy +area\n", out)
    column = re.split(r"  +", lines[0]).index("CPU-s")
    assert re.split(r"  +", lines[1].strip())[column] == "1.40"
    run("compare", study, "-o", tmp_path / "c.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["contender"] for row in rows] == ["pymoo nsga2", "random"]
    assert float(rows[0]["hypervolume_median"]) > float(rows[1]["hypervolume_median"])
    assert [float(row["cpu_s_median"]) for row in rows] == [1.4, 1.4]


def test_compare_tests_pairs_and_says_when_there_are_too_few_seeds(study, tmp_path):
    out = run("compare", study, "--by", "engine", "--format", "table").stdout
    assert "too few seeds to conclude: with 2 a contender" in out
    assert "4 are needed" in out
    enough = two_engines(tmp_path / "enough", seeds=5)
    out = run("compare", enough, "--by", "engine", "--format", "table").stdout
    assert "pymoo nsga2 is better" in out
    assert "too few" not in out


def test_compare_writes_standings_tests_curves_and_a_picture(study, tmp_path):
    made = {kind: tmp_path / f"c.{kind}" for kind in ("json", "png")}
    args = [part for path in made.values() for part in ("-o", path)]
    run("compare", study, *args, "--curves", tmp_path / "k.csv", "--tests", tmp_path / "t.csv")
    document = json.loads(made["json"].read_text())
    assert [s["contender"] for s in document["standings"]] == ["pymoo nsga2", "random"]
    assert "reference point at 1.1" in document["hypervolume_rule"]
    assert document["tests"][0]["verdict"] == "too few seeds"
    assert made["png"].read_bytes().startswith(b"\x89PNG")
    curves = list(csv.DictReader(io.StringIO((tmp_path / "k.csv").read_text())))
    last = [row for row in curves if row["contender"] == "random"][-1]
    final = next(s for s in document["standings"] if s["contender"] == "random")
    assert float(last["hypervolume_median"]) == pytest.approx(final["hypervolume_median"])
    tests = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert float(tests[0]["p_holm"]) == pytest.approx(1 / 3)


def test_compare_takes_several_studies_and_names_runs_after_them(tmp_path):
    folders = []
    for name, quality in (("first", 12.0), ("second", 2.0)):
        (tmp_path / name).mkdir()
        groups = run_groups("moham-arvr-1", quality=quality, portfolio=name)
        folders.append(write_results(tmp_path / name, groups))
    out = run("compare", *folders, "--by", "portfolio", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["contender"] for row in rows] == ["first", "second"]
    result = run("compare", *folders, "--run", "absent", code=2)
    assert "first/" not in result.stderr
    assert "unknown run 'absent'" in result.stderr


def test_a_folder_named_twice_or_through_a_link_counts_once(study, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(study, target_is_directory=True)
    once = run("compare", study, "--by", "engine", "--format", "csv")
    again = run("compare", study, study, link, study / "results.zarr", "--by", "engine")
    assert again.stdout == once.stdout
    assert f"note: {study} is named twice: its runs count once\n" in again.stderr
    assert f"note: {link} is {study} under another name: its runs count once\n" in again.stderr
    assert again.stderr.count("its runs count once") == 3
    assert "count once" not in once.stderr


def test_a_copied_run_counts_once_and_other_seeds_count(study, tmp_path):
    """The copy has the runs with seeds 1 and 2 of the study, and one with seed 3 beside them."""
    more = two_engines(tmp_path / "more", seeds=3)
    result = run("compare", study, more, "--by", "engine", "--format", "csv")
    whole = run("compare", more, "--by", "engine", "--format", "csv")
    assert result.stdout == whole.stdout
    told = f"note: 4 of 6 runs in {more} are copies of runs in {study}: they count once\n"
    assert told in result.stderr
    named = run("compare", study, more, "--run", "*-3", "--run", "*-1", "--by", "engine")
    assert "note: 2 of 4 runs" in named.stderr
    assert [row["runs"] for row in csv.DictReader(io.StringIO(named.stdout))] == ["2", "2"]


def test_equal_results_of_different_contenders_or_seeds_all_count(tmp_path):
    """An operator with nothing to vary finds the same without it: no copy, though it is equal."""
    groups = run_groups("a", seed=1, portfolio="whole") | run_groups("b", seed=1, portfolio="off")
    other = run_groups("a", seed=1, portfolio="whole", run_digest="another system")
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, content in zip(folders, (groups, other), strict=True):
        folder.mkdir()
        write_results(folder, content)
    result = run("compare", *folders, "--by", "portfolio", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {row["contender"]: row["runs"] for row in rows} == {"whole": "2", "off": "1"}
    assert "count once" not in result.stderr


def test_folders_of_the_same_name_are_called_by_their_paths(tmp_path):
    folders = [tmp_path / "a" / "out", tmp_path / "b" / "out"]
    for k, folder in enumerate(folders):
        folder.mkdir(parents=True)
        write_results(folder, run_groups("r", seed=k + 1, quality=9.0 - 6 * k, portfolio=f"p{k}"))
    curves = tmp_path / "k.csv"
    out = run("compare", *folders, "--curves", curves, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    last = {r["contender"]: r for r in csv.DictReader(io.StringIO(curves.read_text()))}
    assert [row["contender"] for row in rows] == ["p0", "p1"]
    for row in rows:
        found = last[row["contender"]]
        assert found["runs"] == "1"
        assert float(found["hypervolume_median"]) == pytest.approx(float(row["hypervolume_median"]))


def test_columns_of_the_standings_are_in_rank_order_whoever_is_first(tmp_path):
    groups = {}
    for quality, name in ((1.0, "weak"), (12.0, "strong"), (4.0, "fair")):
        groups |= run_groups(name, quality=quality, portfolio=name)
    out = run("compare", write_results(tmp_path, groups), "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["contender"] for row in rows] == ["strong", "fair", "weak"]
    names = list(rows[0])
    shares = [name for name in names if "ed_by " in name]
    ranked = ["strong", "fair", "weak"]
    assert shares == [f"{kind}_by {n}" for kind in ("dominated", "covered") for n in ranked]
    assert names[-2:] == ["reference_point", "hypervolume_rule"]
    assert rows[0]["dominated_by strong"] == ""
    assert float(rows[2]["dominated_by strong"]) > 0.5


@pytest.mark.parametrize("by", ["seed", "template", "workload"])
def test_compare_by_seed_template_or_workload(tmp_path, by):
    groups, spec = {}, {"problems": []}
    for k, template in enumerate(("simba", "eyeriss")):
        title = f"only-{template}"
        spec["problems"].append(
            {"name": "moham", "label": title, "options": {"templates": [template]}}
        )
        groups |= run_groups(
            f"r{k}", quality=9.0 - 5 * k, seed=k + 1, problem_label=title, workload=f"w{k}"
        )
    write_results(tmp_path, groups, spec=json.dumps(spec))
    rows = list(csv.DictReader(io.StringIO(run("compare", tmp_path, "--by", by).stdout)))
    expected = {"seed": "seed 1", "template": "simba", "workload": "w0"}[by]
    assert expected in {row["contender"] for row in rows}
    if by == "workload":
        assert len({row["case"] for row in rows}) == 1
        assert "for each workload by itself" in rows[0]["hypervolume_rule"]


def test_a_comparison_into_an_unknown_format_is_refused(study, tmp_path):
    result = run("compare", study, "-o", tmp_path / "c.xlsx", code=2)
    assert ".csv, .json, .png" in result.stderr


def test_a_study_that_has_no_front_yet_says_so(tmp_path):
    write_results(tmp_path, run_groups("slow", done=1))
    assert "no run has a front yet (slow: running)" in run("front", "show", tmp_path, code=2).stderr
    run("plot", "convergence", tmp_path, "-o", tmp_path / "c.png")


def test_a_study_of_several_workloads_gives_one_picture_each(tmp_path):
    groups = {}
    for workload in ("mobile", "edge"):
        groups |= run_groups(f"r-{workload}", workload=workload)
    write_results(tmp_path, groups)
    result = run("plot", "front", tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.png")) == ["front-edge.png", "front-mobile.png"]
    assert result.stderr.count("wrote") == 2
    run("plot", "convergence", tmp_path, "-o", tmp_path / "c.svg")
    assert sorted(p.name for p in tmp_path.glob("*.svg")) == ["c-edge.svg", "c-mobile.svg"]


def test_of_a_study_of_several_problems_the_picture_takes_a_run_that_it_can_draw(tmp_path):
    groups = run_groups("a-other", problem="chiplet", workload="first", quality=12.0)
    groups |= run_groups("b-package", workload="second")
    write_results(tmp_path, groups)
    drawn = run("plot", "gantt", tmp_path)
    assert "taking" not in drawn.stderr
    assert "gantt.png" in drawn.stderr
    shown = run("front", "show", tmp_path, "--solution", "knee")
    assert "taking a-other, the run with the largest hypervolume on first" in shown.stderr
