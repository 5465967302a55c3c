"""Tables of a report as titles, columns and rows of text: the page and its printable copy."""

from __future__ import annotations

from math import isnan
from statistics import median
from typing import Any

from mohsearch.analysis.ablate import Ablation
from mohsearch.analysis.compare import Comparison
from mohsearch.analysis.fronts import distance_to_ideal, highlights
from mohsearch.analysis.quantities import excess_text, scale_for, short_name
from mohsearch.analysis.report_gather import Case, Report

Table = dict[str, Any]


def comparison_tables(found: Comparison) -> list[Table]:
    """Return standings and tests of every case."""
    tables = []
    for case in found.cases:
        tables.append(_standings(found, case))
        tests = found.tests[case]
        if tests:
            rows = [
                [t.first, t.second, f"{t.p:.3g}", f"{t.p_holm:.3g}", f"{t.a12:.2f}"] for t in tests
            ]
            for row, t in zip(rows, tests, strict=True):
                row += [t.size, found.verdict(t)]
            columns = ["first", "second", "p", "p (Holm)", "A", "effect", "conclusion"]
            title = f"{case}: tests of each pair" if case else "Tests of each pair"
            tables.append({"title": title, "columns": columns, "rows": rows})
    return tables


def _standings(found: Comparison, case: str) -> Table:
    standings = [s for s in found.standings if s.case == case]
    bounds = list(dict.fromkeys(name for s in standings for name in s.over_bound))
    bounds = [name for name in bounds if name in found.objectives[case]]
    columns = ["rank", "/".join(found.fields), "runs", "hypervolume", "quartiles", "IGD+"]
    columns += ["epsilon", "R2", "spread", "CPU-s"]
    columns += [f"{short_name(name)} over bound" for name in bounds]
    rows = []
    for s in standings:
        low, middle, high = s.quartiles()
        row = [str(s.rank), s.contender, str(len(s.runs)), f"{middle:.4f}"]
        row += [f"{low:.4f} to {high:.4f}", f"{s.igd_plus:.4f}", f"{s.epsilon:.4f}"]
        row += [f"{s.r2:.4f}", _known(s.spread), f"{s.cpu_s:,.2f}" if s.cpu_s >= 0 else ""]
        row += [excess_text(s.over_bound[n]) if n in s.over_bound else "" for n in bounds]
        rows.append(row)
    return {"title": case or "Standings", "columns": columns, "rows": rows}


def _known(value: float) -> str:
    return "-" if isnan(value) else f"{value:.3f}"


def ablation_table(item: Ablation) -> Table:
    """Return one row per operator switched off, the control first."""
    published = any(s.published is not None for s in (item.control, *item.steps))
    columns = ["switched off", "dominated", *(["published"] if published else [])]
    columns += ["quartiles of pairs", "hypervolume", "p (Holm)", "A", "conclusion"]
    rows = []
    for step in (item.control, *item.steps):
        low, middle, high = step.quartiles()
        row = ["nothing (control)" if step is item.control else step.name, f"{step.share:.1%}"]
        if published:
            row.append("" if step.published is None else f"{step.published:.1%}")
        row.append(f"{low:.1%}, {middle:.1%}, {high:.1%}" if len(step.shares) > 1 else "")
        row.append(f"{median(step.hypervolumes):.4f}")
        test = step.test
        if test is None:
            row += ["", "", step.conclusion]
        else:
            row += [f"{test.p_holm:.3g}", f"{test.a12:.2f}", step.conclusion]
        rows.append(row)
    return {"title": "", "columns": columns, "rows": rows}


def run_table(report: Report) -> Table:
    """Return one row per run: state, effort, and the command that made it."""
    columns = ["run", "status", "evaluations", "distinct", "wall", "CPU", "digest", "command"]
    rows = []
    for run in report.runs:
        counts = [
            f"{int(run[k]):,}" if run[k] is not None else "" for k in ("evaluations", "distinct")
        ]
        times = [
            f"{float(run[k]):,.1f} s" if run[k] is not None else "" for k in ("wall_s", "cpu_s")
        ]
        name = run["run"] if len(report.folders) == 1 else f"{run['folder']}: {run['run']}"
        rows.append([name, run["status"], *counts, *times, run["digest"], run["command"]])
    return {"title": "", "columns": columns, "rows": rows}


def highlight_table(case: Case, count: int = 8) -> Table:
    """Return the solutions of each front worth reading first: extremes, knee and a spread."""
    names = [m.name for m in case.metrics if m.name in case.objectives]
    scales = {
        n: scale_for([v for m in case.members for v in m.front.values[n]], _unit(case, n))
        for n in names
    }
    columns = ["front", "solution", *(f"{short_name(n)} ({scales[n].unit})" for n in names)]
    columns += [f"{short_name(n)} over bound" for n in names if _bounded(case, n)]
    columns += ["why", "design"]
    rows = []
    for member in case.members:
        over = distance_to_ideal(member.front)
        for index, why in highlights(member.front, count).items():
            row = [member.label, str(index)]
            row += [scales[n].text(float(member.front.values[n][index])) for n in names]
            row += [excess_text(float(over[n][index])) for n in names if _bounded(case, n)]
            sheet = member.sheets.get(index)
            rows.append([*row, why, sheet["line"] if sheet else ""])
    return {"title": "", "columns": columns, "rows": rows}


def _unit(case: Case, name: str) -> str:
    return case.members[0].front.metric(name).unit


def _bounded(case: Case, name: str) -> bool:
    return all(name in member.front.ideal_point for member in case.members)
