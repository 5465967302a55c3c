"""When a search has settled: stability of the non-dominated set.

The criterion follows Roudenko and Schoenauer, "A steady performance stopping criterion for
Pareto-based evolutionary algorithms" (2004), which MOHaM names as its option (section V-C2): the
search has settled when the largest crowding distance in the non-dominated set no longer moves.
The two ends of a front have an infinite crowding distance by definition; only finite distances
count here, since a maximum over all of them would be constant and stop every search at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mohsearch.engines.engine import FloatArray


@dataclass(frozen=True)
class Convergence:
    """Stop when the largest finite crowding distance is steady.

    Attributes
    ----------
    window
        Number of successive generations looked at.
    tolerance
        Largest standard deviation over the window that counts as steady. Crowding distances are
        sums over objectives of gaps relative to the front's extent, so the figure has no unit.
    """

    window: int = 40
    tolerance: float = 0.02

    def reached(self, largest: list[float]) -> bool:
        """Tell whether the figures of all generations so far end in a steady window.

        A generation without any finite distance (fewer than three different points) is not steady.

        Examples
        --------
        >>> Convergence(window=3, tolerance=0.01).reached([0.9, 0.5, 0.5, 0.5])
        True
        >>> Convergence(window=3, tolerance=0.01).reached([float("nan")] * 3)
        False
        """
        if len(largest) < self.window:
            return False
        recent = np.array(largest[-self.window :])
        return bool(np.isfinite(recent).all() and recent.std() <= self.tolerance)


def crowding_distances(F: FloatArray) -> FloatArray:
    """Return the crowding distance of each point of a front, infinite at its ends.

    Parameters
    ----------
    F
        Mutually non-dominated, different objective vectors, shape (n, n_obj).

    Notes
    -----
    Deb et al. 2002 (NSGA-II), section III-B; gaps are divided by the extent of each objective, and
    an objective without extent adds nothing.

    Examples
    --------
    >>> crowding_distances(np.array([[0.0, 4.0], [1.0, 2.0], [4.0, 0.0]])).tolist()
    [inf, 2.0, inf]
    """
    n, m = F.shape
    if n <= 2:
        return np.full(n, np.inf)
    distances = np.zeros(n)
    for j in range(m):
        order = np.argsort(F[:, j], kind="stable")
        column = F[order, j]
        extent = column[-1] - column[0]
        if extent <= 0:
            continue
        gaps = np.empty(n)
        gaps[1:-1] = (column[2:] - column[:-2]) / extent
        gaps[0] = gaps[-1] = np.inf
        distances[order] += gaps
    return distances


def largest_finite_crowding(F: FloatArray) -> float:
    """Return the largest finite crowding distance of a front, NaN where there is none."""
    if len(F) <= 2:
        return float("nan")
    distances = crowding_distances(F)
    finite = distances[np.isfinite(distances)]
    return float(finite.max()) if len(finite) else float("nan")
