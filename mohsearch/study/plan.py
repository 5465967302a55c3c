"""From a study file to its runs: names checked, products expanded, contents hashed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohsearch.core.cards import Card, read_card, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.engines import ENGINES
from mohsearch.engines.engine import Engine, check_capabilities
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems import PROBLEM_OPTIONS, PROBLEMS, WORKLOAD_LOADERS
from mohsearch.problems.base import ProblemCard
from mohsearch.study.spec import EngineEntry, PortfolioEntry, ProblemEntry, StudySpec


@dataclass(frozen=True)
class Study:
    """A study file with the shelves around it.

    Attributes
    ----------
    spec
        What the file says.
    source
        The file; paths in it are relative to its folder.
    catalog
        Where names are looked up.
    """

    spec: StudySpec
    source: Path
    catalog: Catalog

    @property
    def base(self) -> Path:
        """The folder that paths in the study are relative to."""
        return self.source.parent


@dataclass(frozen=True)
class ProblemKey:
    """One problem on one workload: what is built once and searched by several runs."""

    entry: ProblemEntry
    workload: str


@dataclass(frozen=True)
class PlannedRun:
    """One cell of a study.

    Attributes
    ----------
    id
        Readable and unique within the study: problem, workload, engine, portfolio, seed.
    digest
        Content hash of everything in the study file that this run's result depends on.
    """

    id: str
    problem: ProblemEntry
    workload: str
    engine: EngineEntry
    portfolio: PortfolioEntry
    seed: int
    digest: str

    @property
    def key(self) -> ProblemKey:
        """The problem on its workload."""
        return ProblemKey(self.problem, self.workload)


@dataclass(frozen=True)
class Plan:
    """All runs of a study, in the order of the file."""

    study: Study
    runs: tuple[PlannedRun, ...]
    digest: str

    @property
    def evaluations(self) -> int:
        """Evaluations of all runs together, at most."""
        budget = self.study.spec.budget
        return len(self.runs) * budget.population * budget.generations

    def problem_keys(self) -> tuple[ProblemKey, ...]:
        """Return the distinct problems to build, in order of first use."""
        found: list[ProblemKey] = []
        for run in self.runs:
            if run.key not in found:
                found.append(run.key)
        return tuple(found)


def load_study(name_or_path: str | Path, catalog: Catalog | None = None) -> Study:
    """Read and validate a study by name or path.

    Parameters
    ----------
    name_or_path
        A name on the ``studies`` shelf, or a YAML file.
    catalog
        Where names are looked up; by default the shelves around the file, then the working
        directory's and the built-in ones.

    Raises
    ------
    InputError
        If it does not exist or is not a valid study; the message has the field path.

    Examples
    --------
    >>> load_study("smoke").spec.name
    'smoke'
    """
    path = (catalog or Catalog.around()).resolve("studies", str(name_or_path), kind="study")
    spec = read_card(StudySpec, path)
    return Study(spec, path.resolve(), catalog or Catalog.around(path))


_BESIDES = {"label", "portfolios", "workloads"}
"""Fields of a problem's entry that choose its runs and change none."""


def plan_study(study: Study) -> Plan:
    """Expand a study into its runs, every name checked.

    Raises
    ------
    UnknownNameError
        If a problem, workload, engine, algorithm, portfolio or operator does not exist; the message
        has the field path and lists what exists.
    InputError
        If options are wrong, or an algorithm cannot handle a problem.
    """
    check_names(study)
    spec = study.spec
    cells = spec.cells()
    ids = Counter(_run_id(*cell) for cell in cells)
    decisive = spec.decisive()
    runs = []
    for cell in cells:
        problem, workload, engine, portfolio, seed = cell
        content = {
            "problem": problem.model_dump(mode="json", exclude=_BESIDES),
            "workload": workload,
            "engine": engine.model_dump(mode="json", exclude={"label", "portfolios"}),
            "portfolio": portfolio.model_dump(mode="json", exclude={"label"}),
            "seed": seed,
            "budget": decisive["budget"],
        } | {key: decisive[key] for key in ("storage",) if key in decisive}
        digest = content_digest(content)
        name = _run_id(*cell)
        run_id = name if ids[name] == 1 else f"{name}-{digest[:8]}"
        runs.append(PlannedRun(run_id, problem, workload, engine, portfolio, seed, digest))
    return Plan(study, tuple(runs), content_digest(decisive))


def _run_id(
    problem: ProblemEntry, workload: str, engine: EngineEntry, portfolio: PortfolioEntry, seed: int
) -> str:
    path = Path(workload)
    short = path.stem if path.suffix[1:2].isalpha() else path.name  # not megatron-2.5b
    parts = (problem.title, short, engine.title, portfolio.title, f"s{seed}")
    return "-".join(part.replace("/", "_") for part in parts)


def check_names(study: Study) -> None:
    """Look every name of a study up and validate the engines' options.

    Raises
    ------
    InputError
        With the file and the field path of the first wrong value.
    """
    spec, source = study.spec, str(study.source)
    objectives = [_check_problem(study, i) for i in range(len(spec.problems))]
    for i, workload in enumerate(spec.workloads):
        if None not in objectives:
            _check_workload(study, workload, f"workloads[{i}]")
    titles = [entry.title for entry in spec.portfolios]
    chosen = {f"problems[{i}]": entry.portfolios for i, entry in enumerate(spec.problems)}
    chosen |= {f"engines[{i}]": entry.portfolios for i, entry in enumerate(spec.engines)}
    for field, labels in chosen.items():
        for j, label in enumerate(labels or ()):
            if label not in titles:
                where = f"{field}.portfolios[{j}]"
                raise UnknownNameError("portfolio label", label, titles, source=source, field=where)
    for i, entry in enumerate(spec.problems):
        for j, workload in enumerate(entry.workloads or ()):
            if workload not in spec.workloads:
                where = f"problems[{i}].workloads[{j}]"
                raise UnknownNameError(
                    "workload of the study:", workload, spec.workloads, source=source, field=where
                )
    for i in range(len(spec.engines)):
        _check_engine(study, i, objectives)
    for i in range(len(spec.portfolios)):
        _check_portfolio(study, i)
    if spec.storage is not None:
        _check_storage(study)
    if not spec.cells():
        raise InputError("no problem and engine share a portfolio", source=source)


def _check_storage(study: Study) -> None:
    """Refuse what cannot be searched by several processes."""
    source = str(study.source)
    for i, entry in enumerate(study.spec.engines):
        if entry.engine != "optuna":
            raise InputError(
                f"only engine 'optuna' can share a storage, and this is {entry.engine!r}",
                source=source,
                field=f"engines[{i}].engine",
            )
    if study.spec.budget.convergence is not None:
        raise InputError(
            "processes that share a storage cannot stop early; leave it out",
            source=source,
            field="budget.convergence",
        )


def _check_problem(study: Study, i: int) -> tuple[int, int] | None:
    """Check one problem entry; return its numbers of objectives and constraints if declared."""
    entry, source = study.spec.problems[i], str(study.source)
    if entry.name not in PROBLEMS.names():
        raise UnknownNameError(
            "problem", entry.name, PROBLEMS.names(), source=source, field=f"problems[{i}].name"
        )
    unconstrained = False
    if entry.name in PROBLEM_OPTIONS.names():
        field = f"problems[{i}].options"
        options = prefixed(PROBLEM_OPTIONS.load(entry.name), entry.options, source, field)
        unconstrained = getattr(options, "unconstrained", False)
    if entry.name not in study.catalog.names("problems"):
        return None
    card = read_card(ProblemCard, study.catalog.find("problems", entry.name, kind="problem"))
    known = [metric.name for metric in card.metrics]
    for j, name in enumerate(entry.objectives or ()):
        if name not in known:
            field = f"problems[{i}].objectives[{j}]"
            raise UnknownNameError("metric", name, known, source=source, field=field)
    constraints = 0 if unconstrained else len(card.constraints)
    return len(entry.objectives or card.objectives), constraints


def _check_portfolio(study: Study, i: int) -> None:
    entry = study.spec.portfolios[i]
    for problem in dict.fromkeys(p.name for p in study.spec.problems if _uses(p, entry)):
        load_portfolio(
            problem,
            entry.name,
            study.catalog,
            without=entry.without,
            only=entry.only,
            source=str(study.source),
            field=f"portfolios[{i}]",
        )


def _uses(problem: ProblemEntry, portfolio: PortfolioEntry) -> bool:
    return problem.portfolios is None or portfolio.title in problem.portfolios


def _check_workload(study: Study, workload: str, field: str) -> None:
    """Look a workload up as each of the study's problems does."""
    for problem in dict.fromkeys(
        entry.name
        for entry in study.spec.problems
        if entry.workloads is None or workload in entry.workloads
    ):
        if problem in WORKLOAD_LOADERS.names():
            load = WORKLOAD_LOADERS.load(problem)
            load(workload, study.catalog, base=study.base, source=str(study.source), field=field)


def _check_engine(study: Study, i: int, objectives: list[tuple[int, int] | None]) -> None:
    entry, source = study.spec.engines[i], str(study.source)
    field = f"engines[{i}]"
    engine: type[Engine] = ENGINES.load(entry.engine, source=source, field=f"{field}.engine")
    algorithm = entry.algorithm or engine.default_algorithm
    if algorithm not in engine.algorithms:
        kind = f"{entry.engine} algorithm"
        raise UnknownNameError(
            kind, algorithm, engine.algorithms, source=source, field=f"{field}.algorithm"
        )
    for numbers in objectives:
        if numbers is not None:
            check_capabilities(
                entry.engine,
                engine,
                algorithm,
                objectives=numbers[0],
                constraints=numbers[1],
                source=source,
                field=f"{field}.algorithm",
            )
    prefixed(engine.options_card, entry.options, source, f"{field}.options")


def prefixed(card: type[Card], options: Mapping[str, Any], source: str, field: str) -> Card:
    """Validate options against their card; errors carry the field path in the study."""
    try:
        return validate(card, dict(options), source=source)
    except InputError as error:
        inner = f"{field}.{error.field}" if error.field else field
        raise InputError(error.message, source=source, field=inner) from error
