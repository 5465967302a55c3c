"""Application models: the networks that run on one system, as arrays for a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.workloads.graph import OpGraph
from mohsearch.workloads.layer import LayerShape

MAX_LAYER_MACS = 2**53
"""More could not be counted exactly in floating point."""


@dataclass(frozen=True)
class Tenant:
    """One network of an application: which, and how much of it.

    Attributes
    ----------
    network
        The operator graph.
    batch
        Samples that run through the network together, a multiple of the graph's own batch.
    replicas
        Independent copies; each is a network of its own.
    """

    network: OpGraph
    batch: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.batch < 1 or self.replicas < 1:
            raise ValueError("batch and replicas must be positive")


@dataclass(frozen=True, slots=True)
class Layer:
    """One mapped op of an application.

    Attributes
    ----------
    name
        ``network/op``, unique in the application.
    network
        Index of its network.
    kind
        Kind of the op.
    shape
        Its loop nest.
    """

    name: str
    network: int
    kind: str
    shape: LayerShape


@dataclass(frozen=True, eq=False)
class Application:
    """A set of independent networks (Das et al., definition 2), merged into arrays.

    Layers are numbered network by network, each in a topological order; hence
    ``0, 1, ..., n - 1`` is a topological order of the whole.

    Attributes
    ----------
    name
        Name of the application.
    networks
        Names of the networks, replicas numbered.
    layers
        All n mapped ops.
    unique_layers
        The U distinct loop nests, in order of first appearance.
    unique_index
        int64, shape (n,): position of each layer's shape in ``unique_layers``.
    network_index
        int64, shape (n,): network of each layer.
    predecessor_offsets, predecessor_ids
        int64, shapes (n + 1,) and (E,): layers that must end before layer ``v`` starts are
        ``predecessor_ids[predecessor_offsets[v]:predecessor_offsets[v + 1]]``, ascending and
        transitively reduced.
    successor_offsets, successor_ids
        The same edges, by the earlier layer.
    depth
        int64, shape (n,): layers on the longest path that ends just before this one.

    Examples
    --------
    >>> from mohsearch.workloads.zoo import load_application
    >>> app = load_application("tiny")
    >>> app.n_layers == len(app.unique_index)
    True
    """

    name: str
    networks: tuple[str, ...]
    layers: tuple[Layer, ...]
    unique_layers: tuple[LayerShape, ...]
    unique_index: NDArray[np.int64]
    network_index: NDArray[np.int64]
    predecessor_offsets: NDArray[np.int64]
    predecessor_ids: NDArray[np.int64]
    successor_offsets: NDArray[np.int64]
    successor_ids: NDArray[np.int64]
    depth: NDArray[np.int64]
    source: str = ""

    @classmethod
    def merge(cls, name: str, tenants: Iterable[Tenant], *, source: str = "") -> Application:
        """Merge networks into one application.

        Raises
        ------
        InputError
            If there is no network, none has an op that runs on a MAC array, or a layer is
            too large to count.
        """
        names: list[str] = []
        layers: list[Layer] = []
        before: list[list[int]] = []
        for tenant in tenants:
            batched = tenant.network.batched(tenant.batch)
            mapped = batched.mapped_ops
            rows = list(batched.mapped_predecessors(reduced=True).values())
            rank = {op.name: i for i, op in enumerate(mapped)}
            for replica in range(tenant.replicas):
                label = _label(tenant, replica, names)
                start = len(layers)
                layers += [
                    Layer(f"{label}/{op.name}", len(names), op.kind, op.shape)
                    for op in mapped
                    if op.shape is not None
                ]
                before += [[start + rank[p] for p in row] for row in rows]
                names.append(label)
        _check_layers(layers, name)
        unique: dict[LayerShape, int] = {}
        for layer in layers:
            unique.setdefault(layer.shape, len(unique))
        return cls(
            name,
            tuple(names),
            tuple(layers),
            tuple(unique),
            _frozen([unique[layer.shape] for layer in layers]),
            _frozen([layer.network for layer in layers]),
            *_rows_to_csr(before),
            *_rows_to_csr(_reversed(before)),
            _depths(before),
            source,
        )

    @property
    def n_layers(self) -> int:
        """Number of layers n."""
        return len(self.layers)

    @property
    def n_unique(self) -> int:
        """Number of distinct loop nests U."""
        return len(self.unique_layers)

    @property
    def longest_chain(self) -> int:
        """Layers on the longest dependency path."""
        return int(self.depth.max()) + 1

    @cached_property
    def layer_macs(self) -> NDArray[np.int64]:
        """Multiply-accumulates of each layer, int64, shape (n,)."""
        return _frozen([layer.shape.macs for layer in self.layers])

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole application."""
        return sum(layer.shape.macs for layer in self.layers)

    def predecessors(self, layer: int) -> NDArray[np.int64]:
        """Return the layers that must end before ``layer`` starts."""
        start, stop = self.predecessor_offsets[layer : layer + 2]
        return self.predecessor_ids[start:stop]

    def successors(self, layer: int) -> NDArray[np.int64]:
        """Return the layers that wait for ``layer``."""
        start, stop = self.successor_offsets[layer : layer + 2]
        return self.successor_ids[start:stop]

    def digest(self) -> str:
        """Return the content hash of shapes, networks and dependencies; names do not enter."""
        return content_digest(
            self.unique_layers,
            self.unique_index,
            self.network_index,
            self.predecessor_offsets,
            self.predecessor_ids,
        )

    def summary(self) -> dict[str, Any]:
        """Return the counts that characterise the application, as plain values."""
        return {
            "name": self.name,
            "source": self.source,
            "networks": list(self.networks),
            "layers": self.n_layers,
            "unique_layers": self.n_unique,
            "dependencies": len(self.predecessor_ids),
            "longest_chain": self.longest_chain,
            "macs": self.macs,
        }


def _check_layers(layers: Sequence[Layer], name: str) -> None:
    """Raise if there is no layer, or one too large to count."""
    if not layers:
        raise InputError("no network with an op for MAC arrays", source=name)
    for layer in layers:
        if layer.shape.macs > MAX_LAYER_MACS:
            problem = f"{layer.shape.macs:.3g} multiply-accumulates; 2^53 are the limit"
            raise InputError(problem, source=name, field=layer.name)


def _reversed(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the successors of each node, given its predecessors."""
    after: list[list[int]] = [[] for _ in before]
    for node, row in enumerate(before):
        for earlier in row:
            after[earlier].append(node)
    return after


def _label(tenant: Tenant, replica: int, taken: Sequence[str]) -> str:
    """Return a name for one copy of a network that no other copy has."""
    label = tenant.network.name
    if tenant.replicas > 1:
        label = f"{label}#{replica + 1}"
    number = 2
    candidate = label
    while candidate in taken:
        candidate = f"{label}({number})"
        number += 1
    return candidate


def _frozen(values: Sequence[int]) -> NDArray[np.int64]:
    """Return a read-only int64 array."""
    array = np.asarray(values, dtype=np.int64)
    array.setflags(write=False)
    return array


def _rows_to_csr(
    rows: Sequence[Sequence[int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets and concatenated entries of ragged rows."""
    offsets = [0]
    flat: list[int] = []
    for row in rows:
        flat.extend(row)
        offsets.append(len(flat))
    return _frozen(offsets), _frozen(flat)


def _depths(before: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the number of layers on the longest path to each node."""
    depth: list[int] = []
    for row in before:
        depth.append(1 + max((depth[p] for p in row), default=-1))
    return _frozen(depth)
