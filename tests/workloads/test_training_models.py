"""Models to train: read as Hugging Face writes them, and as large as published."""

import json
from pathlib import Path

import pytest

from mohsearch.core.cards import read_card
from mohsearch.core.errors import InputError
from mohsearch.workloads.hf_config import (
    ModelCard,
    find_model,
    list_models,
    load_model,
    megatron_model,
    model_from_config,
)
from mohsearch.workloads.hf_config_families import FAMILIES
from mohsearch.workloads.training import build_training

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}

# Weights of published checkpoints, by the config.json that stands beside them on huggingface.co.
PUBLISHED = {
    "facebook/bart-base": (
        139_420_416,
        {
            "model_type": "bart",
            "d_model": 768,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "encoder_attention_heads": 12,
            "encoder_ffn_dim": 3072,
            "vocab_size": 50265,
        },
    ),
    "bigscience/bloom-560m": (
        559_214_592,
        {
            "model_type": "bloom",
            "n_embed": 1024,
            "n_layer": 24,
            "num_attention_heads": 16,
            "vocab_size": 250880,
        },
    ),
    "EleutherAI/gpt-j-6b": (
        6_050_882_784,
        {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400},
    ),
    "EleutherAI/gpt-neox-20b": (
        20_554_567_680,
        {
            "model_type": "gpt_neox",
            "hidden_size": 6144,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "intermediate_size": 24576,
            "vocab_size": 50432,
        },
    ),
    "microsoft/phi-2": (
        2_779_683_840,
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 10240,
            "vocab_size": 51200,
            "hidden_act": "gelu_new",
        },
    ),
    "Qwen/Qwen2.5-0.5B": (
        494_032_768,
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
    ),
    "google/gemma-2b": (
        2_506_172_416,
        {
            "model_type": "gemma",
            "hidden_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 16384,
            "vocab_size": 256000,
        },
    ),
    "Qwen/Qwen3-0.6B": (
        596_049_920,
        {
            "model_type": "qwen3",
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
    ),
    "allenai/OLMoE-1B-7B-0924": (
        6_919_161_856,
        {
            "model_type": "olmoe",
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "intermediate_size": 1024,
            "vocab_size": 50304,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
    ),
    "Qwen/Qwen1.5-MoE-A2.7B": (
        14_315_784_192,
        {
            "model_type": "qwen2_moe",
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 5632,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "vocab_size": 151936,
        },
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        3_821_079_552,
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 8192,
            "vocab_size": 32064,
        },
    ),
    "google/umt5-small": (
        306_601_984,
        {
            "model_type": "umt5",
            "d_model": 512,
            "num_layers": 8,
            "num_heads": 6,
            "d_kv": 64,
            "d_ff": 1024,
            "vocab_size": 256384,
            "feed_forward_proj": "gated-gelu",
        },
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_configuration_has_the_published_number_of_weights(name: str) -> None:
    count, config = PUBLISHED[name]
    model = model_from_config(config, name=name)
    assert model.parameters == count
    assert build_training(model, sequence_length=64).parameters == count


@pytest.mark.parametrize("name", list_models())
def test_a_model_on_the_shelf_has_the_weights_of_its_card_and_of_its_operators(name: str) -> None:
    card, model = read_card(ModelCard, find_model(name)), load_model(name)
    assert model.parameters == build_training(model, sequence_length=16).parameters
    if card.parameters is not None:
        assert model.parameters == card.parameters.count


def test_megatron_sizes_follow_the_published_closed_form() -> None:
    # Narayanan et al., SC 2021, equation 2: P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h));
    # the last norm, 2 h, is not part of it.
    for hidden, layers, heads in ((2304, 24, 24), (12288, 96, 96), (25600, 128, 160)):
        model = megatron_model(hidden=hidden, layers=layers, heads=heads)
        closed = layers * (12 * hidden**2 + 13 * hidden) + (51200 + 2048) * hidden
        assert model.parameters == closed + 2 * hidden


@pytest.mark.parametrize("kind", sorted(FAMILIES))
@pytest.mark.parametrize("extra", [{}, {"tie_word_embeddings": True}, {"num_key_value_heads": 2}])
def test_two_counts_of_the_weights_agree_for_every_type(
    kind: str, extra: dict[str, object]
) -> None:
    config = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "model_type": kind, **extra}
    model = model_from_config(config, name=kind)
    assert build_training(model, sequence_length=16).parameters == model.parameters


def test_a_config_json_is_read_from_a_file_and_named_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "bfloat16"}))
    model = load_model(folder / "config.json")
    assert (model.name, model.hidden, model.intermediate) == ("mine", 64, 256)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"hidden_size": None}, "hidden_size", "is missing"),
        ({"hidden_size": "big"}, "hidden_size", "positive integer"),
        ({"vocab_size": -1}, "vocab_size", "positive integer"),
        ({"num_attention_heads": 5}, "num_attention_heads", "do not divide"),
        ({"num_key_value_heads": 3}, None, "do not divide 4 heads"),
        ({"num_key_value_heads": 2.5}, "num_key_value_heads", "integer"),
        ({"intermediate_size": 0}, "intermediate_size", "greater than 0"),
        ({"hidden_act": "snake"}, "hidden_act", "unknown activation 'snake'"),
        ({"model_type": "lama"}, "model_type", "did you mean 'llama'?"),
        ({"model_type": None}, "model_type", "unknown model type"),
        ({"kv_lora_rank": 512}, "kv_lora_rank", "latent attention is not modelled"),
        ({"model_type": "mixtral"}, "num_local_experts", "is missing"),
        ({"text_config": {}}, "text_config", "images"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types", "differ"),
        ({"layer_types": 4}, "layer_types", "differ"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2}, "decoder_sparse_step", "dense"),
        ({"mlp_bias": "false"}, "mlp_bias", "must be true or false (got 'false')"),
        ({"model_type": "mistral", "sliding_window": "wide"}, "sliding_window", "positive integer"),
        ({"encoder_ffn_dim": 8, "decoder_ffn_dim": 9}, "decoder_ffn_dim", "another size"),
    ],
)
def test_a_wrong_configuration_is_refused_with_file_and_field(
    tmp_path: Path, change: dict[str, object], field: str | None, words: str
) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({**LLAMA, **change}))
    with pytest.raises(InputError, match=r"model\.json") as caught:
        load_model(file)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_layers_that_are_all_of_full_attention_are_alike(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({**LLAMA, "layer_types": ["full_attention"] * 2}))
    assert load_model(file).parameters == model_from_config(LLAMA, name="plain").parameters


def test_a_card_names_the_field_below_config(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: Mine\nsource: me\nconfig: {model_type: gpt2, n_embd: 0}\n")
    with pytest.raises(InputError) as caught:
        load_model(file)
    assert caught.value.field == "config.n_embd"


def test_an_unknown_name_lists_what_stands_on_the_shelf() -> None:
    with pytest.raises(InputError, match=r"unknown model 'gpt5'.*available: bert-base"):
        load_model("gpt5")


def test_a_model_cannot_be_changed() -> None:
    model = load_model("gpt2")
    with pytest.raises(ValueError, match="frozen"):
        model.hidden = 1  # type: ignore[misc]
