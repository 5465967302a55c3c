"""The study file: which problems are searched, by what, how long and how often."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from mohsearch.core.cards import Card

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=60)]
MAX_SEEDS = 10_000


def _counted(value: Any) -> Any:
    """Return the seeds 1, 2, ... where a number of them is given."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MAX_SEEDS:
            raise ValueError(f"a number of seeds must be between 1 and {MAX_SEEDS}, got {value}")
        return tuple(range(1, value + 1))
    return value


Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
    Field(min_length=1, max_length=MAX_SEEDS),
    BeforeValidator(_counted),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ]
        }
    ),
]


class ProblemEntry(Card):
    """One problem to search, with its options."""

    name: str = Field(description="Name of a problem; `mohsearch problem list` shows them.")
    label: Label | None = Field(
        default=None,
        description="Name of this entry in run ids and tables; the problem's name by default.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the problem; `mohsearch problem show NAME` lists them.",
    )
    objectives: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Metrics to optimise; the problem's own choice by default.",
    )
    portfolios: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Labels of the portfolios this problem runs with; all of them by default.",
    )
    workloads: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Those of the study's workloads this problem runs on; all of them by default.",
    )

    @property
    def title(self) -> str:
        """The label, or the name where there is none."""
        return self.label or self.name

    @field_validator("objectives")
    @classmethod
    def _distinct(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(set(value)) != len(value):
            raise ValueError("an objective stands twice")
        return value


class EngineEntry(Card):
    """One search method."""

    engine: str = Field(default="pymoo", description="Name of an engine.")
    algorithm: str | None = Field(
        default=None, description="Algorithm of the engine; the engine's first choice by default."
    )
    label: Label | None = Field(
        default=None,
        description="Name of this entry in run ids and tables; the algorithm's name by default.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the engine, such as `immigrants` of pymoo."
    )
    portfolios: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Labels of the portfolios this method runs with; all of them by default.",
    )

    @property
    def title(self) -> str:
        """The label, or the algorithm's or engine's name where there is none."""
        return self.label or self.algorithm or self.engine


class PortfolioEntry(Card):
    """One set of variation operators."""

    name: str = Field(description="Name of a portfolio; `mohsearch operator list` shows them.")
    label: Label | None = Field(
        default=None,
        description="Name of this entry in run ids and tables; the portfolio's name by default.",
    )
    without: tuple[str, ...] = Field(
        default=(), description="Operators of the portfolio to switch off."
    )
    only: tuple[str, ...] = Field(
        default=(), description="The only operators of the portfolio to keep; all by default."
    )
    skip_inapplicable: bool = Field(
        default=False,
        description=(
            "Leave out operators that cannot act on a problem (such as template mutation with one "
            "template) instead of refusing the study."
        ),
    )

    @property
    def title(self) -> str:
        """The label, or the name where there is none."""
        return self.label or self.name

    @model_validator(mode="after")
    def _one_way(self) -> PortfolioEntry:
        if self.without and self.only:
            raise ValueError("give either 'without' or 'only', not both")
        return self


class ConvergenceEntry(Card):
    """Stop early when the non-dominated set is steady."""

    window: int = Field(default=40, ge=2, description="Number of successive generations looked at.")
    tolerance: float = Field(
        default=0.02,
        gt=0,
        description=(
            "Largest standard deviation, over the window, of the largest finite crowding distance."
        ),
    )


class BudgetEntry(Card):
    """How long each run lasts: population x generations evaluations."""

    population: int = Field(ge=2, le=1_000_000, description="Individuals per generation.")
    generations: int = Field(
        ge=1, le=1_000_000, description="Generations, the initial one included."
    )
    convergence: ConvergenceEntry | None = Field(
        default=None, description="Stop before the last generation once the front is steady."
    )


class ExecutorEntry(Card):
    """Where runs are carried out; never changes a result."""

    workers: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Processes that carry out runs at the same time; one per core by default.",
    )
    kind: str = Field(
        default="runs",
        pattern=r"^(runs|evaluations|dask|dask://[^\s/]+:[0-9]+)$",
        description=(
            "`runs`: whole runs side by side in local processes; `evaluations`: one run after the "
            "other, each generation divided over local processes; `dask` or `dask://HOST:PORT`: "
            "the same over a Dask cluster, here or anywhere (extra `dask`)."
        ),
    )


class EvaluationEntry(Card):
    """What happens to genomes that cannot be evaluated."""

    on_failure: Literal["stop", "go-on"] = Field(
        default="stop",
        description=(
            "`stop` ends the run; `go-on` gives such a genome the worst values there are. Either "
            "way genome and reason stand in failures.jsonl of the output folder."
        ),
    )
    limit_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Most seconds per genome; needs an executor of the kind evaluations or dask.",
    )


class StorageEntry(Card):
    """Where several processes keep the trials of one search."""

    url: str = Field(
        default="journal",
        description=(
            "`journal` (a file in the output folder), `journal:///PATH/TO/FILE`, or "
            "`postgresql://USER@HOST:PORT/DATABASE` (extra `postgresql`). A password in it is not "
            "written to the output folder; PGPASSWORD and ~/.pgpass work too."
        ),
    )
    heartbeat_s: int = Field(
        default=10,
        ge=1,
        le=3600,
        description=(
            "Seconds between signs of life on PostgreSQL; a process without one for three times "
            "as long counts as dead."
        ),
    )

    @field_validator("url")
    @classmethod
    def _known_kind(cls, value: str) -> str:
        pattern = r"journal|(journal:///|postgresql(\+psycopg)?://)\S+"
        if not re.fullmatch(pattern, value):
            raise ValueError(
                "no such storage; there are: journal, journal:///PATH/TO/FILE, "
                "postgresql://USER@HOST:PORT/DATABASE"
            )
        return value

    @field_serializer("url")
    def _without_password(self, value: str) -> str:
        return re.sub(r"^(\w[\w+]*://[^:/@\s]*):[^@\s]*@", r"\1@", value)


Cell = tuple[ProblemEntry, str, EngineEntry, PortfolioEntry, int]
"""Problem, workload, engine, portfolio and seed of one run."""


class StudySpec(Card):
    """One study: the product of its problems, workloads, engines, portfolios and seeds."""

    name: Label = Field(description="Name of the study, the same as its file's.")
    title: str = Field(min_length=1, description="One line that says what the study is.")
    description: str = Field(default="", description="What the study does, in a few sentences.")
    reference: str = Field(
        default="", description="Publication and figure or table that the study follows."
    )
    expectation: str = Field(
        default="", description="What the reference claims, or what is expected to come out."
    )
    problems: tuple[ProblemEntry, ...] = Field(min_length=1, description="What is searched.")
    workloads: tuple[str, ...] = Field(
        min_length=1,
        description="Names or paths of workloads; `mohsearch workload list` shows the names.",
    )
    engines: tuple[EngineEntry, ...] = Field(
        default=(EngineEntry(),), min_length=1, description="Search methods."
    )
    portfolios: tuple[PortfolioEntry, ...] = Field(
        min_length=1, description="Sets of variation operators."
    )
    seeds: Seeds = Field(
        default=(1,),
        description="Seeds of the repetitions, or how many there are (then 1, 2, ...).",
    )
    budget: BudgetEntry = Field(description="Length of each run.")
    evaluation: EvaluationEntry = Field(
        default=EvaluationEntry(), description="What happens to genomes that fail."
    )
    executor: ExecutorEntry = Field(
        default=ExecutorEntry(), description="How runs are spread over processes."
    )
    storage: StorageEntry | None = Field(
        default=None,
        description=(
            "Let several processes, on one or many machines, search together: each starts the same "
            "study with the same storage. For engine `optuna` only; results then depend on timing."
        ),
    )

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) != len(value):
            raise ValueError("a seed stands twice")
        return value

    @model_validator(mode="after")
    def _labels_differ(self) -> StudySpec:
        for field in ("problems", "engines", "portfolios"):
            titles = [entry.title for entry in getattr(self, field)]
            for title in titles:
                if titles.count(title) > 1:
                    raise ValueError(f"{field}: label {title!r} stands twice; give each its own")
        if len(set(self.workloads)) != len(self.workloads):
            raise ValueError("workloads: one stands twice")
        return self

    def seed_list(self) -> tuple[int, ...]:
        """Return the seeds of the repetitions."""
        return self.seeds

    def cells(self) -> list[Cell]:
        """Return what each run consists of, in the order of the file."""
        return [
            (problem, workload, engine, portfolio, seed)
            for problem in self.problems
            for workload in self.workloads
            if problem.workloads is None or workload in problem.workloads
            for engine in self.engines
            for portfolio in self.portfolios
            if all(
                labels is None or portfolio.title in labels
                for labels in (problem.portfolios, engine.portfolios)
            )
            for seed in self.seeds
        ]

    def decisive(self) -> dict[str, Any]:
        """Return what the results depend on: everything but prose and the executor."""
        left_out = {"title", "description", "reference", "expectation", "executor", "storage"}
        if self.evaluation == EvaluationEntry():  # as before this field existed
            left_out.add("evaluation")
        content = self.model_dump(mode="json", exclude=left_out)
        for problem in content["problems"]:
            if problem["workloads"] is None:  # as before this field existed
                del problem["workloads"]
        if self.storage is not None:
            content["storage"] = "shared"
        return content
