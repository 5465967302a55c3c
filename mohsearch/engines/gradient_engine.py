"""Projected gradient with exponential averaging: the search of the DeepFlow paper (its SOE).

It needs a problem whose genome has classes of fractions (``problem.space.classes``, each with genes
and a total) and one objective. Each start goes through the steps of equation 6: finite differences
by one-sided perturbation, a step against the normalised gradient, an exponential average of the
points (not of the gradients), and scaling back onto the simplex. All other genes stay as the
portfolio's sampling drew them.

Source: DeepFlow paper, section 7; where text and program (``GD_search.py``, nanocad-lab/DeepFlow at
566c192) differ, the program, with ``normalise: point`` for the text. Unlike in the program, no
point is evaluated twice, so that a step takes one evaluation per fraction and one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card
from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.engines.engine import Capabilities, Engine, FloatArray


class GradientOptions(Card):
    """Settings of the projected gradient; the defaults are the authors'."""

    starts: int = Field(default=10, ge=1, description="Starting points (S in the paper).")
    steps: int = Field(default=100, ge=1, description="Steps from each start (T in the paper).")
    perturbation: float = Field(
        default=1.5, gt=1, description="Factor on one fraction for its finite difference."
    )
    learning_rate: float = Field(
        default=1.0, gt=0, description="Length of a step against the normalised gradient."
    )
    averaging: float = Field(
        default=0.9, ge=0, lt=1, description="Weight of the past in the average of points (beta)."
    )
    floor: float = Field(
        default=0.01, gt=0, description="What a fraction that a step makes negative becomes."
    )
    normalise: Literal["gradient", "point"] = Field(
        default="gradient",
        description="Divide the gradient by its norm, as the program, or the point, as the text.",
    )
    decimals: int | None = Field(
        default=None,
        ge=0,
        description="Round the objective, as the authors' program does in printing it (to 8).",
    )


class GradientEngine(Engine):
    """Projected gradient from several starts, which advance side by side."""

    algorithms: ClassVar = {
        "projected-gradient": Capabilities(
            "finite differences, averaged points, back onto the simplex; DeepFlow paper, section 7",
            max_objectives=1,
            operators=("sampling",),
        )
    }
    default_algorithm = "projected-gradient"
    options_card = GradientOptions
    sequential = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        space = getattr(self.problem, "space", None)
        classes = getattr(space, "classes", None)
        if not classes:
            raise InputError(
                "engine deepflow-gradient needs a problem with fractions to search: deepflow"
            )
        names = [constraint.name for constraint in self.problem.card.constraints]
        remedies = [
            (names.index(name), gene)
            for name, gene in getattr(space, "remedies", ())
            if name in names
        ]
        rng = generator(self.seed, "gradient", "starts")
        points = self.portfolio.sampling.do(
            self.problem, self.options.starts, random_state=rng
        ).get("X")
        self._descents = [
            Descent(np.asarray(x, dtype=np.float64), classes, remedies, self.options)
            for x in points
        ]
        self._asked: list[tuple[Descent, int]] = []

    def ask(self, k: int) -> NDArray[Any]:
        """Return at most ``k`` points that the starts wait for."""
        self._asked = []
        rows: list[FloatArray] = []
        for descent in self._descents:
            count = min(len(descent.waiting), k - len(rows))
            if count > 0:
                self._asked.append((descent, count))
                rows += descent.waiting[:count]
        return np.array(rows) if rows else np.empty((0, self.problem.n_var))

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Hand the values on to their starts, which step when they have all they need."""
        at = 0
        values = F[:, 0]
        if self.options.decimals is not None:
            values = np.round(values, self.options.decimals)
        for descent, count in self._asked:
            descent.take(values[at : at + count], G[at : at + count])
            at += count

    def population(self) -> NDArray[Any]:
        """Return the point that each start stands at."""
        return np.array([descent.evaluated for descent in self._descents])


class Descent:
    """One start on its way.

    Parameters
    ----------
    x
        Where it begins: a genome.
    classes
        Fraction classes: ``genes`` and ``total``.
    remedies
        Pairs (constraint, gene): where the constraint g is above 0, the gene is multiplied by
        1 + g before the point is scaled back.

    Attributes
    ----------
    waiting
        Points to evaluate next: where it stands, then one per perturbed fraction.
    evaluated
        The last point whose value is known (at first where it begins).
    """

    def __init__(
        self,
        x: FloatArray,
        classes: Sequence[Any],
        remedies: Sequence[tuple[int, int]],
        options: GradientOptions,
    ) -> None:
        self.options = options
        self.classes = classes
        self.remedies = remedies
        self.x = x
        self.evaluated = x
        self.genes = np.concatenate([part.genes for part in classes])
        self.average = np.zeros_like(x)
        self.step = 0
        self.best = np.inf
        self._values: list[float] = []
        self._violations = np.empty(0)
        self.waiting: list[FloatArray] = self._points()

    def _points(self) -> list[FloatArray]:
        if self.step >= self.options.steps:
            return [self.x]
        probes = np.tile(self.x, (len(self.genes), 1))
        probes[np.arange(len(self.genes)), self.genes] *= self.options.perturbation
        return [self.x, *probes]

    def take(self, values: FloatArray, G: FloatArray) -> None:
        """Take the values of the first points waiting; step once all have come."""
        if not self._values:
            self._violations = G[0]
            self.evaluated = self.x
            self.best = min(self.best, float(values[0]))
        self._values += values.tolist()
        self.waiting = self.waiting[len(values) :]
        if self.waiting:
            return
        if self.step < self.options.steps:
            self._move(np.array(self._values))
            self.step += 1
            self.waiting = self._points() if np.isfinite(self.x).all() else []
        self._values = []

    def _move(self, values: FloatArray) -> None:
        o = self.options
        here = self.x[self.genes]
        width = (o.perturbation - 1.0) * here
        rise = values[1:] - values[0]
        slope = np.zeros(len(self.x))
        slope[self.genes] = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0.0)
        x = self.x.copy()
        for part in self.classes:
            genes = part.genes
            gradient = slope[genes]
            if o.normalise == "gradient":
                point = x[genes] - o.learning_rate * _unit(gradient)
            else:
                point = _unit(x[genes] - o.learning_rate * gradient)
            point = np.where(point <= 0.0, o.floor, point)
            self.average[genes] = o.averaging * self.average[genes] + (1.0 - o.averaging) * point
            x[genes] = self.average[genes]
        for constraint, gene in self.remedies:
            x[gene] *= 1.0 + max(float(self._violations[constraint]), 0.0)
        for part in self.classes:
            x[part.genes] *= part.total / x[part.genes].sum()
        self.x = x


def _unit(vector: FloatArray) -> FloatArray:
    """Return a vector of length one in the same direction; a zero vector as it is."""
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm > 0.0 else vector
