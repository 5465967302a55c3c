"""Evaluator ``systolic``: cycles of a matrix product on a systolic array.

The product is cut into folds that fill the array; each fold streams in, computes and drains before
the next one starts. The model is that of SCALE-Sim (Samajdar et al., ISPASS 2020).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from mohsearch.core.cards import read_text
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.report import EvaluationReport

Dataflow = Literal["os", "ws", "is"]
DATAFLOWS: tuple[str, ...] = get_args(Dataflow)
_POSITIVE = re.compile(r"0*[1-9][0-9]{0,11}")
_SIZES = ("M", "N", "K", "H", "W")


def systolic_cycles(m: int, n: int, k: int, height: int, width: int, dataflow: Dataflow) -> int:
    """Return the cycle in which an (m x k) by (k x n) product finishes, counted from 0.

    A fold takes ``stream + fill - 2`` cycles:

    ========  ==================  ======================  ==========
    dataflow  held in the array   folds                   cycles per fold
    ========  ==================  ======================  ==========
    os        m x n results       ceil(m/H) * ceil(n/W)   k + H + W - 2
    ws        k x n weights       ceil(k/H) * ceil(n/W)   m + 2H + W - 2
    is        k x m inputs        ceil(k/H) * ceil(m/W)   n + 2H + W - 2
    ========  ==================  ======================  ==========

    Stationary operands take H further cycles to be loaded. A fold that does not fill the array
    takes as long as one that does.

    Parameters
    ----------
    m, n, k
        Rows and columns of the result, inner dimension.
    height, width
        Rows and columns of the array.
    dataflow
        What stays in the array: ``os`` outputs, ``ws`` weights (the k x n operand), ``is`` inputs.

    Raises
    ------
    ValueError
        If a size is not positive or the dataflow is unknown.

    Examples
    --------
    >>> systolic_cycles(64, 128, 1536, 128, 128, "os")
    1789
    """
    if min(m, n, k, height, width) < 1:
        raise ValueError("all sizes must be positive")
    held_rows, held_columns, stream, fill = {
        "os": (m, n, k, height + width),
        "ws": (k, n, m, 2 * height + width),
        "is": (k, m, n, 2 * height + width),
    }[_known_dataflow(dataflow)]
    folds = -(-held_rows // height) * -(-held_columns // width)
    return folds * (stream + fill - 2) - 1


def systolic_utilization(
    m: int, n: int, k: int, height: int, width: int, dataflow: Dataflow
) -> float:
    """Return multiply-accumulates over processing elements times :func:`systolic_cycles`.

    That is the share of the array in use, as SCALE-Sim reports it. The cycles are counted from 0,
    one less than their number; so outputs held in an array of a single element, which is never
    idle, give x / (x - 1) for x products, above 1 (and 1.0 for x = 1). Everywhere else it is at
    most 1.

    Examples
    --------
    >>> round(systolic_utilization(8, 8, 8, 8, 8, "os"), 5)
    0.38095
    >>> systolic_utilization(1, 1, 5, 1, 1, "os")
    1.25
    """
    cycles = systolic_cycles(m, n, k, height, width, dataflow)
    return m * n * k / (cycles * height * width) if cycles else 1.0


def evaluate(path: Path) -> EvaluationReport:
    """Return the cycles of every row of a CSV file.

    Parameters
    ----------
    path
        CSV with the columns M, N, K (product), H, W (array) and dataflow (os, ws, is); further
        columns are passed through.

    Returns
    -------
    EvaluationReport
        The rows of the file with ``cycles`` and ``util`` (per cent, three decimals) added.

    Raises
    ------
    InputError
        With the file and the field of the wrong value.
    """
    rows = [_evaluate_row(row, path, index) for index, row in enumerate(_read_rows(path))]
    document = {row.get("id", str(index)): row for index, row in enumerate(rows)}
    if len(document) < len(rows):
        document = {str(index): row for index, row in enumerate(rows)}
    return EvaluationReport(rows=tuple(rows), document=document, natural_format="csv")


def _known_dataflow(name: str) -> str:
    if name not in DATAFLOWS:
        raise ValueError(f"no dataflow {name!r}; there are: {', '.join(DATAFLOWS)}")
    return name


def _read_rows(path: Path) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff")), strict=True)
    try:
        columns = [name.strip() for name in reader.fieldnames or []]
        if missing := [name for name in (*_SIZES, "dataflow") if name not in columns]:
            raise InputError(f"no column {', '.join(missing)}", source=path, field="header")
        if len(set(columns)) < len(columns):
            raise InputError("two columns have the same name", source=path, field="header")
        reader.fieldnames = columns
        rows = list(reader)
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", source=path) from error
    for index, row in enumerate(rows):
        if None in row or None in row.values():
            message = f"has not the {len(columns)} values of the header"
            raise InputError(message, source=path, field=f"rows[{index}]")
    return rows


def _evaluate_row(row: Mapping[str, str], path: Path, index: int) -> dict[str, Any]:
    sizes = {name: _size(row[name], path, f"rows[{index}].{name}") for name in _SIZES}
    dataflow = row["dataflow"].strip().lower()
    if dataflow not in DATAFLOWS:
        field = f"rows[{index}].dataflow"
        raise UnknownNameError("dataflow", row["dataflow"], DATAFLOWS, source=path, field=field)
    m, n, k, height, width = sizes.values()
    cycles = systolic_cycles(m, n, k, height, width, dataflow)  # type: ignore[arg-type]
    share = systolic_utilization(m, n, k, height, width, dataflow)  # type: ignore[arg-type]
    own = {**sizes, "dataflow": dataflow, "cycles": cycles, "util": round(100 * share, 3)}
    return {**row, **own}


def _size(text: str, path: Path, field: str) -> int:
    if _POSITIVE.fullmatch(text.strip()) is None:
        given = repr(text) if len(text) <= 40 else repr(text[:37] + "...")
        message = f"must be a positive integer of at most 12 digits, got {given}"
        raise InputError(message, source=path, field=field)
    return int(text)
