"""The tables of PHAZE are filled from results, with the paper's figures beside ours."""

import dataclasses

import numpy as np
import pytest

from mohsearch.analysis import phaze_tables
from mohsearch.analysis.fronts import Front
from mohsearch.analysis.phaze_hysteresis import hysteresis, hysteresis_rows, plot_hysteresis
from mohsearch.analysis.published_tables import published_tables
from mohsearch.analysis.results import History
from mohsearch.core.errors import InputError


def front(label: str, model: str, throughput: list[float], **options: object) -> Front:
    plan = {"pipeline": 2, "data": 128, "tensor": 4, "microbatch": 2, "recompute": "full"}
    design = {
        "architecture": {
            "tensor_cores": 4,
            "vector_cores": 16,
            "width": 64,
            "depth": 32,
            "global_buffer_mib": 8,
        },
        "training": {"hbm_bytes": 64 * 2**30},
        "models": [plan],
    }
    values = {
        "throughput_samples_per_s": np.array(throughput),
        "mfu": np.array(throughput) / 100,
    }
    attrs = {"problem_label": label, "workload": model, "options": options, "problem": "phaze"}
    return Front(label, attrs, (), values, (), designs=[design] * len(throughput))


def search(level: int | None, throughput: list[float], model: str = "bert-large") -> Front:
    """A run of the hysteresis engine, or of the proof where there is no level."""
    made = front("one-setting", model, throughput)
    report = {"level": level, "bins_explored": [level, 1]} if level else {"status": "optimal"}
    engine = "phaze-hysteresis" if level else "exhaustive"
    attrs = {"engine": engine, "engine_report": report, "evaluations": len(throughput)}
    return dataclasses.replace(made, attrs={**made.attrs, **attrs, "constraints": ["unplaced"]})


def test_speedups_are_ratios_of_the_fastest_designs_and_their_geometric_mean():
    found = phaze_tables.best_designs(
        [
            front("tpuv4-expert", "opt-350m", [1.0, 2.0]),
            front("tpuv4-expert", "gpt2-xl", [4.0]),
            front("searched", "opt-350m", [8.0, 3.0]),
            front("searched", "gpt2-xl", [4.0]),
        ]
    )
    lines = phaze_tables.speedups(found)
    assert lines[2].startswith("| OPT | 2 |")
    assert lines[2].endswith("| 4.00 |")
    assert next(line for line in lines if line.startswith("| GPT2")).endswith("| 1.00 |")
    mean = next(line for line in lines if line.startswith("| geometric"))
    assert mean.endswith("| 2.00 (2) |")
    assert "accelerators 3.6" in lines[-1]


def test_ours_stands_above_the_papers_configuration_and_beside_its_utilisation():
    found = phaze_tables.best_designs([front("searched", "gpt3-175b", [5.0])])
    lines = phaze_tables.table2(found)
    place = next(k for k, line in enumerate(lines) if line.startswith("| Megatron GPT3"))
    assert lines[place].endswith("ours | {4, 16, 64, 32}, 8 | {2, 128, 4} | 2 | full | 64 |")
    assert "{1, 1024, 256, 256}, 8 | {16, 16, 4} | 1 | full | 64" in lines[place + 1]
    found = phaze_tables.best_designs([front("tpuv4-solver", "opt-350m", [9.0])])
    assert "| OPT | - / 5.4 | 9.0 / 12.3 | - / 17.1 |" in phaze_tables.table5(found)


def test_runs_of_different_cost_models_never_meet_in_one_table():
    made = dict(
        phaze_tables.sections(
            [
                front("tpuv4-expert", "opt-350m", [2.0]),
                front("searched", "opt-350m", [8.0]),
                front("tpuv4-expert", "opt-350m", [100.0], compat="paper"),
                front("searched", "opt-350m", [900.0], compat="paper"),
                front("searched", "opt-350m", [7.0], clock_ghz=0.5, mean="arithmetic"),
            ]
        )
    )
    ours = made["Throughput over TPUv4 with expert placement (this project's model)"]
    theirs = made["Throughput over TPUv4 with expert placement (compat: paper)"]
    assert ours[2].endswith("| 4.00 |")
    assert theirs[2].endswith("| 9.00 |")
    assert "Table 2 (clock_ghz 0.5)" in made


def test_what_is_trained_does_not_make_a_model_of_its_own():
    free = front("searched", "opt-350m", [1.0], best_setting=True, hbm_gib=[80], mean="arithmetic")
    assert phaze_tables.modelling(free) == "this project's model"


def test_the_accelerator_for_several_models_has_each_models_ratio_and_their_mean():
    several = front("geometric", "toys", [4.0])
    parts = [
        {"model": name, "throughput_samples_per_s": value}
        for name, value in (("opt-350m", 8.0), ("gpt2-xl", 2.0))
    ]
    design = {**several.designs[0], "models": parts}
    several = dataclasses.replace(several, designs=[design])
    experts = [front("tpuv4-expert", name, [2.0]) for name in ("opt-350m", "gpt2-xl")]
    lines = dict(phaze_tables.sections([several, *experts]))[
        "One accelerator for several models (this project's model)"
    ]
    assert lines[0].startswith("geometric: {4, 16, 64, 32}, 8 MiB, 64 GiB")
    assert "| opt-350m | 8 | 4.00 |" in lines
    assert "| geometric mean | | 2.00 (2) |" in lines


def test_every_level_stands_beside_the_proven_optimum_of_its_model():
    runs = [search(2, [1.0, 5.0]), search(1, [1.0]), search(None, [10.0])]
    rows = hysteresis_rows([*runs, search(3, [4.0], "gpt2-xl")])
    assert [(row.workload, row.level, row.bins) for row in rows] == [
        ("bert-large", 1, 2),
        ("bert-large", 2, 3),
        ("gpt2-xl", 3, 4),
    ]
    lines = hysteresis(rows)
    assert "| bert-large | 2 | 5 | 50.0% | 2 | 3 |" in lines
    assert lines[-1].startswith("| gpt2-xl | 3 | 4 | - |")


def histories(*runs: Front) -> list[History]:
    return [
        History(
            dataclasses.replace(run, values={}),
            np.array([len(run)]),
            np.array([len(run)]),
            {**run.values, "unplaced": np.zeros(len(run))},
        )
        for run in runs
    ]


def test_the_picture_follows_the_highest_level_and_marks_where_each_stops():
    runs = [search(1, [1.0]), search(2, [1.0, 3.0, 2.0, 5.0]), search(None, [10.0])]
    figure = plot_hysteresis(histories(*runs))
    (axes,) = figure.axes
    curve = next(line for line in axes.lines if line.get_label() == "bert-large")
    np.testing.assert_allclose(curve.get_ydata(), [0.1, 0.3, 0.3, 0.5])
    dots = [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == "o"]
    assert dots == [[1.0, 0.1], [4.0, 0.5]]
    assert [text.get_text() for text in axes.texts] == ["1", "2"]


def test_a_picture_without_a_proof_beside_the_search_is_refused():
    with pytest.raises(InputError, match="proven optimum beside it"):
        plot_hysteresis(histories(search(1, [1.0])))


def test_runs_of_other_searches_and_problems_are_passed_over():
    other, chips = search(None, [10.0]), {"chips": np.ones(1)}
    others = [
        dataclasses.replace(other, attrs=other.attrs | {"engine": "pymoo"}, values=chips),
        dataclasses.replace(other, values=chips),
    ]
    with pytest.raises(InputError, match="proven optimum beside it"):
        plot_hysteresis(histories(*others))
    runs = [search(2, [1.0, 5.0]), other]
    assert plot_hysteresis(histories(*runs, *others)).axes[0].lines


def test_a_folder_without_results_is_answered_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"results\.zarr"):
        published_tables([tmp_path])
