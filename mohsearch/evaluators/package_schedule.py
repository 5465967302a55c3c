"""The schedule of layers that share the memory interfaces of a package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.package_fluid import (
    SHARING_MAX_MIN,
    SHARING_PROPORTIONAL,
    SHARING_TWO_PASS,
    simulate,
)
from mohsearch.evaluators.package_network import PackageNetwork

SHARING_CODES: dict[str, int] = {
    "proportional": SHARING_PROPORTIONAL,
    "max-min": SHARING_MAX_MIN,
    "two-pass": SHARING_TWO_PASS,
}


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
    place, starts = _group_by_interface(interface)
    start, end = np.empty(n), np.empty(n)
    trace = np.zeros((n, len(starts)))
    into, outof, after = _edges(predecessors)
    simulate(
        sequence, place[where], work, demand.astype(np.float64), moved / work,
        into, outof, after, len(interface), starts,
        network.interface_bandwidth_bytes_per_s, network.system_bandwidth_bytes_per_s,
        SHARING_CODES[network.sharing], start, end, trace,
    )  # fmt: skip
    stalled = end - start - alone
    stalled[stalled <= 1e-12 * end] = 0.0  # rounding of times, no stall
    return Schedule(start, end, stalled, trace[:, 0], trace[:, 1:])


def _group_by_interface(
    interface: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a numbering of the instances by interface, and where each interface begins."""
    grouped = np.argsort(interface, kind="stable")
    place = np.empty(len(interface), dtype=np.int64)
    place[grouped] = np.arange(len(interface))
    starts = np.searchsorted(interface[grouped], np.arange(int(interface.max()) + 2))
    return place, starts.astype(np.int64)


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
