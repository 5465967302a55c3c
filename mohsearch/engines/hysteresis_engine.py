"""The published search of PHAZE: architectures by falling area until the trend falls.

Source: PHAZE, appendix C.1 and algorithm 1. A problem takes part by ``exploration()``: all genomes
in the order of their areas, with the number of the search each belongs to (one for each setting of
microbatch, memory and recomputation) and of its bin of equal area. A search ends after a bin when
the values of its last ``level`` bins do not rise: the value of a bin is the best of its genomes,
and a bin without a feasible one ranks below all others. The rule is a test for a run of falls in
what is nearly noise; a level below the paper's 6 may stop long before the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card
from mohsearch.core.errors import InputError
from mohsearch.engines.engine import Capabilities, Engine, FloatArray, IntArray


class HysteresisOptions(Card):
    """Options of the published search."""

    level: int = Field(
        default=6,
        ge=1,
        description="Bins in a row without a rise that end a search (paper: 6, its program: 5).",
    )


@dataclass
class _AreaSearch:
    """One search under way: its genomes by bin, and the value of every bin done."""

    bins: list[IntArray]
    values: list[float] = field(default_factory=list)
    waiting: int = 0
    ended: bool = False


class HysteresisEngine(Engine):
    """Area-ordered exploration with the hysteresis rule, all searches side by side."""

    algorithms: ClassVar = {
        "hysteresis": Capabilities(
            "designs by falling area until the last few bins do not rise; PHAZE",
            max_objectives=1,
            operators=(),
        )
    }
    default_algorithm = "hysteresis"
    seeded = False
    options_card = HysteresisOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        exploration = getattr(self.problem, "exploration", None)
        if exploration is None:
            raise InputError("phaze-hysteresis needs a problem that orders its designs by area")
        X, search, number = exploration()
        self._X = np.asarray(X)
        self._searches = [
            _AreaSearch(_split(np.flatnonzero(search == s), number)) for s in np.unique(search)
        ]
        self._queue: list[tuple[int, int]] = []
        self._asked: list[tuple[int, int]] = []
        self._batch = np.empty((0, self.problem.n_var), dtype=self.seen.dtype)

    def ask(self, k: int) -> NDArray[Any]:
        """Return genomes of the next bin of every search that has not ended, at most ``k``."""
        if not self._queue:
            for s, one in enumerate(self._searches):
                if not one.ended:
                    ids = one.bins[len(one.values)]
                    one.waiting = len(ids)
                    one.values.append(-np.inf)
                    self._queue += [(s, int(i)) for i in ids]
        self._asked, self._queue = self._queue[:k], self._queue[k:]
        self._batch = self._X[[i for _, i in self._asked]]
        return self._batch

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Raise the bins' values; end the searches whose rule is met."""
        values = np.where((G <= 0).all(axis=1), -F[:, 0], -np.inf)
        for (s, _), value in zip(self._asked, values.tolist(), strict=True):
            one = self._searches[s]
            one.values[-1] = max(one.values[-1], value)
            one.waiting -= 1
            if one.waiting == 0:
                one.ended = self._stops(one.values) or len(one.values) == len(one.bins)

    def population(self) -> NDArray[Any]:
        """Return the last batch."""
        return self._batch

    def report(self) -> dict[str, Any]:
        """Return how far each search went."""
        return {
            "level": self.options.level,
            "bins_explored": [len(one.values) for one in self._searches],
            "bins": [len(one.bins) for one in self._searches],
            "ended": [one.ended for one in self._searches],
        }

    def _stops(self, values: list[float]) -> bool:
        last = values[-self.options.level :]
        if len(last) < self.options.level:
            return False
        return all(a >= b for a, b in pairwise(last))


def _split(ids: IntArray, number: IntArray) -> list[IntArray]:
    """Return the ids of each bin, in order."""
    numbers = number[ids]
    starts = np.flatnonzero(np.diff(numbers)) + 1
    return np.split(ids, starts)
