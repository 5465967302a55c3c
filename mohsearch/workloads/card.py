"""Cards of networks and applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from mohsearch.core.cards import Card
from mohsearch.workloads.transformer import TransformerCard

Count = Field(default=None, gt=0)


class LayerRow(Card):
    """One mapped op, with the columns of a layer table.

    K and C are totals over the groups; ``predecessors`` defaults to the row above.
    """

    name: str
    type: Literal["conv", "dwconv", "convt", "gemm", "bmm"]
    N: int = Field(gt=0)
    K: int = Field(gt=0)
    C: int = Field(gt=0)
    Y: int | None = Count
    X: int | None = Count
    R: int | None = Count
    S: int | None = Count
    stride: int | None = Count
    stride_w: int | None = Count
    dilation: int | None = Count
    dilation_w: int | None = Count
    pad: int | None = None
    pad_w: int | None = None
    pad_end: int | None = None
    pad_w_end: int | None = None
    output_pad: int | None = None
    output_pad_w: int | None = None
    groups: int | None = Count
    predecessors: tuple[str, ...] | None = None

    def columns(self) -> Mapping[str, Any]:
        """Return what was given, as a table row."""
        return self.model_dump(exclude_none=True)


class LiteratureCard(Card):
    """A published figure to hold a network against.

    Attributes
    ----------
    macs
        Multiply-accumulates as published.
    tolerance
        Relative deviation that the difference in definition explains.
    source
        Where the figure stands.
    """

    macs: float = Field(gt=0)
    tolerance: float = Field(ge=0, le=1)
    source: str


class NetworkCard(Card):
    """A network: where its ops come from, and what is known about it.

    Exactly one of ``table`` (a CSV layer table), ``onnx`` (an ONNX file; both paths relative to
    the card), ``layers`` (rows in place) and ``transformer`` is given.
    """

    title: str
    description: str = ""
    source: str
    licence: str = ""
    literature: LiteratureCard | None = None
    table: str | None = None
    onnx: str | None = None
    layers: tuple[LayerRow, ...] | None = None
    transformer: TransformerCard | None = None
    dims: dict[str, int] = Field(default_factory=dict)
    vector_ops: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_origin(self) -> NetworkCard:
        origins = ("table", "onnx", "layers", "transformer")
        given = [name for name in origins if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) if given else "none"
            raise ValueError(f"exactly one of {', '.join(origins)} is needed, got {what}")
        if self.onnx is None and (self.dims or self.vector_ops):
            raise ValueError("dims and vector_ops belong to an onnx file")
        return self


class TenantCard(Card):
    """One network of an application.

    Attributes
    ----------
    network
        Name on the shelf, or a path relative to the card.
    batch
        Factor on the network's own batch.
    replicas
        Independent copies.
    """

    network: str
    batch: int = Field(default=1, gt=0, le=2**20)
    replicas: int = Field(default=1, gt=0, le=1024)


class ApplicationCard(Card):
    """An application: networks that run on one system, independent of each other."""

    title: str
    description: str = ""
    source: str = ""
    networks: tuple[TenantCard, ...] = Field(min_length=1)

    @field_validator("networks", mode="before")
    @classmethod
    def _plain_names(cls, value: Any) -> Any:
        """Let a bare name stand for a network with batch 1."""
        if isinstance(value, list):
            return [{"network": v} if isinstance(v, str) else v for v in value]
        return value
