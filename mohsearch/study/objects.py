"""The one place that turns a study's names into objects: problems, portfolios, engines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.processes import process_limit
from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.convergence import Convergence
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import Engine, make_engine
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems import PROBLEMS
from mohsearch.problems.base import SearchProblem
from mohsearch.study.plan import PlannedRun, ProblemKey, Study
from mohsearch.study.spec import StudySpec

MAX_RESERVED = 2**18
"""Most genomes that a search makes room for at its start."""


def build_problem(
    study: Study,
    key: ProblemKey,
    cache_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    workers: int | None = None,
) -> SearchProblem:
    """Build a problem on a workload; a workload's path is relative to the study's folder.

    ``progress`` is called with the parts done, the parts in all and what is being done;
    ``workers`` is how many processes may do it (default: one per core). They are not handed to the
    builder but hold for all that it calls (:func:`~mohsearch.core.processes.process_limit`).

    Raises
    ------
    InputError
        If its options or workload are wrong; the message has the field path in the study.
    """
    entry = key.entry
    position = study.spec.problems.index(entry)
    source = str(study.source)
    builder = PROBLEMS.load(entry.name, source=source, field=f"problems[{position}].name")
    try:
        with process_limit(workers):
            problem: SearchProblem = builder(
                entry.options,
                _located(study, key.workload),
                objectives=entry.objectives,
                catalog=study.catalog,
                cache_dir=cache_dir,
                progress=progress,
            )
    except InputError as error:
        if error.source is not None:
            raise
        field = f"problems[{position}]"
        field += f".{error.field}" if error.field else ""
        raise InputError(error.message, source=source, field=field) from error
    return problem


def _located(study: Study, workload: str) -> str:
    """Return a workload's name as it is, a relative path from the study's folder."""
    is_path = os.sep in workload or Path(workload).suffix[1:2].isalpha()  # not megatron-2.5b
    return str(study.base / Path(workload).expanduser()) if is_path else workload


def budget_of(spec: StudySpec) -> Budget:
    """Return the budget of each run."""
    entry = spec.budget
    convergence = None
    if entry.convergence is not None:
        convergence = Convergence(entry.convergence.window, entry.convergence.tolerance)
    return Budget(entry.population, entry.generations, convergence)


def portfolio_of(study: Study, run: PlannedRun, problem: Any = None) -> Any:
    """Return the portfolio of a run; with a problem, without operators that are to be skipped."""
    entry = run.portfolio
    portfolio = load_portfolio(
        run.problem.name,
        entry.name,
        study.catalog,
        without=entry.without,
        only=entry.only,
        source=str(study.source),
        field=f"portfolios[{study.spec.portfolios.index(entry)}]",
    )
    if problem is not None and entry.skip_inapplicable:
        portfolio = portfolio.applicable(problem)
    return portfolio


def check_search(study: Study, run: PlannedRun, problem: SearchProblem) -> None:
    """Refuse a run whose engine or portfolio does not fit its problem.

    Raises
    ------
    InputError
        With the place in the study.
    """
    try:
        build_search(study, run, problem)
    except InputError as error:
        if error.source is not None:
            raise
        field = f"engines[{study.spec.engines.index(run.engine)}]"
        raise InputError(error.message, source=str(study.source), field=field) from error


def build_search(
    study: Study, run: PlannedRun, problem: SearchProblem, scratch: Path | None = None
) -> Search:
    """Build the search that carries a run out, before its first generation.

    ``scratch`` is a folder for what need not stay in memory (see
    :class:`~mohsearch.engines.archive.Archive`).
    """
    engine_class: type[Engine] = ENGINES.load(run.engine.engine)
    budget = budget_of(study.spec)
    archive = Archive(problem, min(budget.evaluations, MAX_RESERVED), scratch)
    engine = make_engine(
        engine_class,
        problem,
        portfolio_of(study, run, problem).build(problem),
        algorithm=run.engine.algorithm,
        options=run.engine.options,
        population=budget.population,
        seed=run.seed,
        seen=archive.index,
        evaluations=budget.evaluations,
    )
    return Search(problem, engine, archive, budget)
