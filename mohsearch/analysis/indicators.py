"""Quality of fronts: hypervolume, IGD+, additive epsilon, R2, spread, share dominated.

All functions take *losses*: arrays of shape (points, objectives) in which smaller is better.
Objectives of different size are made comparable by a :class:`Box`, which also fixes the reference
point, so that two numbers are comparable if and only if their boxes are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Losses = NDArray[np.float64]

_CHUNK_ELEMENTS = 1 << 22
"""Pairs compared at once in :func:`dominated_share`: bounds its memory to a few tens of MB."""


@dataclass(frozen=True)
class Box:
    """Normalisation and reference point of an indicator, in the units of the losses.

    Attributes
    ----------
    ideal, nadir
        Shape (objectives,): best and worst value of each objective over the non-dominated points
        of all fronts compared.
    margin
        The reference point lies this share of the box beyond the nadir.
    """

    ideal: Losses
    nadir: Losses
    margin: float = 0.1

    @property
    def span(self) -> Losses:
        """Width of the box; 1 where all fronts agree in an objective."""
        width = self.nadir - self.ideal
        return np.where(width > 0, width, 1.0)

    @property
    def reference(self) -> Losses:
        """The hypervolume's reference point, in the units of the losses."""
        return self.ideal + (1 + self.margin) * self.span

    @property
    def rule(self) -> str:
        """The rule in words, to stand beside every number and picture."""
        return (
            "objectives scaled to [0, 1] between the best and worst values of the non-dominated "
            f"points of all compared runs; reference point at {1 + self.margin:g} in each"
        )

    def normalise(self, losses: ArrayLike) -> Losses:
        """Scale losses so that the ideal is 0 and the nadir 1 in every objective."""
        return (_points(losses) - self.ideal) / self.span


@dataclass(frozen=True)
class Hypervolume:
    """A hypervolume with everything needed to repeat it.

    Attributes
    ----------
    value
        Share of the box between ideal and reference point that is dominated, 0 to 1.
    box
        Normalisation and reference point.
    """

    value: float
    box: Box

    @property
    def rule(self) -> str:
        """The reference-point rule in words."""
        return self.box.rule


def _points(losses: ArrayLike) -> Losses:
    points = np.asarray(losses, dtype=np.float64)
    if points.ndim != 2:
        raise ValueError(f"losses must have shape (points, objectives), got {points.shape}")
    if np.isnan(points).any():
        raise ValueError("losses hold NaN: drop failed evaluations first")
    return points


def nondominated(losses: ArrayLike) -> NDArray[np.bool_]:
    """Return the mask, shape (points,), of points that no other point Pareto-dominates.

    Equal points do not dominate each other: all copies are kept.

    Examples
    --------
    >>> nondominated([[1, 2], [2, 1], [2, 2], [1, 2]]).tolist()
    [True, True, False, True]
    """
    import moocore

    points = _points(losses)
    if not len(points):
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(points, keep_weakly=True), dtype=bool)


def common_box(fronts: Sequence[ArrayLike], margin: float = 0.1) -> Box:
    """Return the box spanned by the non-dominated points of all ``fronts`` together.

    Points with an infinite loss are left out.

    Raises
    ------
    ValueError
        If no front holds a finite point.

    Examples
    --------
    >>> common_box([[[0.0, 4.0]], [[2.0, 0.0], [3.0, 5.0]]]).nadir.tolist()
    [2.0, 4.0]
    """
    points = np.concatenate([_points(front) for front in fronts]) if fronts else np.zeros((0, 1))
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        raise ValueError("no finite point in any front")
    best = points[nondominated(points)]
    return Box(best.min(axis=0), best.max(axis=0), margin)


def hypervolume(losses: ArrayLike, box: Box) -> Hypervolume:
    """Return the share of the box that a front dominates.

    Points beyond the reference point add nothing. Source of the algorithm: moocore (Fonseca,
    Paquete and Lopez-Ibanez 2006).

    Examples
    --------
    >>> box = Box(np.zeros(2), np.ones(2), margin=0.0)
    >>> hypervolume([[0.5, 0.5]], box).value
    0.25
    """
    import moocore

    points = box.normalise(losses)
    reference = np.full(points.shape[1], 1 + box.margin)
    points = points[(points < reference).all(axis=1)]
    if not len(points):
        return Hypervolume(0.0, box)
    points = np.ascontiguousarray(np.maximum(points, 0.0))
    volume = float(moocore.hypervolume(points, ref=reference))
    return Hypervolume(volume / float(np.prod(reference)), box)


def igd_plus(losses: ArrayLike, reference_front: ArrayLike, box: Box) -> float:
    """Return IGD+: the mean distance by which the reference front is missed, in box units.

    Source: Ishibuchi et al. 2015, by moocore. 0 where every reference point is weakly dominated.
    """
    import moocore

    points, target = box.normalise(losses), box.normalise(reference_front)
    return float(moocore.igd_plus(points, ref=target)) if len(points) else float("inf")


def epsilon_additive(losses: ArrayLike, reference_front: ArrayLike, box: Box) -> float:
    """Return the additive epsilon: the least shift that makes a front cover the reference front.

    In box units; 0 or less means the front weakly dominates every reference point (Zitzler 2003).
    """
    import moocore

    points, target = box.normalise(losses), box.normalise(reference_front)
    return float(moocore.epsilon_additive(points, ref=target)) if len(points) else float("inf")


def dominated_share(by: ArrayLike, losses: ArrayLike, *, weakly: bool = False) -> float:
    """Return the share of points in ``losses`` that some point of ``by`` Pareto-dominates.

    With ``weakly=True`` equal points count as covered: Zitzler's C-metric C(by, losses). Without,
    it is the share of Pareto-dominated solutions as in MOHaM figure 12. NaN for an empty front.

    Examples
    --------
    >>> dominated_share([[1, 1]], [[1, 1], [2, 2]])
    0.5
    >>> dominated_share([[1, 1]], [[1, 1], [2, 2]], weakly=True)
    1.0
    """
    winners, points = _points(by), _points(losses)
    if not len(points):
        return float("nan")
    if not len(winners):
        return 0.0
    step = max(1, _CHUNK_ELEMENTS // winners.size)
    covered = 0
    for start in range(0, len(points), step):
        block = points[start : start + step, None, :]
        hit: NDArray[np.bool_] = np.all(winners[None] <= block, axis=2)
        if not weakly:
            hit &= np.any(winners[None] < block, axis=2)
        covered += int(np.count_nonzero(np.any(hit, axis=1)))
    return covered / len(points)


R2_DIRECTIONS = 1000
"""Weight vectors of :func:`r2` above two objectives, at most: the next even spacing below."""


def r2(losses: ArrayLike, box: Box) -> float:
    """Return R2: the mean over weights of the least weighted Chebyshev distance to the ideal.

    In box units, smaller is better. For two objectives the exact integral over all weights
    (Schaepermeier and Kerschke 2025, by moocore); for more the mean over evenly spaced weights of
    the unit simplex (Hansen and Jaszkiewicz 1998; weights by Das and Dennis 1998, from pymoo), at
    most :data:`R2_DIRECTIONS` of them. Infinite for an empty front.

    Examples
    --------
    >>> box = Box(np.zeros(2), np.ones(2))
    >>> r2([[0.0, 0.0]], box)
    0.0
    """
    import moocore

    points = box.normalise(losses)
    points = np.maximum(points[np.isfinite(points).all(axis=1)], 0.0)
    if not len(points):
        return float("inf")
    if points.shape[1] == 2:
        return float(moocore.r2_exact(np.ascontiguousarray(points), ref=np.zeros(2)))
    return r2_sampled(points, simplex_weights(points.shape[1], R2_DIRECTIONS))


def r2_sampled(points: Losses, weights: Losses) -> float:
    """Return the mean over ``weights`` of the least max_j w_j f_j among points with ideal 0."""
    nearest = [float(np.min(np.max(points * w, axis=1))) for w in weights]
    return float(np.mean(nearest))


def simplex_weights(objectives: int, most: int) -> Losses:
    """Return at most ``most`` evenly spaced weights that add to 1, shape (n, objectives)."""
    from mohsearch.engines.directions import reference_directions

    return reference_directions(objectives, most)


def spread(losses: ArrayLike, box: Box) -> float:
    """Return the generalised spread: how unevenly a front covers its extent, smaller is better.

    Source: Zhou et al. 2006; for two objectives it is Deb's Delta with nearest neighbours. The ends
    asked for are the ideal's corners: the best value of each objective in the box with all others
    at the nadir. 0 where all points are equally far from their nearest neighbour and all ends are
    reached. NaN for fewer than two different points.

    Examples
    --------
    >>> box = Box(np.zeros(2), np.ones(2))
    >>> spread([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]], box)
    0.0
    """
    from scipy.spatial.distance import cdist

    points = np.unique(box.normalise(losses), axis=0)
    count, objectives = points.shape
    if count < 2:
        return float("nan")
    ends = 1.0 - np.eye(objectives)
    missed = float(cdist(ends, points).min(axis=1).sum())
    distances = cdist(points, points)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.min(axis=1)
    mean = float(nearest.mean())
    return float((missed + np.abs(nearest - mean).sum()) / (missed + count * mean))


def coverage(by: ArrayLike, losses: ArrayLike) -> float:
    """Return Zitzler's C-metric C(by, losses): the share of ``losses`` weakly dominated.

    Examples
    --------
    >>> coverage([[1, 1]], [[1, 1], [0, 2]])
    0.5
    """
    return dominated_share(by, losses, weakly=True)
