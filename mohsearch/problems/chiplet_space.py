"""Genomes of the chiplet search: integer rows that stand for valid partitions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.partition.contiguous import order_from_keys, split_orders
from mohsearch.evaluators.partition.sampler import (
    Mode,
    PartitionSampler,
    balanced_probabilities,
    project,
)
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.problems.chiplet_options import Genome, Repair

Prior = Literal["uniform", "balanced", "cuts"]
Order = Literal["random", "topological"]
Labels = NDArray[np.int64]

MOST_WEIGHT = 1_000_000
MOST_KEY = 30_000
BLUR = 0.02
"""Standard deviation of blurred keys, as a part of their range."""


class PartitionSpace:
    """Layout of genomes, and the way between genomes and partitions.

    A partition gives every op a chip: int64 rows of shape (n_ops,), values 0..chips-1, that satisfy
    constraints 1 to 3. Genomes are integer rows of shape (n_var,):

    ``labels``
        the partition itself;
    ``offsets``
        most chips k to use, then by op the distance of its chip from ``floor(k * position)``;
    ``segments``
        most chips k to use, then by chip a weight: the program order is cut so that the work of the
        chips is in proportion to their weights;
    ``keys``
        most chips k to use, then by op a key: the topological order by least key is split into at
        most k contiguous parts with the least interval, by dynamic programming.

    What offsets and segments say is projected on the partitions whose edges span at most one chip.

    Parameters
    ----------
    task
        Graph and package.
    genome
        Which of the four.
    constraints
        How partitions are sampled and fixed, see
        :class:`~mohsearch.evaluators.partition.sampler.PartitionSampler`.
    repair
        How operators on labels repair: ``fix`` or ``project``.

    Attributes
    ----------
    lower, upper
        Inclusive bounds of the genes, shape (n_var,).
    position
        Share of all work up to the middle of each op, along the program order, shape (n_ops,).
    """

    def __init__(
        self,
        task: PartitionTask,
        genome: Genome,
        constraints: Mode = "ladder",
        repair: Repair = "fix",
    ) -> None:
        self.task = task
        self.genome = genome
        self.repair_mode = repair
        self.n_ops, self.chips = task.n, task.chips
        self._tasks = {task.chips: task}
        self.position = np.asarray(task.share_before, dtype=np.float64)
        self.sampler = PartitionSampler(task, mode=constraints)
        self.lower, self.upper = self._bounds()
        self.n_var = len(self.lower)

    def _bounds(self) -> tuple[Labels, Labels]:
        n, most = self.n_ops, self.chips
        if self.genome == "labels":
            return np.zeros(n, dtype=np.int64), np.full(n, most - 1, dtype=np.int64)
        genes, low, high = {
            "offsets": (n, 1 - most, most - 1),
            "segments": (most, 0, MOST_WEIGHT),
            "keys": (n, 0, MOST_KEY),
        }[self.genome]
        lower = np.r_[1, np.full(genes, low)].astype(np.int64)
        return lower, np.r_[most, np.full(genes, high)].astype(np.int64)

    def partitions(self, X: NDArray[Any]) -> Labels:
        """Return the partitions that genomes X (count, n_var) stand for, shape (count, n_ops).

        Under ``labels`` that is X itself, valid or not.
        """
        rows: Labels = np.asarray(X, dtype=np.int64)
        if self.genome == "labels" or not len(rows):
            return rows.reshape(len(rows), self.n_ops)
        if self.genome == "keys":
            return self._split_orders(rows)
        chips = rows[:, :1]
        if self.genome == "offsets":
            wanted = np.floor(chips * self.position) + rows[:, 1:]
        else:
            wanted = np.stack([self._cut(row) for row in rows]).astype(np.float64)
        return self.project(np.clip(wanted, 0, chips - 1))

    def project(self, wanted: NDArray[Any]) -> Labels:
        """Return the nearest partitions whose edges span at most one chip, shape as ``wanted``."""
        rows = np.ascontiguousarray(wanted, dtype=np.float64)
        return np.asarray(project(self.task, rows), dtype=np.int64)

    def _cut(self, row: Labels) -> Labels:
        ends = np.cumsum(row[1 : 1 + row[0]], dtype=np.float64)
        if ends[-1] <= 0:
            return np.zeros(self.n_ops, dtype=np.int64)
        chips = np.searchsorted(ends, self.position * ends[-1], side="right")
        return np.asarray(np.minimum(chips, row[0] - 1), dtype=np.int64)

    def _split_orders(self, X: Labels) -> Labels:
        orders = order_from_keys(self.task.graph, X[:, 1:])
        out = np.empty((len(X), self.n_ops), dtype=np.int64)
        for chips in np.unique(X[:, 0]).tolist():
            mine = X[:, 0] == chips
            out[mine] = split_orders(self._with_chips(chips), orders[mine])[0]
        return out

    def _with_chips(self, chips: int) -> PartitionTask:
        """Return the task with fewer chips available."""
        if chips not in self._tasks:
            task = self.task
            self._tasks[chips] = PartitionTask(task.graph, task.package, chips, time_s=task.time_s)
        return self._tasks[chips]

    def encode(self, partitions: NDArray[Any], rng: np.random.Generator | None = None) -> Labels:
        """Return genomes that stand for partitions (count, n_ops), shape (count, n_var).

        Exact for labels, and for offsets where no edge spans more than one chip; for segments where
        the program order is cut. Else the genome stands for a partition near the one given. With a
        generator, keys are blurred, so that ops next to each other change places.
        """
        Y: Labels = np.asarray(partitions, dtype=np.int64)
        if self.genome == "labels":
            return Y.copy()
        chips = Y.max(axis=1, keepdims=True) + 1
        if self.genome == "offsets":
            genes = Y - np.floor(chips * self.position).astype(np.int64)
        elif self.genome == "segments":
            genes = np.stack([self._weights(y) for y in Y])
        else:
            rank = np.argsort(np.argsort(Y, axis=1, kind="stable"), axis=1)
            genes = rank * MOST_KEY // self.n_ops
            if rng is not None:
                genes = genes + np.rint(rng.normal(0, BLUR * MOST_KEY, genes.shape)).astype(int)
                genes = np.clip(genes, 0, MOST_KEY)
        return np.concatenate([chips, genes], axis=1)

    def _weights(self, labels: Labels) -> Labels:
        work = np.bincount(labels, weights=self.task.time_s, minlength=self.chips)
        return np.asarray(np.rint(work * (MOST_WEIGHT / work.max())), dtype=np.int64)

    def valid(self, partitions: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which partitions satisfy constraints 1 to 3, shape (count,)."""
        return are_valid(self.task.graph, np.asarray(partitions, dtype=np.int16), self.chips)

    def repair(self, X: NDArray[Any], rng: np.random.Generator) -> Labels:
        """Return genomes within the bounds that stand for valid partitions.

        Only labels may need more than clipping: those that are invalid are fixed as in Algorithm 2
        of the paper (a value stays where the values fixed before it allow it), or projected.
        """
        rows: Labels = np.clip(np.asarray(X, dtype=np.int64), self.lower, self.upper)
        if self.genome == "labels":
            broken = ~self.valid(rows)
            if broken.any():
                bad = rows[broken]
                fixed = self.fix(bad, rng) if self.repair_mode == "fix" else self.project(bad)
                rows[broken] = fixed
        return rows

    def fix(
        self, partitions: NDArray[Any], rng: np.random.Generator, order: Order = "random"
    ) -> Labels:
        """Return valid partitions by the paper's FIX mode (Algorithm 2), shape as given."""
        rows = np.asarray(partitions, dtype=np.int16)
        return np.asarray(self.sampler.fix(rows, rng, order=order).labels, dtype=np.int64)

    def sample(
        self,
        count: int,
        rng: np.random.Generator,
        *,
        prior: Prior = "uniform",
        sigma: float = 1.0,
        order: Order = "random",
        probabilities: NDArray[np.float64] | None = None,
    ) -> Labels:
        """Draw valid partitions, shape (count, n_ops).

        Parameters
        ----------
        prior
            ``uniform`` and ``balanced`` are distributions over chips by op for the paper's SAMPLE
            mode (Algorithm 1): all alike, or normal around the op's balanced position, with
            ``sigma`` in chips. ``cuts`` cuts the program order at random places.
        probabilities
            Given instead of a prior, shape (n_ops, chips).
        """
        if prior == "cuts" and probabilities is None:
            return self._random_cuts(count, rng)
        if probabilities is None and prior == "balanced":
            probabilities = balanced_probabilities(self.task, sigma)
        drawn = self.sampler.sample(count, rng, probabilities=probabilities, order=order)
        return np.asarray(drawn.labels, dtype=np.int64)

    def _random_cuts(self, count: int, rng: np.random.Generator) -> Labels:
        wanted = np.empty((count, self.n_ops))
        for row in wanted:
            chips = int(rng.integers(1, self.chips + 1))
            ends = np.cumsum(rng.dirichlet(np.full(chips, 4.0)))
            row[:] = np.searchsorted(ends, self.position).clip(0, chips - 1)
        return self.project(wanted)
