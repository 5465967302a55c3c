"""Compiled Pareto front of mappings, with a grid that tells in constant time what it beats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.kernel_layout import MAX_LEVELS
from mohsearch.evaluators.mapper.kernels import compiled

PARETO, EDP, ENERGY, CYCLES = range(4)

LOG2_ROWS = 8
ROWS_PER_OCTAVE = 2**LOG2_ROWS
OCTAVES = 8
ROWS = ROWS_PER_OCTAVE * OCTAVES
MOST_COLUMNS = 160
ROOM = 2**14
"""Most mappings that a front holds."""

SLACK = 1 + 1e-10
"""Energies and areas that differ by less are the same but for rounding."""


FRONT = np.dtype(
    [
        ("size", "i8"),
        ("objectives", "f8", (ROOM, 3)),  # cycles, energy (pJ), area (um2)
        ("choice", "i8", ROOM),  # spatial choice
        ("left", "i2", (ROOM, MAX_LEVELS, 8)),  # see the fields of the walk's state
        ("head", "i1", (ROOM, MAX_LEVELS)),
        # least area of points with at most ``edges[column]`` cycles and at most the energy at which
        # the row starts
        ("grid", "f8", MOST_COLUMNS * ROWS),
        # the smallest of the points in a row of the grid, in all columns that it reaches or lies
        # in: it tells ties from better
        ("near", "f8", (MOST_COLUMNS * ROWS, 3)),
        ("edges", "f8", MOST_COLUMNS),
        ("columns", "i8"),
        ("first_row", "i8"),  # number of row 0, see :func:`row_number`
        ("kind", "i8"),  # PARETO, or the single objective
        ("best", "f8"),  # its best value
        ("slack", "f8"),  # what is no better by more than this factor is let go
    ],
    align=True,
)
"""Mappings none of which beats another in cycles, energy and area."""


def new_front(compute_cycles: NDArray[np.float64], least_energy_pj: float, kind: int) -> Any:
    """Allocate an empty front.

    Parameters
    ----------
    compute_cycles
        Cycles of each spatial choice: where columns of the grid should start.
    least_energy_pj
        No mapping needs less.
    kind
        ``PARETO``, or the single objective.
    """
    log_spaced = np.geomspace(compute_cycles.min(), compute_cycles.max() * 64, MOST_COLUMNS // 2)
    edges = np.unique(np.concatenate([compute_cycles, np.ceil(log_spaced)]))
    if len(edges) > MOST_COLUMNS:
        edges = edges[np.unique(np.linspace(0, len(edges) - 1, MOST_COLUMNS).astype(int))]
    front = np.zeros(1, dtype=FRONT)[0]
    front["grid"][: len(edges) * ROWS] = np.inf
    front["near"][: len(edges) * ROWS] = np.inf
    front["edges"][: len(edges)] = edges
    front["columns"] = len(edges)
    front["first_row"] = row_number(float(least_energy_pj))
    front["kind"] = kind
    front["best"] = np.inf
    front["slack"] = 1.0
    return front


def begin_pass(front: Any, tolerance: float) -> None:
    """Let what is at most ``1 + tolerance`` times better than the front in every objective go."""
    front["slack"] = slack = 1.0 + tolerance
    cells = int(front["columns"]) * ROWS
    front["grid"][:cells] = np.inf
    front["near"][:cells] = np.inf
    for cycles, energy, area in front["objectives"][: int(front["size"])]:
        mark(front, cycles / slack, energy / slack, area / slack)


@intrinsic
def float_bits(typing_context, value):  # type: ignore[no-untyped-def]
    """Return the bits of a float64 as an int64."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@compiled
def row_number(energy):  # type: ignore[no-untyped-def]
    """Return a whole number that rises with the energy, by 256 from each octave to the next."""
    return float_bits(energy) >> (52 - LOG2_ROWS)  # type: ignore[call-arg]


@compiled
def scalar_value(kind, cycles, energy):  # type: ignore[no-untyped-def]
    """Return the single objective."""
    if kind == EDP:
        return energy * cycles
    return energy if kind == ENERGY else cycles


@compiled
def column_of(f, cycles):  # type: ignore[no-untyped-def]
    """Return the last column of the grid that starts at or below ``cycles``."""
    low, high = 0, f.columns
    while high - low > 1:
        middle = (low + high) // 2
        if f.edges[middle] <= cycles:
            low = middle
        else:
            high = middle
    return low


@compiled
def first_column(f, cycles):  # type: ignore[no-untyped-def]
    """Return the first column of the grid that starts at or above ``cycles``."""
    column = column_of(f, cycles)
    return column if f.edges[column] >= cycles else column + 1


@compiled
def cell_of(f, column, energy):  # type: ignore[no-untyped-def]
    """Return the place in the flattened grid that bounds of such cycles and energy look at."""
    row = row_number(energy) - f.first_row
    return column * ROWS + min(max(row, 0), ROWS - 1)


@compiled
def cell_beats(f, cell, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Tell whether what a cell of the grid knows is at least as good."""
    area *= SLACK
    if f.grid[cell] <= area:
        return True
    return (
        f.near[cell, 1] <= energy * SLACK and f.near[cell, 2] <= area and f.near[cell, 0] <= cycles
    )


@compiled
def beaten(f, st, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Tell whether the front provably holds something at least as good."""
    if f.kind != PARETO:
        return scalar_value(f.kind, cycles, energy) * SLACK >= f.best
    column = st.column if cycles == st.cycles else column_of(f, cycles)
    return cell_beats(f, cell_of(f, column, energy), cycles, energy, area)


@compiled
def mark(f, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Lower the grid wherever this point is at least as good."""
    columns = f.columns
    row = min(max(row_number(energy) - f.first_row, 0), ROWS - 1)
    for column in range(column_of(f, cycles), columns):
        cell = column * ROWS + row
        if area < f.near[cell, 2] or (area == f.near[cell, 2] and energy < f.near[cell, 1]):
            f.near[cell, 0] = cycles
            f.near[cell, 1] = energy
            f.near[cell, 2] = area
    first = row + 1
    if first >= ROWS:
        return
    for column in range(first_column(f, cycles), columns):
        start = column * ROWS
        if f.grid[start + first] <= area:
            break
        for cell in range(start + first, start + ROWS):
            if f.grid[cell] <= area:
                break
            f.grid[cell] = area


@compiled
def move(f, source, target, depth):  # type: ignore[no-untyped-def]
    """Copy one mapping of the front to another place."""
    for j in range(3):
        f.objectives[target, j] = f.objectives[source, j]
    f.choice[target] = f.choice[source]
    for level in range(depth):
        f.head[target, level] = f.head[source, level]
        for d in range(8):
            f.left[target, level, d] = f.left[source, level, d]


@compiled
def offer(f, st, depth, choice, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Put the current mapping on the front unless something there is at least as good.

    Returns -1 where the front is full, 1 where the mapping was kept.
    """
    count = f.size
    y = f.objectives
    if f.kind != PARETO:
        value = scalar_value(f.kind, cycles, energy)
        if value * SLACK >= f.best:
            return 0
        f.best = value
        count = 0
    else:
        for i in range(count):
            if y[i, 0] <= cycles and y[i, 1] <= energy * SLACK and y[i, 2] <= area * SLACK:
                return 0
        kept = np.int64(0)
        for i in range(count):
            if y[i, 0] >= cycles and y[i, 1] >= energy and y[i, 2] >= area:
                continue
            if kept < i:
                move(f, i, kept, depth)
            kept += 1
        count = kept
        f.size = count
    if count >= ROOM:
        return -1
    y[count, 0] = cycles
    y[count, 1] = energy
    y[count, 2] = area
    f.choice[count] = choice
    for level in range(depth):
        for d in range(8):
            f.left[count, level, d] = st.left[level, d]
        f.head[count, level] = st.head[level]
    f.size = count + 1
    mark(f, cycles / f.slack, energy / f.slack, area / f.slack)
    return 1
