"""Iteration time of training runs: layers, pipeline, synchronisation, optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mohsearch.evaluators.training_time.cards import (
    TrainingCluster,
    TrainingConstants,
    load_constants,
)
from mohsearch.evaluators.training_time.cases import (
    ClusterRates,
    Flags,
    Floats,
    TrainingRuns,
    cluster_rates,
)
from mohsearch.evaluators.training_time.layers import LayerModel, LayerTimes
from mohsearch.evaluators.training_time.memory import DeviceMemory, device_memory
from mohsearch.evaluators.training_time.network import ClusterNetwork

STEP_S = 2e-3
"""Host time of an iteration outside the layers: data loading, loss scaling, gradient norm."""


@dataclass(frozen=True)
class TrainingPrediction:
    """What was predicted, shape (rows,) each.

    Attributes
    ----------
    iteration_s
        Of one batch, with the optimizer step.
    pipeline_s, bubble_s
        Forward and backward passes of all microbatches; in it, what the busiest stage waits.
    sync_s
        Gradient synchronisation that is not hidden.
    optimizer_s
        The optimizer step.
    memory
        Bytes per device.
    fits
        Whether that is within the device's memory.
    model_flop
        Of one iteration, forward and backward, recomputation left out (as for "MFU").
    flop_utilization
        The same over time, devices and the data sheet's rate.
    """

    iteration_s: Floats
    pipeline_s: Floats
    bubble_s: Floats
    sync_s: Floats
    optimizer_s: Floats
    memory: DeviceMemory
    fits: Flags
    model_flop: Floats
    flop_utilization: Floats

    def parts(self, k: int) -> dict[str, float]:
        """Return the times (seconds), utilisation and memory (bytes) of one row, by name."""
        return {
            "pipeline_s": float(self.pipeline_s[k]),
            "bubble_s": float(self.bubble_s[k]),
            "sync_s": float(self.sync_s[k]),
            "optimizer_s": float(self.optimizer_s[k]),
            "flop_utilization": float(self.flop_utilization[k]),
            "memory_bytes": float(self.memory.total_bytes[k]),
            "state_bytes": float(self.memory.state_bytes[k]),
            "activation_bytes": float(self.memory.activation_bytes[k]),
        }


def predict_training(
    runs: TrainingRuns,
    clusters: Sequence[TrainingCluster],
    constants: TrainingConstants | None = None,
) -> TrainingPrediction:
    """Predict iteration time and memory of many training runs.

    Parameters
    ----------
    runs
        Shape (rows,) each.
    clusters
        The cluster of each row.
    constants
        Default: the calibrated ones.
    """
    constants = constants or load_constants()
    return predict_with_rates(runs, cluster_rates(clusters, constants), constants)


def predict_with_rates(
    runs: TrainingRuns, rates: ClusterRates, constants: TrainingConstants
) -> TrainingPrediction:
    """Predict with rates that were worked out before."""
    network = ClusterNetwork(runs, rates, constants)
    layer = LayerModel(runs, rates, network, constants).times()
    memory = device_memory(runs)
    pipeline, bubble = pipeline_seconds(runs, layer, network)
    sync = _sync_seconds(runs, layer, network, memory, pipeline)
    speed = rates.device.memory_bytes_per_s
    shard = np.where(runs.full_shard | runs.shard_optimizer, runs.data, 1.0)
    optimizer = STEP_S + memory.stage_parameters / shard * constants.optimizer_bytes / speed
    total = pipeline + sync + optimizer
    flop = model_flop(runs)
    devices = runs.tensor * runs.pipeline * runs.data
    return TrainingPrediction(
        iteration_s=total,
        pipeline_s=pipeline,
        bubble_s=bubble,
        sync_s=sync,
        optimizer_s=optimizer,
        memory=memory,
        fits=memory.total_bytes <= rates.memory_bytes,
        model_flop=flop,
        flop_utilization=flop / (total * devices * rates.peak_flop_per_s),
    )


def stage_seconds(
    runs: TrainingRuns, layer: LayerTimes, network: ClusterNetwork
) -> tuple[Floats, Floats]:
    """Return busy time per microbatch of the busiest stage, and of all stages together.

    A device hands over a microbatch once per virtual stage and direction. Layers that the degree
    does not divide go to the first stages, one more each.
    """
    p = runs.pipeline
    transfers = 2 * runs.virtual_stages * network.stage_transfer_s(2 * runs.tokens * runs.hidden)
    work = layer.forward + layer.backward
    most, least = np.ceil(runs.layers / p), np.floor(runs.layers / p)
    inner = most * work + transfers
    first = inner + layer.embedding
    last = least * work + transfers + layer.head
    alone = runs.layers * work + layer.embedding + layer.head
    busiest = np.where(p > 1, np.maximum(first, last), alone)
    together = np.where(
        p > 1, runs.layers * work + layer.embedding + layer.head + p * transfers, alone
    )
    return busiest, together


def pipeline_seconds(
    runs: TrainingRuns, layer: LayerTimes, network: ClusterNetwork
) -> tuple[Floats, Floats]:
    """Return the time of all microbatches of a batch, and what of it the busiest stage waits.

    The busiest stage works on every microbatch; before and after, one chunk passes through the
    other stages. Interleaving makes a chunk ``1/v`` of a stage (Narayanan et al., SC21, section
    2.2.2).
    """
    busiest, together = stage_seconds(runs, layer, network)
    bubble = (together - busiest) / runs.virtual_stages
    steady = runs.microbatches * busiest
    if runs.full_shard.any():
        steady = np.where(runs.full_shard, _sharded_seconds(runs, steady, network), steady)
    return steady + bubble, bubble


def _sharded_seconds(runs: TrainingRuns, compute: Floats, network: ClusterNetwork) -> Floats:
    """Return the time of all microbatches when weights are gathered anew for each.

    Forward and backward pass gather the weights, the backward pass scatters the gradients; all runs
    beside the computation, and the slower one counts.
    """
    size = 2 * device_memory(runs).stage_parameters
    volume = 3 * (runs.data - 1) / runs.data * size
    return np.maximum(compute, runs.microbatches * network.replica_ring_s(volume))


def _sync_seconds(
    runs: TrainingRuns,
    layer: LayerTimes,
    network: ClusterNetwork,
    memory: DeviceMemory,
    pipeline: Floats,
) -> Floats:
    """Return exposed gradient synchronisation: replicas, then a tied embedding's of two stages."""
    replicas = network.gradient_all_reduce_s(2 * memory.stage_parameters)
    last_pass = layer.backward * np.ceil(runs.layers / runs.pipeline)
    replicas = np.where(runs.overlap_sync, np.maximum(replicas - last_pass, 0.0), replicas)
    replicas = np.where(runs.full_shard, 0.0, replicas)
    table = 2 * runs.padded_vocabulary * runs.hidden / runs.tensor
    return replicas + np.where(runs.untied, 0.0, network.tied_embedding_s(table))


def model_flop(runs: TrainingRuns) -> Floats:
    """Return FLOPs of one iteration: three times the products of a forward pass.

    For a feed-forward of ``4h`` this is ``72 B l s h^2 (1 + s/6h + V/12lh)``.
    """
    h = runs.hidden
    joined = h * (1 + 2 * runs.kv_heads / runs.heads)
    inner = np.where(runs.gated, 3.0, 2.0) * runs.intermediate
    per_token = runs.layers * (2 * h * (joined + h + inner) + 4 * runs.sequence * h)
    return 3 * runs.batch * runs.sequence * (per_token + 2 * h * runs.vocabulary)
