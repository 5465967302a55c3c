"""Training workloads: a model as a chain of layers with their forward and backward operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.workloads import training_blocks as blocks
from mohsearch.workloads.hf_config import ModelConfig
from mohsearch.workloads.training_backward import Recompute, backward_graph
from mohsearch.workloads.training_ops import TrainingGraph, TrainingOp, vector_counts
from mohsearch.workloads.training_tape import Tape, Tensor

RECOMPUTE: tuple[str, ...] = ("none", "selective", "full")
Optimizer = Literal["adam", "sgd"]


@dataclass(frozen=True)
class Precision:
    """Bytes of one number.

    Attributes
    ----------
    element
        Activations, their gradients, and the weights that products read.
    gradient
        Accumulated gradient of a weight.
    adam, sgd
        Everything else the optimizer keeps for a weight: master copy and moments.
    """

    element: int
    gradient: int
    adam: int
    sgd: int


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "mixed": Precision(2, 4, 12, 4),
        "mixed16": Precision(2, 2, 12, 4),
        "single": Precision(4, 4, 8, 0),
        "paper": Precision(2, 2, 2, 0),
    }
)
"""``mixed``: 16-bit with 32-bit gradients and master weights, as Megatron-LM (18 bytes a weight
with Adam); ``mixed16`` keeps gradients in 16 bits (16 bytes, Rajbhandari et al., ZeRO, 2020);
``single``: 32-bit; ``paper``: the memory model of PHAZE (appendix B.1)."""


@dataclass(frozen=True)
class TrainingLayer:
    """One kind of layer on one tensor-parallel device, for one microbatch.

    Attributes
    ----------
    name, count
        What it is, and how often it stands in the model.
    forward, backward, update
        Operators; the backward pass holds what is recomputed, ``update`` is the optimizer's step,
        once per batch.
    parameters, shared_parameters
        Weights on this device, and how many of them are a copy of another layer's (a tied head).
    state_bytes
        Weights, gradients and optimizer state.
    stash_bytes
        Kept from the forward to the backward pass under the chosen recomputation.
    activation_bytes
        All that the backward pass reads, as if nothing were recomputed: what stands in memory
        while this layer's backward pass runs.
    boundary_bytes
        Sent to the next layer.
    """

    name: str
    count: int
    forward: TrainingGraph
    backward: TrainingGraph
    update: TrainingGraph
    parameters: int
    shared_parameters: int
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    stash_bytes: int
    activation_bytes: int
    boundary_bytes: int

    @property
    def state_bytes(self) -> int:
        """Weights, gradients and optimizer state."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def graphs(self) -> Mapping[str, TrainingGraph]:
        """The three graphs by name."""
        return {"forward": self.forward, "backward": self.backward, "update": self.update}


@dataclass(frozen=True)
class TrainingWorkload:
    """A model, cut for training.

    Attributes
    ----------
    model, microbatch, tensor_parallel, sequence_parallel, recompute, sequence, precision, optimizer
        What it was built from.
    layers
        The distinct kinds.
    chain
        Position in ``layers`` of every layer of the model, first to last.
    """

    model: ModelConfig
    microbatch: int
    tensor_parallel: int
    sequence_parallel: bool
    recompute: Recompute
    sequence: int
    precision: Precision
    optimizer: Optimizer
    layers: tuple[TrainingLayer, ...]
    chain: tuple[int, ...]

    @property
    def flops(self) -> int:
        """Matrix-product operations of forward and backward pass, one microbatch, one device."""
        return sum(
            layer.count * (layer.forward.tensor_flops + layer.backward.tensor_flops)
            for layer in self.layers
        )

    @property
    def parameters(self) -> int:
        """Weights on the devices of one slice, tied ones once."""
        return sum(x.count * (x.parameters - x.shared_parameters) for x in self.layers)


def build_training(
    model: ModelConfig,
    *,
    microbatch: int = 1,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
    sequence_length: int | None = None,
    precision: str | Precision = "mixed",
    optimizer: Optimizer = "adam",
    weight_gradients: bool = True,
) -> TrainingWorkload:
    """Return the layers of a model with all operators of one training step.

    Parameters
    ----------
    model
        From :func:`mohsearch.workloads.hf_config.load_model`.
    microbatch
        Samples processed at a time.
    tensor_parallel
        Devices over which every layer is cut (Megatron-LM).
    sequence_parallel
        Also divide the tokens between the products over those devices (Korthikanti et al., 2023).
    recompute
        ``none``; ``selective``: the attention core again in the backward pass; ``full``: the whole
        layer.
    sequence_length
        Tokens per sample; the model's by default.
    precision
        A name of :data:`PRECISIONS`, or one's own.
    optimizer
        ``adam`` or ``sgd``.
    weight_gradients
        False leaves out weight gradients and optimizer, as the published PHAZE code does.

    Raises
    ------
    InputError
        If the model cannot be cut so, with the option's name as field.

    Examples
    --------
    >>> from mohsearch.workloads.hf_config import load_model
    >>> gpt3 = build_training(load_model("gpt3-175b"), tensor_parallel=8)
    >>> [(layer.name, layer.count) for layer in gpt3.layers]
    [('embedding', 1), ('decoder', 96), ('head', 1)]
    >>> gpt3.layers[1].stash_bytes  # s b h (10 + 24/t + 5 a s / (h t))
    578813952
    """
    sequence = sequence_length or model.sequence
    checked = _check(model, microbatch, tensor_parallel, sequence_parallel, sequence, recompute)
    if isinstance(precision, str):
        if precision not in PRECISIONS:
            raise UnknownNameError("precision", precision, PRECISIONS, field="precision")
        precision = PRECISIONS[precision]
    if optimizer not in ("adam", "sgd"):
        raise UnknownNameError("optimizer", optimizer, ("adam", "sgd"), field="optimizer")
    drafts = _record_layers(checked, tensor_parallel, sequence_parallel, precision.element)
    layers = tuple(
        _finish(draft, recompute, precision, optimizer, weight_gradients) for draft in drafts
    )
    chain = tuple(i for i, layer in enumerate(layers) for _ in range(layer.count))
    return TrainingWorkload(
        model=model,
        microbatch=microbatch,
        tensor_parallel=tensor_parallel,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        sequence=sequence,
        precision=precision,
        optimizer=optimizer,
        layers=layers,
        chain=chain,
    )


@dataclass(frozen=True)
class _Draft:
    """A recorded layer."""

    name: str
    count: int
    tape: Tape
    outputs: tuple[Tensor, ...]
    shared: int = 0


def _check(
    model: ModelConfig,
    microbatch: int,
    width: int,
    sequence_parallel: bool,
    sequence: int,
    recompute: str,
) -> blocks.Sizes:
    if microbatch < 1:
        raise InputError(f"must be positive, got {microbatch}", field="microbatch")
    if recompute not in RECOMPUTE:
        raise UnknownNameError("recomputation", recompute, RECOMPUTE, field="recompute")
    if width < 1 or model.heads % width:
        message = f"{width} devices do not divide the {model.heads} heads of {model.name}"
        raise InputError(message, field="tensor_parallel")
    if model.kv_heads % width and width % model.kv_heads:
        message = f"{width} devices do not match {model.kv_heads} key-value heads of {model.name}"
        raise InputError(message, field="tensor_parallel")
    if sequence < 1 or (model.position == "learned" and sequence > model.positions):
        message = f"{model.name} takes 1 to {model.positions} tokens, got {sequence}"
        raise InputError(message, field="sequence_length")
    if model.window and sequence > model.window:
        message = f"attention windows ({model.window} tokens) shorter than {sequence} tokens"
        raise InputError(f"{message} are not modelled", field="sequence_length")
    if sequence_parallel and sequence % width:
        message = f"{width} devices do not divide {sequence} tokens"
        raise InputError(message, field="sequence_parallel")
    return blocks.Sizes(model, microbatch, sequence)


def _record_layers(
    sizes: blocks.Sizes, width: int, sequence_parallel: bool, element: int
) -> list[_Draft]:
    """Record every kind of layer once, in the order of the model."""
    model = sizes.model

    def tape() -> Tape:
        return Tape(width, sequence_parallel, element)

    share = sizes.tokens * model.hidden // (width if sequence_parallel else 1)
    first = tape()
    drafts = [_Draft("embedding", 1, first, (blocks.embedding(first, sizes),))]
    both = model.kind == "encoder-decoder"
    if model.kind == "decoder":
        drafts.append(_block("decoder", model.layers, tape(), sizes, share))
    else:
        drafts.append(_block("encoder", model.layers, tape(), sizes, share))
    if both:
        drafts.append(_bridge(tape(), sizes, share))
        drafts.append(_block("decoder", model.decoder_layers, tape(), sizes, share, memory=True))
    last = tape()
    blocks.head(last, sizes, last.source(share))
    tied = -(-model.vocabulary // width) * model.embedding if model.tied else 0
    drafts.append(_Draft("head", 1, last, (), tied))
    return drafts


def _block(
    name: str, count: int, tape: Tape, sizes: blocks.Sizes, share: int, *, memory: bool = False
) -> _Draft:
    """Record one transformer layer; with ``memory`` it also attends to the encoder's output."""
    model = sizes.model
    stream = tape.source(share)
    encoded = tape.source(share) if memory else None
    if model.bias_per_layer and model.position == "relative":
        tape.parameters += model.relative_buckets * model.heads // tape.width
    if model.parallel_block:
        stream = _parallel_block(tape, sizes, stream)
    else:
        stream = _attend(tape, sizes, stream, "")
        if encoded is not None:
            stream = _attend(tape, sizes, stream, "cross_", encoded)
        stream = _feed(tape, sizes, stream)
    outputs = (stream,) if encoded is None else (stream, encoded)
    return _Draft(name, count, tape, outputs)


def _attend(
    tape: Tape, sizes: blocks.Sizes, stream: Tensor, label: str, encoded: Tensor | None = None
) -> Tensor:
    before = sizes.model.norm_place == "before"
    x = blocks.norm(tape, sizes, f"{label}attention_norm", stream) if before else stream
    x = tape.enter(x)
    memory = None if encoded is None else tape.enter(encoded)
    out = tape.leave(blocks.attention(tape, sizes, x, memory=memory, label=label))
    out = blocks.residual(tape, sizes, f"{label}attention", stream, out)
    return out if before else blocks.norm(tape, sizes, f"{label}attention_norm", out)


def _feed(tape: Tape, sizes: blocks.Sizes, stream: Tensor) -> Tensor:
    before = sizes.model.norm_place == "before"
    x = blocks.norm(tape, sizes, "feed_norm", stream) if before else stream
    x = tape.enter(x)
    block = blocks.mixture if sizes.model.experts else blocks.feed_forward
    out = blocks.residual(tape, sizes, "feed", stream, tape.leave(block(tape, sizes, x)))
    return out if before else blocks.norm(tape, sizes, "feed_norm", out)


def _parallel_block(tape: Tape, sizes: blocks.Sizes, stream: Tensor) -> Tensor:
    """Record attention and feed-forward block side by side (GPT-J, GPT-NeoX)."""
    x = tape.enter(blocks.norm(tape, sizes, "attention_norm", stream))
    if sizes.model.one_norm:
        y = x
    else:
        y = tape.enter(blocks.norm(tape, sizes, "feed_norm", stream))
    attended = blocks.attention(tape, sizes, x)
    fed = blocks.feed_forward(tape, sizes, y)
    both = tape.leave(tape.vector("branches_add", "add", attended, fed, rule="sum"))
    return blocks.residual(tape, sizes, "block", stream, both)


def _bridge(tape: Tape, sizes: blocks.Sizes, share: int) -> _Draft:
    """Record the end of the encoder and the decoder's look-up."""
    model = sizes.model
    encoded = tape.source(share)
    if model.norm_place == "before":
        encoded = blocks.norm(tape, sizes, "encoder_norm", encoded)
        encoded = blocks.dropout(tape, "encoder_dropout", encoded, model.hidden_dropout)
    stream = blocks.embedding(tape, sizes)
    shared = -(-model.vocabulary // tape.width) * model.embedding
    if model.position == "relative" and not model.bias_per_layer:
        tape.parameters -= 2 * model.relative_buckets * model.heads // tape.width
    return _Draft("decoder_embedding", 1, tape, (stream, encoded), shared)


def _finish(
    draft: _Draft,
    recompute: Recompute,
    precision: Precision,
    optimizer: Optimizer,
    weight_gradients: bool,
) -> TrainingLayer:
    tape, outputs = draft.tape, draft.outputs
    repeated = draft.name in {"encoder", "decoder"}
    mode = recompute if repeated else "none"
    backward = backward_graph(
        tape,
        outputs,
        recompute=mode,
        weight_gradients=weight_gradients,
        gradient_bytes=precision.gradient,
    )
    kept = tape.saved_bytes()
    stash = {
        "none": kept,
        "selective": tape.saved_bytes(without_core=True),
        "full": sum(x.bytes for x in tape.inputs),
    }[mode]
    count = tape.parameters
    state = getattr(precision, optimizer)
    update = _update(count, precision, optimizer) if weight_gradients else _no_ops()
    return TrainingLayer(
        name=draft.name,
        count=draft.count,
        forward=tape.forward_graph(outputs, mode),
        backward=backward,
        update=update,
        parameters=count,
        shared_parameters=draft.shared,
        weight_bytes=count * precision.element,
        gradient_bytes=count * precision.gradient,
        optimizer_bytes=count * state,
        stash_bytes=stash,
        activation_bytes=kept,
        boundary_bytes=sum(x.bytes for x in outputs),
    )


def _update(count: int, precision: Precision, optimizer: Optimizer) -> TrainingGraph:
    """Return the optimizer's step on ``count`` weights."""
    state = getattr(precision, optimizer)
    op = TrainingOp(
        optimizer,
        optimizer,
        "update",
        "vector",
        elements=count,
        counts=vector_counts(optimizer, count),
        read_bytes=count * (precision.gradient + (state or precision.element)),
        write_bytes=count * (precision.element + state),
    )
    return TrainingGraph((op,), (), ())


def _no_ops() -> TrainingGraph:
    return TrainingGraph((), (), ())
