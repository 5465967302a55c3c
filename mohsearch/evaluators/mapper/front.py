"""Compiled Pareto front of mappings, with a grid that tells in constant time what it beats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.kernels import MAX_LEVELS

PARETO, EDP, ENERGY, CYCLES = range(4)

ROWS_PER_OCTAVE = 256
OCTAVES = 8
MOST_COLUMNS = 160

SLACK = 1 + 1e-10
"""Energies and areas that differ by less are the same but for rounding."""


class Front(NamedTuple):
    """Mappings none of which beats another in cycles, energy and area.

    Attributes
    ----------
    size
        Shape (1,): mappings held.
    objectives
        Shape (F, 3): cycles, energy (pJ), area (um2).
    choice
        Shape (F,): spatial choice.
    left, order, loops
        Shapes (F, L, 8), (F, L, 8), (F, L): see the fields of the walk's state.
    grid
        Shape (columns, rows): least area among points with at most ``grid_cycles[column]`` cycles
        and at most the energy at which the row starts.
    near
        Shape (columns * rows, 3): the smallest of the points in a row of the grid, in all columns
        that it reaches or lies in. It tells ties from better.
    grid_energy
        log2 of the energy at which row 0 starts, and rows per octave.
    scalar
        Kind of objective, and the best value of a single one.
    """

    size: NDArray[np.int64]
    objectives: NDArray[np.float64]
    choice: NDArray[np.int64]
    left: NDArray[np.int16]
    order: NDArray[np.int8]
    loops: NDArray[np.int8]
    grid: NDArray[np.float64]
    near: NDArray[np.float64]
    grid_cycles: NDArray[np.float64]
    grid_energy: NDArray[np.float64]
    scalar: NDArray[np.float64]


def new_front(
    compute_cycles: NDArray[np.float64], least_energy_pj: float, kind: int, room: int
) -> Front:
    """Allocate an empty front for up to ``room`` mappings.

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
    return Front(
        size=np.zeros(1, dtype=np.int64),
        objectives=np.zeros((room, 3)),
        choice=np.zeros(room, dtype=np.int64),
        left=np.zeros((room, MAX_LEVELS, 8), dtype=np.int16),
        order=np.zeros((room, MAX_LEVELS, 8), dtype=np.int8),
        loops=np.zeros((room, MAX_LEVELS), dtype=np.int8),
        grid=np.full((len(edges), ROWS_PER_OCTAVE * OCTAVES), np.inf),
        near=np.full((len(edges) * ROWS_PER_OCTAVE * OCTAVES, 3), np.inf),
        grid_cycles=edges.astype(np.float64),
        grid_energy=np.array([np.log2(least_energy_pj), float(ROWS_PER_OCTAVE)]),
        scalar=np.array([float(kind), np.inf]),
    )


@njit(cache=True)
def scalar_value(kind, cycles, energy):  # type: ignore[no-untyped-def]
    """Return the single objective."""
    if kind == EDP:
        return energy * cycles
    return energy if kind == ENERGY else cycles


@njit(cache=True)
def column_of(f, cycles):  # type: ignore[no-untyped-def]
    """Return the last column of the grid that starts at or below ``cycles``."""
    low, high = 0, f.grid_cycles.shape[0]
    while high - low > 1:
        middle = (low + high) // 2
        if f.grid_cycles[middle] <= cycles:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True)
def cell_of(f, cycles, energy):  # type: ignore[no-untyped-def]
    """Return the place in the flattened grid that bounds of such cycles and energy look at."""
    row = np.int64((np.log2(energy) - f.grid_energy[0]) * f.grid_energy[1])
    row = min(max(row, 0), f.grid.shape[1] - 1)
    return column_of(f, cycles) * f.grid.shape[1] + row


@njit(cache=True)
def cell_beats(f, cell, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Tell whether what a cell of the grid knows is at least as good."""
    area *= SLACK
    if f.grid.ravel()[cell] <= area:
        return True
    near = f.near[cell]
    return near[1] <= energy * SLACK and near[2] <= area and near[0] <= cycles


@njit(cache=True)
def beaten(f, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Tell whether the front provably holds something at least as good."""
    if f.scalar[0] != PARETO:
        return scalar_value(f.scalar[0], cycles, energy) * SLACK >= f.scalar[1]
    return cell_beats(f, cell_of(f, cycles, energy), cycles, energy, area)


@njit(cache=True)
def mark(f, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Lower the grid wherever this point is at least as good."""
    columns, rows = f.grid.shape
    exact = (np.log2(energy) - f.grid_energy[0]) * f.grid_energy[1]
    row = min(max(np.int64(exact), 0), rows - 1)
    for column in range(column_of(f, cycles), columns):
        near = f.near[column * rows + row]
        if area < near[2] or (area == near[2] and energy < near[1]):
            near[0] = cycles
            near[1] = energy
            near[2] = area
    first = np.int64(np.floor(exact + 1e-6)) + 1
    if first < 0 or first >= rows:
        return
    for column in range(np.searchsorted(f.grid_cycles, cycles), columns):
        if f.grid[column, first] <= area:
            break
        for row in range(first, rows):
            if f.grid[column, row] <= area:
                break
            f.grid[column, row] = area


@njit(cache=True)
def offer(f, st, depth, choice, cycles, energy, area):  # type: ignore[no-untyped-def]
    """Put the current mapping on the front unless something there is at least as good.

    Returns -1 where the front is full, 1 where the mapping was kept.
    """
    count = f.size[0]
    y = f.objectives
    if f.scalar[0] != PARETO:
        value = scalar_value(f.scalar[0], cycles, energy)
        if value * SLACK >= f.scalar[1]:
            return 0
        f.scalar[1] = value
        count = 0
    else:
        for i in range(count):
            if y[i, 0] <= cycles and y[i, 1] <= energy * SLACK and y[i, 2] <= area * SLACK:
                return 0
        kept = 0
        for i in range(count):
            if y[i, 0] >= cycles and y[i, 1] >= energy and y[i, 2] >= area:
                continue
            if kept < i:
                y[kept] = y[i]
                f.choice[kept] = f.choice[i]
                f.left[kept] = f.left[i]
                f.order[kept] = f.order[i]
                f.loops[kept] = f.loops[i]
            kept += 1
        count = kept
        f.size[0] = count
    if count >= y.shape[0]:
        return -1
    y[count, 0] = cycles
    y[count, 1] = energy
    y[count, 2] = area
    f.choice[count] = choice
    for level in range(depth):
        for d in range(8):
            f.left[count, level, d] = st.left[level, d]
            f.order[count, level, d] = st.order[level, d]
        f.loops[count, level] = st.loops[level]
    f.size[0] = count + 1
    mark(f, cycles, energy, area)
    return 1
