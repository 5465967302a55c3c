"""Fresh samples that repeat no genome."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.engines.duplicates import GenomeIndex
from mohsearch.engines.engine import Searchable

ATTEMPTS = 10


def fresh_samples(
    problem: Searchable,
    sampling: Any,
    count: int,
    rng: np.random.Generator,
    seen: GenomeIndex,
    taken: set[bytes],
) -> NDArray[Any]:
    """Draw up to ``count`` genomes that are neither in ``seen`` nor in ``taken``.

    What is drawn is added to ``taken``. Gives up after ten draws in a row without anything new.

    Parameters
    ----------
    sampling
        A pymoo ``Sampling``.
    """
    rows: list[NDArray[Any]] = []
    failures = 0
    while len(rows) < count and failures < ATTEMPTS:
        drawn = sampling.do(problem, count - len(rows), random_state=rng).get("X")
        before = len(rows)
        for row, key in zip(drawn, seen.keys(drawn), strict=True):
            if key not in seen and key not in taken and len(rows) < count:
                taken.add(key)
                rows.append(row)
        failures = failures + 1 if len(rows) == before else 0
    return np.stack(rows) if rows else np.empty((0, problem.n_var))
