"""Operator graphs: the ops of a network and the data that flows between them."""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.workloads.layer import LayerShape

MAPPED_KINDS = ("conv", "dwconv", "gemm", "bmm")
"""Kinds of op that run on MAC arrays: convolution, depthwise convolution, matrix product with one
shared second operand, and batched matrix product."""

KINDS = (*MAPPED_KINDS, "vector")
"""All kinds; a vector op (pooling, element-wise, normalisation, softmax, ...) has no loop nest."""

_NAME = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Op:
    """One node of a network.

    Attributes
    ----------
    name
        Unique in its graph, without white space.
    kind
        One of :data:`KINDS`.
    shape
        The loop nest of a mapped op; None for a vector op.
    input_h, input_w
        Rows and columns of a convolution's input image, padding excluded; 1 otherwise.
    pads
        Zero padding of that image: top, left, bottom, right. A negative value crops.
    op_type
        What it was where it came from, such as ``ConvTranspose`` or ``Softmax``.
    elements
        Output elements of a vector op; None where they depend on the data.

    Raises
    ------
    ValueError
        If kind and shape do not go together, or a name holds white space.

    Examples
    --------
    >>> op = Op("conv1", "conv", LayerShape(K=8, C=3, P=6, Q=6, R=3, S=3), input_h=8, input_w=8)
    >>> op.macs, op.input_elements, op.output_elements
    (7776, 192, 288)
    """

    name: str
    kind: str
    shape: LayerShape | None = None
    input_h: int = 1
    input_w: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    op_type: str = ""
    elements: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"an op's name must hold no white space, got {self.name!r}")
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {self.kind!r}; kinds: {', '.join(KINDS)}")
        if (self.shape is None) != (self.kind == "vector"):
            need = "no shape" if self.kind == "vector" else "a shape"
            raise ValueError(f"op {self.name!r} of kind {self.kind} needs {need}")
        if self.shape is not None and self.elements is not None:
            raise ValueError(f"op {self.name!r}: elements are given for vector ops only")
        if self.input_h < 1 or self.input_w < 1 or (self.elements or 0) < 0:
            raise ValueError(f"op {self.name!r}: sizes must be positive")

    @property
    def mapped(self) -> bool:
        """Whether the op runs on a MAC array."""
        return self.shape is not None

    @property
    def macs(self) -> int:
        """Multiply-accumulates; 0 for a vector op."""
        return self.shape.macs if self.shape else 0

    @property
    def weight_elements(self) -> int:
        """Elements of the second operand; 0 for a vector op."""
        return self.shape.weight_elements if self.shape else 0

    @property
    def input_elements(self) -> int:
        """Elements of a mapped op's first operand, padding excluded; 0 for a vector op."""
        if self.shape is None:
            return 0
        return self.shape.N * self.shape.G * self.shape.C * self.input_h * self.input_w

    @property
    def output_elements(self) -> int | None:
        """Elements of the output; None where a vector op's depend on the data."""
        return self.shape.output_elements if self.shape else self.elements

    def batched(self, batch: int) -> Op:
        """Return the same op on ``batch`` times the samples."""
        if self.shape is None:
            elements = None if self.elements is None else self.elements * batch
            return dataclasses.replace(self, elements=elements)
        axis = "G" if self.kind == "bmm" else "N"
        grown = {axis: getattr(self.shape, axis) * batch}
        return dataclasses.replace(self, shape=dataclasses.replace(self.shape, **grown))


class OpGraph:
    """A network: ops in a topological order and their data dependencies.

    Parameters
    ----------
    name
        Name of the network.
    ops
        The ops. Their order is kept if it is topological; otherwise the topological order nearest
        to it is taken.
    predecessors
        For each op name, the ops whose outputs it reads; ops not named read only network inputs.
    source
        Where the figures come from.
    origin
        File to name in errors (default: the network's name).

    Raises
    ------
    InputError
        If a name occurs twice, a predecessor is unknown, or the dependencies form a cycle.

    Examples
    --------
    >>> fc = LayerShape(N=4, K=10, C=20)
    >>> ops = [Op("a", "gemm", fc), Op("relu", "vector", elements=40), Op("b", "gemm", fc)]
    >>> net = OpGraph("net", ops, {"relu": ["a"], "b": ["relu"]})
    >>> net.macs, net.mapped_predecessors()
    (1600, {'a': (), 'b': ('a',)})
    """

    def __init__(
        self,
        name: str,
        ops: Iterable[Op],
        predecessors: Mapping[str, Sequence[str]],
        *,
        source: str = "",
        origin: str | Path | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self._origin = name if origin is None else origin
        table: dict[str, Op] = {}
        for op in ops:
            if op.name in table:
                raise InputError(f"two ops are called {op.name!r}", source=self._origin)
            table[op.name] = op
        if not table:
            raise InputError("the network has no ops", source=self._origin)
        graph = nx.DiGraph(name=name)
        graph.add_nodes_from((n, {"op": op}) for n, op in table.items())
        for consumer, producers in predecessors.items():
            for known in (consumer, *producers):
                if known not in table:
                    raise UnknownNameError(
                        "predecessor", known, table, source=self._origin, field=consumer
                    )
            graph.add_edges_from((producer, consumer) for producer in producers)
        self.digraph = nx.freeze(graph)
        self.ops = tuple(table[n] for n in self._topological(list(table)))

    def _topological(self, names: list[str]) -> list[str]:
        """Return the topological order that is lexicographically first in the given order."""
        rank = {n: i for i, n in enumerate(names)}
        waiting = dict(self.digraph.in_degree())
        ready = [rank[n] for n in names if waiting[n] == 0]
        order = []
        while ready:
            current = names[heapq.heappop(ready)]
            order.append(current)
            for follower in self.digraph.successors(current):
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    heapq.heappush(ready, rank[follower])
        if len(order) < len(names):
            cycle = [edge[0] for edge in nx.find_cycle(self.digraph)]
            path = " -> ".join([*cycle, cycle[0]])
            raise InputError(f"the dependencies form a cycle: {path}", source=self._origin)
        return order

    def __len__(self) -> int:
        return len(self.ops)

    def __getitem__(self, name: str) -> Op:
        try:
            op: Op = self.digraph.nodes[name]["op"]
        except KeyError:
            raise UnknownNameError("op", name, self.digraph.nodes, source=self._origin) from None
        return op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpGraph) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.ops))

    def __repr__(self) -> str:
        return f"OpGraph({self.name!r}, {len(self.ops)} ops, {self.macs / 1e9:.4g} GMAC)"

    def predecessors(self, name: str) -> tuple[str, ...]:
        """Return the ops whose outputs ``name`` reads directly."""
        return tuple(self.digraph.predecessors(name))

    @property
    def mapped_ops(self) -> tuple[Op, ...]:
        """The ops that run on MAC arrays, in topological order."""
        return tuple(op for op in self.ops if op.mapped)

    def mapped_predecessors(self, *, reduced: bool = False) -> dict[str, tuple[str, ...]]:
        """Return, for each mapped op, the mapped ops it depends on directly or via vector ops.

        With ``reduced``, a dependency that follows from the others is left out (transitive
        reduction).
        """
        mapped = self.mapped_ops
        rank = {op.name: i for i, op in enumerate(mapped)}
        producers: dict[str, frozenset[int]] = {}
        rows: list[list[int]] = []
        for op in self.ops:
            before: set[int] = set()
            for producer in self.digraph.predecessors(op.name):
                if producer in rank:
                    before.add(rank[producer])
                else:
                    before |= producers[producer]
            if op.mapped:
                rows.append(sorted(before))
            else:
                producers[op.name] = frozenset(before)
        if reduced:
            rows = reduce_predecessors(rows)
        names = [op.name for op in mapped]
        return {n: tuple(names[i] for i in row) for n, row in zip(names, rows, strict=True)}

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole network."""
        return sum(op.macs for op in self.ops)

    @property
    def weight_elements(self) -> int:
        """Elements of all second operands, those of batched products included."""
        return sum(op.weight_elements for op in self.ops)

    def unique_shapes(self) -> tuple[LayerShape, ...]:
        """Return the distinct loop nests in order of first appearance."""
        return tuple(dict.fromkeys(op.shape for op in self.ops if op.shape is not None))

    def longest_chain(self) -> int:
        """Return the number of mapped ops on the longest dependency path."""
        depth: dict[str, int] = {}
        for name, before in self.mapped_predecessors().items():
            depth[name] = 1 + max((depth[b] for b in before), default=0)
        return max(depth.values(), default=0)

    def summary(self) -> dict[str, Any]:
        """Return the counts that characterise the network, as plain values."""
        kinds = {kind: sum(op.kind == kind for op in self.ops) for kind in KINDS}
        return {
            "name": self.name,
            "source": self.source,
            "ops": len(self.ops),
            "layers": len(self.mapped_ops),
            "unique_layers": len(self.unique_shapes()),
            "longest_chain": self.longest_chain(),
            "macs": self.macs,
            "weight_elements": self.weight_elements,
            "kinds": {kind: count for kind, count in kinds.items() if count},
        }

    def batched(self, batch: int, name: str | None = None) -> OpGraph:
        """Return the network on ``batch`` times the samples."""
        if batch < 1:
            raise ValueError(f"batch must be positive, got {batch}")
        ops = self.ops if batch == 1 else [op.batched(batch) for op in self.ops]
        before = {op.name: self.predecessors(op.name) for op in self.ops}
        return OpGraph(name or self.name, ops, before, source=self.source, origin=self._origin)

    def digest(self) -> str:
        """Return the content hash of ops and dependencies; name and source do not enter."""
        return content_digest([(op, sorted(self.digraph.predecessors(op.name))) for op in self.ops])

    def to_dict(self) -> dict[str, Any]:
        """Return the network as plain JSON types; :meth:`from_dict` reads it back."""
        rows = []
        for op in self.ops:
            row: dict[str, Any] = {"name": op.name, "kind": op.kind}
            row["predecessors"] = sorted(self.digraph.predecessors(op.name))
            if op.shape is not None:
                row["shape"] = dataclasses.asdict(op.shape)
                row["input"] = [op.input_h, op.input_w]
                row["pads"] = list(op.pads)
            elif op.elements is not None:
                row["elements"] = op.elements
            if op.op_type:
                row["op_type"] = op.op_type
            rows.append(row)
        return {"name": self.name, "source": self.source, "ops": rows}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OpGraph:
        """Return the network that :meth:`to_dict` wrote.

        Raises
        ------
        InputError
            If a field is missing or wrong.
        """
        ops, before = [], {}
        try:
            for row in data["ops"]:
                shape = LayerShape(**row["shape"]) if "shape" in row else None
                rows, columns = row.get("input", (1, 1))
                top, left, bottom, right = row.get("pads", (0, 0, 0, 0))
                ops.append(
                    Op(
                        name=row["name"],
                        kind=row["kind"],
                        shape=shape,
                        input_h=rows,
                        input_w=columns,
                        pads=(top, left, bottom, right),
                        op_type=row.get("op_type", ""),
                        elements=row.get("elements"),
                    )
                )
                before[row["name"]] = row["predecessors"]
            return cls(data["name"], ops, before, source=data.get("source", ""))
        except (KeyError, TypeError, ValueError) as error:
            field = f"ops[{len(ops)}]"
            raise InputError(f"not a network: {error}", field=field) from error


def reduce_predecessors(predecessors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Leave out every dependency that follows from the others (transitive reduction).

    Parameters
    ----------
    predecessors
        For each node ``v``, nodes smaller than ``v`` (a topological numbering).

    Returns
    -------
    list of list of int
        The predecessors that remain, sorted.

    Examples
    --------
    >>> reduce_predecessors([[], [0], [0, 1]])
    [[], [0], [1]]
    """
    reduced: list[list[int]] = []
    for node, given in enumerate(predecessors):
        candidates = sorted(set(given), reverse=True)
        if candidates and (candidates[-1] < 0 or candidates[0] >= node):
            raise ValueError(f"predecessors of {node} must be in 0..{node - 1}")
        if len(candidates) < 2:
            reduced.append(candidates)
            continue
        floor = candidates[-1]
        seen: set[int] = set()
        kept = []
        for candidate in candidates:
            if candidate in seen:
                continue
            kept.append(candidate)
            stack = [candidate]
            while stack:
                for before in reduced[stack.pop()]:
                    if before >= floor and before not in seen:
                        seen.add(before)
                        stack.append(before)
        reduced.append(kept[::-1])
    return reduced
