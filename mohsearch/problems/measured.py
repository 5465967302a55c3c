"""The problem ``measured``: every point of a set of measured figures, and the error of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import read_card, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.crossflow.measured_points import MeasuredPoints, load_points
from mohsearch.problems.base import ProblemCard, SearchProblem
from mohsearch.problems.measured_options import MeasuredOptions

Floats = NDArray[np.float64]


def load_card(catalog: Catalog | None = None) -> ProblemCard:
    """Return the declaration of the problem, ``problems/measured.yaml``."""
    shelves = catalog or Catalog()
    return read_card(ProblemCard, shelves.find("problems", "measured", kind="problem"))


class MeasuredProblem(SearchProblem):
    """Measured figures as designs, their errors as metrics.

    Parameters
    ----------
    points
        Measured and predicted figures.
    objectives
        Metrics to optimise (default: the card's).
    card
        Declaration (default: the one on the shelf).

    Attributes
    ----------
    groups : (n,) int
        Number of each point's group (device and kind), for operators.
    """

    def __init__(
        self,
        points: MeasuredPoints,
        *,
        objectives: Sequence[str] | None = None,
        card: ProblemCard | None = None,
    ) -> None:
        self.points = points
        keys = list(zip(points.device, points.kind, strict=True))
        places = {key: place for place, key in enumerate(sorted(set(keys)))}
        self.groups = np.array([places[key] for key in keys])
        last = len(keys) - 1
        super().__init__(card or load_card(), np.zeros(1, int), np.full(1, last), objectives)

    def metrics(self, X: NDArray[Any]) -> dict[str, Floats]:
        """Return errors and ratios for genomes (n, 1), each (n,)."""
        at = np.asarray(X).astype(np.int64)[:, 0]
        points = self.points
        ratio = points.predicted[at] / points.measured[at]
        plain = points.plain[at] / points.measured[at]
        return {
            "error": np.abs(ratio - 1.0),
            "ratio": ratio,
            "plain_error": np.abs(plain - 1.0),
            "plain_ratio": plain,
        }

    def designs(self) -> NDArray[np.int64]:
        """Return all points: shape (n, 1)."""
        return np.arange(len(self.groups))[:, None]

    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return what one point is, with its measured and its predicted figure."""
        at = int(np.asarray(x).reshape(-1)[0])
        points = self.points
        plain = float(points.plain[at])
        return {
            "set": points.name,
            "device": points.device[at],
            "kind": points.kind[at],
            **points.what[at],
            "unit": points.unit,
            "measured": float(points.measured[at]),
            "predicted": float(points.predicted[at]),
            "plain_roofline": plain if plain > 0.0 else None,
        }

    def certificate(self) -> dict[str, Any]:
        """Return the accuracy over the set and its groups."""
        return {
            "points": len(self.groups),
            "unit": self.points.unit,
            "accuracy": self.points.accuracy(),
            "prediction": "constants of kernels are calibrated on the sets of the package; "
            "areas of dies are not calibrated",
        }

    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""
        points = self.points
        return content_digest(
            self.card.slug, points.name, points.measured, points.predicted, points.plain
        )


def build(
    options: Mapping[str, Any] | MeasuredOptions | None,
    workload: str | MeasuredPoints,
    *,
    objectives: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    cache_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    workers: int | None = None,
) -> MeasuredProblem:
    """Build the problem for a set of measured figures.

    Parameters
    ----------
    options
        Fields of :class:`mohsearch.problems.measured_options.MeasuredOptions`.
    workload
        As :func:`mohsearch.evaluators.crossflow.measured_points.load_points` takes it, or itself.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.
    cache_dir, progress, workers
        Not needed: nothing is prepared.

    Raises
    ------
    InputError
        If a name is unknown, or no point is left.

    Examples
    --------
    >>> problem = build({"at_least": 1.0}, "vidur-products")
    >>> problem.certificate()["points"]
    33
    """
    del cache_dir, progress, workers
    if not isinstance(options, MeasuredOptions):
        options = validate(MeasuredOptions, dict(options or {}))
    points = workload if isinstance(workload, MeasuredPoints) else load_points(workload, catalog)
    unknown = sorted(set(options.devices) - set(points.device))
    if unknown:
        raise UnknownNameError("device", unknown[0], set(points.device), field="devices")
    chosen = points.measured > options.at_least
    if options.devices:
        chosen &= np.isin(points.device, options.devices)
    if not chosen.any():
        message = f"no figure of {points.name} is above {options.at_least:g} {points.unit}"
        raise InputError(message, field="at_least")
    points = points.take(np.flatnonzero(chosen))
    return MeasuredProblem(points, objectives=objectives, card=load_card(catalog))
