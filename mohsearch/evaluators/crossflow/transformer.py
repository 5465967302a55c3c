"""Training step of a transformer as a table of operations, under any parallelism strategy.

Kernel parallelism is tensor parallelism over kp1 x kp2 devices (Megatron-LM; with both above one
the collectives run over kp1 and kp2 in turn), dp is data parallelism with a ring all-reduce of the
gradients after the last micro-batch, lp is pipeline parallelism (1F1B). Operators, bytes and memory
come from :mod:`mohsearch.workloads.training`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.kernels import (
    B_DP,
    B_KP1,
    B_KP2,
    B_LP,
    GATHER,
    REDUCE,
    SCATTER,
)
from mohsearch.evaluators.crossflow.layout import FloatArray
from mohsearch.evaluators.crossflow.lstm import P_DP, P_H1, P_H2, P_LP
from mohsearch.evaluators.crossflow.operations import (
    BACKWARD,
    COLLECTIVE,
    EXCHANGE,
    FORWARD,
    OPERATION_COLUMNS,
    PASS,
    PRODUCT,
    UPDATE,
)  # fmt: skip
from mohsearch.workloads.hf_config import ModelConfig, load_model
from mohsearch.workloads.training import TrainingLayer, TrainingWorkload, build_training
from mohsearch.workloads.training_backward import Recompute
from mohsearch.workloads.training_ops import TrainingOp

_MODES = {"all_gather": GATHER, "reduce_scatter": SCATTER, "all_reduce": REDUCE}
Row = tuple[float, float, float, float, float]
"""What, then the four columns of an operation row that depend on it."""


@dataclass(frozen=True)
class Transformer:
    """A transformer in training.

    Attributes
    ----------
    model
        From :func:`mohsearch.workloads.hf_config.load_model`.
    batch_size, microbatch
        Samples of one step over all replicas, and samples that a stage works on at a time.
    sequence_length
        Tokens per sample; the model's own where None.
    recompute, sequence_parallel, precision
        See :func:`mohsearch.workloads.training.build_training`.

    Raises
    ------
    InputError
        If the model cannot be trained so even on one device.

    Examples
    --------
    >>> work = Transformer.named("bert-base", batch_size=32)
    >>> table = work.rows(np.array([-1, 1, 1, -1, 1, 1, -1, 1, 1, 4.0, 2.0]))[1]
    >>> table.shape[1], int(work.samples)
    (8, 32)
    """

    model: ModelConfig
    batch_size: int
    microbatch: int = 1
    sequence_length: int | None = None
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    precision: str = "mixed"

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"must be positive (got {self.batch_size})", field="batch_size")
        self.cut(1)

    @classmethod
    def named(cls, model: str, *, batch_size: int, microbatch: int = 1) -> Transformer:
        """Return a model of the shelf, or of a file, with the other settings at their defaults."""
        return cls(load_model(model), batch_size, microbatch)

    @property
    def samples(self) -> float:
        """Samples per step."""
        return float(self.batch_size)

    def cut(self, tensor_parallel: int) -> TrainingWorkload:
        """Return the operators on one of ``tensor_parallel`` devices."""
        return build_training(
            self.model, microbatch=self.microbatch, tensor_parallel=tensor_parallel,
            sequence_parallel=self.sequence_parallel and tensor_parallel > 1,
            recompute=self.recompute, sequence_length=self.sequence_length,
            precision=self.precision,
        )  # fmt: skip

    def rows(self, plan: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return workload row and operations under a strategy row.

        A strategy that does not fit the model has no stages, which the evaluation reports.
        """
        degrees = (int(plan[P_H1]), int(plan[P_H2]), int(plan[P_DP]), int(plan[P_LP]))
        return _rows(self, *degrees)


@lru_cache(maxsize=4096)
def _rows(
    work: Transformer, kp1: int, kp2: int, dp: int, lp: int
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    nothing = np.zeros(6), np.zeros((1, OPERATION_COLUMNS))
    if dp > work.batch_size:
        return nothing
    try:
        cut = work.cut(kp1 * kp2)
    except InputError:
        # On one device it can be cut (checked before), so the degree does not divide it.
        return nothing
    if lp > len(cut.chain) or len(cut.layers) > OPERATION_COLUMNS:
        return nothing
    micro = math.ceil(math.ceil(work.batch_size / dp) / work.microbatch)
    stages = _stages(cut, lp)
    table = _operations(cut, (kp1, kp2, dp), micro)
    count = len(table)
    send = max(layer.boundary_bytes for layer in cut.layers)
    back = 2.0 * (lp - 1) * micro
    table.append([EXCHANGE, 0.0, 0.0, back, send, B_LP, 0.0, 0.0])
    held = np.zeros((lp, OPERATION_COLUMNS))
    held[:, : len(cut.layers)] = stages
    memory = _memory(cut, stages, micro)
    row = np.array([memory, count, len(cut.layers), lp, micro, send], dtype=np.float64)
    return row, np.vstack([np.array(table, dtype=np.float64), held])


def _operations(
    cut: TrainingWorkload, degrees: tuple[int, int, int], micro: int
) -> list[list[float]]:
    """Return operation rows, equal ones of a segment once."""
    rows: dict[tuple[int, Row], float] = {}
    for kind, layer in enumerate(cut.layers):
        for segment, row in _layer_rows(cut, layer, degrees):
            key = (3 * kind + segment, row)
            rows[key] = rows.get(key, 0.0) + 1.0
    out = []
    for (segment, row), count in rows.items():
        layers = cut.layers[segment // 3].count
        runs = 1 if segment % 3 == UPDATE else micro
        out.append([row[0], float(segment), count, count * layers * runs, *row[1:]])
    return out


def _layer_rows(
    cut: TrainingWorkload, layer: TrainingLayer, degrees: tuple[int, int, int]
) -> Iterator[tuple[int, Row]]:
    """Yield (phase, row) of every operation of one layer."""
    kp1, kp2, dp = degrees
    element = float(cut.precision.element)
    phases = ((FORWARD, layer.forward), (BACKWARD, layer.backward), (UPDATE, layer.update))
    for phase, graph in phases:
        for op in graph.ops:
            for row in _op_rows(op, kp1, kp2, element):
                yield phase, row
    if dp > 1 and layer.parameters:
        yield UPDATE, (COLLECTIVE, layer.gradient_bytes / element, float(dp), B_DP, REDUCE)


def _op_rows(op: TrainingOp, kp1: int, kp2: int, element: float) -> Iterator[Row]:
    if op.engine == "tensor":
        yield PRODUCT, float(op.batch), float(op.m), float(op.k), float(op.n)
    elif op.engine == "collective":
        yield from _tensor_collective(op, kp1, kp2, op.collective_bytes / element)
    else:
        yield PASS, float(op.flops), float(op.read_bytes + op.write_bytes), 1.0, 0.0


def _tensor_collective(op: TrainingOp, kp1: int, kp2: int, numbers: float) -> Iterator[Row]:
    """Yield a collective over kp1 x kp2 devices, in two levels where both are above one."""
    mode = float(_MODES[op.collective])
    one, two = (float(kp1), float(B_KP1)), (float(kp2), float(B_KP2))
    if kp2 == 1:
        yield COLLECTIVE, numbers, *one, mode
    elif kp1 == 1:
        yield COLLECTIVE, numbers, *two, mode
    elif mode == REDUCE:
        yield COLLECTIVE, numbers, *one, SCATTER
        yield COLLECTIVE, numbers / kp1, *two, REDUCE
        yield COLLECTIVE, numbers, *one, GATHER
    else:
        yield COLLECTIVE, numbers, *one, mode
        yield COLLECTIVE, numbers / kp1, *two, mode


def _stages(cut: TrainingWorkload, lp: int) -> np.ndarray:
    """Return (lp, kinds) layers per stage: contiguous, the most work of a stage smallest."""
    work = [
        max(1, layer.forward.tensor_flops + layer.backward.tensor_flops) for layer in cut.layers
    ]
    chain = [work[kind] for kind in cut.chain]
    low, high = max(chain), sum(chain)
    while low < high:
        middle = (low + high) // 2
        if _parts(chain, middle) <= lp:
            high = middle
        else:
            low = middle + 1
    stages = np.zeros((lp, len(cut.layers)))
    stage, load = 0, 0
    for i, kind in enumerate(cut.chain):
        # The layers that are left must still fill the stages that are left.
        starved = len(cut.chain) - i <= lp - 1 - stage and stages[stage].any()
        if load + work[kind] > low or starved:
            stage, load = stage + 1, 0
        stages[stage, kind] += 1
        load += work[kind]
    return stages


def _parts(chain: list[int], most: int) -> int:
    """Return how many contiguous parts of at most ``most`` the chain takes."""
    parts, load = 1, 0
    for work in chain:
        if load + work > most:
            parts, load = parts + 1, 0
        load += work
    return parts


def _memory(cut: TrainingWorkload, stages: np.ndarray, micro: int) -> float:
    """Return the most bytes that a device of any stage needs.

    Stage s of p holds the stash of min(micro-batches, p - s) micro-batches (1F1B), its weights,
    gradients and optimizer state, and what the backward pass of one layer reads.
    """
    state = np.array([layer.state_bytes for layer in cut.layers], dtype=np.float64)
    stash = np.array([layer.stash_bytes for layer in cut.layers], dtype=np.float64)
    active = np.array([layer.activation_bytes for layer in cut.layers], dtype=np.float64)
    flying = np.minimum(micro, len(stages) - np.arange(len(stages)))
    working = np.where(stages > 0, np.maximum(active - stash, 0.0), 0.0).max(axis=1)
    return float((stages @ state + flying * (stages @ stash) + working).max())
