"""Models to train: the figures of a Hugging Face ``config.json``, by name or file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from mohsearch.core.cards import Card, read_card, read_json, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.workloads.hf_config_families import (
    ALIASES,
    DECODER_TWINS,
    FAMILIES,
    MIXTURES,
    SWITCHES,
    UNSUPPORTED,
)

SHELF = "problems"
MODELS = "workloads/models"
SUFFIXES = (".yaml", ".json")

Kind = Literal["decoder", "encoder", "encoder-decoder"]
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python": "gelu",
    "quick_gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "geglu": "gelu",
}


class ModelConfig(Card):
    """A transformer with everything that decides its operators.

    Attributes
    ----------
    name, model_type, kind
        What it is called, its Hugging Face type, and ``decoder``, ``encoder`` or
        ``encoder-decoder``.
    hidden, intermediate, embedding
        Widths of the residual stream, of the feed-forward layer, and of the embedding.
    layers, decoder_layers
        Layers; of an encoder-decoder those of the encoder, and those of the decoder.
    heads, kv_heads, head_size
        Query heads, key-value heads (fewer with grouped queries), and the width of one head.
    vocabulary, positions, sequence
        Rows of the embedding, longest sequence, and tokens per sample in training.
    norm, norm_place
        ``layernorm`` or ``rmsnorm``, ``before`` or ``after`` each sublayer.
    experts, experts_per_token, expert_intermediate, shared_intermediate
        Mixture of experts; 0 experts is a dense model.
    """

    name: str
    model_type: str
    kind: Kind
    hidden: int = Field(gt=0, le=2**20)
    layers: int = Field(gt=0, le=4096)
    decoder_layers: int = Field(default=0, ge=0, le=4096)
    heads: int = Field(gt=0, le=2**16)
    kv_heads: int = Field(gt=0, le=2**16)
    head_size: int = Field(gt=0, le=2**16)
    intermediate: int = Field(gt=0, le=2**22)
    vocabulary: int = Field(gt=0, le=2**24)
    positions: int = Field(gt=0, le=2**24)
    sequence: int = Field(gt=0, le=2**24)
    embedding: int = Field(gt=0, le=2**20)
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_place: Literal["before", "after"] = "before"
    norm_bias: bool = True
    position: Literal["learned", "rotary", "relative", "alibi", "none"] = "learned"
    position_offset: int = Field(default=0, ge=0)
    relative_buckets: int = Field(default=32, gt=0)
    token_types: int = Field(default=0, ge=0)
    embedding_norm: bool = False
    activation: Literal["gelu", "relu", "silu"] = "gelu"
    gated: bool = False
    joint_qkv: bool = False
    joint_gate: bool = False
    parallel_block: bool = False
    one_norm: bool = False
    qk_norm: Literal["", "head", "width"] = ""
    qkv_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    head_bias: bool = False
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    tied: bool = False
    head: Literal["lm", "mlm"] = "lm"
    experts: int = Field(default=0, ge=0, le=2**16)
    experts_per_token: int = Field(default=0, ge=0, le=2**16)
    expert_intermediate: int = Field(default=0, ge=0, le=2**22)
    shared_intermediate: int = Field(default=0, ge=0, le=2**22)
    shared_gate: bool = False
    bias_per_layer: bool = False
    window: int = Field(default=0, ge=0)
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} key-value heads do not divide {self.heads} heads")
        if self.kind == "encoder-decoder" and not self.decoder_layers:
            raise ValueError("an encoder-decoder needs decoder layers")
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"{self.experts_per_token} of {self.experts} experts per token")
        return self

    @property
    def parameters(self) -> int:
        """Number of weights, those of a tied head counted once."""
        h, e = self.hidden, self.embedding
        outer = self.vocabulary * e * (1 if self.tied else 2) + 2 * h * e * (e != h)
        if self.position == "learned":
            outer += (self.positions + self.position_offset) * h
        outer += self.token_types * h + self._norm * self.embedding_norm
        if self.norm_place == "before":
            outer += self._norm * (1 + (self.kind == "encoder-decoder"))
        elif self.kind == "encoder-decoder":
            outer += self._norm * self.embedding_norm
        if self.kind == "encoder-decoder" and self.position == "learned":
            outer += (self.positions + self.position_offset) * h
        if self.head == "mlm":
            outer += h * h + h + self._norm + self.vocabulary
        outer += self.vocabulary * self.head_bias
        buckets = self.relative_buckets * self.heads if self.position == "relative" else 0
        stacks = 2 if self.decoder_layers else 1
        outer += 0 if self.bias_per_layer else stacks * buckets
        inner = buckets if self.bias_per_layer else 0
        layer = self._attention + self._feed + self._norm * (2 - self.one_norm) + inner
        crossed = layer + self._attention + self._norm
        return outer + self.layers * layer + self.decoder_layers * crossed

    @property
    def _norm(self) -> int:
        return self.hidden * (1 + (self.norm == "layernorm" and self.norm_bias))

    @property
    def _attention(self) -> int:
        """Weights of one attention block without its norm."""
        wide, narrow = self.heads * self.head_size, self.kv_heads * self.head_size
        weights = self.hidden * (2 * wide + 2 * narrow)
        weights += self.qkv_bias * (wide + 2 * narrow) + self.output_bias * self.hidden
        if self.qk_norm == "head":
            return weights + 2 * self.head_size
        return weights + (wide + narrow) * (self.qk_norm == "width")

    @property
    def _feed(self) -> int:
        """Weights of one feed-forward block or mixture, its router included."""

        def block(width: int) -> int:
            ways = 1 + self.gated
            biases = self.mlp_bias * (ways * width + self.hidden)
            return self.hidden * width * (ways + 1) + biases

        if not self.experts:
            return block(self.intermediate)
        weights = self.experts * (block(self.expert_intermediate) + self.hidden)
        if self.shared_intermediate:
            weights += block(self.shared_intermediate) + self.hidden * self.shared_gate
        return weights


class PublishedCount(Card):
    """A published number of weights."""

    count: int = Field(gt=0)
    source: str


class ModelCard(Card):
    """A model on the shelf.

    Attributes
    ----------
    config
        The fields of a Hugging Face ``config.json``.
    sequence
        Tokens per sample in training; the longest the model takes by default.
    parameters
        Published number of weights, with its source.
    """

    title: str
    source: str
    config: dict[str, Any]
    sequence: int | None = Field(default=None, gt=0, le=2**24)
    parameters: PublishedCount | None = None


@dataclass(frozen=True)
class _Reading:
    """Where values come from, for errors."""

    source: str | Path
    prefix: str

    def error(self, message: str, key: str) -> InputError:
        return InputError(message, source=self.source, field=f"{self.prefix}{key}")


def list_models(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all models on the shelves, sorted."""
    return (catalog or Catalog.around()).names(SHELF, MODELS, SUFFIXES)


def find_model(name_or_path: str | Path, catalog: Catalog | None = None, **place: Any) -> Path:
    """Return the file of a model; ``place`` as in :meth:`Catalog.resolve`."""
    return (catalog or Catalog.around()).resolve(
        SHELF, str(name_or_path), folder=MODELS, kind="model", suffixes=SUFFIXES, **place
    )


def load_model(
    name_or_path: str | Path, catalog: Catalog | None = None, **place: Any
) -> ModelConfig:
    """Load a model by name, or from a Hugging Face ``config.json`` or a card.

    Parameters
    ----------
    name_or_path
        A name on the shelf, or a path ending in ``.json`` or ``.yaml``.
    catalog
        Where names are looked up (default: the working directory's project, then the built-in
        shelves).
    place
        ``base``, ``source`` and ``field`` as in :meth:`Catalog.resolve`.

    Raises
    ------
    InputError
        If nothing answers to the name, a field is missing or wrong, or the model has a feature
        that is not modelled; with file and field.

    Examples
    --------
    >>> model = load_model("llama2-7b")
    >>> model.hidden, model.layers, model.gated, model.parameters
    (4096, 32, True, 6738415616)
    """
    path = find_model(name_or_path, catalog, **place)
    if path.suffix == ".json":
        label = path.parent.name if path.stem == "config" and path.parent.name else path.stem
        return model_from_config(read_json(path), name=label, source=path)
    card = read_card(ModelCard, path)
    model = model_from_config(card.config, name=path.stem, source=path, prefix="config.")
    update: dict[str, Any] = {"source": card.source}
    return model.model_copy(update=update | ({"sequence": card.sequence} if card.sequence else {}))


def model_from_config(
    config: Any, *, name: str, source: str | Path = "config.json", prefix: str = ""
) -> ModelConfig:
    """Return the model that the fields of a Hugging Face ``config.json`` describe.

    Raises
    ------
    InputError
        With ``source`` and the field (after ``prefix``) of what is missing, wrong or not modelled.

    Examples
    --------
    >>> fields = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12}
    >>> model_from_config(fields | {"vocab_size": 50257}, name="gpt2").parameters
    124439808
    """
    at = _Reading(source, prefix)
    if not isinstance(config, Mapping):
        raise InputError("must be a mapping from names to values", source=source)
    if isinstance(config.get("text_config"), Mapping):
        raise at.error("models of images and text are not modelled", "text_config")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = sorted(FAMILIES)
        raise UnknownNameError(
            "model type", str(kind), known, source=source, field=f"{prefix}model_type"
        )
    _refuse_unmodelled(config, at)
    found, keys = _figures(config)
    figures = {**FAMILIES[kind], **found}
    _complete(figures, config, kind, at)
    figures.pop("position_reserve", None)
    try:
        return validate(ModelConfig, {"name": name, "model_type": kind, **figures})
    except InputError as error:
        field = prefix + keys.get(error.field or "", error.field or "")
        raise InputError(error.message, source=source, field=field or None) from error


def _refuse_unmodelled(config: Mapping[str, Any], at: _Reading) -> None:
    """Refuse features that are not modelled, and figures of other types than they should be."""
    for key, reason in UNSUPPORTED.items():
        value = config.get(key)
        if key == "layer_types" and isinstance(value, list):
            value = any(one != "full_attention" for one in value)
        if value:
            raise at.error(reason, key)
    if config.get("decoder_sparse_step") not in (None, 1):
        raise at.error("mixtures with some dense layers are not modelled", "decoder_sparse_step")
    for one, other in DECODER_TWINS.items():
        if None not in (config.get(one), config.get(other)) and config[one] != config[other]:
            message = f"another size than {one} ({config[one]!r}) is not modelled"
            raise at.error(message, other)
    for key in SWITCHES:
        if not isinstance(config.get(key), bool | None):
            raise at.error(f"must be true or false (got {config[key]!r})", key)


def megatron_model(
    *,
    hidden: int,
    layers: int,
    heads: int,
    sequence: int = 2048,
    vocabulary: int = 51200,
    name: str = "megatron",
) -> ModelConfig:
    """Return a GPT model as Megatron-LM builds it.

    Source: Narayanan et al., SC 2021, section 2 (vocabulary padded to 51,200, sequences of 2,048).

    Examples
    --------
    >>> round(megatron_model(hidden=12288, layers=96, heads=96).parameters / 1e9, 1)
    174.6
    """
    fields = {"model_type": "megatron_gpt", "n_embd": hidden, "n_layer": layers, "n_head": heads}
    fields |= {"vocab_size": vocabulary, "n_positions": sequence}
    return model_from_config(fields, name=name)


def _figures(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the configuration says, and under which key each figure stands."""
    found, keys = {}, {}
    for figure, aliases in ALIASES.items():
        for key in aliases:
            if config.get(key) is not None:
                found[figure], keys[figure] = config[key], key
                break
    return found, keys


def _complete(figures: dict[str, Any], config: Mapping[str, Any], kind: str, at: _Reading) -> None:
    """Fill in what follows from other figures."""
    _check_sizes(figures, config, at)
    hidden, heads = figures["hidden"], figures["heads"]
    figures.setdefault("kv_heads", 1 if config.get("multi_query") else heads)
    if "head_size" not in figures:
        if hidden % heads:
            raise at.error(f"{heads} heads do not divide hidden size {hidden}", ALIASES["heads"][0])
        figures["head_size"] = hidden // heads
    figures.setdefault("intermediate", 4 * hidden)
    figures.setdefault("embedding", hidden)
    if figures["kind"] == "encoder-decoder":
        figures.setdefault("decoder_layers", figures["layers"])
    else:
        figures["decoder_layers"] = 0
    figures["activation"], figures["gated"] = _activation(figures, config, at)
    figures["output_bias"] = _output_bias(figures, config, kind)
    if config.get("mlp_bias") is not None:
        figures["mlp_bias"] = bool(config["mlp_bias"])
    _complete_family(figures, config, kind)
    _complete_mixture(figures, kind, at)
    reserve = figures.get("position_reserve", 0)
    longest = figures["positions"] - reserve if isinstance(figures["positions"], int) else 1
    figures["sequence"] = min(longest, figures.get("window") or longest)


def _check_sizes(figures: Mapping[str, Any], config: Mapping[str, Any], at: _Reading) -> None:
    """Refuse figures without which nothing else can be worked out."""
    for figure in ("hidden", "layers", "heads", "vocabulary", "window"):
        if figure == "window" and not figures.get("window"):
            continue
        if figure not in figures:
            others = ", ".join(ALIASES[figure][1:])
            message = "is missing" + (f" (also read: {others})" if others else "")
            raise at.error(message, ALIASES[figure][0])
        value = figures[figure]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            key = next(key for key in ALIASES[figure] if config.get(key) is not None)
            raise at.error(f"must be a positive integer (got {value!r})", key)


def _complete_family(figures: dict[str, Any], config: Mapping[str, Any], kind: str) -> None:
    """Read the switches that only some types have."""
    if kind == "opt" and config.get("do_layer_norm_before") is False:
        figures["norm_place"] = "after"
    if kind == "mpt":
        _complete_mpt(figures, config)
    if kind in {"t5", "umt5"}:
        figures["relative_buckets"] = config.get("relative_attention_num_buckets", 32)
    if kind in {"gpt_neox", "phi"} and "use_parallel_residual" in config:
        figures["parallel_block"] = bool(config["use_parallel_residual"])
    if kind.startswith("qwen") and not config.get("use_sliding_window"):
        figures.pop("window", None)


def _complete_mixture(figures: dict[str, Any], kind: str, at: _Reading) -> None:
    if kind not in MIXTURES:
        for key in ("experts", "experts_per_token", "expert_intermediate", "shared_intermediate"):
            figures.pop(key, None)
    elif not figures.get("experts"):
        raise at.error("is missing or 0", ALIASES["experts"][0])
    else:
        figures.setdefault("expert_intermediate", figures["intermediate"])


def _complete_mpt(figures: dict[str, Any], config: Mapping[str, Any]) -> None:
    """MPT switches all biases at once, and has positions unless attention is biased (ALiBi)."""
    bias = not config.get("no_bias", True)
    figures |= dict.fromkeys(("norm_bias", "qkv_bias", "output_bias", "mlp_bias"), bias)
    attention = config.get("attn_config")
    if isinstance(attention, Mapping) and attention.get("alibi") is False:
        figures["position"] = "learned"


def _output_bias(figures: Mapping[str, Any], config: Mapping[str, Any], kind: str) -> bool:
    if kind == "llama" and config.get("attention_bias") is not None:
        return bool(config["attention_bias"])
    return bool(figures.get("output_bias", True))


def _activation(
    figures: Mapping[str, Any], config: Mapping[str, Any], at: _Reading
) -> tuple[str, bool]:
    """Return the activation, and whether the feed-forward layer is gated."""
    text, gated = figures["activation"], bool(figures.get("gated", False))
    if isinstance(projection := config.get("feed_forward_proj"), str):
        gated = projection.startswith("gated-")
        text = projection.removeprefix("gated-")
    if not isinstance(text, str) or text not in _ACTIVATIONS:
        keys = [key for key in ALIASES["activation"] if config.get(key) is not None]
        key = (keys or ["feed_forward_proj"])[0]
        raise UnknownNameError(
            "activation", str(text), _ACTIVATIONS, source=at.source, field=f"{at.prefix}{key}"
        )
    return _ACTIVATIONS[text], gated
