"""Portfolios: which operators vary a design, with which probability, each switchable by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling

from mohsearch.core.cards import read_card
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.operators import OPERATORS
from mohsearch.operators.cards import Copies, OperatorCard, ShelfCard
from mohsearch.operators.combined import (
    CombinedCrossover,
    CombinedMutation,
    CombinedSampling,
    Immigrants,
    combine,
)

_BASES = {"sampling": Sampling, "immigrant": Sampling, "crossover": Crossover, "mutation": Mutation}


@dataclass(frozen=True)
class Variation:
    """The operators of a portfolio as pymoo takes them.

    Attributes
    ----------
    sampling, crossover, mutation
        pymoo operators over the whole portfolio.
    repair
        None: children are valid as they come.
    immigrants
        Fresh individuals per generation, or None.
    """

    sampling: CombinedSampling
    crossover: CombinedCrossover
    mutation: CombinedMutation
    repair: None
    immigrants: Immigrants | None


@dataclass(frozen=True)
class Portfolio:
    """A set of operators of one problem, in the order in which they act.

    Attributes
    ----------
    problem
        Slug of the problem.
    name
        Name on the shelf.
    label
        The name with what was switched off, for tables.
    operators
        Cards by operator name.
    source
        File of the shelf, for messages.
    copies
        What becomes of children on which no operator acts; see
        :func:`mohsearch.operators.combined.combine`.
    """

    problem: str
    name: str
    label: str
    operators: dict[str, OperatorCard]
    source: str | None = None
    copies: Copies = "redraw"

    def names(self, *kinds: str) -> list[str]:
        """Return the operators' names, in order; of some kinds if any are given."""
        return [n for n, card in self.operators.items() if not kinds or card.kind in kinds]

    def without(self, *names: str, field: str | None = None) -> Portfolio:
        """Return the portfolio with some operators switched off.

        Raises
        ------
        UnknownNameError
            If the portfolio holds no such operator.
        InputError
            If what is left could not start or not vary a population.
        """
        if not names:
            return self
        self._check_names(names, field)
        left = {n: card for n, card in self.operators.items() if n not in names}
        return self._reduced(left, "without", names, field)

    def only(self, *names: str, field: str | None = None) -> Portfolio:
        """Return the portfolio with no other operators than those named.

        Sampling operators stay unless one of them is named; immigrants go unless named.

        Raises
        ------
        UnknownNameError, InputError
            As :meth:`without`.
        """
        if not names:
            raise InputError("name at least one operator to keep", source=self.source, field=field)
        self._check_names(names, field)
        kept = set(names)
        if not kept & set(self.names("sampling")):
            kept |= set(self.names("sampling"))
        left = {n: card for n, card in self.operators.items() if n in kept}
        return self._reduced(left, "only", names, field)

    def applicable(self, problem: Any) -> Portfolio:
        """Return the portfolio without the operators that cannot be used on a problem."""
        return self.without(*self.refusals(problem))

    def refusals(self, problem: Any) -> dict[str, str]:
        """Return the operators that cannot be used on a problem, with the reason."""
        reasons = {}
        for name, card in self.operators.items():
            refusal = getattr(self._load(name, card), "refusal", None)
            reason = refusal(problem) if refusal is not None else None
            if reason:
                reasons[name] = reason
        return reasons

    def build(self, problem: Any | None = None) -> Variation:
        """Return pymoo operators.

        Parameters
        ----------
        problem
            What they will be used on: operators that cannot be are refused here.

        Raises
        ------
        InputError
            If an operator is refused, or its options do not fit it.
        """
        refused = self.refusals(problem) if problem is not None else {}
        if refused:
            name, reason = next(iter(refused.items()))
            raise InputError(
                f"portfolio {self.label!r}: operator {name!r} cannot be used here: {reason}; "
                f"switch off: {', '.join(refused)}",
                source=self.source,
            )
        made: dict[str, list[tuple[Any, float]]] = {kind: [] for kind in _BASES}
        for name, card in self.operators.items():
            made[card.kind].append(self._make(name, card))
        immigrants = [Immigrants(*pair) for pair in made["immigrant"]]
        if len(immigrants) > 1:
            names = ", ".join(self.names("immigrant"))
            raise InputError(f"more than one immigrant operator: {names}", source=self.source)
        crossover, mutation = combine(made["crossover"], made["mutation"], self.copies)
        return Variation(
            sampling=CombinedSampling(made["sampling"]),
            crossover=crossover,
            mutation=mutation,
            repair=None,
            immigrants=immigrants[0] if immigrants else None,
        )

    def record(self) -> dict[str, Any]:
        """Return all that decides how the portfolio acts, as plain JSON types."""
        keys = {"operator", "kind", "probability", "share", "application", "options"}
        return {
            "problem": self.problem,
            "copies": self.copies,
            "operators": [
                {"name": name, **card.model_dump(mode="json", include=keys)}
                for name, card in self.operators.items()
            ],
        }

    def _load(self, name: str, card: OperatorCard) -> Any:
        where = f"operators.{name}.operator"
        loaded = OPERATORS.load(card.operator, source=self.source, field=where)
        if not (isinstance(loaded, type) and issubclass(loaded, _BASES[card.kind])):
            raise InputError(
                f"{card.operator!r} is no {card.kind} of pymoo", source=self.source, field=where
            )
        return loaded

    def _make(self, name: str, card: OperatorCard) -> tuple[Any, float]:
        """Return the operator and how often it acts on an individual."""
        loaded = self._load(name, card)
        options = dict(card.options)
        rate = card.share if card.probability is None else card.probability
        assert rate is not None  # the card's validator has seen to it
        if card.application == "layer":
            if not getattr(loaded, "per_layer", False):
                raise InputError(
                    "this operator acts on whole individuals",
                    source=self.source,
                    field=f"operators.{name}.application",
                )
            options["layer_probability"] = rate
            rate = 1.0
        try:
            return loaded(**options), rate
        except (TypeError, ValueError) as error:
            field = f"operators.{name}.options"
            raise InputError(str(error), source=self.source, field=field) from error

    def _check_names(self, names: Sequence[str], field: str | None) -> None:
        for name in names:
            if name not in self.operators:
                raise UnknownNameError(
                    f"operator of portfolio {self.name!r}:",
                    name,
                    self.operators,
                    source=self.source,
                    field=field,
                )

    def _reduced(
        self, left: dict[str, OperatorCard], verb: str, names: Sequence[str], field: str | None
    ) -> Portfolio:
        label = f"{self.label} {verb} {', '.join(names)}"
        portfolio = replace(self, operators=left, label=label)
        problem = _nonsense(portfolio)
        if problem:
            raise InputError(f"{label!r} {problem}", source=self.source, field=field)
        return portfolio


def _nonsense(portfolio: Portfolio) -> str | None:
    """Return why a portfolio cannot work, None if it can."""
    if not portfolio.names("sampling"):
        return "has no sampling operator: there would be no first population"
    if not portfolio.names("crossover", "mutation"):
        return "has neither crossover nor mutation: nothing would vary"
    return None


def load_shelf(problem: str, catalog: Catalog | None = None) -> tuple[ShelfCard, Path]:
    """Return the operators' card of a problem, and its file.

    Raises
    ------
    UnknownNameError
        If no operators are declared for the problem.
    InputError
        If the card is wrong.
    """
    path = (catalog or Catalog.around()).find("operators", problem, kind="problem with operators")
    shelf = read_card(ShelfCard, path)
    if shelf.problem != problem:
        raise InputError(f"must be {problem!r}, as the file's name", source=path, field="problem")
    return shelf, path


def load_portfolio(
    problem: str,
    name: str | None = None,
    catalog: Catalog | None = None,
    *,
    without: Iterable[str] = (),
    only: Iterable[str] = (),
    source: str | Path | None = None,
    field: str | None = None,
) -> Portfolio:
    """Return a portfolio by name, with some operators switched off.

    Parameters
    ----------
    problem
        Slug of the problem.
    name
        Name of the portfolio (default: the shelf's default).
    without, only
        Operators to switch off, or the only ones to keep: one of the two.
    source, field
        Where the names were written, for messages.

    Raises
    ------
    UnknownNameError
        If the portfolio or an operator does not exist.
    InputError
        If the combination makes no sense.

    Examples
    --------
    >>> paper = load_portfolio("moham", "paper", without=["sa-position"])
    >>> paper.label, len(paper.names("crossover")), len(paper.names("mutation"))
    ('paper without sa-position', 3, 6)
    """
    off, kept = tuple(without), tuple(only)
    if off and kept:
        raise InputError("give either 'without' or 'only', not both", source=source, field=field)
    shelf, path = load_shelf(problem, catalog)
    portfolio = _on_shelf(shelf, path, name or shelf.default, source, field)
    where = None if field is None else f"{field}.{'without' if off else 'only'}"
    located = replace(portfolio, source=str(source)) if source is not None else portfolio
    if off:
        located = located.without(*off, field=where)
    if kept:
        located = located.only(*kept, field=where)
    return replace(located, source=str(path))


def _on_shelf(
    shelf: ShelfCard, path: Path, name: str, source: str | Path | None, field: str | None
) -> Portfolio:
    if name not in shelf.portfolios:
        raise UnknownNameError("portfolio", name, shelf.portfolios, source=source, field=field)
    overrides = shelf.portfolios[name].overrides
    cards = {}
    for operator in shelf.members(name):
        card = shelf.operators[operator]
        if operator in overrides:
            changes = overrides[operator].model_dump(exclude_none=True)
            where = f"portfolios.{name}.overrides.{operator}"
            try:
                card = OperatorCard(**{**card.model_dump(), **changes})
            except ValueError as error:
                raise InputError(_first_line(error), source=path, field=where) from error
        cards[operator] = card
    copies = shelf.portfolios[name].copies
    portfolio = Portfolio(shelf.problem, name, name, cards, str(path), copies)
    problem = _nonsense(portfolio)
    if problem:
        raise InputError(problem, source=path, field=f"portfolios.{name}")
    return portfolio


def _first_line(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    return str(errors()[0]["msg"]).removeprefix("Value error, ") if errors else str(error)


def load_ladder(problem: str, name: str, catalog: Catalog | None = None) -> list[Portfolio]:
    """Return the portfolios of an ablation ladder: the whole one first, then its steps.

    Raises
    ------
    UnknownNameError
        If the shelf has no such ladder.

    Examples
    --------
    >>> [step.label for step in load_ladder("moham", "ablation")][:2]
    ['paper', 'paper without scheduling-crossover']
    """
    shelf, path = load_shelf(problem, catalog)
    if name not in shelf.ladders:
        raise UnknownNameError("ladder", name, shelf.ladders, source=path)
    ladder = shelf.ladders[name]
    whole = _on_shelf(shelf, path, ladder.portfolio, path, f"ladders.{name}")
    return [whole, *(whole.without(*step, field=f"ladders.{name}") for step in ladder.without)]


def describe(problem: str, catalog: Catalog | None = None) -> list[dict[str, Any]]:
    """Return one row per operator of a problem, for a table.

    Keys: ``name``, ``kind``, ``rate`` (probability or share), ``application``, ``enabled``,
    ``portfolios``, ``source``, ``description``.
    """
    shelf, _ = load_shelf(problem, catalog)
    members = {name: shelf.members(name) for name in shelf.portfolios}
    return [
        {
            "name": name,
            "kind": card.kind,
            "rate": card.share if card.probability is None else card.probability,
            "application": card.application,
            "enabled": card.enabled,
            "portfolios": [p for p, names in members.items() if name in names],
            "source": card.source,
            "description": card.description,
        }
        for name, card in shelf.operators.items()
    ]


def describe_portfolios(problem: str, catalog: Catalog | None = None) -> list[dict[str, Any]]:
    """Return one row per portfolio and ladder of a problem, for a table.

    Keys: ``name``, ``kind`` ("portfolio" or "ladder"), ``default``, ``operators``, ``source``,
    ``description``.
    """
    shelf, _ = load_shelf(problem, catalog)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": "portfolio",
            "default": name == shelf.default,
            "operators": list(shelf.members(name)),
            "source": card.source,
            "description": card.description,
        }
        for name, card in shelf.portfolios.items()
    ]
    for name, ladder in shelf.ladders.items():
        rows.append(
            {
                "name": name,
                "kind": "ladder",
                "default": False,
                "operators": [o for step in ladder.without for o in step],
                "source": ladder.source,
                "description": ladder.description,
            }
        )
    return rows
