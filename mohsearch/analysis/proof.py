"""What a search has proven about its front, beyond the problem's own bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mohsearch.analysis.fronts import Front
from mohsearch.analysis.quantities import short_name
from mohsearch.analysis.results import plain


def _report(front: Front) -> Mapping[str, Any]:
    report = plain(front.attrs.get("engine_report") or {})
    proves = isinstance(report, Mapping) and "proven_value" in report
    return report if proves else {}


def with_proven_values(front: Front) -> Front:
    """Return the front with bounds that its search proved, where they are the tighter ones."""
    bounds = dict(front.ideal_point)
    for name, value in (_report(front).get("proven_value") or {}).items():
        if value is None:
            continue
        sign = front.metric(name).sign
        if name not in bounds or sign * value > sign * bounds[name]:
            bounds[name] = float(value)
    return replace(front, ideal_point=bounds)


def proof_in_words(front: Front) -> str:
    """Return what the search proved in one sentence; nothing where it proves nothing.

    Examples
    --------
    >>> report = {"designs": 9, "evaluated": 2, "complete": True, "tolerance": 0.0}
    >>> report |= {"status": "optimal", "proven_value": {}, "gap": {}}
    >>> proof_in_words(Front("a", {"engine_report": report}, (), {}, ()))
    'optimal: 2 of 9 designs evaluated, bounds leave out the rest'
    """
    report = _report(front)
    if not report:
        return ""
    seen = f"all {report['designs']:,} designs evaluated"
    if report["evaluated"] < report["designs"]:
        count = f"{report['evaluated']:,} of {report['designs']:,}"
        seen = f"{count} designs evaluated, bounds leave out the rest"
    if report["status"] == "optimal":
        return f"optimal: {seen}"
    if not report["complete"]:
        return f"not finished: {report['evaluated']:,} of {report['designs']:,} designs evaluated"
    if report["status"] != "feasible":
        return f"{report['status']}: {seen}"
    parts = [seen]
    if report["tolerance"]:
        parts.append(f"every design left out is within {report['tolerance']:.2g} of a solution")
    if report.get("may_still_improve"):
        parts.append(f"{report['may_still_improve']:,} solutions have schedules not proven optimal")
    known = {name: share for name, share in report["gap"].items() if share is not None}
    gaps = ", ".join(f"{short_name(name)} {share:.2%}" for name, share in known.items())
    return "; ".join([*parts, f"no design is better than the best here by more than {gaps}"])
