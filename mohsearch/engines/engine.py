"""The interface every search method implements: ask for genomes, tell their values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import Card, validate
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.engines.duplicates import GenomeIndex

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Searchable(Protocol):
    """What engines and their driver need of a problem (a pymoo ``Problem`` has the rest)."""

    card: Any
    objective_cards: Sequence[Any]
    signs: FloatArray
    n_var: int
    n_obj: int
    xl: NDArray[Any]
    xu: NDArray[Any]
    vtype: Any

    def metrics(self, X: NDArray[Any]) -> Mapping[str, FloatArray]:
        """Return every declared metric and constraint for genomes of shape (n, n_var)."""


@dataclass(frozen=True)
class Capabilities:
    """What one algorithm of an engine can do; tests and messages derive from it.

    Attributes
    ----------
    summary
        The algorithm in a few words.
    min_objectives, max_objectives
        Range of the number of objectives; ``None`` is unlimited.
    constraints
        Whether constraints are respected.
    operators
        Members of the portfolio it uses: some of ``sampling``, ``crossover``, ``mutation``.
    max_genes
        Longest genome it can take in reasonable time; ``None`` is unlimited.
    max_evaluations
        Longest search of use: its own work for each evaluation grows with their number; ``None``
        is unlimited.
    immigrants
        Whether the portfolio's immigrants can take part.
    """

    summary: str
    min_objectives: int = 1
    max_objectives: int | None = None
    constraints: bool = True
    operators: tuple[str, ...] = ("sampling", "crossover", "mutation")
    max_genes: int | None = None
    max_evaluations: int | None = None
    immigrants: bool = False


class EngineOptions(Card):
    """Options of an engine without any."""


class Engine(ABC):
    """One search under way.

    Parameters
    ----------
    problem
        The problem; engines use its bounds and the number of objectives, never its evaluation.
    portfolio
        An object with the pymoo operators the algorithm needs (see ``Capabilities.operators``) and
        optionally ``immigrants``: fresh samples of each generation, with ``count(population)`` and
        ``sampling``.
    algorithm
        One of :attr:`algorithms`.
    population
        Individuals per generation.
    seed
        Seed of all randomness of this search.
    options
        A card of the class :attr:`options_card`.
    seen
        Index of every genome evaluated so far; the driver adds to it between ask and tell.
    """

    algorithms: ClassVar[Mapping[str, Capabilities]]
    default_algorithm: ClassVar[str]
    options_card: ClassVar[type[Card]] = EngineOptions
    sequential: ClassVar[bool] = False
    """Whether a generation takes several rounds of ask and tell, each of which learns from the one
    before (simulated annealing: one genome a round)."""
    seeded: ClassVar[bool] = True
    """Whether the seed makes a difference; enumerations go the same way for every seed."""

    def __init__(
        self,
        problem: Searchable,
        portfolio: Any,
        *,
        algorithm: str,
        population: int,
        seed: int,
        options: Any,
        seen: GenomeIndex,
    ) -> None:
        self.problem = problem
        self.portfolio = portfolio
        self.algorithm = algorithm
        self.population_size = population
        self.seed = seed
        self.options = options
        self.seen = seen

    @abstractmethod
    def ask(self, k: int) -> NDArray[Any]:
        """Return at most ``k`` genomes to evaluate, shape (n, n_var).

        Fewer than ``k`` where the method has no more to offer; none when it is exhausted.
        """

    @abstractmethod
    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Take the values of the genomes last asked for.

        ``F`` has shape (n, n_obj) and is minimised; ``G`` has shape (n, n_constraints) and is
        feasible where <= 0. Both are in the order of ``X``.
        """

    @abstractmethod
    def population(self) -> NDArray[Any]:
        """Return the current population, shape (n, n_var); the last batch where there is none."""

    def report(self) -> dict[str, Any]:
        """Return what the method itself has to say when it ends, as plain JSON types: a proof, say.

        Empty where there is nothing beyond the values it asked for.
        """
        return {}


def check_capabilities(
    engine: str,
    engine_class: type[Engine],
    algorithm: str,
    *,
    objectives: int,
    constraints: int,
    source: str | None = None,
    field: str | None = None,
) -> None:
    """Refuse an algorithm that cannot handle a problem of this size and kind.

    Raises
    ------
    UnknownNameError
        If the engine has no such algorithm.
    InputError
        If the number of objectives or the constraints are outside its capabilities.
    """
    known = engine_class.algorithms
    if algorithm not in known:
        raise UnknownNameError(f"{engine} algorithm", algorithm, known, source=source, field=field)
    can = known[algorithm]
    problem = None
    if objectives < can.min_objectives:
        problem = f"needs at least {can.min_objectives} objectives, got {objectives}"
    elif can.max_objectives is not None and objectives > can.max_objectives:
        problem = f"takes at most {can.max_objectives} objectives, got {objectives}"
    elif constraints and not can.constraints:
        problem = "does not respect constraints, and this problem has some"
    if problem is not None:
        able = [
            name
            for name, c in known.items()
            if c.min_objectives <= objectives <= (c.max_objectives or objectives)
            and (c.constraints or not constraints)
        ]
        message = f"{engine} algorithm {algorithm!r} {problem}; able: {', '.join(able) or '(none)'}"
        raise InputError(message, source=source, field=field)


def make_engine(
    engine_class: type[Engine],
    problem: Searchable,
    portfolio: Any,
    *,
    population: int,
    seed: int,
    seen: GenomeIndex,
    algorithm: str | None = None,
    options: Mapping[str, Any] | Card | None = None,
    evaluations: int | None = None,
) -> Engine:
    """Build an engine with its capabilities checked and its options validated.

    ``evaluations`` is the length of the search, to refuse one that the algorithm is too slow for.
    """
    algorithm = algorithm or engine_class.default_algorithm
    check_capabilities(
        engine_class.__name__,
        engine_class,
        algorithm,
        objectives=problem.n_obj,
        constraints=len(problem.card.constraints),
    )
    can = engine_class.algorithms[algorithm]
    if can.max_genes is not None and problem.n_var > can.max_genes:
        raise InputError(
            f"algorithm {algorithm!r} takes genomes of at most {can.max_genes} genes; "
            f"this problem has {problem.n_var}"
        )
    if evaluations and can.max_evaluations is not None and evaluations > can.max_evaluations:
        raise InputError(
            f"algorithm {algorithm!r} is of use up to {can.max_evaluations:,} evaluations; this "
            f"search may take {evaluations:,}"
        )
    missing = [name for name in can.operators if getattr(portfolio, name, None) is None]
    if missing:
        raise InputError(f"algorithm {algorithm!r} needs a portfolio with: {', '.join(missing)}")
    card = (
        options
        if isinstance(options, Card)
        else validate(engine_class.options_card, dict(options or {}))
    )
    return engine_class(
        problem,
        portfolio,
        algorithm=algorithm,
        population=population,
        seed=seed,
        options=card,
        seen=seen,
    )
