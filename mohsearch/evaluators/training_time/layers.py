"""Seconds of one transformer layer, the embedding and the head, per microbatch and device.

A layer is bound by its device or by the host that issues its kernels: eager frameworks take tens of
microseconds per kernel, more than small layers run. Traffic is counted kernel by kernel, as the
fused kernels of Megatron-LM move it (2-byte values, 1-byte dropout masks).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mohsearch.evaluators.training_time.cards import TrainingConstants
from mohsearch.evaluators.training_time.cases import ClusterRates, Floats, TrainingRuns
from mohsearch.evaluators.training_time.network import ClusterNetwork
from mohsearch.evaluators.training_time.products import product_seconds

# Bytes per element of a (tokens x hidden) array that is not cut by tensor parallelism:
# two layer norms (4 each) and two bias-dropout-add (7 each); backward: two layer norms with their
# parameter gradients (10 each), two dropouts with bias gradients (7 each), two sums of gradients
# (6 each).
WHOLE_FORWARD, WHOLE_BACKWARD = 22.0, 46.0
# Bytes per element of the attention's slice of the hidden size: the transposed context; backward:
# its gradient (4), the joined gradient of query, key and value (12), its bias gradient (6).
ATTENTION_FORWARD, ATTENTION_BACKWARD = 4.0, 22.0
# Bytes per element of the feed-forward's inner slice: bias-GELU; backward with bias gradient.
GELU_FORWARD, GELU_BACKWARD = 4.0, 8.0
# Bytes per attention score: scale-mask-softmax (4) and dropout (5); backward 6 and 5.
SCORES_FORWARD, SCORES_BACKWARD = 9.0, 11.0
# The same where the fused softmax cannot run, and scale, mask, casts and softmax are kernels each.
PLAIN_SCORES_FORWARD, PLAIN_SCORES_BACKWARD = 25.0, 21.0
# Adding a weight gradient to the sum so far: two reads and one write of two bytes.
ACCUMULATE = 6.0
# Gradient of the embedding table: filled with zeros, then added to that of the head.
TABLE_BYTES = 8.0
HEAD_BYTES, EMBEDDING_BYTES = 30.0, 20.0

# Kernels per layer (forward, backward), of them in the attention core; a collective is one more.
KERNELS, PLAIN_KERNELS = (15.0, 40.0), (22.0, 48.0)
CORE_KERNELS, PLAIN_CORE_KERNELS, FLASH_KERNELS = 5.0, 12.0, (10.0, 32.0)
COLLECTIVE_KERNELS = 1.0
COLLECTIVE_BLOCKS = 24.0
"""Multiprocessors that a collective inside a node occupies (NCCL's channels on NVSwitch)."""
HEAD_KERNELS, EMBEDDING_KERNELS = 40.0, 20.0
FUSED_SOFTMAX_LIMIT = 2048
"""Longest sequence of Megatron's fused softmax, which also needs heads x batch in fours."""


@dataclass(frozen=True)
class LayerTimes:
    """Seconds per microbatch, shape (rows,)."""

    forward: Floats
    backward: Floats
    """With what is recomputed."""
    embedding: Floats
    head: Floats
    """Both directions; the head with the loss."""


class LayerModel:
    """Times of the parts of every run."""

    def __init__(
        self,
        runs: TrainingRuns,
        rates: ClusterRates,
        network: ClusterNetwork,
        constants: TrainingConstants,
    ) -> None:
        self.runs, self.rates, self.network, self.constants = runs, rates, network, constants
        self.tokens = runs.tokens
        self.one = np.ones_like(self.tokens)
        self.local_heads = runs.microbatch * runs.heads / runs.tensor
        self.head_size = runs.hidden / runs.heads
        self.fused = (
            (self.local_heads % 4 == 0) & (runs.sequence <= FUSED_SOFTMAX_LIMIT)
        ) | runs.flash_attention

    def times(self) -> LayerTimes:
        """Return seconds of layer, embedding and head."""
        forward, backward, core = self._device_times()
        host_forward, host_backward, host_core = self._host_times()
        again = [np.zeros_like(forward), core, forward]
        host_again = [np.zeros_like(forward), host_core, host_forward]
        chosen = self.runs.recompute.astype(np.int64)
        backward = backward + np.choose(chosen, again)
        host_backward = host_backward + np.choose(chosen, host_again)
        return LayerTimes(
            forward=np.maximum(forward, host_forward),
            backward=np.maximum(backward, host_backward),
            embedding=self._embedding(),
            head=self._head(),
        )

    def _products(
        self, *shapes: tuple[Floats, Floats, Floats, Floats], in_memory: bool = True
    ) -> Floats:
        """Return the time of all these products (batch, m, n, k) together."""
        batch, m, n, k = (
            np.stack(np.broadcast_arrays(*parts)) for parts in zip(*shapes, strict=True)
        )
        seconds = product_seconds(
            batch, m, n, k, self.rates.device, self.constants, in_memory=in_memory
        )
        return np.asarray(seconds.sum(axis=0))

    def _attention_core(self) -> tuple[Floats, Floats]:
        """Return the products of scores and values, forward and backward.

        A flash kernel keeps the scores on the chip, leaves out those that a causal mask hides, and
        works the scores out again in the backward pass (Dao et al., FlashAttention, 2022).
        """
        scores = (self.local_heads, self.runs.sequence, self.runs.sequence, self.head_size)
        mixed = (self.local_heads, self.runs.sequence, self.head_size, self.runs.sequence)
        forth, back = self._products(scores, mixed), self._products(scores, mixed, mixed, mixed)
        if not self.runs.flash_attention.any():
            return forth, back
        flash = self._products(scores, mixed, in_memory=False) / 2
        again = self._products(scores, scores, mixed, mixed, mixed, in_memory=False) / 2
        chosen = self.runs.flash_attention
        return np.where(chosen, flash, forth), np.where(chosen, again, back)

    def _linear_shapes(self) -> list[tuple[Floats, Floats, Floats]]:
        """Return (m, n, k) of the layer's matrices, forward."""
        runs, n = self.runs, self.tokens
        joined = runs.hidden * (1 + 2 * runs.device_kv_heads / runs.heads)
        inner = np.where(runs.gated, 2.0, 1.0) * runs.intermediate
        return [
            (n, joined / runs.tensor, runs.hidden),
            (n, runs.hidden, runs.hidden / runs.tensor),
            (n, inner / runs.tensor, runs.hidden),
            (n, runs.hidden, runs.intermediate / runs.tensor),
        ]

    def _device_times(self) -> tuple[Floats, Floats, Floats]:
        """Return forward, backward and attention core, as the device alone would take."""
        runs, speed, gap = (
            self.runs,
            self.rates.device.memory_bytes_per_s,
            self.constants.kernel_gap_s,
        )
        linear = self._linear_shapes()
        forth = self._products(*((self.one, m, n, k) for m, n, k in linear))
        back = self._products(
            *((self.one, m, k, n) for m, n, k in linear),
            *((self.one, k, n, m) for m, n, k in linear),
        )
        core, core_back = self._attention_core()
        per_score, per_score_back = self._score_bytes()
        score_count = self.local_heads * runs.sequence**2
        core = core + score_count * per_score / speed + self._core_kernels() * gap
        core_back = core_back + score_count * per_score_back / speed
        forward_bytes, backward_bytes = self._pass_bytes()
        kernels, back_kernels = self._kernels()
        collective = self.network.tensor_all_reduce_s(2 * self.tokens * runs.hidden)
        forward = forth + core + forward_bytes / speed + 2 * collective
        backward = back + core_back + backward_bytes / speed + self._exposed(collective)
        forward += (kernels - self._core_kernels()) * gap
        return forward, backward + back_kernels * gap, core

    def _exposed(self, collective: Floats) -> Floats:
        """Return what the backward pass waits for its two collectives.

        Megatron-LM of 2022 sums up input gradients while it computes the weight gradients of the
        same matrix (Korthikanti et al., section 6.2): those of query, key and value, and of the
        first of the feed-forward. With sequence parallelism that is the scatter, half of the
        volume; the gather before it is waited for. The products give up what the collective
        occupies.
        """
        both = 2 * collective
        if not self.runs.overlap_tensor.any():
            return both
        alongside = np.where(self.runs.sequence_parallel, collective / 2, collective)
        shapes = self._linear_shapes()
        hidden = sum(
            np.minimum(alongside, self._products((self.one, k, n, m)))
            for m, n, k in (shapes[0], shapes[2])
        )
        free = 1 - COLLECTIVE_BLOCKS / self.rates.device.multiprocessors
        return np.where(self.runs.overlap_tensor, both - np.maximum(free, 0) * hidden, both)

    def _score_bytes(self) -> tuple[Floats, Floats]:
        forward = np.where(self.fused, SCORES_FORWARD, PLAIN_SCORES_FORWARD)
        backward = np.where(self.fused, SCORES_BACKWARD, PLAIN_SCORES_BACKWARD)
        stored = np.where(self.runs.flash_attention, 0.0, 1.0)
        return forward * stored, backward * stored

    def _pass_bytes(self) -> tuple[Floats, Floats]:
        """Return HBM traffic of the element-wise kernels outside the attention core."""
        runs = self.runs
        whole = self.tokens * runs.hidden / np.where(runs.sequence_parallel, runs.tensor, 1.0)
        cut = self.tokens * runs.hidden / runs.tensor
        inner = self.tokens * runs.intermediate / runs.tensor * np.where(runs.gated, 1.5, 1.0)
        forward = WHOLE_FORWARD * whole + ATTENTION_FORWARD * cut + GELU_FORWARD * inner
        backward = WHOLE_BACKWARD * whole + ATTENTION_BACKWARD * cut + GELU_BACKWARD * inner
        matrices = sum(n * k for _, n, k in self._linear_shapes())
        backward += np.where(runs.microbatches > 1, ACCUMULATE * matrices, 0.0)
        return forward, backward

    def _kernels(self) -> tuple[Floats, Floats]:
        runs = self.runs
        collectives = np.where(runs.tensor > 1, 2 * COLLECTIVE_KERNELS, 0.0)
        counts = []
        for fused, plain, flash in zip(KERNELS, PLAIN_KERNELS, FLASH_KERNELS, strict=True):
            stored = np.where(self.fused, fused, plain)
            counts.append(np.where(runs.flash_attention, flash, stored) + collectives)
        return counts[0], counts[1]

    def _core_kernels(self) -> Floats:
        stored = np.where(self.fused, CORE_KERNELS, PLAIN_CORE_KERNELS)
        return np.where(self.runs.flash_attention, 1.0, stored)

    def _host_times(self) -> tuple[Floats, Floats, Floats]:
        kernels, back_kernels = self._kernels()
        host = self.constants.host_s
        return kernels * host, back_kernels * host, self._core_kernels() * host

    def _head(self) -> Floats:
        """Return final norm, logits and loss with their gradients."""
        runs, speed = self.runs, self.rates.device.memory_bytes_per_s
        slice_ = runs.padded_vocabulary / runs.tensor
        products = self._products(
            (self.one, self.tokens, slice_, runs.hidden),
            (self.one, self.tokens, runs.hidden, slice_),
            (self.one, slice_, runs.hidden, self.tokens),
        )
        moved = self.tokens * (slice_ * self.constants.logit_bytes + HEAD_BYTES * runs.hidden)
        moved = moved + np.where(runs.microbatches > 1, ACCUMULATE * slice_ * runs.hidden, 0.0)
        collective = self.network.tensor_all_reduce_s(2 * self.tokens * runs.hidden)
        device = products + moved / speed + 2 * collective
        return np.asarray(np.maximum(device, HEAD_KERNELS * self.constants.host_s))

    def _embedding(self) -> Floats:
        """Return look-up, position, dropout and their gradients."""
        size = self.tokens * self.runs.hidden
        collective = self.network.tensor_all_reduce_s(2 * size)
        table = TABLE_BYTES * self.runs.padded_vocabulary * self.runs.hidden / self.runs.tensor
        moved = EMBEDDING_BYTES * size + table
        device = moved / self.rates.device.memory_bytes_per_s + collective
        return np.asarray(np.maximum(device, EMBEDDING_KERNELS * self.constants.host_s))
