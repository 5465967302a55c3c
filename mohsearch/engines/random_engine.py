"""Random search: every generation is a fresh draw from the portfolio's sampling."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.seeds import generator
from mohsearch.engines.engine import Capabilities, Engine, FloatArray
from mohsearch.engines.sampling import fresh_samples


class RandomEngine(Engine):
    """Samples without memory, except that no genome is drawn twice."""

    algorithms: ClassVar = {
        "random": Capabilities("independent draws, no genome twice", operators=("sampling",))
    }
    default_algorithm = "random"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rng = generator(self.seed, "random", "sampling")
        self._batch = np.empty((0, self.problem.n_var))

    def ask(self, k: int) -> NDArray[Any]:
        """Return ``k`` new samples; fewer where ten draws in a row bring nothing new."""
        self._batch = fresh_samples(
            self.problem, self.portfolio.sampling, k, self._rng, self.seen, taken=set()
        )
        return self._batch

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Learn nothing."""

    def population(self) -> NDArray[Any]:
        """Return the last batch."""
        return self._batch
