"""Variation of measured points: genomes are one whole number, the place of a point in its set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling

Integers = NDArray[np.int64]


class AnyPoint(Sampling):  # type: ignore[misc]  # pymoo ships no types
    """Uniform draws among all points."""

    def _do(self, problem: Any, n_samples: int, random_state: Any = None, **_: Any) -> Integers:
        return np.asarray(random_state.integers(len(problem.groups), size=(n_samples, 1)))


class NearPoint(Mutation):  # type: ignore[misc]
    """Another point of the same device and kind; a point alone in its group stays."""

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        children = np.array(X, dtype=np.int64)
        chance = random_state.random(len(children))
        for k, now in enumerate(children[:, 0]):
            others = np.flatnonzero(problem.groups == problem.groups[now])
            others = others[others != now]
            if len(others):
                children[k, 0] = others[int(chance[k] * len(others))]
        return children


class OtherPoint(Mutation):  # type: ignore[misc]
    """Any other point."""

    @staticmethod
    def refusal(problem: Any) -> str | None:
        """Return why the operator cannot act on a problem, None if it can."""
        return None if len(problem.groups) > 1 else "the set has one point"

    def _do(self, problem: Any, X: NDArray[Any], random_state: Any = None, **_: Any) -> Integers:
        count = len(problem.groups)
        step = random_state.integers(1, count, size=np.shape(X))
        return np.asarray((np.asarray(X, dtype=np.int64) + step) % count)
