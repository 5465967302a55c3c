"""The network on package: mesh, memory interfaces, routes and bandwidths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Sharing = Literal["proportional", "max-min", "two-pass"]
Placement = Literal["corners", "middle"]


@dataclass(frozen=True)
class PackageNetwork:
    """A 2-D mesh of chiplets with memory interfaces at its left and right edges.

    ``k`` instances stand row by row on a mesh of ``ceil(sqrt(k))`` columns. Memory interfaces
    alternate between the left edge (x = -1) and the right edge (x = columns), each one hop from
    the edge tile beside it; the first pair stands at the first row, the second at the last, and so
    on inwards (``corners``), or from the middle outwards (``middle``). There are 2 up to 4
    instances and 4 above, at most 2 per mesh row. Each instance uses the interface at the smallest
    Manhattan distance. Tiles with several equally near ones choose after all others, in order, the
    one with the fewest instances so far, then the first.

    Attributes
    ----------
    interface_bandwidth_bytes_per_s
        Reads and writes of one memory interface together.
    link_bandwidth_bytes_per_s
        What one chiplet can move.
    system_bandwidth_bytes_per_s
        What all memory interfaces move together.
    hop_energy_pj_per_bit
        Energy of one bit over one link.
    interfaces
        Number of memory interfaces for every mesh; None for the rule above.
    placement
        Rows of the interfaces.
    sharing
        How a crowded interface is shared. ``proportional`` slows all its layers by the same factor
        (the paper's temporal dilation, section V-C1); ``max-min`` lets layers that need little have
        all of it; ``two-pass`` stretches first each interface and then the whole package, as the
        authors' program does.
    crowded_ties, far_right
        Habits of the authors' program: ties go to the last interface; the right edge is one hop
        further out.

    References
    ----------
    Das et al., "Multi-Objective Hardware-Mapping Co-Optimisation for Multi-DNN Workloads on
    Chiplet-based Accelerators", section V-C1: ground-referenced signalling with 4 x 4 GB/s a
    chiplet and 0.82 pJ/bit, nearest memory interface, temporal dilation.
    """

    interface_bandwidth_bytes_per_s: float = 4e9
    link_bandwidth_bytes_per_s: float = 16e9
    system_bandwidth_bytes_per_s: float = 16e9
    hop_energy_pj_per_bit: float = 0.82
    interfaces: int | None = None
    placement: Placement = "corners"
    sharing: Sharing = "proportional"
    crowded_ties: bool = False
    far_right: bool = False

    def mesh(self, k: int) -> tuple[int, int]:
        """Return columns and rows of the mesh for ``k`` instances.

        Examples
        --------
        >>> [PackageNetwork().mesh(k) for k in (1, 2, 5, 16)]
        [(1, 1), (2, 1), (3, 2), (4, 4)]
        """
        columns = math.isqrt(k - 1) + 1
        return columns, -(-k // columns)

    def tile_position(self, k: int, tile: int) -> tuple[int, int]:
        """Return column and row of a tile."""
        columns, _ = self.mesh(k)
        return tile % columns, tile // columns

    def interface_positions(self, k: int) -> list[tuple[int, int]]:
        """Return column and row of each memory interface, outside the mesh's edges.

        Examples
        --------
        >>> PackageNetwork().interface_positions(16)
        [(-1, 0), (4, 0), (-1, 3), (4, 3)]
        """
        columns, rows = self.mesh(k)
        wanted = (2 if k <= 4 else 4) if self.interfaces is None else self.interfaces
        inwards = [r for i in range((rows + 1) // 2) for r in dict.fromkeys((i, rows - 1 - i))]
        if self.placement == "middle":
            inwards = sorted(range(rows), key=lambda r: (abs(2 * r - (rows - 1)), r))
        right = columns + 1 if self.far_right else columns
        spots = [(x, r) for r in inwards for x in (-1, right)]
        return spots[: min(wanted, len(spots))]

    def assignment(self, k: int) -> list[int]:
        """Return the memory interface of each tile."""
        spots = self.interface_positions(k)
        near = []
        for tile in range(k):
            x, y = self.tile_position(k, tile)
            reach = [abs(x - i) + abs(y - j) for i, j in spots]
            near.append([j for j, distance in enumerate(reach) if distance == min(reach)])
        if self.crowded_ties:
            return [candidates[-1] for candidates in near]
        load = [0] * len(spots)
        chosen = [0] * k
        for tile in sorted(range(k), key=lambda tile: (len(near[tile]) > 1, tile)):
            chosen[tile] = min(near[tile], key=lambda j: (load[j], j))
            load[chosen[tile]] += 1
        return chosen

    def route(self, k: int, tile: int, interface: int) -> list[tuple[int, int]]:
        """Return the nodes from a memory interface to a tile, columns first (XY routing)."""
        (x, y) = self.interface_positions(k)[interface]
        to_x, to_y = self.tile_position(k, tile)
        nodes = [(x, y)]
        while x != to_x:
            x += 1 if to_x > x else -1
            nodes.append((x, y))
        while y != to_y:
            y += 1 if to_y > y else -1
            nodes.append((x, y))
        return nodes

    def tables(self, most: int) -> NetworkTables:
        """Return the look-up tables of all meshes of up to ``most`` instances."""
        widest = max(len(self.interface_positions(k)) for k in range(1, most + 1))
        place = np.zeros((most + 1, most), dtype=np.int64)
        hops = np.zeros((most + 1, most))
        starts = np.zeros((most + 1, widest + 1), dtype=np.int64)
        for k in range(1, most + 1):
            chosen = np.array(self.assignment(k))
            grouped = np.argsort(chosen, kind="stable")
            place[k, grouped] = np.arange(k)
            hops[k, :k] = [len(self.route(k, tile, j)) - 1 for tile, j in enumerate(chosen)]
            starts[k] = np.searchsorted(chosen[grouped], np.arange(widest + 1))
        return NetworkTables(place, hops, starts)


@dataclass(frozen=True)
class NetworkTables:
    """Where tiles stand, by number of instances ``k`` (first axis, 0..m).

    Attributes
    ----------
    place_of_tile
        int64, shape (m + 1, m): number of the tile when tiles are grouped by interface.
    hops_of_tile
        float64, shape (m + 1, m): links between the tile and its interface.
    interface_starts
        int64, shape (m + 1, interfaces + 1): the places of interface ``j`` are
        ``interface_starts[k, j]`` up to ``interface_starts[k, j + 1]``.
    """

    place_of_tile: NDArray[np.int64]
    hops_of_tile: NDArray[np.float64]
    interface_starts: NDArray[np.int64]
