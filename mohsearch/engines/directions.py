"""Evenly spaced reference directions for decomposition and niching."""

from __future__ import annotations

import math

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.engines.engine import FloatArray


def reference_directions(objectives: int, most: int) -> FloatArray:
    """Return the largest evenly spaced set of at most ``most`` reference directions.

    Das and Dennis 1998: all points of the unit simplex whose coordinates are multiples of 1/p.

    Raises
    ------
    InputError
        If ``most`` is smaller than the number of objectives.

    Examples
    --------
    >>> reference_directions(3, 250).shape
    (231, 3)
    """
    from pymoo.util.ref_dirs import get_reference_directions

    if most < objectives:
        raise InputError(
            f"a population of {most} is too small for reference directions of {objectives} "
            "objectives"
        )
    if objectives == 1:
        return np.ones((1, 1))
    partitions = 1
    while math.comb(partitions + objectives, objectives - 1) <= most:
        partitions += 1
    return np.asarray(
        get_reference_directions("das-dennis", objectives, n_partitions=partitions), dtype=float
    )
