"""pymoo's individuals and populations, made and read a batch at a time.

pymoo's ``Individual`` sets some twenty attributes when it is made and looks a name up twice when it
is read, and a ``Population`` reads its genomes back one by one every time. A :class:`Row` is an
``Individual`` to pymoo's algorithms, and the genomes of a population are gathered once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pymoo.core.individual import Individual
from pymoo.core.population import Population

from mohsearch.engines.engine import FloatArray

_EMPTY = np.empty(0)
_EVALUATED = frozenset(("F", "G", "H"))
_NAMES = frozenset(
    {name for name in dir(Individual) if isinstance(getattr(Individual, name), property)}
    | {"config", "data", "evaluated"}
)


class Row(Individual):  # type: ignore[misc]  # pymoo ships no types
    """An individual that is quick to make and to read.

    Parameters
    ----------
    x
        Genome, shape (n_var,); kept as it is.
    """

    config: ClassVar[dict[str, Any]] = Individual.default_config()
    _F = _G = _H = _dF = _dG = _dH = _ddF = _ddG = _ddH = _EMPTY
    _CV = None
    evaluated: frozenset[str] = frozenset()

    def __init__(self, x: NDArray[Any] = _EMPTY) -> None:
        self._X = x
        self.data: dict[str, Any] = {}

    def get(self, *keys: str) -> Any:
        """Return the value of a name, or a tuple of those of several; None where there is none."""
        if len(keys) != 1:
            return tuple(self.get(key) for key in keys)
        (key,) = keys
        return getattr(self, key) if key in _NAMES else self.data.get(key)

    def set(self, key: str, value: object) -> Row:
        """Set the value of a name."""
        if key in _NAMES:
            setattr(self, key, value)
        else:
            self.data[key] = value
        return self


def population_of(X: NDArray[Any]) -> Population:
    """Return a population of genomes, shape (n, n_var), each a copy of its own."""
    population = np.empty(len(X), dtype=object)
    for k, x in enumerate(X):
        population[k] = Row(x.copy())
    made = population.view(Population)
    made.__dict__["X"] = X
    return made


def genomes(population: Population) -> NDArray[Any]:
    """Return the genomes of a population, shape (n, n_var)."""
    return column(population, "X")


def column(population: Population, name: str) -> NDArray[Any]:
    """Return one value of all individuals; those that do not exist are NaN.

    Gathered at the first call only: neither what is returned nor the individuals' value may be
    changed afterwards.
    """
    kept: NDArray[Any] | None = population.__dict__.get(name)
    if kept is None:
        if name in _NAMES:
            kept = np.array([getattr(one, name) for one in population])
        else:
            kept = np.array([one.data.get(name, np.nan) for one in population])
        population.__dict__[name] = kept
    return kept


def set_values(population: Population, F: FloatArray, G: FloatArray) -> None:
    """Give individuals their objectives and constraints, each of shape (n, number)."""
    violations = np.maximum(G, 0.0).sum(axis=1, keepdims=True)
    for one, f, g, violation in zip(population, F, G, violations, strict=True):
        one.F, one.G, one.CV = f, g, violation
        one.evaluated = _EVALUATED
