"""Layer tables: one CSV row per mapped op, as accelerator studies exchange networks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.cards import read_text
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.files import write_text
from mohsearch.workloads.graph import Op, OpGraph
from mohsearch.workloads.layers import bmm_op, conv_op, gemm_op, transposed_conv_ops

REQUIRED = ("name", "type", "N", "K", "C")
"""Columns every table has: K and C are totals over groups, N is the batch or the matrix rows."""

DEFAULTS = {
    "Y": 1, "X": 1, "R": 1, "S": 1, "groups": 1, "stride": 1, "dilation": 1, "pad": 0,
}  # fmt: skip
"""Columns that may be missing or empty. Y and X are the input's rows and columns; a negative pad
crops."""

FOLLOWERS = {
    "stride_w": "stride", "dilation_w": "dilation", "pad_w": "pad",
    "pad_end": "pad", "pad_w_end": "pad_w", "output_pad": "", "output_pad_w": "output_pad",
}  # fmt: skip
"""Optional columns and the column whose value they take when missing or empty."""

DERIVED = ("P", "Q", "macs", "weight_elems", "in_elems", "out_elems")
"""Columns that follow from the others: checked where they are present."""

TYPES = ("conv", "dwconv", "convt", "gemm", "bmm")

EXPORTED = (
    "name", "type", "N", "K", "C", "Y", "X", "R", "S", "stride", "stride_w", "dilation",
    "dilation_w", "pad", "pad_w", "pad_end", "pad_w_end", "groups", "predecessors",
)  # fmt: skip

MAX_ROWS = 100_000
LOWEST_PAD = -(2**20)


def read_table(path: Path, *, name: str | None = None, source: str = "") -> OpGraph:
    """Read a network from a CSV layer table.

    See :data:`REQUIRED`, :data:`DEFAULTS` and :data:`DERIVED` for the columns. Types are
    ``conv``, ``dwconv`` (groups = C), ``convt`` (transposed; becomes ordinary convolutions),
    ``gemm`` and ``bmm`` (groups = number of independent products). ``predecessors`` names the ops
    whose outputs the row reads, separated by blanks; without that column each row follows the
    one above. A column ``predecessors_full``, where present, is taken instead.

    Raises
    ------
    InputError
        Naming file, line and column.
    """
    return parse_table(read_text(path), name=name or path.stem, source=source, origin=path)


def parse_table(text: str, *, name: str, source: str = "", origin: str | Path) -> OpGraph:
    """Read a network from the text of a CSV layer table; see :func:`read_table`."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", source=origin) from error
    if len(lines) < 2:
        raise InputError("no layers: a header and at least one row are needed", source=origin)
    if len(lines) > MAX_ROWS:
        raise InputError(f"more than {MAX_ROWS} layers", source=origin)
    header = [cell.strip() for cell in lines[0][1]]
    _check_header(header, origin)
    rows = []
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            problem = f"{len(cells)} cells where the header has {len(header)}"
            raise InputError(problem, source=origin, field=f"line {number}")
        values = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        rows.append((f"line {number}", values))
    return graph_from_rows(rows, name=name, source=source, origin=origin)


def graph_from_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], *, name: str, source: str, origin: str | Path
) -> OpGraph:
    """Build a network from rows of column values, each with its place for errors."""
    ops: list[Op] = []
    parts: dict[str, list[str]] = {}
    before: dict[str, list[str]] = {}
    wanted: list[tuple[str, list[str], list[str]]] = []
    previous: list[str] = []
    for place, row in rows:
        reader = _Row(row, place, origin)
        new = reader.ops()
        label = str(row["name"])
        if label in parts:
            raise InputError(f"a second op called {label!r}", source=origin, field=f"{place}, name")
        ops += new
        parts[label] = [op.name for op in new]
        names = reader.predecessors()
        wanted.append((place, parts[label], [*previous] if names is None else names))
        previous = [label]
    for place, consumers, names in wanted:
        for producer in names:
            if producer not in parts:
                raise UnknownNameError(
                    "op", producer, parts, source=origin, field=f"{place}, predecessors"
                )
        producers = [part for producer in names for part in parts[producer]]
        before |= dict.fromkeys(consumers, producers)
    return OpGraph(name, ops, before, source=source, origin=origin)


class _Row:
    """One row of a table on its way to an op."""

    def __init__(self, row: Mapping[str, Any], place: str, origin: str | Path) -> None:
        self.row = row
        self.place = place
        self.origin = origin

    def fail(self, column: str, message: str) -> InputError:
        return InputError(message, source=self.origin, field=f"{self.place}, {column}")

    def integer(self, column: str, least: int = 1) -> int:
        """Return the value of a column, or what stands for it when it is missing."""
        given = self.row.get(column)
        if given is None or given == "":
            if column in FOLLOWERS:
                leader = FOLLOWERS[column]
                return self.integer(leader, least) if leader else 0
            if column in DEFAULTS:
                return DEFAULTS[column]
            raise self.fail(column, "a value is needed")
        try:
            if isinstance(given, (bool, float)):
                raise ValueError
            value = int(given)
        except ValueError:
            raise self.fail(column, f"must be an integer, got {given!r}") from None
        if value < least:
            raise self.fail(column, f"must be at least {least}, got {value}")
        if value >= 2**31:
            raise self.fail(column, f"must be below 2^31, got {value}")
        return value

    def pair(self, column: str, least: int = 1) -> tuple[int, int]:
        return self.integer(column, least), self.integer(f"{column}_w", least)

    def predecessors(self) -> list[str] | None:
        """Return the names of the producers, or None if the row does not say."""
        for column in ("predecessors_full", "predecessors"):
            given = self.row.get(column)
            if given is not None:
                return given.split() if isinstance(given, str) else [str(p) for p in given]
        return None

    def ops(self) -> list[Op]:
        """Return the op of this row (several for some transposed convolutions)."""
        name = str(self.row.get("name", ""))
        if not name or name.split() != [name]:
            raise self.fail("name", f"a name without blanks is needed, got {name!r}")
        kind = self.row.get("type")
        if kind not in TYPES:
            raise UnknownNameError(
                "type", str(kind), TYPES, source=self.origin, field=f"{self.place}, type"
            )
        try:
            ops = self._matrix(name, kind) if kind in {"gemm", "bmm"} else self._conv(name, kind)
        except ValueError as error:
            raise InputError(str(error), source=self.origin, field=self.place) from error
        self._check_derived(kind, ops)
        return ops

    def _matrix(self, name: str, kind: str) -> list[Op]:
        for column in ("Y", "X", "R", "S"):
            if self.integer(column) != 1:
                raise self.fail(column, f"a {kind} has {column} = 1")
        n, k, c, groups = (self.integer(column) for column in ("N", "K", "C", "groups"))
        if kind == "gemm":
            if groups != 1:
                raise self.fail("groups", "a gemm has one group; independent products are a bmm")
            return [gemm_op(name, rows=n, columns=k, inner=c)]
        if k % groups or c % groups:
            raise self.fail("groups", f"{groups} products do not divide K = {k} and C = {c}")
        return [bmm_op(name, products=groups, rows=n, columns=k // groups, inner=c // groups)]

    def _conv(self, name: str, kind: str) -> list[Op]:
        channels, groups = self.integer("C"), self.integer("groups")
        if kind == "dwconv" and groups != channels:
            raise self.fail("groups", f"a dwconv has groups = C = {channels}, got {groups}")
        begin = self.pair("pad", LOWEST_PAD)
        end = self.integer("pad_end", LOWEST_PAD), self.integer("pad_w_end", LOWEST_PAD)
        shared: dict[str, Any] = {
            "batch": self.integer("N"),
            "filters": self.integer("K"),
            "channels": channels,
            "image": (self.integer("Y"), self.integer("X")),
            "kernel": (self.integer("R"), self.integer("S")),
            "stride": self.pair("stride"),
            "dilation": self.pair("dilation"),
            "pads": (*begin, *end),
            "groups": groups,
        }
        if kind == "convt":
            return transposed_conv_ops(name, **shared, output_padding=self.pair("output_pad", 0))
        return [conv_op(name, **shared)]

    def _check_derived(self, kind: str, ops: list[Op]) -> None:
        """Compare columns that follow from the others with what follows."""
        shape = ops[0].shape
        if shape is None:
            raise AssertionError("a table row is always a mapped op")
        facts = {
            "macs": sum(op.macs for op in ops),
            "weight_elems": sum(op.weight_elements for op in ops),
            "in_elems": ops[0].input_elements,
            "out_elems": sum(op.output_elements or 0 for op in ops),
        }
        if kind != "convt":
            facts |= {"P": shape.P, "Q": shape.Q}
        for column, fact in facts.items():
            if self.row.get(column) not in {None, ""} and self.integer(column) != fact:
                raise self.fail(column, f"is {self.row[column]} but the other columns give {fact}")


def _check_header(header: list[str], origin: str | Path) -> None:
    known = {
        *REQUIRED, *DEFAULTS, *FOLLOWERS, *DERIVED, "predecessors", "predecessors_full",
    }  # fmt: skip
    for column in REQUIRED:
        if column not in header:
            raise InputError(f"no column {column!r}", source=origin, field="line 1")
    for column in header:
        if header.count(column) > 1:
            raise InputError(f"two columns are called {column!r}", source=origin, field="line 1")
        if column not in known:
            raise UnknownNameError("column", column, known, source=origin, field="line 1")


def rows_of(graph: OpGraph) -> list[dict[str, Any]]:
    """Return the mapped ops of a network as table rows, dependencies through vector ops kept."""
    before = graph.mapped_predecessors()
    rows = []
    for op in graph.mapped_ops:
        s = op.shape
        if s is None:
            raise AssertionError("mapped ops have a shape")
        top, left, bottom, right = op.pads
        cells = {
            "name": op.name, "type": op.kind, "N": s.N, "K": s.G * s.K, "C": s.G * s.C,
            "Y": op.input_h, "X": op.input_w, "R": s.R, "S": s.S,
            "stride": s.stride_h, "stride_w": s.stride_w,
            "dilation": s.dilation_h, "dilation_w": s.dilation_w,
            "pad": top, "pad_w": left, "pad_end": bottom, "pad_w_end": right,
            "groups": s.G, "predecessors": list(before[op.name]),
        }  # fmt: skip
        rows.append(cells)
    return rows


def write_table(graph: OpGraph, path: Path) -> None:
    """Write the mapped ops of a network as a CSV layer table; vector ops are contracted.

    :func:`read_table` reads the same loop nests and dependencies back.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, EXPORTED, lineterminator="\n")
    writer.writeheader()
    for row in rows_of(graph):
        writer.writerow({**row, "predecessors": " ".join(row["predecessors"])})
    write_text(Path(path), file.getvalue())
