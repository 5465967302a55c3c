"""What the learned partitioner knows of a graph: features of ops and neighbours, as arrays."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.partition.task import PartitionTask

OP_TYPE_BUCKETS = 32
FEATURES = 13


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """A graph on a package as the policy reads it.

    Attributes
    ----------
    features
        float32, shape (n_ops, FEATURES): logarithms of operations, output, weight and input bytes,
        degrees, level, place, share of work before the op, its time against the longest and against
        an equal share, logarithm of the number of ops and of chips.
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
