"""Training runs as columns of numbers: what is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.training_time.cards import TrainingCluster, TrainingConstants
from mohsearch.evaluators.training_time.products import DeviceRates

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class TrainingRuns:
    """Many training runs of decoder-only transformers; every array has shape (rows,).

    Attributes
    ----------
    hidden, layers, heads, kv_heads, intermediate, vocabulary, sequence
        The model.
    gated
        Whether the feed-forward block has a gate (a third matrix).
    untied
        Whether the head has a table of its own instead of the embedding's.
    tensor, pipeline, data
        Parallel degrees.
    virtual_stages
        Groups of layers per device (interleaved 1F1B).
    microbatch, batch
        Sequences per microbatch, and of all replicas together.
    recompute
        0 none, 1 selective (attention core), 2 full.
    sequence_parallel, flash_attention, overlap_sync, overlap_tensor, gpipe, shard_optimizer,
    full_shard
        Switches: layer norms and dropouts cut along the sequence; attention without a stored score
        matrix; gradients synchronised during the backward pass; tensor-parallel collectives of the
        backward pass beside weight gradients; all forward passes before the first backward pass;
        optimizer state, or also weights and gradients, spread over the replicas.
    devices_per_node, network_bytes_per_s
        Of the cluster; bandwidth per node.
    """

    hidden: Floats
    layers: Floats
    heads: Floats
    kv_heads: Floats
    intermediate: Floats
    vocabulary: Floats
    sequence: Floats
    gated: Flags
    untied: Flags
    tensor: Floats
    pipeline: Floats
    data: Floats
    virtual_stages: Floats
    microbatch: Floats
    batch: Floats
    recompute: Floats
    sequence_parallel: Flags
    flash_attention: Flags
    overlap_sync: Flags
    overlap_tensor: Flags
    gpipe: Flags
    shard_optimizer: Flags
    full_shard: Flags
    devices_per_node: Floats
    network_bytes_per_s: Floats

    @property
    def microbatches(self) -> Floats:
        """Microbatches that one pipeline processes per iteration."""
        return self.batch / (self.microbatch * self.data)

    @property
    def tokens(self) -> Floats:
        """Tokens per microbatch."""
        return self.microbatch * self.sequence

    @property
    def device_kv_heads(self) -> Floats:
        """Key-value heads of a tensor-parallel group: each device has one at least."""
        return np.maximum(self.kv_heads, self.tensor)

    @property
    def padded_vocabulary(self) -> Floats:
        """Vocabulary rounded up to 128 rows per tensor-parallel slice, as Megatron pads it."""
        return np.asarray(np.ceil(self.vocabulary / (128 * self.tensor)) * 128 * self.tensor)

    def take(self, rows: NDArray[np.int64]) -> TrainingRuns:
        """Return the runs of these rows."""
        return TrainingRuns(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


@dataclass(frozen=True)
class ClusterRates:
    """Rates of the cluster of each row, shape (rows,)."""

    device: DeviceRates
    memory_bytes: Floats
    peak_flop_per_s: Floats
    node_all_reduce: Floats
    """Bus bandwidth by group size: shape (4, rows) for 1, 2, 4 and 8 or more devices."""
    all_reduce_latency_s: Floats


_GROUPS = (1, 2, 4, 8)


def cluster_rates(
    clusters: Sequence[TrainingCluster], constants: TrainingConstants
) -> ClusterRates:
    """Return the rates of the cluster of every row."""

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    memory = column([c.device.memory_bandwidth_bytes_per_s for c in clusters])
    peak = column([c.device.peak_flop_per_s["fp16_tensor"] for c in clusters])
    return ClusterRates(
        device=DeviceRates(
            tensor_flop_per_s=peak * column([c.card.tensor_efficiency for c in clusters]),
            multiprocessors=column([c.device.multiprocessors for c in clusters]),
            memory_bytes_per_s=memory * constants.memory_efficiency,
        ),
        memory_bytes=column([c.device.memory_bytes for c in clusters]),
        peak_flop_per_s=peak,
        node_all_reduce=np.array(
            [[_bus(c, size) for c in clusters] for size in _GROUPS], dtype=np.float64
        ),
        all_reduce_latency_s=column([c.card.all_reduce_latency_s for c in clusters]),
    )


def _bus(cluster: TrainingCluster, size: int) -> float:
    table = cluster.card.all_reduce_bytes_per_s
    return table[min((n for n in table if n >= size), default=max(table))]
