"""What every problem, portfolio and engine promises, as checks that plug-in authors can run.

Each ``check_*`` raises :class:`ContractError` with a sentence that says which promise was broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
