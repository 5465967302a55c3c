"""What a Hugging Face ``model_type`` leaves out of its ``config.json``.

Source: the configuration and modelling modules of the ``transformers`` library (4.4x), whose
defaults a ``config.json`` need not repeat. Keys are those of
:class:`mohsearch.workloads.hf_config.ModelConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
        "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
        "decoder_layers": ("num_decoder_layers", "decoder_layers"),
        "heads": (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "encoder_attention_heads",
        ),
        "kv_heads": ("num_key_value_heads", "num_kv_heads"),
        "head_size": ("head_dim", "d_kv"),
        "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "encoder_ffn_dim"),
        "vocabulary": ("vocab_size",),
        "positions": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"),
        "embedding": ("word_embed_proj_dim", "embedding_size"),
        "activation": ("hidden_act", "hidden_activation", "activation_function", "activation"),
        "tied": ("tie_word_embeddings",),
        "qkv_bias": ("attention_bias", "qkv_bias", "use_qkv_bias"),
        "attention_dropout": (
            "attention_probs_dropout_prob",
            "attention_dropout",
            "attn_pdrop",
            "dropout_rate",
        ),
        "hidden_dropout": (
            "hidden_dropout_prob",
            "hidden_dropout",
            "resid_pdrop",
            "dropout",
            "dropout_rate",
        ),
        "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
        "experts_per_token": ("num_experts_per_tok", "num_experts_per_token"),
        "expert_intermediate": ("moe_intermediate_size",),
        "shared_intermediate": ("shared_expert_intermediate_size",),
        "token_types": ("type_vocab_size",),
        "window": ("sliding_window",),
    }
)
"""Where each figure stands in a ``config.json``; the first key present is read."""

_LLAMA: dict[str, object] = {
    "kind": "decoder",
    "norm": "rmsnorm",
    "position": "rotary",
    "gated": True,
    "activation": "silu",
    "positions": 2048,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "qkv_bias": False,
    "output_bias": False,
    "mlp_bias": False,
    "tied": False,
}

_GPT2: dict[str, object] = {
    "kind": "decoder",
    "norm": "layernorm",
    "position": "learned",
    "activation": "gelu",
    "joint_qkv": True,
    "positions": 1024,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
    "tied": True,
}

_BERT: dict[str, object] = {
    "kind": "encoder",
    "norm": "layernorm",
    "norm_place": "after",
    "position": "learned",
    "activation": "gelu",
    "positions": 512,
    "token_types": 2,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
    "head": "mlm",
    "embedding_norm": True,
    "tied": True,
}

_T5: dict[str, object] = {
    "kind": "encoder-decoder",
    "norm": "rmsnorm",
    "position": "relative",
    "activation": "relu",
    "positions": 512,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
    "qkv_bias": False,
    "output_bias": False,
    "mlp_bias": False,
    "tied": True,
}

_NEOX: dict[str, object] = {
    "kind": "decoder",
    "norm": "layernorm",
    "position": "rotary",
    "activation": "gelu",
    "joint_qkv": True,
    "parallel_block": True,
    "positions": 2048,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "tied": False,
}

FAMILIES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "bart": {
            "kind": "encoder-decoder",
            "norm": "layernorm",
            "norm_place": "after",
            "position": "learned",
            "activation": "gelu",
            "positions": 1024,
            "position_offset": 2,
            "embedding_norm": True,
            "attention_dropout": 0.0,
            "hidden_dropout": 0.1,
            "tied": True,
        },
        "bert": _BERT,
        "bloom": {**_GPT2, "position": "alibi", "embedding_norm": True, "positions": 2048},
        "gemma": {**_LLAMA, "activation": "gelu", "tied": True, "positions": 8192},
        "gpt2": _GPT2,
        "gpt_neox": _NEOX,
        "gptj": {
            **_NEOX,
            "joint_qkv": False,
            "qkv_bias": False,
            "output_bias": False,
            "one_norm": True,
            "head_bias": True,
        },
        "llama": _LLAMA,
        "megatron_gpt": {**_GPT2, "positions": 2048},
        "megatron-bert": {
            **_BERT,
            "norm_place": "before",
            "joint_qkv": True,
            "embedding_norm": False,
        },
        "mistral": {**_LLAMA, "positions": 131072},
        "mixtral": {**_LLAMA, "positions": 131072},
        "mpt": {
            **_GPT2,
            "position": "alibi",
            "qkv_bias": False,
            "output_bias": False,
            "mlp_bias": False,
            "norm_bias": False,
            "attention_dropout": 0.0,
            "hidden_dropout": 0.0,
        },
        "olmoe": {**_LLAMA, "qk_norm": "width", "positions": 4096},
        "opt": {
            **_GPT2,
            "activation": "relu",
            "joint_qkv": False,
            "positions": 2048,
            "position_offset": 2,
            "attention_dropout": 0.0,
        },
        "phi": {**_NEOX, "joint_qkv": False, "one_norm": True, "head_bias": True},
        "phi3": {**_LLAMA, "joint_qkv": True, "joint_gate": True},
        "qwen2": {**_LLAMA, "qkv_bias": True, "positions": 32768},
        "qwen2_moe": {**_LLAMA, "qkv_bias": True, "shared_gate": True, "positions": 32768},
        "qwen3": {**_LLAMA, "qk_norm": "head", "positions": 32768},
        "qwen3_moe": {**_LLAMA, "qk_norm": "head", "positions": 32768},
        "roberta": {**_BERT, "positions": 514, "token_types": 1, "position_reserve": 2},
        "t5": _T5,
        "umt5": {**_T5, "bias_per_layer": True, "tied": False},
    }
)
"""By ``model_type``: the figures that a ``config.json`` of that type may leave out."""

MIXTURES = frozenset({"mixtral", "olmoe", "qwen2_moe", "qwen3_moe"})
"""Types whose feed-forward blocks are mixtures of experts; others ignore the fields of one."""

UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "kv_lora_rank": "multi-head latent attention is not modelled",
        "q_lora_rank": "multi-head latent attention is not modelled",
        "layer_types": "layers that differ in attention are not modelled",
        "first_k_dense_replace": "mixtures with leading dense layers are not modelled",
        "mlp_only_layers": "mixtures with some dense layers are not modelled",
        "attn_layer_period": "layers without attention are not modelled",
    }
)
"""Keys whose presence (not null, not empty, not 0) changes the layers in a way we do not model."""

DECODER_TWINS: Mapping[str, str] = MappingProxyType(
    {
        "encoder_attention_heads": "decoder_attention_heads",
        "encoder_ffn_dim": "decoder_ffn_dim",
    }
)
"""Figures of an encoder, and of its decoder, that must be equal."""

SWITCHES = (
    "attention_bias", "do_layer_norm_before", "mlp_bias", "multi_query", "no_bias", "qkv_bias",
    "tie_word_embeddings", "use_parallel_residual", "use_qkv_bias", "use_sliding_window",
)  # fmt: skip
"""Keys that are true or false; a text such as ``"false"`` would count as true."""
