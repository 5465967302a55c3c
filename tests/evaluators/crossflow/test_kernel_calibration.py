"""Calibration of the device kernel model, on kernels whose constants are known."""

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow import kernel_calibration
from mohsearch.evaluators.crossflow.device_kernels import (
    PassConstants,
    gemm_milliseconds,
    load_constants,
    pass_milliseconds,
)
from mohsearch.hardware.systems import find_system

CARD = find_system("a100")
TRUE = load_constants().gemm["A100|fp16|gemm"]


def synthetic(tmp_path, seed=0, count=24):
    rng = np.random.default_rng(seed)
    m, n, k = (2.0 ** rng.integers(6, 14, count) for _ in range(3))
    times = gemm_milliseconds(CARD, TRUE, "fp16", np.ones(count), m, n, k)
    path = tmp_path / "measured.csv"
    rows = [f"a100,gemm,{a:.0f},{b:.0f},{c:.0f},{t},fp16"
            for a, b, c, t in zip(m, n, k, times, strict=True)]  # fmt: skip
    path.write_text("\n".join(["gpu,op,M,N,K,measured_ms,dtype", *rows]) + "\n")
    return path


def error_of(constants, cases):
    b, m, n, k = np.array([case.sizes for case, _ in cases]).T
    times = gemm_milliseconds(CARD, constants, "fp16", b, m, n, k)
    return kernel_calibration.weighted_log_error(times, np.array([t for _, t in cases]))


def test_a_fit_that_starts_from_the_truth_stays_there_and_a_fresh_one_gets_close(tmp_path):
    cases = kernel_calibration.read_measured([synthetic(tmp_path)])
    assert len(cases) == 24
    assert error_of(TRUE, cases) < 1e-9
    assert error_of(kernel_calibration.fit_gemm(cases, TRUE, 30), cases) < 1e-9
    fresh = kernel_calibration.fit_gemm(cases, None, 600)
    assert error_of(fresh, cases) < 0.1
    # What a fit may not do is look at other rows: it must also hold on kernels it has not seen.
    unseen = kernel_calibration.read_measured([synthetic(tmp_path, seed=1)])
    assert error_of(fresh, unseen) < 0.25


def test_element_wise_constants_are_recovered():
    true = PassConstants(launch_us=7.0, memory_efficiency=0.8)
    size = 2.0 ** np.arange(12, 30)
    times = pass_milliseconds(CARD, true, size)
    cases = [
        (kernel_calibration.Case(i, CARD, "add", "fp16", (s, 0.0, 0.0, 0.0), False), t)
        for i, (s, t) in enumerate(zip(size, times, strict=True))
    ]
    fitted = kernel_calibration.fit_pass(cases)
    assert fitted.launch_us == pytest.approx(7.0, rel=0.02)
    assert fitted.memory_efficiency == pytest.approx(0.8, rel=0.02)


def test_the_command_writes_constants_that_load_again(tmp_path):
    out = tmp_path / "constants.yaml"
    arguments = [str(synthetic(tmp_path)), "-o", str(out), "--evaluations", "20"]
    kernel_calibration.main(arguments)
    text = out.read_text()
    assert "A100|fp16|gemm" in text
    assert "gemm_default" in text


def test_a_row_without_sizes_is_refused(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("gpu,op,M,N,K,measured_ms\na100,gemm,x,1,1,1\n")
    with pytest.raises(InputError, match=r"row 2\.M"):
        kernel_calibration.read_measured([path])
