"""Parameters and bytes per device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mohsearch.evaluators.training_time.cases import Floats, TrainingRuns

STATE_BYTES, OPTIMIZER_STATE_BYTES = 18.0, 12.0
"""Per parameter: weight (2), gradient (4), and weight, first and second moment of Adam (4 each)."""
LOGIT_BYTES = 10.0
"""Per logit of the microbatch at the loss: a half-precision copy, and two in single precision."""


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of the fullest device and parameters of first and last stage, shape (rows,)."""

    parameters: Floats
    """Of the whole model, once."""
    stage_parameters: Floats
    """Of the first stage on one device; with pipelining, the last stage has as many or fewer."""
    state_bytes: Floats
    activation_bytes: Floats
    """Kept from forward to backward passes."""
    working_bytes: Floats
    """Of the layer (or loss) that is being worked on, where it is not among what is kept."""

    @property
    def total_bytes(self) -> Floats:
        """All together."""
        return self.state_bytes + self.activation_bytes + self.working_bytes


def layer_parameters(runs: TrainingRuns) -> tuple[Floats, Floats]:
    """Return parameters of one layer that are cut by tensor parallelism, and that are not."""
    h, f = runs.hidden, runs.intermediate
    joined = h * (1 + 2 * runs.kv_heads / runs.heads)
    up = np.where(runs.gated, 2.0, 1.0)
    cut = h * joined + joined + h * h + up * (f * h + f) + f * h
    return cut, 6 * h  # two layer norms, and the biases after the two sums


def layer_activation_bytes(runs: TrainingRuns) -> tuple[Floats, Floats]:
    """Return bytes one layer keeps per microbatch under the run's mode, and without recomputation.

    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", equations
    1 to 4 and table 2, with the inner feed-forward size free (``4h`` there).
    """
    size = runs.tokens * runs.hidden
    ratio = runs.intermediate / runs.hidden * np.where(runs.gated, 1.5, 1.0)
    cut = (8 + 4 * ratio) / runs.tensor  # 24/t for 4h
    whole = np.where(runs.sequence_parallel, 10 / runs.tensor, 10.0)
    core = 5 * runs.heads * runs.sequence / runs.hidden / runs.tensor
    core = np.where(runs.flash_attention, 0.0, core)
    everything = size * (whole + cut + core)
    edge = np.where(runs.sequence_parallel, runs.tensor, 1.0)
    kept = [everything, size * (whole + cut), 2 * size / edge]
    return np.choose(runs.recompute.astype(np.int64), kept), everything


def device_memory(runs: TrainingRuns) -> DeviceMemory:
    """Return memory of the fullest device: the first stage, or the last with its loss."""
    cut, whole = layer_parameters(runs)
    h = runs.hidden
    most_layers = np.ceil(runs.layers / runs.pipeline)
    table = runs.padded_vocabulary * runs.hidden / runs.tensor
    positions = runs.sequence * runs.hidden
    copied = 2 * (h + 1) * h * (runs.device_kv_heads - runs.kv_heads) / runs.heads
    inner = most_layers * ((cut + copied) / runs.tensor + whole)
    single = runs.pipeline == 1
    own = np.where(runs.untied, 1.0, 0.0)  # the head's table; a last stage has one in any case
    first = inner + (1 + own * single) * table + positions
    norm = 2 * runs.hidden
    tables = (1 + own) * runs.vocabulary * runs.hidden
    total = runs.layers * (cut + whole) + tables + positions + norm
    shard = np.where(runs.full_shard, runs.data, 1.0)
    shared = np.where(runs.shard_optimizer, OPTIMIZER_STATE_BYTES * (1 - 1 / runs.data), 0.0)
    kept, everything = layer_activation_bytes(runs)
    in_flight = _in_flight(runs)
    working = np.where(runs.recompute > 0, everything - kept, 0.0)
    logits = LOGIT_BYTES * runs.tokens * runs.padded_vocabulary / runs.tensor
    first_work = np.maximum(working, np.where(single, logits, 0.0))
    last_kept = most_layers * kept * np.where(runs.gpipe, runs.microbatches, 1.0)
    first_kept = most_layers * kept * in_flight
    last = last_kept + np.maximum(working, logits)
    state = (STATE_BYTES - shared) * first / shard
    gathered = np.where(runs.full_shard, 4 * (cut + whole), 0.0)  # one layer and the next, 2 bytes
    last_fuller = ~single & (last > first_kept + first_work)
    return DeviceMemory(
        parameters=total,
        stage_parameters=first,
        state_bytes=state,
        activation_bytes=np.where(last_fuller, last_kept, first_kept),
        working_bytes=gathered + np.where(last_fuller, np.maximum(working, logits), first_work),
    )


def _in_flight(runs: TrainingRuns) -> Floats:
    """Return how many microbatches' activations of all its layers the first stage holds at most."""
    p, v = runs.pipeline, runs.virtual_stages
    interleaved = p + np.where(v > 1, (p - 1) / v, 0.0)
    return np.where(runs.gpipe, runs.microbatches, np.minimum(interleaved, runs.microbatches))
