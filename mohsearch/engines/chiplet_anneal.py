"""Simulated annealing of partitions: the paper's, on distributions, and one on labels."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card
from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.engines.engine import Capabilities, Engine, FloatArray

Share = Annotated[float, Field(gt=0, le=1)]


class AnnealOptions(Card):
    """Options of the engine ``chiplet-anneal``."""

    share: Share | None = Field(
        default=None,
        description="Part of the ops changed in a step; 0.1 of distributions, 0.01 of labels.",
    )
    step: Literal["uniform", "neighbour"] = Field(
        default="uniform", description="Labels: a changed op goes to any chip, or to the next one."
    )
    order: Literal["random", "changed-first"] = Field(
        default="random", description="Labels: order in which FIX visits the ops."
    )
    temperature: Annotated[float, Field(ge=0)] = Field(
        default=0.05, description="First temperature, as a part of the best objective so far."
    )
    half_life: Annotated[int, Field(ge=1)] = Field(
        default=100, description="Steps in which the temperature halves."
    )


class AnnealEngine(Engine):
    """One partition a step, accepted by the Metropolis rule on the relative change.

    ``distribution`` is the paper's (section 5.1): the state is a distribution over chips by op, at
    first uniform; a step draws new random distributions for some ops, samples a partition (SAMPLE
    mode) and keeps the new distributions if the partition is accepted. ``labels`` changes the chips
    of some ops of the accepted partition and repairs them (FIX mode). The paper gives neither the
    number of ops nor the temperature.

    Raises
    ------
    InputError
        If the problem's genome is not ``labels``.
    """

    algorithms: ClassVar = {
        "distribution": Capabilities(
            "anneals distributions over chips, SAMPLE mode; Xie et al. 2022",
            max_objectives=1,
            operators=(),
        ),
        "labels": Capabilities(
            "anneals a partition, FIX mode", max_objectives=1, operators=("sampling",)
        ),
    }
    default_algorithm = "distribution"
    options_card: ClassVar = AnnealOptions
    sequential: ClassVar = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._space = partition_space(self.problem, "chiplet-anneal")
        self._rng = generator(self.seed, "chiplet-anneal", self.algorithm)
        share = self.options.share or (0.1 if self.algorithm == "distribution" else 0.01)
        self._changed = max(1, round(share * self._space.n_ops))
        uniform = np.full((self._space.n_ops, self._space.chips), 1.0 / self._space.chips)
        self._probabilities, self._proposed = uniform, uniform
        self._current: NDArray[Any] | None = None
        self._value = self._best = np.inf
        self._steps = 0

    def ask(self, k: int) -> NDArray[Any]:
        """Return the next partition, shape (1, n_ops)."""
        if self.algorithm == "distribution":
            return self._sampled()
        if self._current is None:
            first = self.portfolio.sampling._do(self.problem, 1, random_state=self._rng)
            return np.asarray(first, dtype=self.seen.dtype)
        return self._fixed()

    def _sampled(self) -> NDArray[Any]:
        self._proposed = self._probabilities
        if self._current is not None:
            ops = self._rng.choice(self._space.n_ops, self._changed, replace=False)
            self._proposed = self._probabilities.copy()
            chips = self._space.chips
            self._proposed[ops] = self._rng.dirichlet(np.ones(chips), size=len(ops))
        drawn = self._space.sample(1, self._rng, probabilities=self._proposed)
        return np.asarray(drawn, dtype=self.seen.dtype)

    def _fixed(self) -> NDArray[Any]:
        space, rng = self._space, self._rng
        assert self._current is not None
        labels = np.array(self._current, dtype=np.int64)
        ops = rng.choice(space.n_ops, self._changed, replace=False)
        if self.options.step == "uniform":
            labels[ops] = rng.integers(space.chips, size=len(ops))
        else:
            moved = labels[ops] + rng.choice([-1, 1], size=len(ops))
            labels[ops] = np.clip(moved, 0, space.chips - 1)
        order: Any = "random"
        if self.options.order == "changed-first":
            rest = rng.permutation(np.setdiff1d(np.arange(space.n_ops), ops))
            order = np.concatenate([rng.permutation(ops), rest])
        return np.asarray(space.fix(labels[None], rng, order=order), dtype=self.seen.dtype)

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Accept or reject the partition; an infeasible one only before the first feasible one."""
        feasible = bool((G <= 0).all())
        value = float(F[0, 0]) if feasible else np.inf
        scale = abs(self._best) if np.isfinite(self._best) else 1.0
        heat = self.options.temperature * 0.5 ** (self._steps / self.options.half_life) * scale
        worse = value - self._value if np.isfinite(self._value) else -1.0
        chance = self._rng.random()
        if worse <= 0 or (np.isfinite(worse) and heat > 0 and chance < np.exp(-worse / heat)):
            self._current, self._value = np.array(X[0]), value
            self._probabilities = self._proposed
        self._best = min(self._best, value)
        self._steps += 1

    def population(self) -> NDArray[Any]:
        """Return the accepted partition, shape (1, n_ops)."""
        if self._current is None:
            return np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
        return np.asarray(self._current)[None]


def partition_space(problem: Any, engine: str) -> Any:
    """Return the space of a partition problem whose genomes are the chips of the ops.

    Raises
    ------
    InputError
        If it is another problem or genome.
    """
    space = getattr(problem, "space", None)
    genome = getattr(space, "genome", None)
    if genome != "labels":
        found = f"its genome is {genome!r}" if genome else f"this is {problem.card.slug!r}"
        raise InputError(
            f"engine {engine!r} needs the problem chiplet with the option genome: labels; {found}"
        )
    return space
