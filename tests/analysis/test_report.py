"""The report: what a page holds, what is left out, what its printable copy says."""

import json

import pytest

from mohsearch.analysis.report import write_report
from mohsearch.analysis.report_gather import gather_report
from mohsearch.analysis.report_page import pack, unpack
from mohsearch.analysis.report_sheets import STEPS, Names, sheet_of
from mohsearch.core.errors import InputError
from tests.analysis.synthetic_results import run_groups, two_engines, write_results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return two_engines(tmp_path_factory.mktemp("results"), seeds=2)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    return write_report([results], tmp_path_factory.mktemp("report"), title="Two <engines>")


def data_of(page):
    text = page.read_text(encoding="utf-8")
    return unpack(text.partition('id="data">')[2].partition("</script>")[0])


def test_the_page_holds_every_solution_with_its_values_and_a_design(written):
    (case,) = data_of(written.page)["cases"]
    fronts = [member.front for member in written.report.cases[0].members]
    assert len(case["member"]) == sum(map(len, fronts)) == len(case["sheet"])
    assert min(case["sheet"]) == 0
    start = case["members"][1]["start"]
    assert case["values"]["latency_s"][start] == pytest.approx(
        fronts[1].values["latency_s"][0], rel=1e-5
    )
    assert case["contenders"] == ["pymoo nsga2", "random"]
    assert case["solution"][start] == 0


def test_a_block_of_the_page_unpacks_to_the_design_that_a_point_names(written, results):
    from mohsearch.analysis.results import read_fronts

    data = data_of(written.page)
    (case,) = data["cases"]
    text = written.page.read_text(encoding="utf-8")
    last = len(case["sheet"]) - 1
    number = case["sheet"][last]
    block = text.partition(f'id="designs-{number // data["block"]}">')[2].partition("<")[0]
    sheet = unpack(block)[number % data["block"]]
    names = Names()
    for entry in data["names"]:
        names.number(*entry)
    original = read_fronts(results, [case["members"][-1]["run"]])[0].designs[-1]
    assert sheet == json.loads(json.dumps(sheet_of(original, names)))


def test_the_page_names_no_address_it_would_load_from(written):
    text = written.page.read_text(encoding="utf-8")
    own = text.partition("<script>/**")[0] + text.rpartition("</script>\n<script>")[2]
    assert "http" not in own.replace("http-equiv", "")
    assert "default-src 'none'" in text
    assert "src=" not in own
    assert "@import" not in own
    assert "<title>Two &lt;engines&gt;</title>" in text


def test_the_page_says_which_command_made_every_figure(written, results):
    data = data_of(written.page)
    assert data["command"].startswith(f"mohsearch report {results} -o ")
    assert data["comparisons"][0]["command"] == f"mohsearch compare {results}"
    member = data["cases"][0]["members"][0]
    assert member["command"] == f"mohsearch front show {results} --run {member['run']}"
    assert data["runs"]["rows"][0][data["runs"]["columns"].index("command")] == "mohsearch"


def test_fewer_designs_keep_every_fronts_extremes_and_knee(results):
    from mohsearch.analysis.fronts import highlights

    report = gather_report([results], designs=24)
    for member in report.cases[0].members:
        assert len(member.sheets) == min(6, len(member.front))
        assert set(highlights(member.front, 0)) <= set(member.sheets)
    assert "24 of" in report.notes[0]


def test_solutions_that_another_run_dominates_are_marked(written):
    case = written.report.cases[0]
    for mine, mask in zip(case.members, case.best, strict=True):
        for i in range(len(mine.front)):
            point = mine.front.losses()[i]
            beaten = any(
                ((o.front.losses() <= point).all(1) & (o.front.losses() < point).any(1)).any()
                for o in case.members
            )
            assert mask[i] == (not beaten)


def test_the_markdown_has_every_table_its_pictures_exist_and_its_commands(written):
    text = written.copy.read_text(encoding="utf-8")
    assert text.startswith("# Two <engines>\n")
    assert "## Comparison: moham" in text
    assert "| 1 | pymoo nsga2 | 2 |" in text
    assert len(written.pictures) == 2
    for path in written.pictures:
        assert path.is_file()
        assert f"]({path.name})" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows)


def test_studies_of_several_folders_are_told_apart(tmp_path, results):
    other = tmp_path / "second"
    other.mkdir()
    write_results(other, run_groups("edge-1", seed=9, workload="edge"))
    report = gather_report([results, other])
    assert [case.name for case in report.cases] == ["moham: arvr", "moham: edge"]
    assert report.cases[1].members[0].contender == "second: pymoo nsga2, moham"
    assert {row["folder"] for row in report.runs} == {str(results), str(other)}
    for case in report.cases:
        assert {c.contender for c in case.curves} == {m.contender for m in case.members}


def test_a_folder_named_twice_and_copied_runs_are_in_a_report_once(tmp_path, results):
    link = tmp_path / "link"
    link.symlink_to(results, target_is_directory=True)
    plain = gather_report([results])
    report = gather_report([results, link])
    assert (report.folders, report.runs) == (plain.folders, plain.runs)
    assert f"{link} is {results} under another name: its runs count once" in report.notes
    assert report.comparisons["moham"].records() == plain.comparisons["moham"].records()
    more = two_engines(tmp_path / "more", seeds=3)
    both = gather_report([results, more])
    assert [row["run"][-1] for row in both.runs] == ["1", "2", "1", "2", "3", "3"]
    assert len(both.cases[0].members) == len(both.cases[0].curves) == 6
    assert f"4 of 6 runs in {more} are copies of runs in {results}: they count once" in both.notes
    copy = two_engines(tmp_path / "copy", seeds=2)
    assert gather_report([results, copy]).folders == (results,)


def test_the_command_of_a_comparison_names_the_folders_of_its_problem_only(tmp_path, results):
    other = tmp_path / "second"
    other.mkdir()
    write_results(other, run_groups("other-1", seed=9, problem="phaze"))
    report = gather_report([results, other])
    assert report.command("compare", "moham") == f"mohsearch compare {results}"
    assert report.command("report") == f"mohsearch report {results} {other}"


def test_an_ablation_is_in_page_and_copy(tmp_path):
    entries = [{"name": "paper"}, {"name": "paper", "label": "off", "without": ["sa-merging"]}]
    groups = {}
    for seed in (1, 2):
        groups |= run_groups(f"r-{seed}", seed=seed, portfolio="paper")
        groups |= run_groups(f"o-{seed}", seed=seed, portfolio="off")
    write_results(tmp_path, groups, spec=json.dumps({"portfolios": entries}))
    made = write_report([tmp_path], tmp_path / "report")
    (found,) = data_of(made.page)["ablations"]
    assert found["names"] == ["nothing (control)", "sa-merging"]
    assert found["share"][0] == pytest.approx(100 * made.report.ablations[0][1].control.share)
    assert "![ablation](ablation-1.png)" in made.copy.read_text(encoding="utf-8")


def test_a_run_without_a_front_yet_is_listed_but_not_drawn(tmp_path):
    groups = run_groups("done-1", seed=1) | run_groups("open-2", seed=2, done=3)
    write_results(tmp_path, groups)
    report = gather_report([tmp_path])
    assert [member.run for member in report.cases[0].members] == ["done-1"]
    assert [(row["run"], row["status"]) for row in report.runs] == [
        ("done-1", "complete"),
        ("open-2", "running"),
    ]


def test_a_folder_without_any_front_is_refused_with_the_reason(tmp_path):
    write_results(tmp_path, run_groups("open-1", seed=2, done=3))
    with pytest.raises(InputError, match="no run has a front yet"):
        gather_report([tmp_path])


def test_numbers_that_are_none_are_packed_as_null():
    assert unpack(pack({"a": [float("nan"), float("inf"), 1.5]})) == {"a": [None, None, 1.5]}


# sheets -------------------------------------------------------------------------------------------


def test_a_schedule_keeps_its_times_to_a_ten_thousandth_of_its_length():
    design = {
        "instances": [
            {"id": 7, "template": "simba", "tile": [0, 0], "macs": 64, "levels": []},
            {"id": 3, "template": "eyeriss", "tile": [1, 0], "macs": 32, "levels": []},
        ],
        "layers": [
            {"name": "b", "network": "n", "instance": 7, "start_s": 0.5, "end_s": 2.0,
             "stalled_s": 0.25},
            {"name": "a", "network": "n", "instance": 3, "start_s": 0.0, "end_s": 0.5},
        ],
    }  # fmt: skip
    names = Names()
    (gantt,) = sheet_of(design, names)["pictures"]
    assert gantt["rows"] == [["1 eyeriss", "eyeriss"], ["2 simba", "simba"]]
    assert [names.entries[n][0] for n in gantt["name"]] == ["b", "a"]
    assert (gantt["row"], gantt["start"]) == ([1, 0], [STEPS // 4, 0])
    assert gantt["length"] == [3 * STEPS // 4, STEPS // 4]
    assert (gantt["stall"], gantt["end_s"]) == ([STEPS // 8, 0], 2.0)


def test_shares_of_a_chips_budgets_are_stacked_in_percent():
    design = {
        "technology": {"logic": "N5", "memory": "HBM3", "network": "NDR_x8"},
        "fractions": {
            "area": {"core": 0.75, "L2": 0.25},
            "perimeter": {"DRAM": 0.4, "unspent": 0.6, "intra": 0.0},
        },
        "strategy": "RC-k4-d4",
        "chip": {"core_frequency_hz": 1.2e9},
    }
    sheet = sheet_of(design, Names())
    (stack,) = sheet["pictures"]
    assert stack["places"] == ["area", "perimeter"]
    assert dict(stack["series"]) == {
        "core": [75.0, 0.0], "L2": [25.0, 0.0], "DRAM": [0.0, 40.0], "unspent": [0.0, 60.0],
    }  # fmt: skip
    assert sheet["line"] == "N5, HBM3, NDR_x8, strategy RC-k4-d4"
    assert ["core frequency", "1.200 GHz"] in dict(sheet["facts"])["Chip"]


def test_a_partition_shows_what_each_chip_and_link_does():
    chip = {"compute_s": 2e-6, "load_s": 5e-6, "ops": 3}
    design = {
        "chips": [{"chip": 0, **chip}, {"chip": 1, **chip, "load_s": 2e-6}],
        "links": [{"from": 0, "to": 1, "bytes": 64.0, "busy_s": 3e-6}],
        "labels": [0, 0, 0, 1, 1, 1],
        "binding": {"what": "chip", "number": 0},
    }
    sheet = sheet_of(design, Names())
    load, link = sheet["pictures"]
    assert load["series"] == [["compute", [2.0, 2.0]], ["send and receive", [3.0, 0.0]]]
    assert (load["unit"], link["places"]) == ("µs", ["0-1"])
    assert sheet["line"] == "2 chips, 6 ops"


def test_a_training_plan_shows_stages_and_the_schedule_of_its_heaviest_layer():
    def op(name, start, end, **cores):
        return {"name": name, "engine": "tensor", "start_s": start, "end_s": end, **cores}

    passes = {
        "makespan_s": 3.0,
        "ops": [
            op("q", 0.0, 1.0, all_cores=False, tensor_core=1, vector_core=None),
            op("k", 1.0, 3.0, all_cores=True, tensor_core=None, vector_core=None),
        ],
    }
    light = {"name": "embedding", "count": 1, "forward": {**passes, "makespan_s": 1.0}}
    model = {
        "model": "bert", "placed": True, "pipeline": 2, "data": 4, "tensor": 1,
        "stages": [{"layers": 2, "load_s": 0.5}, {"layers": 3, "load_s": 0.7}],
        "layers": [light, {"name": "block", "count": 12, "forward": passes}],
    }  # fmt: skip
    architecture = {"tensor_cores": 2, "vector_cores": 2, "width": 64, "depth": 32}
    names = Names()
    sheet = sheet_of({"architecture": architecture, "models": [model]}, names)
    stages, gantt = sheet["pictures"]
    assert stages["series"] == [["load", [500.0, 700.0]]]
    assert gantt["title"] == "bert: block (x 12), forward"
    assert gantt["rows"] == [["all cores", "all cores"], ["tensor core   2", "tensor core"]]
    assert gantt["row"] == [1, 0]
    assert "pipeline 2, data 4, tensor 1" in sheet["line"]


def test_a_design_of_a_form_unknown_here_is_shown_by_scalars_and_lists_of_records():
    table = [{"id": k, "size_bytes": 1024} for k in range(70)]
    sheet = sheet_of({"depth": 4, "part": {"delay_s": 0.002}, "cells": table}, Names())
    assert sheet["facts"] == [["", [["depth", "4"]]], ["Part", [["delay", "2.000 ms"]]]]
    assert sheet["tables"][0]["title"] == "Cells (the first 64 of 70)"
    assert sheet["tables"][0]["rows"][0] == ["0", "1 KiB"]
