"""The shelf of operators of one problem: ``operators/<problem>.yaml``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mohsearch.core.cards import Card

Kind = Literal["sampling", "crossover", "mutation", "immigrant"]
Application = Literal["individual", "layer"]
Copies = Literal["keep", "redraw"]
Probability = Annotated[float, Field(gt=0, le=1)]


class OperatorCard(Card):
    """One operator as the shelf declares it."""

    operator: str = Field(description="Registered name of the operator's class.")
    kind: Kind = Field(
        description="What it does; an immigrant is a sampling used every generation."
    )
    probability: Probability | None = Field(
        default=None,
        description="Crossover: per mating; mutation: per individual, or per layer by application.",
    )
    share: Probability | None = Field(
        default=None,
        description="Sampling: part of the first population (parts are scaled to add to 1); "
        "immigrant: part of every generation.",
    )
    application: Application = Field(
        default="individual",
        description="Whether the operator acts once on an individual, or on each layer in turn.",
    )
    enabled: bool = Field(default=True, description="Whether portfolios without a list include it.")
    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of the class.")
    description: str = Field(description="What it does, in one line.")
    source: str = Field(description="Where it and its probability come from.")

    @model_validator(mode="after")
    def _rate_fits_kind(self) -> OperatorCard:
        varies = self.kind in {"crossover", "mutation"}
        if varies and (self.probability is None or self.share is not None):
            raise ValueError(f"a {self.kind} needs a probability and has no share")
        if not varies and (self.share is None or self.probability is not None):
            raise ValueError(f"a {self.kind} needs a share and has no probability")
        if self.application == "layer" and self.kind != "mutation":
            raise ValueError("only a mutation can be applied to each layer")
        return self


class OverrideCard(Card):
    """What a portfolio sets differently for one operator."""

    probability: Probability | None = None
    share: Probability | None = None
    application: Application | None = None
    options: dict[str, Any] | None = None


class PortfolioCard(Card):
    """A named set of operators."""

    description: str
    source: str
    operators: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Names from the shelf; default: all enabled."
    )
    overrides: dict[str, OverrideCard] = Field(default_factory=dict)
    copies: Copies = Field(
        default="redraw",
        description="Children on which no operator acts: kept as copies of their parents, or drawn "
        "again, which is the same as discarding them as duplicates but costs nothing.",
    )


class LadderCard(Card):
    """A series of variants of one portfolio, for ablation."""

    description: str
    source: str
    portfolio: str
    without: tuple[tuple[str, ...], ...] = Field(
        min_length=1, description="One step per entry: the operators it switches off."
    )
    published: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=dict,
        description="Shares of dominated solutions that the source reports, by what is off "
        "('control': nothing).",
    )


class ShelfCard(Card):
    """All operators, portfolios and ladders of one problem."""

    problem: str
    default: str = Field(description="The portfolio that is meant where none is named.")
    operators: dict[str, OperatorCard] = Field(min_length=1)
    portfolios: dict[str, PortfolioCard] = Field(min_length=1)
    ladders: dict[str, LadderCard] = Field(default_factory=dict)

    def members(self, portfolio: str) -> tuple[str, ...]:
        """Return the operators of a portfolio, in the order in which they are applied."""
        listed = self.portfolios[portfolio].operators
        if listed is None:
            return tuple(name for name, card in self.operators.items() if card.enabled)
        return listed

    @model_validator(mode="after")
    def _names_exist(self) -> ShelfCard:
        if self.default not in self.portfolios:
            raise ValueError(f"default: no portfolio {self.default!r}")
        for name, portfolio in self.portfolios.items():
            members = self.members(name)
            for operator in (*members, *portfolio.overrides):
                if operator not in self.operators:
                    raise ValueError(f"portfolio {name!r}: no operator {operator!r}")
            if len(set(members)) < len(members):
                raise ValueError(f"portfolio {name!r}: an operator stands twice")
            for operator in portfolio.overrides:
                if operator not in members:
                    raise ValueError(f"portfolio {name!r}: overrides {operator!r}, not a member")
        for name, ladder in self.ladders.items():
            if ladder.portfolio not in self.portfolios:
                raise ValueError(f"ladder {name!r}: no portfolio {ladder.portfolio!r}")
            for operator in (o for step in ladder.without for o in step):
                if operator not in self.members(ladder.portfolio):
                    raise ValueError(f"ladder {name!r}: {operator!r} is not in its portfolio")
        return self
