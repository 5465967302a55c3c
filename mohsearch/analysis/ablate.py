"""What each operator is worth: runs without it beside runs with all, and beside a control.

The measure of MOHaM, section VI-B6: of the non-dominated solutions in the final population of a run
without one operator, the share that the solutions of the whole portfolio's run Pareto-dominate. The
control is the same share for a second run of the whole portfolio with another seed: what chance
alone does. Beside it stands the hypervolume over seeds with a test: of all non-dominated solutions
that a run found, as in every other table, since a small population cannot hold a front of many
objectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mohsearch.analysis.fronts import Front, common_objectives
from mohsearch.analysis.indicators import Box, common_box, dominated_share, hypervolume
from mohsearch.analysis.labels import label, varying_fields
from mohsearch.analysis.results import open_tree, plain, read_final_fronts, read_fronts
from mohsearch.analysis.statistics import ALPHA, PairTest, compare_pairs, seeds_needed
from mohsearch.core.errors import InputError

CONTROL = "control"


@dataclass(frozen=True)
class Step:
    """One variant of the portfolio, or the control.

    Attributes
    ----------
    name
        Operators switched off, joined; :data:`CONTROL` for the whole portfolio again.
    share
        As the paper has it: the share of this variant's first run that the baseline's first run
        dominates; for the control the share of the baseline's second run.
    shares
        The same for every pair of a baseline run and a run of this variant (for the control of two
        different baseline runs).
    hypervolumes
        One per seed, of all non-dominated solutions that the run found.
    test
        Baseline's hypervolumes against these; None for the control and where ``idle``.
    published
        Share that the source of the portfolio reports, where it is known.
    idle
        Whether every run found just what the baseline's run with the same seed found: what is
        switched off had nothing to vary.
    """

    name: str
    share: float
    shares: tuple[float, ...]
    hypervolumes: tuple[float, ...]
    test: PairTest | None = None
    published: float | None = None
    idle: bool = False

    @property
    def conclusion(self) -> str:
        """What the hypervolumes say about the operator; empty for the control.

        ``needed`` where the whole portfolio is significantly better, ``harmful`` where it is
        significantly worse than without the operator.
        """
        if self.idle:
            return "nothing to vary here"
        if self.test is None:
            return ""
        if self.test.verdict == "too few seeds" or self.test.p_holm > ALPHA:
            return self.test.verdict
        return "needed" if self.test.a12 > 0.5 else "harmful"

    def quartiles(self) -> tuple[float, float, float]:
        """Return first quartile, median and third quartile of the shares."""
        low, middle, high = np.quantile(self.shares, [0.25, 0.5, 0.75])
        return float(low), float(middle), float(high)


@dataclass(frozen=True)
class Ablation:
    """One portfolio ablated in one case.

    Attributes
    ----------
    case
        Problem, workload and engine, as far as they vary.
    portfolio
        The whole portfolio.
    control
        The whole portfolio against itself.
    steps
        Variants, in the order of the study.
    objectives
        Metrics compared on.
    box
        Normalisation and reference point of the hypervolumes.
    baseline_run
        The run whose final population every ``share`` is measured against.
    """

    case: str
    portfolio: str
    control: Step
    steps: tuple[Step, ...]
    objectives: tuple[str, ...]
    box: Box
    baseline_run: str
    notes: tuple[str, ...] = field(default=())

    @property
    def rules(self) -> tuple[str, str]:
        """What both measures are taken of, as sentences to stand beside them."""
        return (
            f"dominated: share of a run's final non-dominated solutions that {self.baseline_run} "
            "dominates",
            f"hypervolume: of all non-dominated solutions that a run found; {self.box.rule}",
        )

    @property
    def above_control(self) -> tuple[Step, ...]:
        """The steps whose share exceeds the control's: their operators matter, by the paper."""
        return tuple(step for step in self.steps if step.share > self.control.share)

    def records(self) -> list[dict[str, object]]:
        """Return flat records, the control first, for a table or CSV."""
        rows: list[dict[str, object]] = []
        for step in (self.control, *self.steps):
            low, middle, high = step.quartiles()
            row: dict[str, object] = {
                "case": self.case,
                "portfolio": self.portfolio,
                "without": "" if step is self.control else step.name,
                "dominated_share": step.share,
                "published_share": step.published,
                "above_control": "" if step is self.control else step.share > self.control.share,
                "pairs": len(step.shares),
                "dominated_share_q1": low,
                "dominated_share_median": middle,
                "dominated_share_q3": high,
                "seeds": len(step.hypervolumes),
                "hypervolume_median": float(np.median(step.hypervolumes)),
            }
            if step.test is not None:
                row |= {
                    "p_holm": step.test.p_holm,
                    "vargha_delaney_a12": step.test.a12,
                }
            if step is not self.control:
                row["conclusion"] = step.conclusion
            rows.append(row)
        return rows


@dataclass(frozen=True)
class _Run:
    """One run: all that it found, and what its last population held."""

    found: Front
    final: Front

    @property
    def seed(self) -> int:
        return int(self.found.attrs.get("seed", 0))


def ablate(folder: str | Path, patterns: Sequence[str] = ()) -> tuple[Ablation, ...]:
    """Return the ablations that a study's output folder holds, one per case and portfolio.

    Raises
    ------
    InputError
        If the study has no portfolio both whole and with operators switched off, the whole one has
        a single seed, or runs are missing.
    """
    tree = open_tree(Path(folder))
    spec = plain(tree.attrs.get("spec"))
    entries = spec.get("portfolios", []) if isinstance(spec, dict) else []
    titles = {e.get("label") or e["name"]: e for e in entries}
    finals = {front.run: front for front in read_final_fronts(Path(folder), patterns)}
    fronts = read_fronts(Path(folder), patterns, designs=False)
    fields = [f for f in varying_fields(fronts) if f != "portfolio"]
    cases: dict[str, list[_Run]] = {}
    for front in fronts:
        cases.setdefault(label(front.attrs, fields), []).append(_Run(front, finals[front.run]))
    found = [
        made
        for case, members in cases.items()
        for whole, variants in _families(titles).items()
        if (made := _ablation(case, whole, variants, members)) is not None
    ]
    if not found:
        raise InputError(
            "is no ablation: it needs a portfolio, with two seeds, and variants of it 'without' "
            "some operators; `mohsearch ablate STUDY` makes one of any study",
            source=folder,
        )
    return tuple(found)


def _families(titles: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return by whole portfolio its variants: what is off in each, and its label.

    A variant has the same name and switches more operators off than the whole one, which is the one
    of that name that switches off the least.
    """
    wholes: dict[str, str] = {}
    for title, entry in titles.items():
        rival = wholes.get(entry["name"])
        if rival is None or _size(entry) > _size(titles[rival]):
            wholes[entry["name"]] = title
    families: dict[str, dict[str, str]] = {}
    for title, entry in titles.items():
        whole = wholes[entry["name"]]
        base = titles[whole]
        off = [n for n in entry.get("without") or () if n not in (base.get("without") or ())]
        if entry.get("only"):
            off += [n for n in base.get("only") or () if n not in entry["only"]]
        if off:
            families.setdefault(whole, {})[" + ".join(off)] = title
    return families


def _size(entry: Mapping[str, Any]) -> int:
    """Return a number that grows with the operators an entry of one portfolio keeps."""
    return len(entry.get("only") or ()) - len(entry.get("without") or ())


def _ablation(
    case: str, whole: str, variants: Mapping[str, str], runs: Sequence[_Run]
) -> Ablation | None:
    groups: dict[str, list[_Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(str(run.found.attrs.get("portfolio")), []).append(run)
    baseline = groups.get(whole, [])
    present = {off: groups[title] for off, title in variants.items() if title in groups}
    if len(baseline) < 2 or not present:
        return None
    members = {CONTROL: baseline, **present}
    names = common_objectives([run.found for group in members.values() for run in group])
    found = {off: [r.found.losses(names) for r in group] for off, group in members.items()}
    finals = {off: [r.final.losses(names) for r in group] for off, group in members.items()}
    box = common_box([points for group in found.values() for points in group])
    volumes = {k: tuple(hypervolume(p, box).value for p in group) for k, group in found.items()}
    idle = {off for off, group in present.items() if _same_runs(baseline, group, names)}
    tested = [(CONTROL, off) for off in present if off not in idle]
    tests = {test.second: test for test in compare_pairs(volumes, tested)}
    published = _published(baseline[0].found, whole)

    def step(off: str) -> Step:
        own, theirs = finals[CONTROL], finals[off]
        pairs = [(a, b) for a in own for b in theirs if a is not b]
        return Step(
            name=off,
            share=dominated_share(own[0], theirs[1 if off == CONTROL else 0]),
            shares=tuple(dominated_share(a, b) for a, b in pairs),
            hypervolumes=volumes[off],
            test=tests.get(off),
            published=published.get(off),
            idle=off in idle,
        )

    missing = [off for off in variants if off not in present]
    notes = _notes(len(baseline), tuple(tests.values()), missing)
    steps = tuple(step(off) for off in present)
    return Ablation(case, whole, step(CONTROL), steps, names, box, baseline[0].found.run, notes)


def _same_runs(first: Sequence[_Run], second: Sequence[_Run], names: Sequence[str]) -> bool:
    """Tell whether both groups have the same seeds and found the same with each."""

    def points(group: Sequence[_Run]) -> dict[int, list[tuple[float, ...]]]:
        return {run.seed: sorted(map(tuple, run.found.losses(names).tolist())) for run in group}

    return points(first) == points(second)


def _published(front: Front, portfolio: str) -> dict[str, float]:
    """Return the shares that the source of a portfolio's ladder reports, by what was off."""
    from mohsearch.core.catalog import Catalog
    from mohsearch.operators.portfolio import load_shelf

    problem = str(front.attrs.get("problem"))
    if problem not in Catalog().names("operators"):
        return {}
    shelf, _ = load_shelf(problem)
    for ladder in shelf.ladders.values():
        if ladder.portfolio == portfolio and ladder.published:
            return dict(ladder.published)
    return {}


def _notes(seeds: int, tests: Sequence[PairTest], missing: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if any(test.verdict == "too few seeds" for test in tests):
        notes.append(
            f"too few seeds to conclude from hypervolumes: {seeds} a variant; "
            f"{seeds_needed(len(tests))} are needed to tell {len(tests)} variants apart"
        )
    if missing:
        notes.append(f"not complete yet: without {', without '.join(missing)}")
    return tuple(notes)
