"""Genomes that cannot be evaluated: how that is told, and how a search goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import MohsearchError
from mohsearch.problems.base import SearchProblem

Metrics = dict[str, NDArray[np.float64]]

WORST = 1e30
"""Stands for the metrics of a genome that cannot be evaluated: dominated by all that can."""


class EvaluationFailed(MohsearchError):
    """Genomes that no worker could evaluate, each with its reason.

    Attributes
    ----------
    failures
        Genome and reason.
    places
        Their positions among the genomes that were to be evaluated.
    found
        Metrics of all of these, NaN for those that failed.
    """

    exit_code = 1

    def __init__(
        self,
        failures: Sequence[tuple[NDArray[Any], str]],
        places: Sequence[int] = (),
        found: Metrics | None = None,
    ) -> None:
        self.failures = tuple(failures)
        self.places = tuple(places)
        self.found = found or {}
        genome, reason = self.failures[0]
        text = np.array2string(genome, threshold=32, max_line_width=10**6)
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        super().__init__(f"genome {text} cannot be evaluated: {reason}{more}")


class WorkersLost(MohsearchError):
    """There are no workers that can evaluate anything; no genome is at fault."""

    exit_code = 1


def attempt(
    evaluate: Callable[[NDArray[Any]], Metrics], rows: NDArray[Any]
) -> tuple[Metrics | None, str]:
    """Return the metrics of some genomes, or why there are none."""
    try:
        metrics = evaluate(rows)
    except WorkersLost:
        raise
    except EvaluationFailed as error:
        return None, error.failures[0][1]
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    for name, values in metrics.items():
        bad = np.asarray(values)[~np.isfinite(values)]
        if len(bad):
            return None, f"metric {name!r} is {bad[0]}"
    return metrics, ""


def going_on(
    evaluate: Callable[[NDArray[Any]], Metrics],
    problem: SearchProblem,
    record: Callable[[NDArray[Any], str], None],
) -> Callable[[NDArray[Any]], Metrics]:
    """Return an evaluation that gives genomes up instead of raising.

    Parameters
    ----------
    evaluate
        As :meth:`mohsearch.study.evaluation.Workers.metrics` or a problem's own; where it raises,
        genome by genome.
    record
        Called with each genome given up, and why. Its metrics are the worst there can be
        (:data:`WORST`), its constraints violated.
    """
    worst = {m.name: WORST if m.sense == "min" else -WORST for m in problem.card.metrics}
    worst |= {m.name: WORST for m in problem.card.constraints}

    def one(row: NDArray[Any]) -> Metrics:
        result, reason = attempt(evaluate, row)
        if result is None:
            record(row[0], reason)
            return {name: np.array([value]) for name, value in worst.items()}
        return result

    def many(rows: NDArray[Any]) -> Metrics:
        try:
            metrics = evaluate(rows)
        except EvaluationFailed as error:
            # workers have found out which these are; all others have their values
            for genome, reason in error.failures:
                record(genome, reason)
            metrics = {name: np.full(len(rows), value) for name, value in worst.items()}
            good = np.delete(np.arange(len(rows)), error.places)
            for name, column in error.found.items():
                metrics[name][good] = column[good]
            return metrics
        except WorkersLost:
            raise
        except Exception:
            metrics = None
        if metrics is not None and all(np.isfinite(v).all() for v in metrics.values()):
            return metrics
        parts = [one(rows[i : i + 1]) for i in range(len(rows))]
        return {name: np.concatenate([part[name] for part in parts]) for name in worst}

    return many
