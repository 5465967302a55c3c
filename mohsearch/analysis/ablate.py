"""What each operator is worth: runs without it beside runs with all, and beside a control.

The measure of MOHaM, section VI-B6: of the non-dominated solutions in the final population of a run
without one operator, the share that the solutions of the whole portfolio's run Pareto-dominate. The
control is the same share for a second run of the whole portfolio with another seed: what chance
alone does. Beside it stands the hypervolume over seeds with a test.
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
from mohsearch.analysis.results import open_tree, plain, read_final_fronts
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
        One per seed.
    test
        Baseline's hypervolumes against these; None for the control.
    published
        Share that the source of the portfolio reports, where it is known.
    """

    name: str
    share: float
    shares: tuple[float, ...]
    hypervolumes: tuple[float, ...]
    test: PairTest | None = None
    published: float | None = None

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
        The run whose front every ``share`` is measured against.
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
                    "conclusion": conclusion(step.test),
                }
            rows.append(row)
        return rows


def conclusion(test: PairTest) -> str:
    """Return what the test of baseline against variant says about the operator."""
    if test.verdict == "too few seeds" or test.p_holm > ALPHA:
        return test.verdict
    return "needed" if test.a12 > 0.5 else "harmful"


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
    fronts = read_final_fronts(Path(folder), patterns)
    fields = [f for f in varying_fields(fronts) if f != "portfolio"]
    cases: dict[str, list[Front]] = {}
    for front in fronts:
        cases.setdefault(label(front.attrs, fields), []).append(front)
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
    case: str, whole: str, variants: Mapping[str, str], fronts: Sequence[Front]
) -> Ablation | None:
    groups: dict[str, list[Front]] = {}
    for front in sorted(fronts, key=lambda f: int(f.attrs.get("seed", 0))):
        groups.setdefault(str(front.attrs.get("portfolio")), []).append(front)
    baseline = groups.get(whole, [])
    present = {off: groups[title] for off, title in variants.items() if title in groups}
    if len(baseline) < 2 or not present:
        return None
    names = common_objectives([*baseline, *(f for g in present.values() for f in g)])
    losses = {CONTROL: [f.losses(names) for f in baseline]}
    losses |= {off: [f.losses(names) for f in group] for off, group in present.items()}
    box = common_box([points for group in losses.values() for points in group])
    volumes = {k: tuple(hypervolume(p, box).value for p in group) for k, group in losses.items()}
    tests = compare_pairs(volumes, [(CONTROL, off) for off in present])
    published = _published(baseline[0], whole)
    own = losses[CONTROL]
    control = Step(
        CONTROL,
        dominated_share(own[0], own[1]),
        tuple(dominated_share(a, b) for a in own for b in own if a is not b),
        volumes[CONTROL],
        published=published.get(CONTROL),
    )
    steps = tuple(
        Step(
            off,
            dominated_share(own[0], losses[off][0]),
            tuple(dominated_share(a, b) for a in own for b in losses[off]),
            volumes[off],
            test,
            published.get(off),
        )
        for off, test in zip(present, tests, strict=True)
    )
    missing = [off for off in variants if off not in present]
    notes = _notes(baseline, tests, missing)
    return Ablation(case, whole, control, steps, names, box, baseline[0].run, notes)


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


def _notes(
    baseline: Sequence[Front], tests: Sequence[PairTest], missing: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    if any(test.verdict == "too few seeds" for test in tests):
        notes.append(
            f"too few seeds to conclude from hypervolumes: {len(baseline)} a variant; "
            f"{seeds_needed(len(tests))} are needed to tell {len(tests)} variants apart"
        )
    if missing:
        notes.append(f"not complete yet: without {', without '.join(missing)}")
    return tuple(notes)
