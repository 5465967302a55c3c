"""The whole curves of compared runs, on the evaluation axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mohsearch.analysis.compare import Comparison
from mohsearch.analysis.convergence import Curve, bands, curves
from mohsearch.analysis.gather import gather_histories


def compared_curves(
    folders: Sequence[Path], patterns: Sequence[str], result: Comparison
) -> list[Curve]:
    """Return the curves of compared runs, in the boxes and under the names of the comparison.

    Parameters
    ----------
    folders, patterns
        What was compared (see :func:`mohsearch.analysis.gather.gather`).
    """
    standing = {run: s for s in result.standings for run in s.runs}
    histories = [h for h in gather_histories(folders, patterns) if h.front.run in standing]
    found: list[Curve] = []
    for case in result.cases:
        mine = [h for h in histories if standing[h.front.run].case == case]
        boxes = {h.front.run: result.box_of(h.front.run) for h in mine}
        found += curves(mine, objectives=result.objectives[case], boxes=boxes)
    return [replace(curve, contender=standing[curve.run].contender) for curve in found]


def curve_records(found: Sequence[Curve], result: Comparison) -> list[dict[str, object]]:
    """Return flat records: median and quartiles at each number of evaluations, by contender."""
    rows: list[dict[str, object]] = []
    for case in result.cases:
        members = {run for s in result.standings if s.case == case for run in s.runs}
        for band in bands([c for c in found if c.run in members]):
            rows += [
                {
                    "case": case,
                    "contender": band.contender,
                    "runs": band.runs,
                    "evaluations": int(band.evaluations[k]),
                    "hypervolume_q1": float(band.low[k]),
                    "hypervolume_median": float(band.median[k]),
                    "hypervolume_q3": float(band.high[k]),
                }
                for k in range(len(band.evaluations))
            ]
    return rows
