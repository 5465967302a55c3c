"""The network on package and the schedule of layers that share its memory interfaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.package_fluid import (
    SHARING_MAX_MIN,
    SHARING_PROPORTIONAL,
    SHARING_TWO_PASS,
    simulate,
)

Sharing = Literal["proportional", "max-min", "two-pass"]
Placement = Literal["corners", "middle"]

SHARING_CODES: dict[str, int] = {
    "proportional": SHARING_PROPORTIONAL,
    "max-min": SHARING_MAX_MIN,
    "two-pass": SHARING_TWO_PASS,
}


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


@dataclass(frozen=True)
class Schedule:
    """When each layer runs.

    Attributes
    ----------
    start_s, end_s
        float64, shape (n,).
    stalled_s
        float64, shape (n,): by how much each layer takes longer than alone with unlimited
        package bandwidth.
    segment_end_s
        float64, shape (n,): ends of the intervals between events.
    interface_bytes_per_s
        float64, shape (n, interfaces): what each interface moves in each interval.
    """

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    stalled_s: NDArray[np.float64]
    segment_end_s: NDArray[np.float64]
    interface_bytes_per_s: NDArray[np.float64]

    @property
    def latency_s(self) -> float:
        """End of the last layer."""
        return float(self.end_s.max())

    @property
    def interface_bytes(self) -> NDArray[np.float64]:
        """Bytes that each interface moved, shape (interfaces,)."""
        lengths = np.diff(self.segment_end_s, prepend=0.0)
        moved: NDArray[np.float64] = lengths @ self.interface_bytes_per_s
        return moved


def schedule_layers(
    order: Sequence[int] | NDArray[Any],
    instance: Sequence[int] | NDArray[Any],
    alone_s: Sequence[float] | NDArray[Any],
    bytes_moved: Sequence[float] | NDArray[Any],
    predecessors: Sequence[Sequence[int]],
    interface_of_instance: Sequence[int] | NDArray[Any],
    network: PackageNetwork,
    *,
    demand_bytes_per_s: Sequence[float] | NDArray[Any] | None = None,
) -> Schedule:
    """Schedule layers on instances that share memory interfaces, exactly in the fluid model.

    A layer starts when its predecessors and all earlier layers of its instance have ended. While
    it runs it wants ``bytes_moved / alone_s``; where an interface (or the system) cannot give all
    that is wanted, layers progress more slowly. The rates change only when a layer starts or ends,
    so the simulation goes from event to event and has no time step.

    Unlimited bandwidth gives the least latency. In between, more bandwidth never delays a package
    with one interface under proportional sharing; with several it can, since a layer that ends
    sooner may let another start at a worse moment.

    Parameters
    ----------
    order
        Shape (n,): layer ids in a topological order.
    instance
        Shape (n,): instance of each layer, by layer id.
    alone_s
        Shape (n,): latency of each layer alone, positive.
    bytes_moved
        Shape (n,): bytes to and from memory, not negative.
    predecessors
        By layer.
    interface_of_instance
        Memory interface of each instance.
    network
        Bandwidths and the rule of sharing.
    demand_bytes_per_s
        Shape (n,): bandwidth that each layer counts with (default: ``bytes_moved`` over its
        latency alone on its link).

    Raises
    ------
    ValueError
        If the arrays disagree or the order is not topological.

    Examples
    --------
    Two layers of 1 s and 4 GB each on two instances share one interface of 4 GB/s:

    >>> result = schedule_layers([0, 1], [0, 1], [1.0, 1.0], [4e9, 4e9], [[], []], [0, 0],
    ...                          PackageNetwork())
    >>> result.end_s.tolist(), result.stalled_s.tolist()
    ([2.0, 2.0], [1.0, 1.0])
    """
    n = len(order)
    where = np.asarray(instance, dtype=np.int64)
    alone = np.asarray(alone_s, dtype=np.float64)
    moved = np.asarray(bytes_moved, dtype=np.float64)
    sequence = np.asarray(order, dtype=np.int64)
    interface = np.asarray(interface_of_instance, dtype=np.int64)
    _check_schedule(sequence, where, alone, moved, predecessors, interface)
    work = np.maximum(alone, moved / network.link_bandwidth_bytes_per_s)
    demand = moved / work if demand_bytes_per_s is None else np.asarray(demand_bytes_per_s)
    grouped = np.argsort(interface, kind="stable")
    place = np.empty(len(interface), dtype=np.int64)
    place[grouped] = np.arange(len(interface))
    count = int(interface.max()) + 1
    starts = np.searchsorted(interface[grouped], np.arange(count + 1)).astype(np.int64)
    start, end = np.empty(n), np.empty(n)
    trace = np.zeros((n, 1 + count))
    into, outof, after = _edges(predecessors)
    simulate(
        sequence,
        place[where],
        work,
        demand.astype(np.float64),
        moved / work,
        into,
        outof,
        after,
        len(interface),
        starts,
        network.interface_bandwidth_bytes_per_s,
        network.system_bandwidth_bytes_per_s,
        SHARING_CODES[network.sharing],
        start,
        end,
        trace,
    )
    stalled = np.maximum(end - start - alone, 0.0)
    return Schedule(start, end, stalled, trace[:, 0], trace[:, 1:])


def _check_schedule(
    order: NDArray[np.int64],
    instance: NDArray[np.int64],
    alone: NDArray[np.float64],
    moved: NDArray[np.float64],
    predecessors: Sequence[Sequence[int]],
    interface: NDArray[np.int64],
) -> None:
    n = len(order)
    if n == 0 or not len(instance) == len(alone) == len(moved) == len(predecessors) == n:
        raise ValueError("order, instance, alone_s, bytes_moved, predecessors: one entry a layer")
    if not (np.sort(order) == np.arange(n)).all():
        raise ValueError("order must hold each layer once")
    if interface.size == 0 or interface.min() < 0:
        raise ValueError("every instance needs a memory interface, numbered from 0")
    if instance.min() < 0 or instance.max() >= len(interface):
        raise ValueError(f"instances are numbered 0 to {len(interface) - 1}")
    if not (np.isfinite(alone).all() and (alone > 0).all()):
        raise ValueError("alone_s must be positive")
    if not (np.isfinite(moved).all() and (moved >= 0).all()):
        raise ValueError("bytes_moved must not be negative")
    position = np.argsort(order)
    for layer, before in enumerate(predecessors):
        for p in before:
            if not 0 <= p < n or position[p] >= position[layer]:
                raise ValueError(f"order: layer {layer} must come after its predecessor {p}")


def _edges(
    predecessors: Sequence[Sequence[int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return predecessor offsets, successor offsets and successors."""
    n = len(predecessors)
    successors: list[list[int]] = [[] for _ in range(n)]
    for layer, before in enumerate(predecessors):
        for p in set(before):
            successors[p].append(layer)
    into = np.concatenate([[0], np.cumsum([len(set(b)) for b in predecessors])])
    outof = np.concatenate([[0], np.cumsum([len(a) for a in successors])])
    after = np.array([s for a in successors for s in a], dtype=np.int64)
    return into.astype(np.int64), outof.astype(np.int64), after
