"""Operators of a training step: what each computes, reads, writes and sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

Phase = Literal["forward", "recompute", "input_gradient", "weight_gradient", "update"]
Engine = Literal["tensor", "vector", "fused", "collective"]

PRIMITIVES = ("add", "multiply", "compare", "divide", "exp", "sqrt", "tanh", "random")
"""Operations of a vector lane; counts below are per element, in this order."""


@dataclass(frozen=True)
class VectorRule:
    """What a vector op does to one element.

    Attributes
    ----------
    counts
        Lane operations by primitive.
    passes
        How often a row is read where it does not fit on chip (statistics need their own passes).
    """

    counts: Mapping[str, int]
    passes: int = 1


def _rule(passes: int = 1, **counts: int) -> VectorRule:
    return VectorRule(MappingProxyType(counts), passes)


VECTOR_RULES: Mapping[str, VectorRule] = MappingProxyType(
    {
        "layernorm": _rule(3, add=4, multiply=3),
        "layernorm_gradient": _rule(2, add=5, multiply=5),
        "layernorm_weight_gradient": _rule(1, add=3, multiply=2),
        "rmsnorm": _rule(2, add=1, multiply=3),
        "rmsnorm_gradient": _rule(2, add=2, multiply=5),
        "rmsnorm_weight_gradient": _rule(1, add=1, multiply=2),
        "softmax": _rule(3, compare=1, add=2, exp=1, multiply=1),
        "softmax_gradient": _rule(2, add=2, multiply=2),
        "scale_mask": _rule(1, multiply=1, compare=1),
        "scale_mask_gradient": _rule(1, multiply=1, compare=1),
        "bias_scale_mask": _rule(1, multiply=1, add=1, compare=1),
        "bias_scale_mask_gradient": _rule(1, multiply=1, compare=1),
        "dropout": _rule(1, random=1, compare=1, multiply=1),
        "dropout_gradient": _rule(1, multiply=2),
        "add": _rule(1, add=1),
        "accumulate": _rule(1, add=1),
        "multiply": _rule(1, multiply=1),
        "multiply_gradient": _rule(1, multiply=2),
        "gelu": _rule(1, multiply=5, add=2, tanh=1),
        "gelu_gradient": _rule(1, multiply=9, add=5, tanh=1),
        "relu": _rule(1, compare=1),
        "relu_gradient": _rule(1, compare=1),
        "silu": _rule(1, exp=1, add=1, divide=1),
        "silu_gradient": _rule(1, exp=1, add=3, divide=1, multiply=3),
        "rotary": _rule(1, multiply=2, add=1),
        "rotary_gradient": _rule(1, multiply=2, add=1),
        "lookup": _rule(1),
        "lookup_gradient": _rule(1, add=1),
        "bias_gradient": _rule(1, add=1),
        "permute": _rule(1),
        "permute_gradient": _rule(1, add=1),
        "combine": _rule(1, multiply=1, add=1),
        "combine_gradient": _rule(1, multiply=2, add=1),
        "top_k": _rule(2, compare=2),
        "top_k_gradient": _rule(1, multiply=1),
        "cross_entropy": _rule(3, compare=1, add=2, exp=1),
        "cross_entropy_gradient": _rule(1, exp=1, add=2, multiply=1),
        "adam": _rule(1, multiply=7, add=5, sqrt=1, divide=1),
        "sgd": _rule(1, multiply=1, add=1),
    }
)
"""Lane operations of every vector op, counted from its formula (tanh form of GELU)."""

ROW_OPS = frozenset({"softmax", "layernorm", "rmsnorm", "cross_entropy", "top_k"})
"""Ops that need a whole row before they can write: they end a fusion behind a matrix product."""


@dataclass(frozen=True)
class TrainingOp:
    """One operator of one layer, on one tensor-parallel device, for one microbatch.

    Attributes
    ----------
    name, op_type, phase, engine
        What it is; ``engine`` says which cores it needs.
    batch, m, n, k
        Independent products of (m x k) by (k x n); 0 for other engines. The dims of the head in a
        fused op.
    elements
        Elements a vector op works on (its output's, or what it reduces).
    counts
        Lane operations in all, in the order of :data:`PRIMITIVES`; of a fused op its followers'.
    read_bytes, write_bytes
        Memory traffic if every operand is read once and every result written once.
    row_bytes, passes
        Row that a statistic runs over, and how often it is read if it does not fit on chip.
    collective, collective_bytes
        ``all_reduce``, ``all_gather`` or ``reduce_scatter`` over the tensor-parallel devices, and
        the size of the whole tensor.
    width
        Devices that take part in the collective.
    parts
        Names of the ops that a fused one consists of.
    """

    name: str
    op_type: str
    phase: Phase
    engine: Engine
    batch: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    elements: int = 0
    counts: tuple[int, ...] = (0,) * len(PRIMITIVES)
    read_bytes: int = 0
    write_bytes: int = 0
    row_bytes: int = 0
    passes: int = 1
    collective: str = ""
    collective_bytes: int = 0
    width: int = 1
    parts: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the matrix products."""
        return self.batch * self.m * self.n * self.k

    @property
    def tensor_flops(self) -> int:
        """Floating-point operations of the matrix products, two per multiply-accumulate."""
        return 2 * self.macs

    @property
    def vector_flops(self) -> int:
        """Floating-point operations on vector lanes, one per primitive."""
        return sum(self.counts)

    @property
    def flops(self) -> int:
        """All floating-point operations."""
        return self.tensor_flops + self.vector_flops

    @property
    def wire_bytes(self) -> float:
        """What each device sends over its link in a ring: 2(t-1)/t of an all-reduced tensor."""
        share = (self.width - 1) / self.width
        return self.collective_bytes * share * (2 if self.collective == "all_reduce" else 1)

    def to_dict(self) -> dict[str, object]:
        """Return a plain record, counts by primitive."""
        return {
            "op": self.name,
            "type": self.op_type,
            "phase": self.phase,
            "engine": self.engine,
            "batch": self.batch,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "elements": self.elements,
            "tensor_flops": self.tensor_flops,
            "vector_flops": self.vector_flops,
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "collective": self.collective,
            "collective_bytes": self.collective_bytes,
            "parts": list(self.parts),
        }


@dataclass(frozen=True)
class TrainingGraph:
    """Ops of one pass over one layer, with their dependencies.

    Attributes
    ----------
    ops
        In an order in which every op stands after those it needs.
    edges
        Pairs (before, after) of positions in ``ops``, sorted, each once.
    edge_bytes
        What the later op reads of the earlier one's result.
    kept
        Positions of ops whose result outlives the graph (saved for the backward pass, or handed to
        the next layer), so that it must be written even where the reader is fused.
    """

    ops: tuple[TrainingOp, ...]
    edges: tuple[tuple[int, int], ...]
    edge_bytes: tuple[int, ...]
    kept: frozenset[int] = field(default_factory=frozenset)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def tensor_flops(self) -> int:
        """Floating-point operations of all matrix products."""
        return sum(op.tensor_flops for op in self.ops)

    @property
    def vector_flops(self) -> int:
        """Floating-point operations of all vector ops."""
        return sum(op.vector_flops for op in self.ops)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the direct successors of every op."""
        after: list[list[int]] = [[] for _ in self.ops]
        for i, j in self.edges:
            after[i].append(j)
        return tuple(tuple(sorted(x)) for x in after)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the direct predecessors of every op."""
        before: list[list[int]] = [[] for _ in self.ops]
        for i, j in self.edges:
            before[j].append(i)
        return tuple(tuple(sorted(x)) for x in before)

    @property
    def collective_bytes(self) -> int:
        """Size of all tensors that collectives work on."""
        return sum(op.collective_bytes for op in self.ops)


def vector_counts(op_type: str, elements: int) -> tuple[int, ...]:
    """Return the lane operations of a vector op on ``elements`` elements.

    Raises
    ------
    KeyError
        If there is no rule for the type.

    Examples
    --------
    >>> vector_counts("rotary", 10)
    (10, 20, 0, 0, 0, 0, 0, 0)
    """
    counts = VECTOR_RULES[op_type].counts
    return tuple(counts.get(primitive, 0) * elements for primitive in PRIMITIVES)
