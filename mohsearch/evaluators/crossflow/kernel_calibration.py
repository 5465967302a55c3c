"""Calibrate the constants of the device kernel model on measured kernels.

Per device, number format and class of product (or element-wise op) the mean absolute error of the
logarithm is made smallest with Nelder and Mead's method from three starts; products longer than
1 ms weigh 1, shorter ones 0.3. No constant is tuned to a single row. Run as

    python -m mohsearch.evaluators.crossflow.kernel_calibration measured.csv -o constants.yaml
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from mohsearch.core.cards import yaml_text
from mohsearch.core.files import write_text
from mohsearch.core.tables import read_records
from mohsearch.evaluators.crossflow.device_kernels import (
    GemmConstants,
    KernelConstants,
    PassConstants,
    gemm_milliseconds,
    load_constants,
    pass_milliseconds,
)
from mohsearch.evaluators.crossflow.kernel_door import BIG_MS, Case, case_of, measured_ms
from mohsearch.evaluators.crossflow.layout import FloatArray
from mohsearch.hardware.systems import SystemCard

SHORT_WEIGHT = 0.3
"""Weight of kernels that take less than ``BIG_MS``."""
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "efficiency": (0.2, 1.0), "block_half": (0.01, 200.0), "memory_efficiency": (0.3, 1.0),
    "launch_us": (0.5, 60.0), "fill_k": (0.01, 600.0), "cache_ratio": (0.2, 10.0),
    "cache_share": (0.05, 2.0), "span": (2e3, 1e7), "boost_ms": (0.05, 200.0),
    "throttle": (1e-4, 1.0),
}  # fmt: skip
_STARTS: tuple[tuple[float, ...], ...] = (
    (0.9, 5.0, 0.8, 5.0, 32.0, 3.0, 0.5, 1e6, 10.0, 0.05),
    (0.7, 20.0, 0.6, 10.0, 100.0, 1.5, 1.0, 1e5, 2.0, 0.2),
    (1.0, 1.0, 0.9, 3.0, 16.0, 5.0, 0.7, 5e4, 50.0, 0.02),
)
Measured = tuple[Case, float]


def read_measured(paths: Iterable[Path]) -> list[Measured]:
    """Return the kernels of CSV files (as ``mohsearch evaluate kernel`` reads them) with times.

    Raises
    ------
    InputError
        If a row lacks a column; the message names it.
    """
    found: list[Measured] = []
    for path in paths:
        devices: dict[str, SystemCard] = {}
        for i, row in enumerate(read_records(path)):
            case, measured = case_of(row, i, path, devices), measured_ms(row, i, path)
            if case is not None and measured is not None:
                found.append((case, measured))
    return found


def weighted_log_error(predicted: FloatArray, measured: FloatArray) -> float:
    """Return the weighted mean absolute error of the logarithm.

    Examples
    --------
    >>> round(weighted_log_error(np.array([2.0, 2.0]), np.array([2.0, 4.0])), 4)
    0.3466
    """
    weight = np.where(measured > BIG_MS, 1.0, SHORT_WEIGHT)
    error = np.abs(np.log(predicted / measured))
    return float((weight * error).sum() / weight.sum())


def fit_gemm(
    members: Sequence[Measured], start: GemmConstants | None = None, evaluations: int = 4000
) -> GemmConstants:  # fmt: skip
    """Fit products of one device, format and class; ``start`` adds a fourth start."""
    card, number = members[0][0].card, members[0][0].number
    b, m, n, k = np.array([case.sizes for case, _ in members]).T
    measured = np.array([time for _, time in members])
    names = list(_BOUNDS)
    low, high = (np.log([_BOUNDS[name][side] for name in names]) for side in (0, 1))

    def constants(x: FloatArray) -> GemmConstants:
        values = np.exp(np.clip(x, low, high))
        return GemmConstants(**{n: float(f"{v:.3g}") for n, v in zip(names, values, strict=True)})

    def error(x: FloatArray) -> float:
        off = np.abs(x - np.clip(x, low, high)).sum()
        times = gemm_milliseconds(card, constants(x), number, b, m, n, k)
        return weighted_log_error(times, measured) + 0.1 * float(off)

    starts = [np.log(values) for values in _STARTS]
    if start is not None:
        starts.append(np.log([getattr(start, name) for name in names]))
    options = {"maxfev": evaluations, "maxiter": evaluations, "adaptive": True, "fatol": 1e-6}
    # A start may already be the best: the simplex never returns anything worse.
    results = [minimize(error, x, method="Nelder-Mead", options=options).x for x in starts]
    return constants(min([*results, *starts], key=error))


def fit_pass(members: Sequence[Measured]) -> PassConstants:
    """Fit element-wise kernels of one device and op."""
    card = members[0][0].card
    size = np.array([case.sizes[0] for case, _ in members])
    measured = np.array([time for _, time in members])

    def constants(x: FloatArray) -> PassConstants:
        launch, share = np.exp(np.clip(x, np.log([0.01, 0.05]), np.log([200.0, 2.0])))
        return PassConstants(
            launch_us=float(f"{launch:.3g}"), memory_efficiency=float(f"{share:.3g}")
        )

    def error(x: FloatArray) -> float:
        return weighted_log_error(pass_milliseconds(card, constants(x), size), measured)

    starts = [np.log(x) for x in ((2.0, 0.8), (15.0, 0.9), (0.5, 0.5))]
    results = [minimize(error, x, method="Nelder-Mead").x for x in starts]
    return constants(min([*results, *starts], key=error))


def calibrate(
    cases: Sequence[Measured], shipped: KernelConstants | None = None, evaluations: int = 4000
) -> KernelConstants:  # fmt: skip
    """Return constants fitted to measured kernels; defaults are the medians of the fits.

    Where ``shipped`` has constants of a group they are one of its starts, so that the fit is never
    worse on the same rows.
    """
    groups: dict[tuple[str, str, bool], list[Measured]] = {}
    for case, time in cases:
        label = f"{case.number}|{case.kind}" if case.is_gemm else case.kind
        groups.setdefault((case.card.name, label, case.is_gemm), []).append((case, time))
    gemm: dict[str, GemmConstants] = {}
    passes: dict[str, PassConstants] = {}
    for (device, label, is_gemm), members in sorted(groups.items()):
        key = f"{device}|{label}"
        if is_gemm:
            known = shipped.gemm.get(key) if shipped is not None else None
            gemm[key] = fit_gemm(members, known, evaluations)
        else:
            passes[key] = fit_pass(members)
    base = shipped or load_constants()
    return KernelConstants(
        source="fitted by mohsearch.evaluators.crossflow.kernel_calibration", gemm=gemm,
        passes=passes,
        gemm_default=GemmConstants(**_medians(gemm.values())) if gemm else base.gemm_default,
        pass_default=PassConstants(**_medians(passes.values())) if passes else base.pass_default,
    )  # fmt: skip


def _medians(cards: Iterable[Any]) -> dict[str, float]:
    records = [card.model_dump() for card in cards]
    return {key: float(np.median([r[key] for r in records])) for key in records[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read measured kernels, fit, write the constants."""
    import argparse

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measured", nargs="+", type=Path, help="CSV files of measured kernels")
    parser.add_argument("-o", "--out", type=Path, required=True, help="constants as YAML")
    parser.add_argument("--evaluations", type=int, default=4000, help="per start")
    parser.add_argument("--fresh", action="store_true", help="do not start from shipped constants")
    given = parser.parse_args(arguments)
    cases = read_measured(given.measured)
    shipped = None if given.fresh else load_constants()
    fitted = calibrate(cases, shipped, given.evaluations)
    write_text(given.out, yaml_text(fitted.model_dump()))


if __name__ == "__main__":
    main()
