"""What the learned partitioner knows of a graph: features of ops and neighbours, as arrays."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.partition.task import PartitionTask

OP_TYPE_BUCKETS = 32
FEATURES = 17

NEAR = 0.25
"""Chips' worth of work either side of an op within which the narrowest cut is looked for."""


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """A graph on a package as the policy reads it.

    Attributes
    ----------
    features
        float32, shape (n_ops, FEATURES): logarithms of operations, output, weight and input bytes,
        degrees, level, place, share of work before the op, its time against the longest and against
        an equal share, logarithm of the number of ops and of chips; distance of the balanced
        position from the next whole chip; traffic over a cut of the program order before and after
        the op, against a chip's share of work, and the former against the narrowest cut nearby.
    op_type
        int64, shape (n_ops,): bucket of the op type's name, so that unknown types have one too.
    source, target
        int64, shape (edges,).
    position
        float64, shape (n_ops,): share of all work up to the middle of the op.
    chips
        Chips available.
    """

    features: NDArray[np.float32]
    op_type: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    position: NDArray[np.float64]
    chips: int

    @property
    def n_ops(self) -> int:
        """Number of ops."""
        return len(self.op_type)


def graph_inputs(task: PartitionTask) -> GraphInputs:
    """Return the inputs of the policy for a task."""
    graph, n = task.graph, task.n
    source = np.asarray(graph.edge_src, dtype=np.int64)
    target = np.asarray(graph.edge_dst, dtype=np.int64)
    time = np.asarray(task.time_s)
    levels = np.asarray(graph.levels, dtype=np.float64)
    position = np.asarray(task.share_before, dtype=np.float64)
    columns = [
        np.log1p(graph.flops) / 20,
        np.log1p(graph.out_bytes) / 20,
        np.log1p(graph.resident_bytes) / 20,
        np.log1p(graph.in_bytes) / 20,
        np.log1p(np.bincount(target, minlength=n)),
        np.log1p(np.bincount(source, minlength=n)),
        levels / max(levels.max(), 1.0),
        np.arange(n) / n,
        position,
        time / time.max(),
        np.log1p(time * task.chips / time.sum()),
        np.full(n, np.log(n) / 8),
        np.full(n, np.log(task.chips) / 4),
        *_cut_columns(task),
    ]
    buckets = [zlib.crc32(name.encode()) % OP_TYPE_BUCKETS for name in graph.op_types]
    return GraphInputs(
        features=np.stack(columns, axis=1).astype(np.float32),
        op_type=np.asarray(buckets, dtype=np.int64)[np.asarray(graph.op_type)],
        source=source,
        target=target,
        position=position,
        chips=task.chips,
    )


def _cut_columns(task: PartitionTask) -> list[NDArray[np.float64]]:
    """Return what the op's surroundings say about cutting the program order there."""
    n, share_s = task.n, float(task.time_s.sum()) / task.chips
    middle = task.chips * np.asarray(task.share_before, dtype=np.float64) - 0.5
    last = np.arange(n)
    np.maximum.at(last, task.graph.edge_src, task.graph.edge_dst)
    change = np.zeros(n + 2)
    np.add.at(change, np.arange(1, n + 1), task.transfer_bytes)
    np.add.at(change, last + 1, -task.transfer_bytes)
    bytes_before = np.maximum(np.cumsum(change)[: n + 1], 0.0)
    cut = np.log1p(bytes_before / task.package.link.bandwidth_bytes_per_s / share_s)
    first = np.searchsorted(middle, middle - NEAR, side="left")
    beyond = np.searchsorted(middle, middle + NEAR, side="right")
    nearby = np.minimum.reduceat(cut, np.stack([first, beyond], axis=1).ravel())[::2]
    return [middle - np.rint(middle), cut[:-1], cut[1:], cut[:-1] - nearby]
