"""Workloads of the deepflow search: one training iteration, or one matrix product, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mohsearch.core.cards import Card, read_yaml, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.evaluate import Gemm, Lstm
from mohsearch.evaluators.crossflow.transformer import Transformer
from mohsearch.workloads.hf_config import load_model

Count = Annotated[int, Field(gt=0)]
FOLDER = "workloads/iterations"


class LstmCard(Card):
    """Training iteration of an LSTM language model (DeepFlow paper, section 9)."""

    kind: Literal["lstm"]
    batch_size: Count
    """Samples of the whole system per iteration."""
    vocab_size: Count
    num_layers: Count
    layer_size: Count
    seq_len: Count
    num_gates: Count = 4
    source: str

    def workload(self) -> Lstm:
        """Return what the evaluator takes."""
        return Lstm(
            self.batch_size, self.vocab_size, self.num_layers, self.layer_size, self.seq_len,
            self.num_gates,
        )  # fmt: skip


class GemmCard(Card):
    """Product of an m x k by a k x n matrix."""

    kind: Literal["gemm"]
    m: Count
    k: Count
    n: Count
    source: str

    def workload(self) -> Gemm:
        """Return what the evaluator takes."""
        return Gemm(self.m, self.k, self.n)


class TransformerCard(Card):
    """Training step of a transformer; its model stands on the shelf ``workloads/models``."""

    kind: Literal["transformer"]
    model: str
    batch_size: Count
    """Samples of the whole system per step."""
    microbatch: Count = 1
    sequence_length: Count | None = None
    recompute: Literal["none", "selective", "full"] = "none"
    sequence_parallel: bool = False
    source: str

    def workload(self) -> Transformer:
        """Return what the evaluator takes."""
        return Transformer(
            load_model(self.model), self.batch_size, self.microbatch, self.sequence_length,
            self.recompute, self.sequence_parallel,
        )  # fmt: skip


_KINDS: dict[str, type[Card]] = {
    "lstm": LstmCard,
    "gemm": GemmCard,
    "transformer": TransformerCard,
}


def iteration_names(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all workloads of the deepflow search."""
    return (catalog or Catalog()).names("problems", FOLDER)


def load_iteration(
    name_or_path: str | Path,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> Lstm | Gemm | Transformer:
    """Return a workload by name or from its card.

    Raises
    ------
    InputError
        If nothing answers to the name, or the card is wrong.

    Examples
    --------
    >>> load_iteration("gemm_64k").m
    65536
    """
    path = (catalog or Catalog.around()).resolve(
        "problems", str(name_or_path), folder=FOLDER, kind="iteration", base=base, source=source,
        field=field,
    )  # fmt: skip
    data = read_yaml(path)
    kind = data.get("kind") if isinstance(data, dict) else None
    card = _KINDS.get(str(kind))
    if card is None:
        raise InputError(f"must be one of {', '.join(_KINDS)}", source=path, field="kind")
    workload: Lstm | Gemm | Transformer = validate(card, data, source=path).workload()  # type: ignore[attr-defined]
    return workload
