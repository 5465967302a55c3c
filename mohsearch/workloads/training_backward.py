"""The backward pass of a recorded layer: recomputation, input gradients and weight gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mohsearch.workloads.training_ops import (
    VECTOR_RULES,
    Phase,
    TrainingGraph,
    TrainingOp,
    vector_counts,
)
from mohsearch.workloads.training_tape import GraphDraft, Step, Tape, Tensor

Recompute = Literal["none", "selective", "full"]
Before = list[tuple[int, int]]

_OPPOSITE = {
    "gather": "reduce_scatter",
    "scatter": "all_gather",
    "copy": "all_reduce",
}


def backward_graph(
    tape: Tape,
    outputs: Sequence[Tensor],
    *,
    recompute: Recompute = "none",
    weight_gradients: bool = True,
    gradient_bytes: int = 4,
) -> TrainingGraph:
    """Return the ops of a layer's backward pass.

    Parameters
    ----------
    tape
        The recorded forward pass.
    outputs
        Tensors that leave the layer, whose gradients arrive.
    recompute
        ``selective`` repeats the attention core, ``full`` the whole forward pass.
    weight_gradients
        Leave out the gradients of the weights, as the published PHAZE code does, where False.
    gradient_bytes
        Bytes of one accumulated weight gradient, which is read and written.
    """
    return _Backward(tape, weight_gradients, gradient_bytes).build(outputs, recompute)


class _Backward:
    """State of one derivation: the backward ops so far, and what they owe each tensor.

    Tensors are known by their index on the tape, ops by their number in the draft.

    Attributes
    ----------
    draft
        The backward ops.
    whole
        Whether the whole forward pass is repeated first.
    arriving
        Gradients that reach a tensor from its readers, whole ones, to be added up.
    external
        Tensors that also get a gradient from outside the layer, which no op here makes.
    parts
        Gradients of disjoint parts of a tensor, which need no addition.
    again
        Op that repeats a tensor's forward op.
    gathered
        Op that gathers a tensor of which each device kept its shard alone.
    """

    def __init__(self, tape: Tape, weight_gradients: bool, gradient_bytes: int) -> None:
        self.tape = tape
        self.draft = GraphDraft()
        self.with_weights = weight_gradients
        self.whole = False
        self.gradient_bytes = gradient_bytes
        self.arriving: dict[int, Before] = {}
        self.external: set[int] = set()
        self.again: dict[int, int] = {}
        self.gathered: dict[int, int] = {}
        self.parts: dict[int, Before] = {}

    def build(self, outputs: Sequence[Tensor], recompute: Recompute) -> TrainingGraph:
        tape = self.tape
        self.whole = recompute == "full"
        if self.whole:
            self.again = tape.replay(self.draft, "recompute", range(len(tape.steps)))
        elif recompute == "selective":
            self.again = tape.replay(self.draft, "recompute", tape.core_steps())
        self.external = {tensor.index for tensor in outputs}
        for step in reversed(tape.steps):
            self._step(step)
        for tensor in tape.inputs:
            if tensor.trained:
                self.draft.kept.update(number for number, _ in self._gradient(tensor))
        return self.draft.finish()

    def _step(self, step: Step) -> None:
        rule = step.rule
        arrived = self._gradient(step.output)
        if rule == "loss":
            arrived = []  # the gradient starts here: that of the loss with respect to itself is 1
        if rule in {"gather", "scatter", "copy"}:
            x, y = step.inputs[0], step.output
            op = self.tape.collective_op(f"d.{rule}", _OPPOSITE[rule], y.bytes, x.bytes)
            self._arrive(x, self.draft.add(op, arrived, "input_gradient"))
        elif rule == "part":
            x = step.inputs[0]
            self.parts.setdefault(x.index, []).extend(arrived)
        elif rule in {"reduce", "sum"}:
            for x in step.inputs:
                self._pass_on(x, step.output, arrived)
            if rule == "sum" and step.weights:
                self._vector_weights(step, arrived)
        elif rule == "linear":
            self._linear(step, arrived)
        elif rule == "bmm":
            self._bmm(step, arrived)
        elif rule == "lookup":
            self._vector_weights(step, arrived)
        else:
            self._vector(step, arrived)

    def _gradient(self, tensor: Tensor) -> Before:
        """Return the op that makes a tensor's whole gradient, adding up where several arrive."""
        if tensor.index in self.parts:
            return self.parts[tensor.index]
        parts = self.arriving.get(tensor.index, [])
        external = tensor.index in self.external
        if len(parts) + external < 2:
            return parts
        count = len(parts) + external
        op = TrainingOp(
            self.tape._named("d.accumulate"),
            "accumulate",
            "input_gradient",
            "vector",
            elements=tensor.elements,
            counts=vector_counts("accumulate", tensor.elements * (count - 1)),
            read_bytes=count * tensor.bytes,
            write_bytes=tensor.bytes,
        )
        number = self.draft.add(op, parts)
        self.arriving[tensor.index] = [(number, tensor.bytes)]
        self.external.discard(tensor.index)
        return self.arriving[tensor.index]

    def _arrive(self, tensor: Tensor, number: int) -> None:
        self.arriving.setdefault(tensor.index, []).append((number, tensor.bytes))

    def _pass_on(self, tensor: Tensor, output: Tensor, arrived: Before) -> None:
        """Let a gradient through unchanged."""
        if not tensor.trained:
            return
        if output.index in self.external:
            self.external.add(tensor.index)
        self.arriving.setdefault(tensor.index, []).extend(arrived)

    def _kept(self, tensor: Tensor) -> Before:
        """Return the op that makes a saved tensor again; none where it was kept."""
        if tensor.index in self.again and (self.whole or self.tape.inside_core(tensor)):
            return [(self.again[tensor.index], tensor.bytes)]
        shard = self.tape.shard(tensor)
        if shard is tensor or not self.tape.sequence_parallel:
            return []
        if tensor.index not in self.gathered:
            op = self.tape.collective_op("again.gather", "all_gather", shard.bytes, tensor.bytes)
            before = self._kept(shard)
            self.gathered[tensor.index] = self.draft.add(op, before, "input_gradient")
        return [(self.gathered[tensor.index], tensor.bytes)]

    def _linear(self, step: Step, arrived: Before) -> None:
        op, (x,), y = step.op, step.inputs, step.output
        assert op is not None
        weight_bytes = step.weights * self.tape.element_bytes
        if x.trained:
            read = y.bytes + weight_bytes
            dims = (op.batch, op.m, op.k, op.n)
            self._arrive(x, self._tensor_op(f"d.{op.name}", "linear", dims, read, x, arrived))
        if not self.with_weights:
            return
        before = arrived + self._kept(x)
        gradient = step.weights * self.gradient_bytes
        self._product(
            f"dw.{op.name}",
            "linear",
            (op.batch, op.k, op.n, op.m),
            x.bytes + y.bytes + gradient,
            gradient,
            before,
            "weight_gradient",
        )
        if step.bias:
            self._reduction(f"db.{op.name}", "bias_gradient", y.elements, y.bytes, arrived)

    def _bmm(self, step: Step, arrived: Before) -> None:
        op, (a, b), y = step.op, step.inputs, step.output
        assert op is not None
        for label, own, other, dims in (
            ("a", a, b, (op.batch, op.m, op.k, op.n)),
            ("b", b, a, (op.batch, op.n, op.k, op.m)),
        ):
            before = arrived + self._kept(other)
            read = y.bytes + other.bytes
            number = self._tensor_op(f"d{label}.{op.name}", "bmm", dims, read, own, before)
            self._arrive(own, number)

    def _vector(self, step: Step, arrived: Before) -> None:
        op, y = step.op, step.output
        assert op is not None
        before, saved = list(arrived), step.mask_bytes
        for tensor in step.saved:
            before += self._kept(tensor)
            saved += tensor.bytes
        if step.mask_bytes and y.index in self.again:
            before.append((self.again[y.index], step.mask_bytes))
        trained = [x for x in step.inputs if x.trained]
        kind = f"{op.op_type}_gradient"
        arriving = 0 if step.rule == "loss" else y.bytes
        if trained:
            number = self.draft.add(
                TrainingOp(
                    f"d.{op.name}",
                    kind,
                    "input_gradient",
                    "vector",
                    elements=op.elements,
                    counts=vector_counts(kind, op.elements),
                    read_bytes=arriving + saved,
                    write_bytes=sum(x.bytes for x in trained),
                    row_bytes=op.row_bytes,
                    passes=VECTOR_RULES[kind].passes,
                ),
                before,
            )
            for x in trained:
                self._arrive(x, number)
        if step.weights:
            self._vector_weights(step, before, saved)

    def _vector_weights(self, step: Step, before: Before, saved: int = 0) -> None:
        """Add the gradient of a norm's, table's or bias's weights."""
        op, y = step.op, step.output
        if op is None or not self.with_weights:
            return
        if step.rule == "lookup":
            self._reduction(f"dw.{op.name}", "lookup_gradient", op.elements, 2 * y.bytes, before)
            return
        kind = f"{op.op_type}_weight_gradient"
        if kind not in VECTOR_RULES:
            kind = "bias_gradient"
        self._reduction(f"dw.{op.name}", kind, op.elements, y.bytes + saved, before)

    def _reduction(self, name: str, kind: str, elements: int, read: int, before: Before) -> None:
        """Add a sum over all tokens; its result is small."""
        self.draft.add(
            TrainingOp(
                name,
                kind,
                "weight_gradient",
                "vector",
                elements=elements,
                counts=vector_counts(kind, elements),
                read_bytes=read,
                write_bytes=read // 2 if kind == "lookup_gradient" else 0,
            ),
            before,
        )

    def _tensor_op(
        self,
        name: str,
        op_type: str,
        dims: tuple[int, int, int, int],
        read: int,
        target: Tensor,
        before: Before,
    ) -> int:
        return self._product(name, op_type, dims, read, target.bytes, before, "input_gradient")

    def _product(
        self,
        name: str,
        op_type: str,
        dims: tuple[int, int, int, int],
        read: int,
        written: int,
        before: Before,
        phase: Phase,
    ) -> int:
        batch, m, n, k = dims
        op = TrainingOp(
            name,
            op_type,
            phase,
            "tensor",
            batch=batch,
            m=m,
            n=n,
            k=k,
            elements=batch * m * n,
            read_bytes=read,
            write_bytes=written,
        )
        return self.draft.add(op, before)
