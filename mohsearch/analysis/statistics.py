"""Tests over seeds: whether one search is better than another, and whether that can be known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

ALPHA = 0.05
"""Level at which a difference counts as shown."""


@dataclass(frozen=True)
class PairTest:
    """Two samples compared.

    Attributes
    ----------
    first, second
        Names of the samples.
    p
        Two-sided Mann-Whitney U: exact without ties, else with the normal approximation.
    p_holm
        The same, corrected for all pairs tested together.
    a12
        Vargha and Delaney's A: the probability that a value of ``first`` exceeds one of ``second``,
        ties counting half.
    least_p_holm
        The smallest ``p_holm`` that samples of these sizes can give: above the level, no result can
        be conclusive.
    """

    first: str
    second: str
    p: float
    p_holm: float
    a12: float
    least_p_holm: float

    @property
    def cliff_delta(self) -> float:
        """Cliff's delta, from -1 to 1: 0 is no difference."""
        return 2.0 * self.a12 - 1.0

    @property
    def size(self) -> str:
        """The effect in words, by the thresholds of Romano et al. 2006 on Cliff's delta."""
        delta = abs(self.cliff_delta)
        for limit, word in ((0.147, "negligible"), (0.33, "small"), (0.474, "medium")):
            if delta < limit:
                return word
        return "large"

    @property
    def verdict(self) -> str:
        """What can be concluded at the level :data:`ALPHA`."""
        if self.least_p_holm > ALPHA:
            return "too few seeds"
        if self.p_holm > ALPHA:
            return "no difference shown"
        return f"{self.first if self.a12 > 0.5 else self.second} is better"


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values corrected for testing all of them (Holm 1979), in their order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def vargha_delaney(first: ArrayLike, second: ArrayLike) -> float:
    """Return Vargha and Delaney's A (2000): how often ``first`` is larger, ties counting half.

    Examples
    --------
    >>> vargha_delaney([3, 4], [1, 3])
    0.875
    """
    a = np.asarray(first, dtype=np.float64)[:, None]
    b = np.asarray(second, dtype=np.float64)[None, :]
    return float(np.mean((a > b) + 0.5 * (a == b)))


def mann_whitney(first: ArrayLike, second: ArrayLike) -> float:
    """Return the two-sided p-value of the Mann-Whitney U test (scipy); 1 where all are equal.

    Examples
    --------
    >>> mann_whitney([1, 2, 3, 4], [5, 6, 7, 8]) == 2 / 70
    True
    """
    from scipy.stats import mannwhitneyu

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    together = np.concatenate([a, b])
    if np.all(together == together[0]):
        return 1.0
    method = "exact" if len(np.unique(together)) == len(together) else "asymptotic"
    return float(mannwhitneyu(a, b, alternative="two-sided", method=method).pvalue)


def least_p(first: int, second: int) -> float:
    """Return the smallest p-value that samples of these sizes can give: all ranks apart.

    Examples
    --------
    >>> round(least_p(3, 3), 3), round(least_p(5, 5), 4)
    (0.1, 0.0079)
    """
    return min(1.0, 2.0 / math.comb(first + second, first))


def seeds_needed(tests: int, alpha: float = ALPHA) -> int:
    """Return the least number of seeds with which ``tests`` pairs can all be told apart.

    Examples
    --------
    >>> seeds_needed(1), seeds_needed(10)
    (4, 6)
    """
    seeds = 2
    while least_p(seeds, seeds) * max(tests, 1) > alpha:
        seeds += 1
    return seeds


def compare_pairs(
    samples: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]] | None = None
) -> tuple[PairTest, ...]:
    """Test pairs of samples against each other, with Holm's correction over all of them.

    Parameters
    ----------
    samples
        Values by name: hypervolumes over seeds, say.
    pairs
        Which to compare (default: each with each).
    """
    chosen = list(combinations(samples, 2)) if pairs is None else list(pairs)
    raw = [mann_whitney(samples[a], samples[b]) for a, b in chosen]
    best = holm([least_p(len(samples[a]), len(samples[b])) for a, b in chosen])
    corrected = holm(raw)
    return tuple(
        PairTest(
            first=a,
            second=b,
            p=raw[k],
            p_holm=float(corrected[k]),
            a12=vargha_delaney(samples[a], samples[b]),
            least_p_holm=float(best[k]),
        )
        for k, (a, b) in enumerate(chosen)
    )


def friedman(table: ArrayLike) -> float:
    """Return the p-value of the Friedman test (scipy) of columns over all rows.

    Parameters
    ----------
    table
        Shape (cases, contenders), at least 2 by 3. NaN where it is smaller.
    """
    from scipy.stats import friedmanchisquare

    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 3:
        return float("nan")
    return float(friedmanchisquare(*values.T).pvalue)
