"""Test functions of real and mixed genomes whose fronts are known in closed form."""

import numpy as np
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.sampling.rnd import FloatRandomSampling

from mohsearch.problems.base import (
    Box,
    BudgetCard,
    MetricCard,
    ProblemCard,
    SearchProblem,
    VariableCard,
)


class Analytic(SearchProblem):
    """A function over reals; ``whole`` genes at the end take whole numbers."""

    def __init__(self, name, genes, objectives, upper=1.0, whole=0):
        metrics = tuple(
            MetricCard(name=f"f{j}", unit="1", sense="min", description="objective")
            for j in range(objectives)
        )
        kind = VariableCard(name="x", kind="real", description="position", bounds=(0, 1))
        card = ProblemCard(
            slug=name,
            title=name,
            description="analytic test function",
            reference="Zitzler, Deb, Thiele 2000; Deb et al. 2002",
            variables=(kind,),
            metrics=metrics,
            objectives=tuple(m.name for m in metrics),
            budget=BudgetCard(population=20, generations=20),
        )
        bounds = np.ones(genes)
        bounds[genes - whole :] = upper
        super().__init__(card, np.zeros(genes), bounds, vtype=float)
        self.whole = whole

    def box(self):
        """All genes vary freely."""
        real = self.n_var - self.whole
        return Box(
            names=tuple(f"x{i}" for i in range(self.n_var)),
            lower=self.xl,
            upper=self.xu,
            kinds=("real",) * real + ("integer",) * self.whole,
            genomes=lambda Z: np.asarray(Z, dtype=float),
        )

    def metrics(self, X):
        """Compute all objectives."""
        return {f"f{j}": column for j, column in enumerate(self.compute(np.asarray(X)))}

    def decode(self, x):
        """Return the row."""
        return {"row": [float(v) for v in x]}

    def digest(self):
        """Return the name: there are no data."""
        return self.card.slug


class Zdt1(Analytic):
    """Zitzler, Deb and Thiele 2000: front f1 = 1 - sqrt(f0)."""

    front = "ZDT1/ZDT4 true front"

    def __init__(self, genes=6):
        super().__init__("zdt1", genes, 2)

    def compute(self, X):
        """Follow the definition."""
        g = 1 + 9 * X[:, 1:].mean(axis=1)
        return X[:, 0], g * (1 - np.sqrt(X[:, 0] / g))


class MixedZdt1(Analytic):
    """As ZDT1, but all genes after the first are whole numbers from 0 to 9, best at 4."""

    front = "ZDT1/ZDT4 true front"

    def __init__(self, genes=6):
        super().__init__("mixed", genes, 2, upper=9.0, whole=genes - 1)

    def compute(self, X):
        """Refuse fractions where whole numbers are due."""
        whole = X[:, 1:]
        assert np.array_equal(whole, np.round(whole)), "a fraction in an integer gene"
        g = 1 + np.abs(whole - 4).mean(axis=1)
        return X[:, 0], g * (1 - np.sqrt(X[:, 0] / g))


class Dtlz2(Analytic):
    """Deb et al. 2002: the front is the octant of the unit sphere."""

    front = "DTLZ2/3/4 3 obj (unit sphere octant)"

    def __init__(self, genes=6):
        super().__init__("dtlz2", genes, 3)

    def compute(self, X):
        """Follow the definition."""
        g = 1 + ((X[:, 2:] - 0.5) ** 2).sum(axis=1)
        a, b = X[:, 0] * np.pi / 2, X[:, 1] * np.pi / 2
        return g * np.cos(a) * np.cos(b), g * np.cos(a) * np.sin(b), g * np.sin(a)


class RoundedSampling(FloatRandomSampling):
    """Uniform draws, rounded where whole numbers are due."""

    def _do(self, problem, n_samples, random_state=None, **kwargs):
        return _rounded(problem, super()._do(problem, n_samples, random_state=random_state))


class RoundedCrossover(SBX):
    """Simulated binary crossover, rounded where whole numbers are due."""

    def _do(self, problem, X, random_state=None, **kwargs):
        return _rounded(problem, super()._do(problem, X, random_state=random_state))


class RoundedMutation(PM):
    """Polynomial mutation, rounded where whole numbers are due."""

    def _do(self, problem, X, random_state=None, **kwargs):
        return _rounded(problem, super()._do(problem, X, random_state=random_state))


def _rounded(problem, X):
    X = np.array(X, dtype=float)
    start = X.shape[-1] - problem.whole
    X[..., start:] = np.round(X[..., start:])
    return X


class Operators:
    """pymoo's operators for reals with their usual settings."""

    def __init__(self):
        self.sampling = RoundedSampling()
        self.crossover = RoundedCrossover(prob=0.9, eta=15)
        self.mutation = RoundedMutation(prob=1.0, eta=20)
        self.immigrants = None
