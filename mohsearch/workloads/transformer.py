"""Transformer encoder stacks from their hyper-parameters."""

from __future__ import annotations

from pydantic import Field, model_validator

from mohsearch.core.cards import Card
from mohsearch.workloads.graph import Op, OpGraph
from mohsearch.workloads.layers import bmm_op, gemm_op


class TransformerCard(Card):
    """Hyper-parameters of an encoder stack (Vaswani et al. 2017; Devlin et al. 2019).

    Attributes
    ----------
    hidden
        Width of the residual stream.
    heads
        Attention heads; divides ``hidden``.
    layers
        Encoder layers.
    sequence
        Tokens per sample.
    intermediate
        Width of the feed-forward layer; default ``4 * hidden``.
    batch
        Samples.
    """

    hidden: int = Field(gt=0, le=2**20)
    heads: int = Field(gt=0, le=2**16)
    layers: int = Field(gt=0, le=4096)
    sequence: int = Field(gt=0, le=2**24)
    intermediate: int | None = Field(default=None, gt=0, le=2**22)
    batch: int = Field(default=1, gt=0, le=2**20)

    @model_validator(mode="after")
    def _heads_divide(self) -> TransformerCard:
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide hidden = {self.hidden}")
        return self


def encoder_stack(card: TransformerCard, name: str, *, source: str = "") -> OpGraph:
    """Return the operator graph of an encoder stack, embeddings left out.

    Each layer holds six matrix products (query, key, value, attention output, two feed-forward
    ones) and two batched products with one product per sample and head.

    Examples
    --------
    >>> card = TransformerCard(hidden=1024, heads=16, layers=24, sequence=384)
    >>> encoder_stack(card, "bert_large").macs
    123211874304
    """
    hidden, inner = card.hidden, card.intermediate or 4 * card.hidden
    tokens = card.batch * card.sequence
    products, width = card.batch * card.heads, hidden // card.heads
    scores = products * card.sequence**2
    ops: list[Op] = []
    before: dict[str, list[str]] = {}

    def add(op: Op, *producers: str) -> str:
        ops.append(op)
        before[op.name] = [p for p in producers if p]
        return op.name

    def linear(label: str, inputs: int, outputs: int, *producers: str) -> str:
        return add(gemm_op(label, rows=tokens, columns=outputs, inner=inputs), *producers)

    def vector(label: str, op_type: str, elements: int, *producers: str) -> str:
        return add(Op(label, "vector", op_type=op_type, elements=elements), *producers)

    def product(label: str, columns: int, depth: int, *producers: str) -> str:
        op = bmm_op(label, products=products, rows=card.sequence, columns=columns, inner=depth)
        return add(op, *producers)

    stream = ""
    for number in range(card.layers):
        at = f"layer{number}"
        query, key, value = (
            linear(f"{at}.{part}", hidden, hidden, stream) for part in ("query", "key", "value")
        )
        score = product(f"{at}.scores", card.sequence, width, query, key)
        weights = vector(f"{at}.softmax", "Softmax", scores, score)
        context = product(f"{at}.context", width, card.sequence, weights, value)
        out = linear(f"{at}.output", hidden, hidden, context)
        norm = vector(f"{at}.attention_norm", "LayerNormalization", tokens * hidden, out, stream)
        up = linear(f"{at}.up", hidden, inner, norm)
        gelu = vector(f"{at}.gelu", "Gelu", tokens * inner, up)
        down = linear(f"{at}.down", inner, hidden, gelu)
        stream = vector(f"{at}.norm", "LayerNormalization", tokens * hidden, down, norm)
    return OpGraph(name, ops, before, source=source)
