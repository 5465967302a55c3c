"""CSV files of cases: one record per row, with every way they can be wrong told."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from mohsearch.core.cards import read_text
from mohsearch.core.errors import InputError


def read_records(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file by column; cells that a short row lacks are empty.

    Raises
    ------
    InputError
        If the file is no CSV, has no header or no row, a column twice, or a row with more cells
        than the header.
    """
    reader = csv.DictReader(
        io.StringIO(read_text(path).removeprefix("\ufeff"), newline=""), restval=""
    )
    try:
        records = list(reader)
    except csv.Error as error:
        message = f"line {reader.line_num}: not valid CSV: {error}"
        raise InputError(message, source=path) from error
    names = list(reader.fieldnames or ())
    if not names:
        raise InputError("no header row", source=path)
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise InputError("a second column of this name", source=path, field=twice[0])
    if not records:
        raise InputError("no case in it: there is no row below the header", source=path)
    for number, record in enumerate(records, start=1):
        if None in record:
            message = "more fields than the header has columns"
            raise InputError(message, source=f"{path}: row {number}")
    return records
