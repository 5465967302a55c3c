"""The door to pycma: CMA-ES on the independent variables that a problem offers.

A problem whose genes depend on each other (fractions that add up) offers a box of variables that
stand for a genome (``problem.box()``); CMA-ES varies those. Whole numbers take part through pycma's
integer handling. When a run has converged, it starts again with twice the population (IPOP), from
another point.

Source: Hansen, "The CMA Evolution Strategy: A Tutorial", 2016; Auger and Hansen 2005 (IPOP).
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import cma
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card
from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.engines.engine import Capabilities, Engine, FloatArray

DEFAULT_STEP = 0.25
"""First step as a part of a variable's range, where the problem says nothing."""


class CmaOptions(Card):
    """Settings of CMA-ES."""

    popsize: int | None = Field(
        default=None, ge=4, description="Points per iteration; 4 + 3 ln(variables) by default."
    )
    sigma: float = Field(
        default=1.0, gt=0, description="First step, in units of the step that the problem suggests."
    )


class CmaEngine(Engine):
    """CMA-ES with restarts, one objective, infeasible points behind all feasible ones.

    That keeps it away from constraints it could do without; along an active one in an
    ill-conditioned valley its steps shrink too early, and the restarts have to make up for it.
    """

    algorithms: ClassVar = {
        "cma-es": Capabilities(
            "adapts the covariance of its steps; restarts with twice the points; Hansen 2016",
            max_objectives=1,
            operators=(),
            max_genes=512,
        )
    }
    default_algorithm = "cma-es"
    options_card = CmaOptions
    sequential = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        box_of = getattr(self.problem, "box", None)
        box = box_of() if box_of is not None else None
        if box is None:
            raise InputError(
                "engine cma varies each variable on its own, and the genes of this problem depend "
                "on each other; able: pymoo, array, random"
            )
        lower, upper = np.asarray(box.lower, float), np.asarray(box.upper, float)
        self._box = box
        self._live = np.flatnonzero(lower < upper)
        if len(self._live) < 2:
            raise InputError("engine cma adapts a covariance and needs at least two free variables")
        self._lower, self._upper = lower, upper
        self._whole = [i for i, kind in enumerate(box.kinds) if kind != "real"]
        step = DEFAULT_STEP * (upper - lower) if box.step is None else box.step
        self._step = np.asarray(step, float)
        self._rng = generator(self.seed, "cma", "restarts")
        state = np.random.RandomState(int(generator(self.seed, "cma").integers(2**32)))
        self._random_state = state.get_state()
        self._restarts = 0
        self._worst = 0.0
        start = (lower + upper) / 2.0 if box.start is None else box.start
        self._strategy = self._begin(np.asarray(start, float))
        self._start_queues()

    def _start_queues(self) -> None:
        self._waiting: list[FloatArray] = []
        self._told: list[FloatArray] = []
        self._values: list[float] = []
        self._violations: list[float] = []
        self._asked: list[FloatArray] = []
        self._batch = np.empty((0, self.problem.n_var))

    def _begin(self, start: FloatArray) -> Any:
        live, o = self._live, self.options
        whole = [i for i, j in enumerate(live) if self._box.kinds[j] != "real"]
        size = o.popsize or 4 + int(3 * np.log(max(len(live), 1)))
        settings = {
            "CMA_stds": self._step[live],
            "bounds": [self._lower[live], self._upper[live]],
            "popsize": size * 2**self._restarts,
            "integer_variables": whole,
            "seed": np.nan,
            "verbose": -9,
            "verb_log": 0,
            "verb_disp": 0,
        }
        with _Borrowed(self), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cma.CMAEvolutionStrategy(start[live], o.sigma, settings)

    def ask(self, k: int) -> NDArray[Any]:
        """Return at most ``k`` points of the current iteration."""
        if not self._waiting:
            with _Borrowed(self):
                self._waiting = list(self._strategy.ask())
        self._asked, self._waiting = self._waiting[:k], self._waiting[k:]
        Z = np.tile((self._lower + self._upper) / 2.0, (len(self._asked), 1))
        Z[:, self._live] = np.clip(
            np.array(self._asked), self._lower[self._live], self._upper[self._live]
        )
        Z[:, self._whole] = np.round(Z[:, self._whole])
        self._batch = np.asarray(self._box.genomes(Z))
        return self._batch

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Adapt to the values once an iteration is complete; restart where it has converged."""
        violation = np.maximum(G, 0.0).sum(axis=1)
        self._worst = max(self._worst, float(np.abs(F[violation <= 0]).max(initial=0.0)))
        self._told += self._asked
        self._values += np.where(violation > 0, np.nan, F[:, 0]).tolist()
        self._violations += violation.tolist()
        if self._waiting:
            return
        values = np.array(self._values)
        behind = np.isnan(values)
        values[behind] = 2.0 * self._worst + 1.0 + np.array(self._violations)[behind]
        with _Borrowed(self), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._strategy.tell(self._told, values.tolist())
            stopped = bool(self._strategy.stop())
        self._told, self._values, self._violations = [], [], []
        if stopped:
            self._restarts += 1
            self._strategy = self._begin(self._rng.uniform(self._lower, self._upper))

    def population(self) -> NDArray[Any]:
        """Return the last batch."""
        return self._batch


class _Borrowed:
    """Context in which NumPy's global generator is this search's own, and put back afterwards.

    pycma draws from the global generator.
    """

    def __init__(self, engine: CmaEngine) -> None:
        self.engine = engine

    def __enter__(self) -> None:
        self.before = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self.engine._random_state)  # noqa: NPY002

    def __exit__(self, *details: Any) -> None:
        self.engine._random_state = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self.before)  # noqa: NPY002
