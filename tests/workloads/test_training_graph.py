"""Operators of a training step against closed forms of the literature."""

import itertools

import pytest

from mohsearch.core.errors import InputError
from mohsearch.workloads.hf_config import ModelConfig, load_model, model_from_config
from mohsearch.workloads.hf_config_families import FAMILIES
from mohsearch.workloads.training import PRECISIONS, build_training

GPT3 = load_model("gpt3-175b")
MODES = ("none", "selective", "full")


@pytest.mark.parametrize(
    ("recompute", "factor", "vocabulary"), [("none", 72, 12), ("full", 96, 16)]
)
@pytest.mark.parametrize("microbatch", [1, 4])
@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-22b", "megatron-1.7b"])
def test_flops_are_those_of_the_megatron_papers(
    name: str, microbatch: int, recompute: str, factor: int, vocabulary: int
) -> None:
    # Narayanan et al., SC 2021, equation 3 (96, with recomputation), and Korthikanti et al., 2023,
    # equation 7 (72, without): factor * B s l h^2 (1 + s / (6 h) + V / (vocabulary * l h)).
    model = load_model(name)
    s, h, layers = 2048, model.hidden, model.layers
    bracket = 1 + s / (6 * h) + model.vocabulary / (vocabulary * layers * h)
    closed = factor * microbatch * s * layers * h**2 * bracket
    workload = build_training(model, microbatch=microbatch, recompute=recompute)  # type: ignore[arg-type]
    assert workload.flops == pytest.approx(closed, rel=1e-12)


def test_selective_recomputation_repeats_the_two_attention_products() -> None:
    plain = build_training(GPT3)
    again = build_training(GPT3, recompute="selective")
    s, h, layers = 2048, GPT3.hidden, GPT3.layers
    assert again.flops - plain.flops == 4 * s**2 * h * layers


@pytest.mark.parametrize("width", [1, 2, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("recompute", MODES)
@pytest.mark.parametrize(("name", "microbatch"), [("gpt3-175b", 1), ("megatron-22b", 4)])
def test_kept_activations_are_those_of_korthikanti(
    name: str, microbatch: int, width: int, sequence_parallel: bool, recompute: str
) -> None:
    # Korthikanti et al., Reducing Activation Recomputation, 2023, table 2: bytes of one layer.
    model = load_model(name)
    s, h, a, t = 2048, model.hidden, model.heads, width
    attention = 5 * a * s / (h * t)
    spread = sequence_parallel
    factor = {
        "none": (34 / t if spread else 10 + 24 / t) + attention,
        "selective": 34 / t if spread else 10 + 24 / t,
        "full": 2 / t if spread else 2,
    }[recompute]
    workload = build_training(
        model,
        microbatch=microbatch,
        tensor_parallel=width,
        sequence_parallel=sequence_parallel,
        recompute=recompute,  # type: ignore[arg-type]
    )
    assert workload.layers[1].stash_bytes == pytest.approx(s * microbatch * h * factor, rel=1e-12)


def test_memory_of_the_first_stage_is_that_of_korthikantis_figure_1() -> None:
    # Figure 1, 22B model on 8 tensor-parallel devices, microbatch 4, in GiB.
    gib = 2**30
    model = load_model("megatron-22b")
    for options, expected in (
        ({}, 59.25),
        ({"sequence_parallel": True, "recompute": "selective"}, 9.5625),
    ):
        layer = build_training(model, microbatch=4, tensor_parallel=8, **options).layers[1]  # type: ignore[arg-type]
        assert layer.count * layer.stash_bytes / gib == pytest.approx(expected, rel=1e-9)


def test_a_device_of_several_computes_its_share_of_the_products() -> None:
    whole = build_training(GPT3)
    for width, spread in itertools.product((2, 8), (False, True)):
        part = build_training(GPT3, tensor_parallel=width, sequence_parallel=spread)
        assert part.flops * width == whole.flops


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        # Shoeybi et al., 2020: two all-reduces forward, two backward, of s b h elements.
        ({}, {"all_reduce": 2}, {"all_reduce": 2}),
        # Korthikanti et al., section 4.2.2: gather and reduce-scatter instead, and the gather once
        # more in the backward pass for the weight gradients.
        (
            {"sequence_parallel": True},
            {"all_gather": 2, "reduce_scatter": 2},
            {"all_gather": 4, "reduce_scatter": 2},
        ),
        ({"recompute": "full"}, {"all_reduce": 2}, {"all_reduce": 4}),
    ],
)
def test_a_layer_has_the_collectives_of_megatron(
    options: dict[str, object], forward: dict[str, int], backward: dict[str, int]
) -> None:
    layer = build_training(GPT3, tensor_parallel=8, **options).layers[1]  # type: ignore[arg-type]
    for graph, expected in ((layer.forward, forward), (layer.backward, backward)):
        found = [op for op in graph.ops if op.engine == "collective"]
        assert {k: sum(op.collective == k for op in found) for k in expected} == expected
        assert len(found) == sum(expected.values())
        assert {op.collective_bytes for op in found} == {2 * 2048 * GPT3.hidden}
        ring = 2 * 2048 * GPT3.hidden * 7 / 8
        assert {op.wire_bytes / (1 + (op.collective == "all_reduce")) for op in found} == {ring}


@pytest.mark.parametrize("recompute", MODES)
@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-7b", "t5-base", "mixtral-8x7b", "opt-350m"])
def test_every_graph_is_acyclic_and_weight_gradients_are_its_sinks(
    name: str, recompute: str
) -> None:
    workload = build_training(load_model(name), recompute=recompute)  # type: ignore[arg-type]
    for layer in workload.layers:
        for graph in layer.graphs.values():
            assert all(i < j for i, j in graph.edges)
            assert len(set(graph.edges)) == len(graph.edges)
            names = [op.name for op in graph.ops]
            assert len(set(names)) == len(names)
            for op, after in zip(graph.ops, graph.successors, strict=True):
                assert op.phase != "weight_gradient" or not after


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_type_can_be_cut_in_every_way(kind: str) -> None:
    fields = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    fields |= {"vocab_size": 100, "num_experts": 4, "num_experts_per_tok": 2}
    model = model_from_config({**fields, "model_type": kind}, name=kind)
    whole = build_training(model, sequence_length=32)
    for recompute, spread in itertools.product(MODES, (False, True)):
        part = build_training(
            model,
            sequence_length=32,
            tensor_parallel=2,
            sequence_parallel=spread,
            recompute=recompute,  # type: ignore[arg-type]
        )
        assert part.flops >= whole.flops / 2
        assert part.parameters < whole.parameters
        for layer in part.layers:
            assert all(i < j for graph in layer.graphs.values() for i, j in graph.edges)
            assert layer.stash_bytes <= layer.activation_bytes or recompute == "full"


def test_every_product_has_both_gradients_with_the_same_work() -> None:
    for name in ("gpt3-175b", "llama2-70b", "t5-base", "mixtral-8x7b"):
        workload = build_training(load_model(name), microbatch=2)
        for layer in workload.layers[1:]:
            assert layer.backward.tensor_flops == 2 * layer.forward.tensor_flops
            work = {op.name: op.macs for op in layer.backward.ops}
            for op in layer.forward.ops:
                if op.engine == "tensor":
                    kinds = ("da.", "db.") if op.op_type == "bmm" else ("d.", "dw.")
                    assert [work[kind + op.name] for kind in kinds] == [op.macs, op.macs]


def test_products_have_the_right_dims_and_keep_the_microbatch() -> None:
    ops = {op.name: op for op in build_training(GPT3, microbatch=4).layers[1].forward.ops}
    heads, size, s, h = 96, 128, 2048, GPT3.hidden
    dims = {name: (op.batch, op.m, op.n, op.k) for name, op in ops.items() if op.m}
    assert dims["qkv"] == (1, 4 * s, 3 * h, h)
    assert dims["scores"] == (4 * heads, s, s, size)
    assert dims["context"] == (4 * heads, s, size, s)
    assert dims["down"] == (1, 4 * s, h, 4 * h)


def test_grouped_queries_share_keys_without_changing_the_work() -> None:
    model = load_model("llama2-70b")
    layer = build_training(model).layers[1]
    ops = {op.name: op for op in layer.forward.ops}
    assert (ops["scores"].batch, ops["scores"].m) == (8, 8 * 4096)
    assert ops["scores"].macs == 64 * 4096**2 * 128
    assert ops["key"].n == 8 * 128
    wide = build_training(model, tensor_parallel=16).layers[1].forward
    assert next(op for op in wide.ops if op.name == "key").n == 128  # one head on two devices


def test_a_mixture_computes_the_chosen_experts_and_keeps_all_weights() -> None:
    model = load_model("mixtral-8x7b")
    layer = build_training(model, microbatch=2).layers[1]
    tokens = 2 * model.sequence
    ops = {op.name: op for op in layer.forward.ops}
    assert ops["expert_up"].macs == 2 * tokens * model.hidden * model.intermediate
    assert ops["expert_up"].batch == 8
    assert ops["expert_up"].read_bytes > 2 * 8 * model.hidden * model.intermediate


def test_a_dense_model_needs_six_flops_a_weight_and_token_besides_attention() -> None:
    model = load_model("llama2-7b")
    workload = build_training(model)
    table = model.vocabulary * model.hidden  # looking up is no product
    norms = (2 * model.layers + 1) * model.hidden
    attention = 12 * model.layers * model.hidden * model.sequence
    closed = 6 * (model.parameters - table - norms) + attention
    assert workload.flops == closed * model.sequence


def test_operators_per_layer_beside_the_papers_table_4() -> None:
    # PHAZE, table 4, counts fx nodes, views and reshapes included: 131 for Megatron's GPT layers,
    # 89 for its BERT, 101 GPT-2, 34 BERT, 63 OPT. Ours hold only what computes or moves.
    counts = {
        name: len(build_training(load_model(name), tensor_parallel=t).layers[1].forward)
        for name, t in (("gpt3-175b", 4), ("gpt2-xl", 1), ("bert-large", 1), ("opt-350m", 1))
    }
    assert counts == {"gpt3-175b": 18, "gpt2-xl": 16, "bert-large": 18, "opt-350m": 17}


def test_state_is_eighteen_bytes_a_weight_in_megatrons_precision() -> None:
    layer = build_training(GPT3).layers[1]
    assert layer.state_bytes == 18 * layer.parameters
    half = build_training(GPT3, precision="mixed16").layers[1]
    assert half.state_bytes == 16 * half.parameters
    paper = build_training(GPT3, precision="paper", optimizer="sgd").layers[1]
    assert (paper.state_bytes, paper.optimizer_bytes) == (4 * paper.parameters, 0)
    assert build_training(GPT3, precision=PRECISIONS["mixed"]).layers[1] == layer


def test_without_weight_gradients_the_backward_work_equals_the_forward_work() -> None:
    model = model_from_config(
        {"model_type": "megatron_gpt", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128},
        name="small",
    )
    layer = build_training(model, weight_gradients=False).layers[1]
    attention = sum(op.tensor_flops for op in layer.forward.ops if op.op_type == "bmm")
    assert layer.backward.tensor_flops == layer.forward.tensor_flops + attention
    assert not layer.update.ops
    assert all(op.phase != "weight_gradient" for op in layer.backward.ops)


def test_the_chain_of_an_encoder_decoder_carries_the_encoders_output() -> None:
    workload = build_training(load_model("t5-base"))
    names = [workload.layers[kind].name for kind in workload.chain]
    assert names == ["embedding", *["encoder"] * 12, "decoder_embedding", *["decoder"] * 12, "head"]
    encoder, decoder = workload.layers[1], workload.layers[3]
    assert decoder.boundary_bytes == 2 * encoder.boundary_bytes


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"tensor_parallel": 5}, "tensor_parallel", "do not divide the 96 heads"),
        ({"tensor_parallel": 0}, "tensor_parallel", "0 devices"),
        ({"microbatch": 0}, "microbatch", "must be positive"),
        ({"recompute": "some"}, "recompute", "none, selective"),
        ({"sequence_length": 4096}, "sequence_length", "1 to 2048 tokens"),
        ({"precision": "fp8"}, "precision", "unknown precision 'fp8'"),
        ({"optimizer": "lion"}, "optimizer", "unknown optimizer"),
        (
            {"tensor_parallel": 32, "sequence_parallel": True, "sequence_length": 100},
            "sequence_parallel",
            "do not divide 100 tokens",
        ),
    ],
)
def test_a_cut_that_does_not_fit_is_refused(
    options: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        build_training(GPT3, **options)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert words in str(caught.value)


def test_an_attention_window_shorter_than_the_sequence_is_refused() -> None:
    model = load_model("mistral-7b")
    assert build_training(model).sequence == 4096
    with pytest.raises(InputError, match="windows"):
        build_training(model, sequence_length=8192)


def test_dropout_and_masks_follow_the_configuration() -> None:
    base = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 128}

    def kept(model: ModelConfig) -> tuple[int, int]:
        layer = build_training(model, sequence_length=32).layers[1]
        dropouts = sum(op.op_type == "dropout" for op in layer.forward.ops)
        return dropouts, layer.stash_bytes

    some = kept(model_from_config(base, name="some"))
    none = kept(model_from_config({**base, "attn_pdrop": 0.0, "resid_pdrop": 0.0}, name="none"))
    tokens, squares = 32 * 64, 4 * 32 * 32
    assert (some[0], none[0]) == (3, 0)
    assert some[1] - none[1] == 2 * tokens + squares + 2 * squares  # masks, and a dropped copy
