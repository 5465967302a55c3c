"""The tables of PHAZE are filled from results, with the paper's figures beside ours."""

import numpy as np

from mohsearch.analysis import phaze_tables
from mohsearch.analysis.fronts import Front


def front(label: str, model: str, throughput: list[float]) -> Front:
    design = {
        "architecture": {
            "tensor_cores": 4,
            "vector_cores": 16,
            "width": 64,
            "depth": 32,
            "global_buffer_mib": 8,
        },
        "training": {"hbm_bytes": 64 * 2**30},
        "models": [{"pipeline": 2, "data": 128, "tensor": 4, "microbatch": 2, "recompute": "full"}],
    }
    values = {
        "throughput_samples_per_s": np.array(throughput),
        "mfu": np.array(throughput) / 100,
    }
    attrs = {"problem_label": label, "workload": model}
    return Front(label, attrs, (), values, (), designs=[design] * len(throughput))


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


def test_a_folder_without_results_is_answered_in_one_sentence(tmp_path, capsys):
    assert phaze_tables.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
