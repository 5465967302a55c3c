"""What every problem, portfolio and engine promises, as checks that plug-in authors can run.

Each ``check_*`` raises :class:`ContractError` with a sentence that says which promise was broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.engines.driver import Generation, Recorded, Search
from mohsearch.problems.base import SearchProblem


class ContractError(AssertionError):
    """A promise of the interface was broken."""


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ContractError(sentence)


def global_random_state() -> tuple[Any, ...]:
    """Return a comparable snapshot of both global random generators."""
    import random

    state = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes(), state[2]  # type: ignore[index]


def check_problem(problem: SearchProblem, X: NDArray[Any]) -> None:
    """Check a problem on valid genomes ``X`` of shape (n, n_var), n >= 2.

    Metrics are finite, complete and repeatable, independent of the batch they are computed in,
    never better than the ideal point; objectives carry the declared sense; designs are JSON; the
    input is left alone.

    Raises
    ------
    ContractError
        Naming the first broken promise.
    """
    before = X.copy()
    randomness = global_random_state()
    values = problem.metrics(X)
    declared = {m.name for m in (*problem.card.metrics, *problem.card.constraints)}
    _require(declared <= set(values), f"metrics missing: {sorted(declared - set(values))}")
    for name in sorted(declared):
        column = np.asarray(values[name])
        _require(column.shape == (len(X),), f"metric {name} has shape {column.shape}")
        _require(bool(np.isfinite(column).all()), f"metric {name} is not finite")
    alone = problem.metrics(X[1:2])
    for name in sorted(declared):
        same = np.array_equal(np.asarray(values[name])[1:2], np.asarray(alone[name]))
        _require(same, f"metric {name} depends on the batch it is computed in")
    F = np.asarray(problem.evaluate(X, return_values_of=["F"]))
    for j, metric in enumerate(problem.objective_cards):
        sign = 1.0 if metric.sense == "min" else -1.0
        _require(
            np.array_equal(F[:, j], sign * np.asarray(values[metric.name])),
            f"objective {metric.name} is not the metric with the sign of its sense",
        )
    for name, best in problem.ideal_point().items():
        sign = 1.0 if problem.card.metric(name).sense == "min" else -1.0
        excess = sign * (np.asarray(values[name]) - best)
        _require(
            bool((excess >= -1e-9 * max(abs(best), 1e-300)).all()),
            f"metric {name} is better than its provable ideal {best}",
        )
    design = problem.decode(X[0])
    _require(isinstance(design, Mapping), "a decoded design is no mapping")
    json.dumps(design, allow_nan=False)
    json.dumps(problem.certificate(), allow_nan=False)
    _require(problem.digest() == problem.digest(), "the digest is not repeatable")
    _require(np.array_equal(X, before), "evaluation changed the genomes it was given")
    _require(global_random_state() == randomness, "evaluation moved a global random generator")


def check_repeats(run: Callable[[int], NDArray[Any]]) -> None:
    """Check that ``run(seed)`` repeats for a seed, differs for another, and moves no global state.

    Raises
    ------
    ContractError
        Naming the first broken promise.
    """
    randomness = global_random_state()
    first, again, other = run(1), run(1), run(2)
    _require(np.array_equal(first, again), "the same seed gave two results")
    _require(not np.array_equal(first, other), "two seeds gave the same result")
    _require(global_random_state() == randomness, "a global random generator moved")


def check_engine(build: Callable[[int], Search]) -> None:
    """Check an engine on a problem; ``build(seed)`` returns a search of three generations or more.

    The budget is kept; genomes stay within the problem's bounds and hold whole numbers where it
    says so; the population consists of evaluated genomes; the front is feasible and mutually
    non-dominated; a seed repeats; an interrupted search continues as it would have; no global
    random generator moves. A search that visits its whole space or makes no use
    of its seed need not differ between seeds.

    Raises
    ------
    ContractError
        Naming the first broken promise.
    """
    randomness = global_random_state()
    first = build(1)
    generations = list(first.generations())
    _require(bool(generations), "the engine asked for nothing")
    _check_ledger(first, generations)
    _check_genomes(first)
    again = build(1)
    for _ in again.generations():
        pass
    _require(_same_archive(first, again), "the same seed gave two results")
    _check_resume(build(1), first, generations)
    if first.stopped != "exhausted" and first.engine.seeded:
        other = build(2)
        for _ in other.generations():
            pass
        _require(not _same_archive(first, other), "two seeds gave the same result")
    _require(global_random_state() == randomness, "a global random generator moved")


def _same_archive(one: Search, other: Search) -> bool:
    return np.array_equal(one.archive.genomes, other.archive.genomes)


def _check_ledger(search: Search, generations: list[Generation]) -> None:
    budget, asked = search.budget, 0
    for number, generation in enumerate(generations):
        _require(generation.number == number, "generations are not numbered in order")
        spent = generation.evaluations - asked
        _require(0 < spent <= budget.population, f"generation {number} took {spent} evaluations")
        asked = generation.evaluations
        known = (generation.population >= 0) & (generation.population < generation.distinct)
        _require(bool(known.all()), f"generation {number} holds genomes that were not evaluated")
        _require(bool(len(generation.population)), f"generation {number} has no population")
    _require(asked <= budget.evaluations, "the budget was exceeded")


def _check_genomes(search: Search) -> None:
    problem, rows = search.problem, np.asarray(search.archive.genomes, dtype=np.float64)
    inside = (rows >= problem.xl) & (rows <= problem.xu)
    _require(bool(inside.all()), "a genome left the bounds of the problem")
    distinct = len({row.tobytes() for row in search.archive.genomes})
    _require(distinct == len(rows), "the archive holds a genome twice")
    front = search.archive.front()
    F, G = search.archive.objectives(front), search.archive.constraints(front)
    _require(bool((G <= 0).all()), "the front holds an infeasible genome")
    for i, losses in enumerate(F):
        others = np.delete(F, i, axis=0)
        beaten = ((others <= losses).all(axis=1) & (others < losses).any(axis=1)).any()
        _require(not beaten, "the front holds a dominated genome")


def _check_resume(search: Search, whole: Search, generations: list[Generation]) -> None:
    """Check that a search which was cut after its first half ends as the whole one did."""
    half = max(1, len(generations) // 2)
    distinct = generations[half - 1].distinct
    recorded = Recorded(
        genomes=whole.archive.genomes[:distinct],
        metrics={name: column[:distinct] for name, column in whole.archive.metrics.items()},
        evaluations=np.array([g.evaluations for g in generations[:half]]),
        distinct=np.array([g.distinct for g in generations[:half]]),
        wall_s=1.0,
        cpu_s=1.0,
    )
    resumed = list(search.generations(recorded))
    _require(_same_archive(search, whole), "a resumed search differs from an uninterrupted one")
    same = all(
        np.array_equal(a.population, b.population)
        for a, b in zip(generations, resumed, strict=True)
    )
    _require(same, "the populations of a resumed search differ")
