"""The best partitions of a search so far, for a policy to imitate (Oh et al. 2018)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Elites:
    """The best distinct partitions seen, at most ``size``; the best comes first.

    Attributes
    ----------
    labels
        int64, shape (k, n_ops).
    rewards
        float64, shape (k,), positive and falling.

    Examples
    --------
    >>> elites = Elites(2)
    >>> elites.add(np.array([[0, 1], [0, 0], [0, 1], [1, 1]]), np.array([0.5, 0.9, 0.5, 0.0]))
    >>> elites.labels.tolist(), elites.rewards.tolist()
    ([[0, 0], [0, 1]], [0.9, 0.5])
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.labels = np.empty((0, 0), dtype=np.int64)
        self.rewards = np.empty(0)

    def add(self, labels: NDArray[np.integer], rewards: NDArray[np.float64]) -> None:
        """Take in partitions (rows, n_ops) with rewards (rows,); those without reward are left."""
        paid = rewards > 0
        rows = np.asarray(labels[paid], dtype=np.int64)
        if len(self.labels):
            rows = np.concatenate([self.labels, rows])
        if not len(rows):
            return
        worth = np.concatenate([self.rewards, rewards[paid]])
        first = np.unique(rows, axis=0, return_index=True)[1]
        best = np.sort(first)[np.argsort(-worth[np.sort(first)], kind="stable")][: self.size]
        self.labels, self.rewards = rows[best], worth[best]
