"""Graphs of ops with work, tensor sizes and weights, as arrays for partitioning.

Unlike :class:`mohsearch.workloads.graph.OpGraph` an op here has no loop nest: its operations, the
bytes of its output and the weights it reads are all that a partition over chips needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

MAX_OPS = 20_000
"""Largest graph: bit sets of ancestors of every op are kept in memory (50 MB at this size)."""

GATHERS = frozenset({"embedding", "embedding_bag", "gather"})
"""Op types that read rows of a table and do not keep the table on the chip."""


@dataclass(frozen=True, eq=False)
class PartitionGraph:
    """A directed acyclic graph of ops; the number of an op is its place in a topological order.

    Build one with :meth:`from_columns`, which checks what it is given.

    Attributes
    ----------
    name, source
        Name of the network and where it comes from.
    op_types, op_type
        Names of op types, and the type of each op (n,).
    flops
        Operations of each op (n,), a multiply-accumulate counted as two.
    out_bytes
        Bytes of each op's output (n,).
    weight_bytes
        Bytes of each weight tensor (W,).
    weight_starts, weight_ids
        Op ``u`` reads the weights ``weight_ids[weight_starts[u]:weight_starts[u + 1]]``. Tables
        that an embedding gathers from are left out.
    edge_src, edge_dst, edge_bytes
        Edges (E,) in the order of source, then destination, and the bytes read along each.
    element_bytes
        Bytes of a number in the sizes above.
    file_index
        Number that each op had where the graph was read from (n,).

    Examples
    --------
    >>> graph = PartitionGraph.from_columns(
    ...     "two", ["conv", "relu"], flops=[8.0, 2.0], out_bytes=[4, 4], edges=[(0, 1)]
    ... )
    >>> graph.n, graph.edge_bytes.tolist(), graph.successors(0).tolist()
    (2, [4.0], [1])
    """

    name: str
    source: str
    op_types: tuple[str, ...]
    op_type: Integers
    flops: Floats
    out_bytes: Floats
    weight_bytes: Floats
    weight_starts: Integers
    weight_ids: Integers
    edge_src: Integers
    edge_dst: Integers
    edge_bytes: Floats
    element_bytes: float
    file_index: Integers

    @classmethod
    def from_columns(
        cls,
        name: str,
        types: Sequence[str],
        *,
        flops: ArrayLike,
        out_bytes: ArrayLike,
        edges: Sequence[tuple[int, int]],
        edge_bytes: Sequence[float] | None = None,
        weights: Sequence[Sequence[int]] | None = None,
        weight_bytes: ArrayLike = (),
        element_bytes: float = 2.0,
        source: str = "",
        origin: str | Path | None = None,
    ) -> PartitionGraph:
        """Build a graph from columns, one entry an op or an edge.

        Parameters
        ----------
        name, source
            Name and origin of the network.
        types
            Op type of each op.
        flops, out_bytes
            Operations, and bytes of the output, of each op.
        edges
            Pairs (producer, consumer) of op numbers; of several edges between two ops the largest
            counts. Ops are renumbered where their numbers are not a topological order.
        edge_bytes
            Bytes read along each edge (default: the producer's output).
        weights
            Numbers of the weight tensors that each op reads.
        weight_bytes
            Bytes of each weight tensor.
        element_bytes
            Bytes of a number in the sizes given.
        origin
            File to name in errors (default: ``name``).

        Raises
        ------
        InputError
            If columns differ in length, a number is negative, not finite or out of range, an edge
            joins an op with itself, or the edges form a cycle.
        """
        checked = _CheckedColumns(origin if origin is not None else name)
        n = len(types)
        if not 1 <= n <= MAX_OPS:
            raise checked.error(f"a graph has 1 to {MAX_OPS} ops, this has {n}")
        work = checked.numbers("flops", flops, n)
        out = checked.numbers("out_bytes", out_bytes, n)
        tensor = checked.numbers("weight_bytes", weight_bytes)
        ends = checked.edges(edges, n)
        given = None if edge_bytes is None else checked.numbers("edge_bytes", edge_bytes, len(ends))
        bytes_of = out[ends[:, 0]] if given is None else given
        reads = checked.weights(weights, n, len(tensor))
        order = _stable_order(ends, n)
        if len(order) < n:
            raise checked.error(f"the edges form a cycle through op {_on_cycle(order, n)}", "edges")
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        src, dst, size = _merged_edges(place[ends], bytes_of, n)
        names, codes = np.unique(np.asarray(types, dtype=object), return_inverse=True)
        starts, ids = _weight_columns(types, reads, order)
        return cls(
            name=name,
            source=source,
            op_types=tuple(names),
            op_type=codes[order].astype(np.int32),
            flops=work[order],
            out_bytes=out[order],
            weight_bytes=tensor,
            weight_starts=starts,
            weight_ids=ids,
            edge_src=src,
            edge_dst=dst,
            edge_bytes=size,
            element_bytes=float(element_bytes),
            file_index=order.astype(np.int32),
        )

    @property
    def n(self) -> int:
        """Number of ops."""
        return len(self.flops)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.edge_src)

    @cached_property
    def succ_starts(self) -> Integers:
        """Edges ``succ_starts[u]`` to ``succ_starts[u + 1]`` leave op ``u`` (n + 1,)."""
        return np.searchsorted(self.edge_src, np.arange(self.n + 1)).astype(np.int32)

    @cached_property
    def pred_edges(self) -> Integers:
        """Edge numbers in the order of destination, then source (E,)."""
        return np.lexsort((self.edge_src, self.edge_dst)).astype(np.int32)

    @cached_property
    def pred_starts(self) -> Integers:
        """``pred_edges[pred_starts[v]:pred_starts[v + 1]]`` enter op ``v`` (n + 1,)."""
        ordered = self.edge_dst[self.pred_edges]
        return np.searchsorted(ordered, np.arange(self.n + 1)).astype(np.int32)

    def successors(self, op: int) -> Integers:
        """Return the consumers of an op."""
        return self.edge_dst[self.succ_starts[op] : self.succ_starts[op + 1]]

    def predecessors(self, op: int) -> Integers:
        """Return the producers that an op reads."""
        return self.edge_src[self.pred_edges[self.pred_starts[op] : self.pred_starts[op + 1]]]

    @cached_property
    def levels(self) -> Integers:
        """Length in edges of the longest path that ends in each op (n,)."""
        level = np.zeros(self.n, np.int32)
        for v in range(self.n):
            before = self.predecessors(v)
            if len(before):
                level[v] = level[before].max() + 1
        return level

    @cached_property
    def resident_bytes(self) -> Floats:
        """Bytes of the weights that each op reads (n,)."""
        sums = np.concatenate([[0.0], np.cumsum(self.weight_bytes[self.weight_ids])])
        return np.asarray(sums[self.weight_starts[1:]] - sums[self.weight_starts[:-1]])

    @cached_property
    def used_weight_bytes(self) -> float:
        """Bytes of all weights that some op reads, each once."""
        return float(self.weight_bytes[np.unique(self.weight_ids)].sum())

    @cached_property
    def in_bytes(self) -> Floats:
        """Bytes that each op reads from other ops (n,)."""
        sums = np.bincount(self.edge_dst, weights=self.edge_bytes, minlength=self.n)
        return np.asarray(sums, dtype=np.float64)

    def at_precision(self, element_bytes: float) -> PartitionGraph:
        """Return the same graph with numbers of ``element_bytes`` bytes."""
        scale = element_bytes / self.element_bytes
        return replace(
            self,
            out_bytes=self.out_bytes * scale,
            weight_bytes=self.weight_bytes * scale,
            edge_bytes=self.edge_bytes * scale,
            element_bytes=float(element_bytes),
        )

    def digest(self) -> str:
        """Return a digest of everything that decides costs."""
        arrays = (
            self.op_type, self.flops, self.out_bytes, self.weight_bytes, self.weight_starts,
            self.weight_ids, self.edge_src, self.edge_dst, self.edge_bytes,
        )  # fmt: skip
        return content_digest(
            [list(self.op_types), self.element_bytes, *(array.tolist() for array in arrays)]
        )

    def summary(self) -> dict[str, Any]:
        """Return sizes: ops, edges, op types, operations, bytes of weights."""
        return {
            "name": self.name,
            "ops": self.n,
            "edges": self.n_edges,
            "op_types": len(self.op_types),
            "flops": float(self.flops.sum()),
            "weight_bytes": self.used_weight_bytes,
        }


class _CheckedColumns:
    """A graph's columns as arrays, once they are known to be valid.

    Every method raises an :class:`InputError` that names the origin, the column and the entry.
    """

    def __init__(self, origin: str | Path) -> None:
        self.origin = origin

    def error(self, message: str, field: str | None = None) -> InputError:
        return InputError(message, source=self.origin, field=field)

    def numbers(self, field: str, values: Any, count: int | None = None) -> Floats:
        """Return ``count`` numbers (any count if None), none negative and none near overflow."""
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise self.error("must be a list of numbers", field) from None
        if array.ndim != 1 or (count is not None and len(array) != count):
            raise self.error(f"must have {count} numbers, has {len(array.ravel())}", field)
        wrong = np.flatnonzero(~((array >= 0) & (array < 1e30)))
        if len(wrong):
            problem = f"must not be negative or infinite, got {array[wrong[0]]}"
            raise self.error(problem, f"{field}[{wrong[0]}]")
        return array

    def edges(self, edges: Sequence[tuple[int, int]], n: int) -> NDArray[np.int64]:
        """Return the two ends of each edge (E, 2)."""
        try:
            ends = np.asarray(edges).reshape(-1, 2) if len(edges) else np.empty((0, 2), np.int64)
        except (TypeError, ValueError):
            raise self.error("must be pairs of op numbers", "edges") from None
        if len(ends) and ends.dtype.kind not in "iu":
            raise self.error("must be pairs of op numbers", "edges")
        bad = np.flatnonzero(((ends < 0) | (ends >= n)).any(axis=1) | (ends[:, 0] == ends[:, 1]))
        if len(bad):
            pair = tuple(ends[bad[0]].tolist())
            raise self.error(
                f"{pair} does not join two of the ops 0 to {n - 1}", f"edges[{bad[0]}]"
            )
        return ends.astype(np.int64)

    def weights(
        self, weights: Sequence[Sequence[int]] | None, n: int, tensors: int
    ) -> Sequence[Sequence[int]]:
        """Return the weight tensors that each op reads, none where nothing is said."""
        if weights is None:
            return [()] * n
        if len(weights) != n:
            raise self.error(f"must have {n} entries, has {len(weights)}", "weights")
        for op, ids in enumerate(weights):
            if not isinstance(ids, Sequence) or any(
                not isinstance(i, int) or not 0 <= i < tensors for i in ids
            ):
                raise self.error(
                    f"must be numbers of the {tensors} weight tensors", f"weights[{op}]"
                )
        return weights


def _stable_order(ends: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the topological order nearest to the given numbers; shorter than n with a cycle."""
    if (ends[:, 0] < ends[:, 1]).all():
        return np.arange(n)
    waiting = np.bincount(ends[:, 1], minlength=n)
    followers: dict[int, list[int]] = {}
    for u, v in ends.tolist():
        followers.setdefault(u, []).append(v)
    ready = np.flatnonzero(waiting == 0).tolist()
    heapq.heapify(ready)
    order = []
    while ready:
        u = heapq.heappop(ready)
        order.append(u)
        for v in followers.get(u, ()):
            waiting[v] -= 1
            if waiting[v] == 0:
                heapq.heappush(ready, v)
    return np.array(order, np.int64)


def _weight_columns(
    types: Sequence[str], reads: Sequence[Sequence[int]], order: NDArray[np.int64]
) -> tuple[Integers, Integers]:
    """Return starts and ids of the weights of each op in ``order``; a lookup keeps none on chip."""
    kept = [() if types[u].lower() in GATHERS else tuple(sorted(set(reads[u]))) for u in order]
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in kept])])
    return starts.astype(np.int32), np.array([w for ids in kept for w in ids], np.int32)


def _on_cycle(order: NDArray[np.int64], n: int) -> int:
    return min(set(range(n)) - set(order.tolist()))


def _merged_edges(
    ends: NDArray[np.int64], size: Floats, n: int
) -> tuple[Integers, Integers, Floats]:
    """Return edges sorted by source and destination; of parallel ones the largest."""
    if not len(ends):
        empty = np.empty(0, np.int32)
        return empty, empty.copy(), np.empty(0)
    key = ends[:, 0] * n + ends[:, 1]
    distinct, inverse = np.unique(key, return_inverse=True)
    largest = np.zeros(len(distinct))
    np.maximum.at(largest, inverse, size)
    return (distinct // n).astype(np.int32), (distinct % n).astype(np.int32), largest
