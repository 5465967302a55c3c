"""The doors ``crossflow`` and ``kernel``."""

import csv
import io

import pytest

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.crossflow import crossflow_door, kernel_door
from mohsearch.evaluators.crossflow.evaluate import Strategy

MEASURED = """gpu,op,M,N,K,measured_ms,dtype
a100,mlp_up_proj,2048,22016,4096,1.57,fp16
a100,attn_out_proj,456,4096,4096,0.085,fp16
a100,attn_out_proj,184,4096,4096,0.04,fp16
"""
"""Two rows of the Vidur profiles (microsoft/vidur), and one of a similar size."""


def test_a_product_of_a_named_system_is_broken_down_by_level(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("system: V100\ngemm: {m: 4096, k: 4096, n: 4096}\n")
    report = crossflow_door.evaluate(path)
    (row,) = report.rows
    assert row["bound"] in ("compute", "L0", "L1", "L2", "L3")
    slowest = max(row[f"{level}_s"] for level in ("L0", "L1", "L2", "L3"))
    assert row["time_s"] == pytest.approx(max(slowest, row["compute_s"]) + 9e-6)
    assert report.summary[0]["reason"] == "feasible"
    assert row["flop_per_s"] <= row["roofline_flop_per_s"]


def test_a_training_step_under_both_models(tmp_path):
    times = []
    for compat in ("none", "deepflow"):
        path = tmp_path / f"{compat}.yaml"
        path.write_text(f"system: V100\ncompat: {compat}\ntechnology: {{memory: HBM2}}\n")
        times.append(crossflow_door.evaluate(path).summary[0]["time_s"])
    assert times[1] == pytest.approx(0.021524170884845404, rel=1e-8)
    assert times[0] > times[1]


def test_wrong_configurations_name_the_field(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("system: V100\narea_breakdown: {cores: 0.3}\n")
    with pytest.raises(InputError, match=r"area_breakdown\.cores: no such field"):
        crossflow_door.evaluate(path)
    path.write_text("system: V1000\n")
    with pytest.raises(UnknownNameError, match="did you mean"):
        crossflow_door.evaluate(path)
    path.write_text("system: H100\n")
    with pytest.raises(InputError, match="no CrossFlow allocation"):
        crossflow_door.evaluate(path)
    with pytest.raises(InputError, match="no strategy"):
        Strategy.parse("XY-3")


def kernels(tmp_path, text):
    path = tmp_path / "cases.csv"
    path.write_text(text)
    return kernel_door.evaluate(path)


def test_measured_products_are_predicted_and_the_error_is_reported(tmp_path):
    report = kernels(tmp_path, MEASURED)
    assert [r["M"] for r in report.rows] == [2048, 456, 184]
    assert report.rows[1]["predicted_ms"] == pytest.approx(0.085, rel=0.25)
    total = next(r for r in report.summary if r["class"] == "gemm" and r["device"] == "all")
    assert total["kernels"] == 3
    assert total["mean_error"] < total["roofline_mean_error"]


def test_batches_element_wise_kernels_and_codes_of_other_layouts(tmp_path):
    text = (
        "op,device,B,M,N,K,H,ta,dtype\n"
        "bmm,Tesla T4,320,512,512,96,,,fp32\n"
        "softmax,Tesla T4,16384,,,,4096,,fp32\n"
        ",M40,,1760,16,1760,,N,fp32\n"
        ",M40,,700,161,1,,4,fp32\n"
    )
    rows = kernels(tmp_path, text).rows
    assert all(rows[i]["predicted_ms"] > 0 for i in range(3))
    assert rows[3]["predicted_ms"] is None
    assert rows[0]["predicted_ms"] >= rows[0]["plain_roofline_ms"]


def test_a_device_that_was_never_measured_gets_the_default_constants(tmp_path):
    (row,) = kernels(tmp_path, "gpu,op,M,N,K,dtype\nh100,gemm,8192,8192,8192,fp16\n").rows
    assert 1.0 < row["predicted_ms"] / row["plain_roofline_ms"] < 3.0


def test_wrong_rows_name_row_and_column(tmp_path):
    with pytest.raises(InputError, match=r"row 2\.M: must be a number"):
        kernels(tmp_path, "gpu,op,M,N,K,dtype\na100,x,big,1,1,fp16\n")
    with pytest.raises(UnknownNameError, match="unknown device 'a1000'"):
        kernels(tmp_path, "gpu,op,M,N,K,dtype\na1000,x,1,1,1,fp16\n")
    with pytest.raises(InputError, match="no case in it"):
        kernels(tmp_path, "gpu,op,M,N,K\n")


def test_the_csv_of_a_report_reads_back(tmp_path):
    report = kernels(tmp_path, MEASURED)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(report.rows[0]))
    writer.writeheader()
    writer.writerows(report.rows)
    again = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert float(again[0]["predicted_ms"]) == report.rows[0]["predicted_ms"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a100,gemm,2048,2048,2048,,fp8", "row 2.dtype: unknown number format 'fp8'"),
        ("a100,gemm,2048,2048,2048,nan,fp16", "row 2.measured_ms: must be a positive number"),
        ("a100,gemm,2048,2048,2048,fast,fp16", "row 2.measured_ms: must be a positive number"),
        ("a100,gemm,2048,2048,,,fp16", "row 2.K: missing; a product needs M, N and K"),
        ("a100,gemm,2048.5,2048,64,,fp16", "row 2.M: must be a whole number"),
        ("a100,gemm,2048,2048,64,,fp16,9", "row 1: more fields than the header"),
    ],
)
def test_kernels_that_are_not_understood_are_refused(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        kernels(tmp_path, "gpu,op,M,N,K,measured_ms,dtype\n" + row + "\n")


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    assert len(kernels(tmp_path, "\ufeff" + MEASURED).rows) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tech_param: {core: {threshold_voltage: 0.8}}", "core: .*must be below nominal_voltage"),
        ("tech_param: {core: {max_voltage: 0.1}}", "core: .*max_voltage .0.1. must reach"),
        ("scheduling_param: {kp_hidden_dim1: 4}", "kp_hidden_type must be 1 .CR. or 2 .RC."),
        ("strategy: d8", "num_workers: the strategy takes 8 devices, there are 1"),
        ("strategy: d8\ngemm: {m: 64, k: 64, n: 64}", "strategy: a product is split by RC or CR"),
        ("gemm: [{m: 64, k: 64, n: 64, strategy: XY}]", r"gemm\[0\].strategy: 'XY' is no strategy"),
    ],
)
def test_configurations_that_contradict_themselves_are_refused(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text("system: V100\n" + text + "\n")
    with pytest.raises(InputError, match=message):
        crossflow_door.evaluate(path)


def test_a_strategy_of_the_whole_configuration_splits_its_products_too(tmp_path):
    hierarchy = "system_hierarchy: {num_workers: 8, kp1_inter: true}\n"
    times = []
    for text in (
        "gemm: {m: 4096, k: 4096, n: 4096, strategy: CR-8}",
        "strategy: CR-8\ngemm: {m: 4096, k: 4096, n: 4096}",
    ):
        path = tmp_path / "split.yaml"
        path.write_text(f"system: V100\n{hierarchy}{text}\n")
        times.append(crossflow_door.evaluate(path).summary[0]["time_s"])
    assert times[0] == times[1]
