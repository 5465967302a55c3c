"""The parts of the training-time model against second formulations."""

from __future__ import annotations

import csv
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.training_time.cards import (
    ClusterCard,
    cluster_names,
    load_cluster,
    load_constants,
)
from mohsearch.evaluators.training_time.cases import TrainingRuns
from mohsearch.evaluators.training_time.layers import LayerTimes
from mohsearch.evaluators.training_time.memory import (
    STATE_BYTES,
    device_memory,
    layer_activation_bytes,
    layer_parameters,
)
from mohsearch.evaluators.training_time.network import STEP_LATENCY_S
from mohsearch.evaluators.training_time.predict import (
    model_flop,
    pipeline_seconds,
    predict_training,
)
from mohsearch.evaluators.training_time.products import SPLITS, TILES, DeviceRates, product_seconds
from mohsearch.evaluators.training_time.reading import read_training_cases
from mohsearch.workloads.hf_config import megatron_model
from mohsearch.workloads.training import build_training

REFERENCE = builtin_root() / "evaluators" / "reference" / "phaze"
SWITCHES = {"gated", "untied", "sequence_parallel", "flash_attention", "gpipe", "full_shard"}
SWITCHES |= {"overlap_sync", "overlap_tensor", "shard_optimizer"}
GPT3 = {
    "hidden": 12288, "layers": 96, "heads": 96, "kv_heads": 96, "intermediate": 49152,
    "vocabulary": 51200, "sequence": 2048, "gated": False, "untied": False,
    "tensor": 8, "pipeline": 8, "data": 2,
    "virtual_stages": 1, "microbatch": 1, "batch": 128, "recompute": 2, "sequence_parallel": False,
    "flash_attention": False, "overlap_sync": False, "overlap_tensor": False,
    "gpipe": False, "shard_optimizer": False, "full_shard": False,
    "devices_per_node": 8, "network_bytes_per_s": 2e11,
}  # fmt: skip


def runs(*changes):
    rows = [{**GPT3, **change} for change in changes or [{}]]
    return TrainingRuns(
        **{
            key: np.array([row[key] for row in rows], dtype=bool if key in SWITCHES else float)
            for key in GPT3
        }
    )


def predict(*changes, cluster="selene"):
    many = runs(*changes)
    return predict_training(many, [load_cluster(cluster)] * len(many.hidden))


# Products


def literal_product(batch, m, n, k, rates, constants):
    """The same rule, one tile and one split at a time in plain Python."""
    flop, processors, memory = (
        float(x) for x in (rates.tensor_flop_per_s, rates.multiprocessors, rates.memory_bytes_per_s)
    )
    best = math.inf
    for (rows, columns, rate), split in itertools.product(TILES, SPLITS):
        blocks = batch * -(-m // rows) * -(-n // columns) * split
        waves = -(-blocks // processors)
        steps = 32 * -(-(k / split) // 32) + constants.fill_k
        per_tile = 2 * rows * columns * steps * processors
        seconds = waves * per_tile / (flop * rate)
        if split > 1:
            seconds += batch * m * n * (8 * split + 2) / memory
        best = min(best, seconds)
    return max(best, 2 * batch * (m * k + k * n + m * n) / memory)


def test_products_take_the_best_tile_and_split():
    rates = DeviceRates(np.array(3.12e14), np.array(108.0), np.array(1.6e12))
    constants = load_constants()
    generator = np.random.default_rng(7)
    for _ in range(60):
        batch = int(generator.choice([1, 1, 16, 96]))
        m, n, k = (int(x) for x in np.exp(generator.uniform(3, 9.5, 3)))
        found = product_seconds(*(np.array(float(x)) for x in (batch, m, n, k)), rates, constants)
        expected = literal_product(batch, m, n, k, rates, constants)
        assert float(found) == pytest.approx(expected, rel=1e-12)


def test_a_product_just_over_a_full_wave_of_tiles_pays_for_another_wave():
    rates = DeviceRates(np.array(3.12e14), np.array(108.0), np.array(1.6e12))
    one = np.array(1.0)
    sizes = [12 * 256, 12 * 256 + 1]  # by 9 x 128 columns: 108 tiles, one per multiprocessor
    full, over = (
        float(product_seconds(one, m * one, 1152 * one, 8192 * one, rates, load_constants()))
        for m in sizes
    )
    assert over > 1.05 * full


# FLOPs, parameters and activations


def test_model_flop_is_the_published_closed_form():
    small = {"hidden": 6144, "layers": 48, "heads": 64, "kv_heads": 64, "intermediate": 24576}
    many = runs({}, small)
    b, s, h, n, v = many.batch, many.sequence, many.hidden, many.layers, many.vocabulary
    closed = 72 * b * n * s * h**2 * (1 + s / (6 * h) + v / (12 * n * h))
    np.testing.assert_allclose(model_flop(many), closed, rtol=1e-12)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("cut", [False, True])
def test_layers_have_the_parameters_activations_and_flop_of_the_operator_graph(recompute, cut):
    """The closed forms against the sum over the operators that the workload builder makes."""
    model = megatron_model(hidden=6144, layers=48, heads=64, sequence=2048, vocabulary=51200)
    built = build_training(
        model, microbatch=4, tensor_parallel=8, sequence_parallel=cut, recompute=recompute
    )
    layer = next(kind for kind in built.layers if kind.count == 48)
    position = ("none", "selective", "full").index(recompute)
    one = runs(
        {
            "hidden": 6144, "layers": 48, "heads": 64, "kv_heads": 64, "intermediate": 24576,
            "microbatch": 4, "batch": 4, "pipeline": 1, "data": 1, "recompute": position,
            "sequence_parallel": cut,
        }
    )  # fmt: skip
    sliced, whole = layer_parameters(one)
    kept, everything = layer_activation_bytes(one)
    assert layer.parameters == float(sliced[0] / 8 + whole[0])
    assert layer.state_bytes == STATE_BYTES * layer.parameters
    assert layer.stash_bytes == pytest.approx(float(kept[0]))
    assert layer.activation_bytes == pytest.approx(float(everything[0]))
    forward = sum(op.flops for op in layer.forward.ops if op.engine == "tensor")
    head = 2 * 4 * 2048 * 6144 * 51200
    assert 3 * (8 * 48 * forward + head) == pytest.approx(float(model_flop(one)[0]))
    assert model.parameters == float(device_memory(one).parameters[0])


def test_memory_of_the_first_stage_is_the_published_one():
    """Korthikanti et al., figure 1, whose weights leave the embedding out."""
    path = REFERENCE / "training_memory.csv"
    with path.open(newline="") as file:
        published = list(csv.DictReader(file))
    many = read_training_cases(path).runs
    memory = device_memory(many)
    wanted = [float(row["activation_gib"]) for row in published]
    np.testing.assert_allclose(memory.activation_bytes / 2**30, wanted, rtol=1e-12)
    matrices = 12 * many.hidden**2 * many.layers / many.pipeline / many.tensor
    wanted = [float(row["state_gib"]) for row in published]
    np.testing.assert_allclose(STATE_BYTES * matrices / 2**30, wanted, rtol=1e-12)
    assert (memory.state_bytes > STATE_BYTES * matrices).all()
    assert (memory.state_bytes < 1.12 * STATE_BYTES * matrices).all()


# Pipeline


def simulate(forward, backward, microbatches, virtual=1):
    """Run the 1F1B order (interleaved for several virtual stages) event by event."""
    stages = len(forward)
    total = microbatches * virtual
    orders = []
    for stage in range(stages):
        warm = min(stages - stage - 1, total)
        if virtual > 1:
            warm = min(2 * (stages - stage - 1) + (virtual - 1) * stages, total)
            warm = total if microbatches == stages else warm
        forth = [("F", k // stages % virtual, _batch(k, stages, virtual)) for k in range(total)]
        back = [
            ("B", virtual - 1 - k // stages % virtual, _batch(k, stages, virtual))
            for k in range(total)
        ]
        steady = [x for pair in zip(forth[warm:], back, strict=False) for x in pair]
        orders.append(forth[:warm] + steady + back[total - warm :])
    done: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    left = [list(reversed(order)) for order in orders]
    while any(left):
        before = len(done)
        for s in range(stages):
            while left[s]:
                kind, chunk, batch = left[s][-1]
                place = chunk * stages + s
                if kind == "F":
                    waits = [("F", place - 1, batch)] if place else []
                else:
                    end = place == stages * virtual - 1
                    waits = [("F", place, batch) if end else ("B", place + 1, batch)]
                if any(job not in done for job in waits):
                    break
                start = max([free[s], *(done[job] for job in waits)])
                free[s] = start + (forward[s] if kind == "F" else backward[s]) / virtual
                done[kind, place, batch] = free[s]
                left[s].pop()
        assert len(done) > before, "the order deadlocks"
    return max(free)


def _batch(k, stages, virtual):
    return k // (stages * virtual) * stages + k % stages


class NoTransfer:
    def stage_transfer_s(self, size):
        return np.zeros_like(size)


@pytest.mark.parametrize(
    ("stages", "microbatches", "virtual", "head"),
    [
        (1, 3, 1, 0.5),
        (2, 2, 1, 0.0),
        (4, 8, 1, 0.0),
        (4, 8, 1, 2.5),
        (8, 32, 1, 0.7),
        (4, 8, 2, 0.0),
        (4, 4, 3, 0.0),
        (8, 16, 3, 0.0),
        (2, 4, 4, 0.0),
    ],
)
def test_pipeline_time_is_that_of_the_simulated_schedule(stages, microbatches, virtual, head):
    many = runs(
        {
            "layers": 2 * stages * virtual, "pipeline": stages, "data": 1, "batch": microbatches,
            "virtual_stages": virtual,
        }
    )  # fmt: skip
    per_layer = np.array([1.0 / virtual]), np.array([2.0 / virtual])
    layer = LayerTimes(*per_layer, np.array([0.0]), np.array([head]))
    found, bubble = pipeline_seconds(many, layer, NoTransfer())
    forward = [2.0] * (stages - 1) + [2.0 + head / 3]
    backward = [4.0] * (stages - 1) + [4.0 + 2 * head / 3]
    expected = simulate(forward, backward, microbatches, virtual)
    assert float(found[0]) == pytest.approx(expected)
    assert float(bubble[0]) == pytest.approx((stages - 1) * 6 / virtual)


# Direction of every influence


def test_faster_parts_never_make_an_iteration_slower():
    base = load_cluster("selene")
    many = runs({}, {"microbatch": 2, "tensor": 16}, {"pipeline": 1, "data": 16, "batch": 256})

    def seconds(cluster, network=2e11):
        rows = replace(many, network_bytes_per_s=np.full(3, network))
        return predict_training(rows, [cluster] * 3).iteration_s

    def with_device(**change):
        device = base.device.model_copy(update=change)
        return base.model_copy(update={"device": device})

    now = seconds(base)
    memory = with_device(memory_bandwidth_bytes_per_s=4e12)
    tensor = with_device(peak_flop_per_s={"fp16_tensor": 9e14})
    bus = dict.fromkeys((2, 4, 8), 4e11)
    link = base.model_copy(
        update={"card": base.card.model_copy(update={"all_reduce_bytes_per_s": bus})}
    )
    for faster in (seconds(memory), seconds(tensor), seconds(link), seconds(base, 4e11)):
        assert (faster <= now).all()
        assert (faster < now).any()


def test_recomputation_trades_time_for_memory():
    kinds = predict({"recompute": 0}, {"recompute": 1}, {"recompute": 2})
    assert (np.diff(kinds.iteration_s) > 0).all()
    assert (np.diff(kinds.memory.activation_bytes) < 0).all()
    assert kinds.fits.tolist() == [False, True, True]


def test_interleaving_shrinks_the_bubble_and_holds_more():
    plain, folded = ({"virtual_stages": 1}, {"virtual_stages": 3})
    found = predict(plain, folded)
    assert found.bubble_s[1] == pytest.approx(found.bubble_s[0] / 3, rel=0.1)
    assert found.memory.activation_bytes[1] > found.memory.activation_bytes[0]


def test_overlap_hides_gradient_synchronisation_and_gpipe_holds_every_microbatch():
    found = predict({}, {"overlap_sync": True}, {"gpipe": True})
    assert found.sync_s[1] < found.sync_s[0]
    ratio = found.memory.activation_bytes[2] / found.memory.activation_bytes[0]
    assert ratio == pytest.approx(64 / 8)


def test_flash_attention_and_sequence_parallelism_are_faster_and_smaller():
    found = predict(
        {"recompute": 0}, {"recompute": 0, "flash_attention": True},
        {"recompute": 0, "sequence_parallel": True},
    )  # fmt: skip
    assert (found.iteration_s[1:] < found.iteration_s[0]).all()
    assert (found.memory.activation_bytes[1:] < found.memory.activation_bytes[0]).all()


def test_full_sharding_divides_the_state_among_the_replicas():
    wide = {"tensor": 1, "pipeline": 1, "data": 64, "hidden": 4096, "layers": 32, "heads": 32}
    wide |= {"kv_heads": 32, "intermediate": 16384, "batch": 64}
    found = predict(wide, {**wide, "full_shard": True}, {**wide, "shard_optimizer": True})
    state = found.memory.state_bytes
    assert state[1] == pytest.approx(state[0] / 64)
    assert state[2] == pytest.approx(state[0] * (6 + 12 / 64) / 18)
    assert found.sync_s[1] == 0.0
    assert found.sync_s[2] == found.sync_s[0]
    assert found.optimizer_s[2] < found.optimizer_s[0]


def test_a_head_with_a_table_of_its_own_takes_memory_and_time_on_a_single_stage():
    found = predict({"pipeline": 1}, {"pipeline": 1, "untied": True})
    weights = 51200 * 12288
    assert found.memory.parameters[1] - found.memory.parameters[0] == weights
    assert found.memory.state_bytes[1] - found.memory.state_bytes[0] == 18 * weights / 8
    assert found.sync_s[1] > found.sync_s[0]
    assert found.optimizer_s[1] > found.optimizer_s[0]


def test_a_tied_table_is_added_up_between_first_and_last_stage_only():
    found = predict({"data": 1, "batch": 64}, {"data": 1, "batch": 64, "untied": True})
    assert found.memory.state_bytes[0] == found.memory.state_bytes[1]
    assert found.sync_s[0] > found.sync_s[1] == 0.0


def test_random_runs_have_finite_times_that_faster_networks_never_lengthen():
    generator = np.random.default_rng(11)
    rows = []
    for _ in range(400):
        tensor, heads = (int(2 ** generator.integers(0, k)) for k in (5, 4))
        pipeline, data = (int(2 ** generator.integers(0, 6)) for _ in range(2))
        rows.append(
            {
                "tensor": tensor, "heads": 16 * heads, "kv_heads": 16 * heads, "pipeline": pipeline,
                "hidden": 2048 * heads, "intermediate": 8192 * heads, "layers": 64, "data": data,
                "microbatch": int(2 ** generator.integers(0, 4)), "batch": 2048,
                "recompute": int(generator.integers(0, 3)),
                **{switch: bool(generator.random() < 0.3) for switch in SWITCHES - {"full_shard"}},
            }
        )  # fmt: skip
    many = runs(*rows)
    clusters = [load_cluster("selene")] * len(rows)
    now = predict_training(many, clusters)
    faster = predict_training(replace(many, network_bytes_per_s=np.full(400, 4e11)), clusters)
    assert np.isfinite(now.iteration_s).all()
    assert (now.iteration_s > 0).all()
    assert (now.flop_utilization < 0.95).all()
    assert (faster.iteration_s <= now.iteration_s).all()
    assert (faster.iteration_s < now.iteration_s).any()


# Cards


def test_every_cluster_card_is_read_and_its_links_are_physical():
    for name in cluster_names():
        cluster = load_cluster(name)
        card: ClusterCard = cluster.card
        assert card.name == name
        one_way = cluster.device.link_bandwidth_bytes_per_s / 2
        assert max(card.all_reduce_bytes_per_s.values()) <= one_way
        assert 0 < STEP_LATENCY_S < card.all_reduce_latency_s
