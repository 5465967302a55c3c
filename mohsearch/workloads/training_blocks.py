"""The blocks of a transformer, recorded on a tape: embedding, attention, feed-forward, head.

Tensor parallelism cuts them as Megatron-LM does (Shoeybi et al., 2020; with tokens divided between
the products as in Korthikanti et al., 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

from mohsearch.workloads.hf_config import ModelConfig
from mohsearch.workloads.training_tape import Tape, Tensor


@dataclass(frozen=True)
class Sizes:
    """What the blocks of one layer share.

    Attributes
    ----------
    batch, sequence
        Samples of a microbatch, and tokens of each.
    """

    model: ModelConfig
    batch: int
    sequence: int

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch."""
        return self.batch * self.sequence


def embedding(tape: Tape, sizes: Sizes) -> Tensor:
    """Record the look-up of tokens, positions and token types."""
    model, tokens = sizes.model, sizes.tokens
    width = model.embedding
    ids = tape.source(tokens, trained=False)
    rows = -(-model.vocabulary // tape.width)
    x = tape.vector(
        "tokens",
        "lookup",
        ids,
        elements=tokens * width,
        weights=rows * width,
        extra_read=tokens * width * tape.element_bytes,
        rule="lookup",
    )
    x = tape.leave(x)
    if width != model.hidden:
        x = tape.linear("project_in", x, width, model.hidden)
    if model.position == "learned":
        table = (model.positions + model.position_offset) * model.hidden
        x = tape.vector("positions", "add", x, weights=table, rule="sum")
    if model.position == "relative" and not model.bias_per_layer:
        stacks = 2 if model.kind == "encoder-decoder" else 1
        tape.parameters += stacks * model.relative_buckets * model.heads // tape.width
    if model.token_types:
        types = model.token_types * model.hidden
        x = tape.vector("token_types", "add", x, weights=types, rule="sum")
    if model.embedding_norm:
        x = norm(tape, sizes, "embedding_norm", x)
    return dropout(tape, "embedding_dropout", x, model.hidden_dropout)


def norm(tape: Tape, sizes: Sizes, name: str, x: Tensor, width: int = 0) -> Tensor:
    """Record a norm over rows of ``width`` elements (default: the residual stream)."""
    model = sizes.model
    row = width or model.hidden
    both = model.norm == "layernorm" and model.norm_bias
    return tape.vector(name, model.norm, x, saved=(x,), row=row, weights=row * (1 + both))


def dropout(tape: Tape, name: str, x: Tensor, share: float) -> Tensor:
    """Record a dropout, unless nothing is dropped."""
    return tape.vector(name, "dropout", x, mask=True) if share > 0 else x


def attention(
    tape: Tape, sizes: Sizes, x: Tensor, *, memory: Tensor | None = None, label: str = ""
) -> Tensor:
    """Record attention of ``x`` to itself, or to ``memory`` (both entered already).

    Grouped queries share keys and values: the products are one per key-value head, with the
    queries of the whole group as rows.
    """
    model = sizes.model
    heads = model.heads // tape.width
    kv_heads = max(1, model.kv_heads // tape.width)
    size, s = model.head_size, sizes.sequence
    products, rows = sizes.batch * kv_heads, s * (heads // kv_heads)
    query, key, value = _projections(tape, sizes, x, memory, label)
    tape.core = True
    scores = tape.product(f"{label}scores", query, key, products, rows, s, size)
    biased = model.position in {"alibi", "relative"} and memory is None
    mask = "bias_scale_mask" if biased else "scale_mask"
    scores = tape.vector(f"{label}mask", mask, scores)
    weights = tape.vector(f"{label}softmax", "softmax", scores, saved="output", row=s)
    weights = dropout(tape, f"{label}attention_dropout", weights, model.attention_dropout)
    context = tape.product(f"{label}context", weights, value, products, rows, size, s)
    tape.core = False
    width = heads * size
    out = tape.linear(
        f"{label}attention_output", context, width, model.hidden, bias=model.output_bias
    )
    return out


def _projections(
    tape: Tape, sizes: Sizes, x: Tensor, memory: Tensor | None, label: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Record query, key and value with their norms and rotations."""
    model = sizes.model
    heads = model.heads // tape.width
    kv_heads = max(1, model.kv_heads // tape.width)
    wide, narrow = heads * model.head_size, kv_heads * model.head_size
    hidden, bias = model.hidden, model.qkv_bias
    if model.joint_qkv and memory is None:
        joint = tape.linear("qkv", x, hidden, wide + 2 * narrow, bias=bias)
        query, key, value = tape.split(joint, (wide, narrow, narrow))
    else:
        other = x if memory is None else memory
        query = tape.linear(f"{label}query", x, hidden, wide, bias=bias)
        key = tape.linear(f"{label}key", other, hidden, narrow, bias=bias)
        value = tape.linear(f"{label}value", other, hidden, narrow, bias=bias)
    if model.qk_norm:
        head = model.qk_norm == "head"
        query = norm(tape, sizes, "query_norm", query, model.head_size if head else wide)
        key = norm(tape, sizes, "key_norm", key, model.head_size if head else narrow)
    if model.position == "rotary":
        query = tape.vector(f"{label}query_rotary", "rotary", query)
        key = tape.vector(f"{label}key_rotary", "rotary", key)
    return query, key, value


def feed_forward(
    tape: Tape, sizes: Sizes, x: Tensor, *, width: int = 0, batch: int = 1, label: str = ""
) -> Tensor:
    """Record a feed-forward block; ``batch`` independent ones for experts."""
    model = sizes.model
    inner = -(-(width or model.intermediate) // tape.width)
    hidden, bias = model.hidden, model.mlp_bias
    rule = model.activation
    if not model.gated:
        up = tape.linear(f"{label}up", x, hidden, inner, bias=bias, batch=batch)
        active = tape.vector(f"{label}{rule}", rule, up, saved=(up,))
    else:
        if model.joint_gate:
            joint = tape.linear(f"{label}gate_up", x, hidden, 2 * inner, bias=bias, batch=batch)
            gate, up = tape.split(joint, (inner, inner))
        else:
            gate = tape.linear(f"{label}gate", x, hidden, inner, bias=bias, batch=batch)
            up = tape.linear(f"{label}up", x, hidden, inner, bias=bias, batch=batch)
        active = tape.vector(f"{label}{rule}", rule, gate, saved=(gate,))
        active = tape.vector(f"{label}multiply", "multiply", active, up, saved=(active, up))
    return tape.linear(f"{label}down", active, inner, hidden, bias=bias, batch=batch)


def mixture(tape: Tape, sizes: Sizes, x: Tensor) -> Tensor:
    """Record a mixture of experts; tokens are spread evenly, the load balancing's aim.

    The router stands on every device; experts are cut like a feed-forward block.
    """
    model = sizes.model
    experts, tokens = model.experts, x.elements // model.hidden
    rows = -(-tokens * model.experts_per_token // experts)
    routed = experts * rows
    router = tape.linear("router", x, model.hidden, experts)
    shares = tape.vector("router_softmax", "softmax", router, saved="output", row=experts)
    gates = tape.vector("router_top_k", "top_k", shares, elements=routed, row=experts)
    sent = tape.vector("dispatch", "permute", x, elements=routed * model.hidden)
    made = feed_forward(
        tape, sizes, sent, width=model.expert_intermediate, batch=experts, label="expert_"
    )
    back = tape.vector(
        "combine", "combine", made, gates, elements=tokens * model.hidden, saved=(made, gates)
    )
    if not model.shared_intermediate:
        return back
    shared = feed_forward(tape, sizes, x, width=model.shared_intermediate, label="shared_")
    if model.shared_gate:
        gate = tape.linear("shared_gate", x, model.hidden, 1)
        shared = tape.vector("shared_scale", "multiply", shared, gate, saved=(shared, gate))
    return tape.vector("shared_add", "add", back, shared, rule="sum")


def residual(tape: Tape, sizes: Sizes, name: str, x: Tensor, branch: Tensor) -> Tensor:
    """Record dropout of a branch and its addition to the stream."""
    branch = dropout(tape, f"{name}_dropout", branch, sizes.model.hidden_dropout)
    return tape.vector(f"{name}_add", "add", branch, x, rule="sum")


def head(tape: Tape, sizes: Sizes, x: Tensor) -> None:
    """Record the last norm, the product with the vocabulary, and the loss."""
    model, tokens = sizes.model, sizes.tokens
    if model.head == "mlm":
        if model.norm_place == "before":
            x = norm(tape, sizes, "final_norm", x)
        x = tape.linear("transform", x, model.hidden, model.hidden, bias=True)
        x = tape.vector(model.activation, model.activation, x, saved=(x,))
        x = norm(tape, sizes, "transform_norm", x)
    elif model.norm_place == "before":
        x = norm(tape, sizes, "final_norm", x)
    if model.embedding != model.hidden:
        x = tape.linear("project_out", x, model.hidden, model.embedding)
    columns = -(-model.vocabulary // tape.width)
    x = tape.enter(x)
    bias = model.head == "mlm" or model.head_bias
    logits = tape.linear("logits", x, model.embedding, columns, bias=bias)
    if tape.width > 1:
        logits = tape.statistics(logits, tokens)
    tape.vector(
        "loss", "cross_entropy", logits, saved="output", row=columns, rule="loss", item_bytes=4
    )
