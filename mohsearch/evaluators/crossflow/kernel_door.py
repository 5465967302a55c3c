"""Evaluator ``kernel``: milliseconds of products and element-wise kernels on real devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.tables import read_records
from mohsearch.evaluators.crossflow.device_kernels import (
    KernelConstants,
    gemm_milliseconds,
    load_constants,
    pass_milliseconds,
    peak_rate,
)
from mohsearch.evaluators.report import EvaluationReport
from mohsearch.hardware.systems import SystemCard, find_system

_NUMBERS = {
    "fp32": "fp32", "float32": "fp32", "tf32": "tf32", "fp16": "fp16", "float16": "fp16",
    "half": "fp16", "bf16": "bf16", "bfloat16": "bf16", "mixed": "mixed",
}  # fmt: skip
_TENSORS = {"add": 3.0, "mul": 3.0, "div": 3.0, "pow": 2.0, "mlp_act": 3.0}
"""Tensors of the output's size that an op reads and writes; the others read one and write one."""
_PRODUCTS = frozenset({"gemm", "matmul", "mm", "bmm", "linear"})
BIG_MS = 1.0
"""The accuracy targets are stated for products that take longer than this."""


@dataclass(frozen=True)
class Case:
    """One kernel of a file."""

    index: int
    card: SystemCard
    kind: str
    number: str
    sizes: tuple[float, float, float, float]
    """Batch, m, n, k of a product; bytes in the first place for an element-wise kernel."""
    is_gemm: bool


def evaluate(path: Path) -> EvaluationReport:
    """Milliseconds of measured kernels on real devices, with errors where they were measured.

    Parameters
    ----------
    path
        CSV with one kernel per row: ``gpu`` or ``device`` (a system's name, its alias, a card of
        your own in ``evaluators/systems`` beside the file, or a path); ``op``; ``M``, ``N``, ``K``
        of a product (``B`` for a batch) or ``B``, ``H`` (or ``M``, ``N``) of an element-wise
        kernel; ``dtype`` or ``precision``; optionally ``measured_ms``. An element-wise op that no
        calibration knows reads one tensor, writes one, and takes the default constants.

    Returns
    -------
    EvaluationReport
        The rows with ``predicted_ms`` and ``plain_roofline_ms``; the summary has mean error and
        log-correlation per device and class.

    Raises
    ------
    InputError
        If a row lacks a column or names an unknown device; ``source`` and ``field`` say where.
    """
    rows = read_records(path)
    constants = load_constants()
    devices: dict[str, SystemCard] = {}
    cases = [case_of(row, i, path, devices) for i, row in enumerate(rows)]
    measured = [measured_ms(row, i, path) for i, row in enumerate(rows)]
    predicted, plain = predict([c for c in cases if c is not None], constants)
    out = []
    for i, row in enumerate(rows):
        record: dict[str, Any] = {k: _figure(v) for k, v in row.items()}
        record["predicted_ms"] = predicted.get(i)
        record["plain_roofline_ms"] = plain.get(i)
        out.append(record)
    known = [c for c in cases if c is not None]
    summary = tuple(_summary(known, measured, predicted, plain))
    document = {"cases": out, "summary": list(summary)}
    return EvaluationReport(tuple(out), document, "csv", summary)


def measured_ms(row: Mapping[str, str], index: int, path: Path) -> float | None:
    """Return the measured time of one row, None where there is none.

    Raises
    ------
    InputError
        If it is no positive number.
    """
    text = (row.get("measured_ms") or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        message = f"must be a positive number, or empty (got {text!r})"
        raise InputError(message, source=path, field=f"row {index + 2}.measured_ms")
    return value


def _figure(text: str) -> Any:
    """Keep a number as a number (written as read where that matters is the CSV's business)."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() and "." not in text and "e" not in text else value


def _number(row: Mapping[str, str], is_gemm: bool, where: str, path: Path) -> str:
    column = "dtype" if (row.get("dtype") or "").strip() else "precision"
    text = (row.get(column) or "").strip().casefold()
    if "fp16-in" in text or "mixed" in text:
        return "mixed"
    for word, number in _NUMBERS.items():
        if text.startswith(word):
            return number
    if text:
        raise UnknownNameError(
            "number format", text, _NUMBERS, source=path, field=f"{where}.{column}"
        )
    return "fp32" if is_gemm and row.get("device") else "fp16"


def _size(row: Mapping[str, str], key: str, where: str, path: Path) -> float:
    try:
        value = float(row[key])
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"must be a number (got {row.get(key)!r})", source=path, field=f"{where}.{key}"
        ) from None
    if not (value >= 1.0 and value < 1e12):
        raise InputError(f"must be at least 1 (got {value:g})", source=path, field=f"{where}.{key}")
    if value != int(value) and key != "min_bytes":
        raise InputError(
            f"must be a whole number (got {value:g})", source=path, field=f"{where}.{key}"
        )
    return value


def case_of(
    row: Mapping[str, str], index: int, path: Path, devices: dict[str, SystemCard] | None = None
) -> Case | None:
    """Return the kernel of one row; None for a row that is no product (other layouts' codes).

    ``devices`` remembers the cards of a file's labels from row to row.
    """
    where = f"row {index + 2}"
    label = row.get("gpu") or row.get("device")
    if not label:
        raise InputError("no device: a column gpu or device", source=path, field=where)
    known = {} if devices is None else devices
    if label not in known:
        known[label] = find_system(
            label, Catalog.around(path), base=Path(path).parent, source=str(path),
            field=f"{where}.device",
        )  # fmt: skip
    card = known[label]
    layout = (row.get("ta") or "", row.get("tb") or "")
    if any(code not in ("", "N", "T") for code in layout):
        return None
    is_gemm = bool((row.get("K") or "").strip())
    if not is_gemm and (row.get("op") or "").strip().casefold() in _PRODUCTS:
        raise InputError("missing; a product needs M, N and K", source=path, field=f"{where}.K")
    number = _number(row, is_gemm, where, path)
    if is_gemm:
        batch = _size(row, "B", where, path) if row.get("B") else 1.0
        m, n, k = (_size(row, key, where, path) for key in ("M", "N", "K"))
        return Case(index, card, _class_of(row, layout), number, (batch, m, n, k), True)
    keys = ("B", "H") if row.get("H") else ("M", "N")
    numbers = _size(row, keys[0], where, path) * _size(row, keys[1], where, path)
    op = (row.get("op") or "elementwise").casefold()
    width = 4.0 if number in ("fp32", "tf32") else 2.0
    size = numbers * width * _TENSORS.get(op, 2.0)
    if row.get("min_bytes"):
        size = _size(row, "min_bytes", where, path)
    return Case(index, card, op, number, (size, 0.0, 0.0, 0.0), False)


def _class_of(row: Mapping[str, str], layout: tuple[str, str]) -> str:
    op = (row.get("op") or "").casefold()
    if any(layout):
        return "TN" if layout == ("T", "N") else "NN"
    return op if op in ("bmm", "linear") else "gemm"


def predict(
    cases: Sequence[Case], constants: KernelConstants
) -> tuple[dict[int, float], dict[int, float]]:
    """Return predicted and plain-roofline milliseconds by row index."""
    groups: dict[tuple[str, str, str, bool], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.card.name, case.number, case.kind, case.is_gemm), []).append(case)
    predicted: dict[int, float] = {}
    plain: dict[int, float] = {}
    for (_, number, kind, is_gemm), members in groups.items():
        card = members[0].card
        sizes = np.array([c.sizes for c in members]).T
        bandwidth = card.memory_bandwidth_bytes_per_s
        if is_gemm:
            chosen, _ = constants.gemm_for(card, number, kind)
            b, m, n, k = sizes
            times = gemm_milliseconds(card, chosen, number, b, m, n, k)
            width = 4.0 if number in ("fp32", "tf32") else 2.0
            moved = b * (m * k + k * n + m * n) * width
            roof = np.maximum(2.0 * b * m * n * k / peak_rate(card, number), moved / bandwidth)
        else:
            taken, _ = constants.pass_for(card, kind)
            times = pass_milliseconds(card, taken, sizes[0])
            roof = sizes[0] / bandwidth
        for case, time, bound in zip(members, times, roof * 1e3, strict=True):
            predicted[case.index] = float(time)
            plain[case.index] = float(bound)
    return predicted, plain


def _summary(
    cases: Sequence[Case], times: Sequence[float | None], predicted: Mapping[int, float],
    plain: Mapping[int, float],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return mean error and log-correlation per device and class, and over all products."""
    groups: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for case in cases:
        measured = times[case.index]
        if measured is None:
            continue
        entry = (measured, predicted[case.index], plain[case.index])
        groups.setdefault((case.card.name, case.number, case.kind), []).append(entry)
        if case.is_gemm:
            groups.setdefault(("all", "all", "gemm"), []).append(entry)
            if measured > BIG_MS:
                groups.setdefault(("all", "all", f"gemm > {BIG_MS:g} ms"), []).append(entry)
                key = (case.card.name, case.number, f"{case.kind} > {BIG_MS:g} ms")
                groups.setdefault(key, []).append(entry)
    return [
        {
            "device": key[0],
            "format": key[1],
            "class": key[2],
            "kernels": len(values),
            **accuracy_of(np.array(values)),
        }
        for key, values in sorted(groups.items())
    ]


def accuracy_of(values: np.ndarray) -> dict[str, Any]:
    """Return mean errors and log-correlations of (n, 3) measured, predicted, plain figures."""
    measured, predicted, plain = values.T
    return {
        "mean_error": float(np.abs(predicted / measured - 1.0).mean()),
        "log_correlation": _log_correlation(predicted, measured),
        "roofline_mean_error": float(np.abs(plain / measured - 1.0).mean()),
        "roofline_log_correlation": _log_correlation(plain, measured),
    }


def _log_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return the correlation of the logarithms; None where it is not defined."""
    if a.size < 3 or np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return None
    return float(np.corrcoef(np.log(a), np.log(b))[0, 1])
