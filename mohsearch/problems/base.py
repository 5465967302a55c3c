"""Search problems: a declaration (card) plus one vectorised hook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from pymoo.core.problem import Problem

from mohsearch.core.cards import Card
from mohsearch.core.errors import UnknownNameError

Sense = Literal["min", "max"]
BoxKind = Literal["real", "integer", "categorical"]


class VariableCard(Card):
    """One block of decision variables."""

    name: str
    kind: Literal["integer", "categorical", "permutation", "fraction", "real"]
    unit: str = "1"
    description: str
    bounds: tuple[float, float] | None = None
    values: tuple[str, ...] | None = None


class MetricCard(Card):
    """One metric a problem reports."""

    name: str
    unit: str
    sense: Sense
    description: str


class BudgetCard(Card):
    """Default budget of a search."""

    population: int
    generations: int


class ProblemCard(Card):
    """The declaration of a problem, ``problems/<slug>.yaml``."""

    slug: str
    title: str
    description: str
    reference: str
    variables: tuple[VariableCard, ...]
    metrics: tuple[MetricCard, ...]
    objectives: tuple[str, ...]
    constraints: tuple[MetricCard, ...] = ()
    budget: BudgetCard

    @model_validator(mode="after")
    def _objectives_are_metrics(self) -> ProblemCard:
        known = {m.name for m in self.metrics}
        for name in self.objectives:
            if name not in known:
                raise ValueError(f"objective {name!r} is no metric of {self.slug}")
        return self

    def metric(self, name: str) -> MetricCard:
        """Return the declaration of one metric.

        Raises
        ------
        UnknownNameError
            If the problem reports no such metric.
        """
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise UnknownNameError("metric", name, [m.name for m in self.metrics])


@dataclass(frozen=True)
class Box:
    """Independent variables that stand for a genome, for methods that vary each on its own.

    Attributes
    ----------
    names
        One per variable, for tables and logs.
    lower, upper : (d,)
        Inclusive bounds.
    kinds
        What each variable is; integers and categories take whole numbers only.
    genomes
        Turns variables (n, d) into genomes (n, n_var).
    start : (d,), optional
        Where a local method may begin; default the middle of the box.
    step : (d,), optional
        Sensible first steps of a local method; default a quarter of each range.
    """

    names: tuple[str, ...]
    lower: NDArray[Any]
    upper: NDArray[Any]
    kinds: tuple[BoxKind, ...]
    genomes: Callable[[NDArray[Any]], NDArray[Any]]
    start: NDArray[Any] | None = None
    step: NDArray[Any] | None = None


class SearchProblem(Problem):  # type: ignore[misc]  # pymoo ships no types
    """A pymoo problem over one fixed-length numeric genome with named metrics.

    Subclasses implement :meth:`metrics`, :meth:`decode` and :meth:`digest`, and where one exists
    :meth:`ideal_point`. Objectives to be maximised are negated on their way into ``out["F"]``;
    :meth:`metrics` and :meth:`decode` always use natural signs.

    Parameters
    ----------
    card
        The problem's declaration.
    lower, upper
        Inclusive bounds of each gene, shape ``(n_var,)``.
    objectives
        Names of the metrics to optimise (default: the card's).
    """

    def __init__(
        self,
        card: ProblemCard,
        lower: NDArray[Any],
        upper: NDArray[Any],
        objectives: Sequence[str] | None = None,
        vtype: type = int,
    ) -> None:
        self.card = card
        self.objective_cards = tuple(card.metric(n) for n in (objectives or card.objectives))
        self.signs = np.array([1.0 if m.sense == "min" else -1.0 for m in self.objective_cards])
        super().__init__(
            n_var=len(lower),
            n_obj=len(self.objective_cards),
            n_ieq_constr=len(card.constraints),
            xl=np.asarray(lower),
            xu=np.asarray(upper),
            vtype=vtype,
        )

    @abstractmethod
    def metrics(self, X: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """Return every declared metric and constraint for genomes ``X`` of shape (n, n_var)."""

    @abstractmethod
    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return the design that genome ``x`` stands for, as plain JSON types."""

    @abstractmethod
    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""

    def ideal_point(self) -> dict[str, float]:
        """Return provable best values by metric name (lower bounds of minimised ones).

        Empty where no proof is known.
        """
        return {}

    def box(self) -> Box | None:
        """Return independent variables that stand for a genome; None where genes depend.

        By default the genes themselves, where all are integers or categories and no ``space`` ties
        them together.
        """
        kinds = {variable.kind for variable in self.card.variables}
        if getattr(self, "space", None) is not None or not kinds <= {"integer", "categorical"}:
            return None
        return Box(
            names=tuple(f"gene{i}" for i in range(self.n_var)),
            lower=np.asarray(self.xl),
            upper=np.asarray(self.xu),
            kinds=("integer",) * self.n_var,
            genomes=lambda Z: np.asarray(Z, dtype=np.int64),
        )

    def certificate(self) -> dict[str, Any]:
        """Return what is proven about inner optimisations, as plain JSON types."""
        return {}

    def _evaluate(self, X: NDArray[Any], out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        values = self.metrics(X)
        columns = [values[m.name] for m in self.objective_cards]
        out["F"] = np.column_stack(columns) * self.signs
        if self.card.constraints:
            out["G"] = np.column_stack([values[c.name] for c in self.card.constraints])
