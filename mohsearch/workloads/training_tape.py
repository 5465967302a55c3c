"""A layer's forward pass, recorded op by op, and the backward pass that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mohsearch.workloads.training_ops import (
    VECTOR_RULES,
    Phase,
    TrainingGraph,
    TrainingOp,
    vector_counts,
)

MASK_BYTES = 1
"""Bytes of one element of a dropout mask (Korthikanti et al., 2023, section 4.1)."""


@dataclass(frozen=True)
class Tensor:
    """An activation: its size on one device, and the step that makes it (-1: from outside)."""

    index: int
    elements: int
    bytes: int
    step: int
    trained: bool = True


@dataclass(frozen=True)
class Step:
    """One recorded step; ``op`` is None where the forward pass does nothing.

    Attributes
    ----------
    saved
        Tensors that the backward pass reads.
    mask_bytes
        Extra bytes kept for the backward pass (dropout masks).
    core
        Part of the attention core, which selective recomputation runs again.
    """

    rule: str
    op: TrainingOp | None
    inputs: tuple[Tensor, ...]
    output: Tensor
    saved: tuple[Tensor, ...] = ()
    mask_bytes: int = 0
    core: bool = False
    bias: bool = False
    weights: int = 0


class Tape:
    """Records the forward pass of one layer on one device.

    Parameters
    ----------
    width
        Tensor-parallel devices.
    sequence_parallel
        Whether norms and dropouts work on 1/width of the tokens.
    activation_bytes
        Bytes of one activation or weight.
    """

    def __init__(self, width: int, sequence_parallel: bool, activation_bytes: int) -> None:
        self.width = width
        self.sequence_parallel = sequence_parallel and width > 1
        self.element_bytes = activation_bytes
        self.steps: list[Step] = []
        self.tensors: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.parameters = 0
        self.core = False
        self._names: dict[str, int] = {}

    def source(self, elements: int, *, trained: bool = True) -> Tensor:
        """Return a tensor that comes from outside the layer."""
        tensor = self._tensor(elements, -1, trained=trained)
        self.inputs.append(tensor)
        return tensor

    def linear(
        self,
        name: str,
        x: Tensor,
        inner: int,
        columns: int,
        *,
        bias: bool = False,
        batch: int = 1,
    ) -> Tensor:
        """Record y = x W of ``batch`` independent weights, (inner x columns) each."""
        rows = x.elements // (batch * inner)
        weights = batch * inner * columns
        self.parameters += weights + (batch * columns if bias else 0)
        read = x.bytes + weights * self.element_bytes
        output = self._tensor(batch * rows * columns, len(self.steps))
        op = self._product(name, "linear", batch, rows, columns, inner, read, output.bytes)
        self._record(Step("linear", op, (x,), output, (x,), bias=bias, weights=weights))
        return output

    def product(
        self, name: str, a: Tensor, b: Tensor, batch: int, m: int, n: int, k: int
    ) -> Tensor:
        """Record ``batch`` products of (m x k) by (k x n), both activations."""
        output = self._tensor(batch * m * n, len(self.steps))
        op = self._product(name, "bmm", batch, m, n, k, a.bytes + b.bytes, output.bytes)
        self._record(Step("bmm", op, (a, b), output, (a, b)))
        return output

    def vector(
        self,
        name: str,
        op_type: str,
        *inputs: Tensor,
        elements: int | None = None,
        saved: Sequence[Tensor] | str = (),
        row: int = 0,
        mask: bool = False,
        weights: int = 0,
        extra_read: int = 0,
        read_input: bool = True,
        rule: str = "",
        item_bytes: int | None = None,
    ) -> Tensor:
        """Record a vector op; ``saved="output"`` keeps what it makes."""
        count = inputs[0].elements if elements is None else elements
        output = self._tensor(count, len(self.steps), item_bytes=item_bytes)
        self.parameters += weights
        masks = count * MASK_BYTES if mask else 0
        read = (sum(x.bytes for x in inputs) if read_input else 0) + extra_read
        op = TrainingOp(
            self._named(name),
            op_type,
            "forward",
            "vector",
            elements=count,
            counts=vector_counts(op_type, count),
            read_bytes=read + weights * self.element_bytes * (op_type != "lookup"),
            write_bytes=output.bytes + masks,
            row_bytes=row * self.element_bytes,
            passes=VECTOR_RULES[op_type].passes,
        )
        kept = (output,) if saved == "output" else tuple(t for t in saved if isinstance(t, Tensor))
        self._record(Step(rule or "vector", op, inputs, output, kept, masks, weights=weights))
        return output

    def split(self, x: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
        """Record that rows of a tensor are read in parts, which costs nothing."""
        parts = []
        rows = x.elements // sum(widths)
        for width in widths:
            part = self._tensor(rows * width, len(self.steps))
            self._record(Step("part", None, (x,), part))
            parts.append(part)
        return tuple(parts)

    def statistics(self, x: Tensor, rows: int) -> Tensor:
        """Record the exchange of a sliced softmax: three 4-byte figures a row over all devices."""
        output = self._tensor(x.elements, len(self.steps))
        op = self.collective_op("statistics", "all_reduce", 12 * rows, 12 * rows)
        self._record(Step("reduce", op, (x,), output))
        return output

    def enter(self, x: Tensor) -> Tensor:
        """Record the entry into column-parallel products: gather tokens, or copy."""
        if self.width == 1:
            return x
        if self.sequence_parallel:
            return self._collective("gather", "all_gather", x, x.elements * self.width, True)
        return self._collective("copy", "all_reduce", x, x.elements, False)

    def leave(self, x: Tensor) -> Tensor:
        """Record the end of row-parallel products: sum over devices, or sum and scatter tokens."""
        if self.width == 1:
            return x
        if self.sequence_parallel:
            share = x.elements // self.width
            return self._collective("scatter", "reduce_scatter", x, share, True)
        return self._collective("reduce", "all_reduce", x, x.elements, True)

    def forward_graph(self, outputs: Sequence[Tensor], recompute: str = "none") -> TrainingGraph:
        """Return the recorded ops; ``outputs`` leave the layer.

        Results that the backward pass reads are marked as kept, except those that it makes again.
        """
        graph = GraphDraft()
        made = self.replay(graph, "forward", range(len(self.steps)))
        kept = {t.index for t in outputs}
        for step in self.steps:
            for tensor in step.saved:
                again = recompute == "full" or (
                    recompute == "selective" and self.inside_core(tensor)
                )
                if not again:
                    kept.add(tensor.index)
        graph.kept.update(made[index] for index in kept if index in made)
        return graph.finish()

    def replay(
        self, graph: GraphDraft, phase: Phase, steps: Sequence[int] | range
    ) -> dict[int, int]:
        """Add forward ops to ``graph``; return the op that makes each tensor."""
        made: dict[int, int] = {}
        for number in steps:
            step = self.steps[number]
            if step.op is None:
                if step.inputs[0].index in made:
                    made[step.output.index] = made[step.inputs[0].index]
                continue
            before = [(made[x.index], x.bytes) for x in step.inputs if x.index in made]
            made[step.output.index] = graph.add(step.op, before, phase)
        return made

    def saved_bytes(self, *, without_core: bool = False) -> int:
        """Return the bytes that the backward pass reads, every tensor once.

        Gathered tokens are kept as this device's share. ``without_core`` leaves out what the
        attention core keeps besides its inputs.
        """
        tensors, masks = {}, 0
        for step in self.steps:
            masks += 0 if without_core and step.core else step.mask_bytes
            for tensor in step.saved:
                shard = self.shard(tensor)
                inner = without_core and self.inside_core(shard)
                if not inner:
                    tensors[shard.index] = shard.bytes
        return sum(tensors.values()) + masks

    def shard(self, tensor: Tensor) -> Tensor:
        """Return what is kept of a tensor: the input of a gather or copy instead of its output."""
        while tensor.step >= 0 and self.steps[tensor.step].rule in {"gather", "copy"}:
            tensor = self.steps[tensor.step].inputs[0]
        return tensor

    def core_steps(self) -> list[int]:
        """Return the positions of the attention core's steps."""
        return [number for number, step in enumerate(self.steps) if step.core]

    def inside_core(self, tensor: Tensor) -> bool:
        """Whether only the attention core reads a tensor, which the core makes."""
        if tensor.step < 0 or not self.steps[tensor.step].core:
            return False
        return all(step.core for step in self.steps if tensor in step.saved)

    def _collective(self, rule: str, kind: str, x: Tensor, elements: int, forward: bool) -> Tensor:
        output = self._tensor(elements, len(self.steps))
        op = None
        if forward:
            op = self.collective_op(rule, kind, x.bytes, output.bytes)
        self._record(Step(rule, op, (x,), output))
        return output

    def collective_op(self, label: str, kind: str, read: int, written: int) -> TrainingOp:
        """Return a collective; its reduction adds on vector lanes what arrives."""
        whole = max(read, written)
        arriving = whole // self.element_bytes * (self.width - 1) // self.width
        adds = arriving if kind in {"all_reduce", "reduce_scatter"} else 0
        return TrainingOp(
            self._named(label),
            kind,
            "forward",
            "collective",
            elements=whole // self.element_bytes,
            counts=vector_counts("add", adds),
            read_bytes=read,
            write_bytes=written,
            collective=kind,
            collective_bytes=whole,
            width=self.width,
        )

    def _product(
        self, name: str, op_type: str, batch: int, m: int, n: int, k: int, read: int, written: int
    ) -> TrainingOp:
        return TrainingOp(
            self._named(name),
            op_type,
            "forward",
            "tensor",
            batch=batch,
            m=m,
            n=n,
            k=k,
            elements=batch * m * n,
            read_bytes=read,
            write_bytes=written,
        )

    def _tensor(
        self, elements: int, step: int, *, trained: bool = True, item_bytes: int | None = None
    ) -> Tensor:
        size = elements * (self.element_bytes if item_bytes is None else item_bytes)
        tensor = Tensor(len(self.tensors), elements, size, step, trained)
        self.tensors.append(tensor)
        return tensor

    def _record(self, step: Step) -> None:
        if self.core:
            step = Step(**{**step.__dict__, "core": True})
        self.steps.append(step)

    def _named(self, name: str) -> str:
        seen = self._names.get(name, 0)
        self._names[name] = seen + 1
        return f"{name}_{seen + 1}" if seen else name


class GraphDraft:
    """A graph while it grows."""

    def __init__(self) -> None:
        self.ops: list[TrainingOp] = []
        self.edges: dict[tuple[int, int], int] = {}
        self.kept: set[int] = set()

    def add(
        self, op: TrainingOp, before: Sequence[tuple[int, int]], phase: Phase | None = None
    ) -> int:
        """Add an op after others, from which it reads so many bytes; return its position."""
        if phase not in (None, op.phase):
            prefix = "again." if phase == "recompute" else ""
            op = TrainingOp(**{**op.__dict__, "phase": phase, "name": prefix + op.name})
        number = len(self.ops)
        self.ops.append(op)
        for other, size in before:
            self.edges[other, number] = self.edges.get((other, number), 0) + size
        return number

    def finish(self) -> TrainingGraph:
        """Return the graph."""
        edges = sorted(self.edges)
        sizes = tuple(self.edges[edge] for edge in edges)
        return TrainingGraph(tuple(self.ops), tuple(edges), sizes, frozenset(self.kept))
