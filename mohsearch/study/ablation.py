"""From a study to its ablation: the whole portfolio, and one variant per operator switched off."""

from __future__ import annotations

from dataclasses import replace

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.engines import ENGINES
from mohsearch.operators.portfolio import Portfolio, load_ladder, load_portfolio
from mohsearch.study.plan import Study
from mohsearch.study.spec import EngineEntry, PortfolioEntry, StudySpec

CONTROL_SEEDS = 2
"""Seeds of an ablation at least: the second run of the whole portfolio is the control."""


def is_ablation(spec: StudySpec) -> bool:
    """Tell whether a study has a portfolio as a whole and variants of it without operators."""
    whole = {entry.name for entry in spec.portfolios if not entry.without and not entry.only}
    return any(entry.without and entry.name in whole for entry in spec.portfolios)


def ablation_study(
    study: Study,
    portfolio: str | None = None,
    ladder: str | None = None,
    seeds: int | None = None,
) -> Study:
    """Return the ablation of a study, for any problem.

    Its problems, workloads, engines and budget stay; portfolios become the whole one and one for
    each step. Engines that use neither crossover nor mutation are left out. A study that is an
    ablation already is returned with no other change than its seeds.

    Parameters
    ----------
    portfolio
        Label of the portfolio to ablate (default: the study's first).
    ladder
        Named series of steps from the problem's shelf (default: every crossover, mutation and
        immigrant alone).
    seeds
        Number of seeds (default: the study's, but two at least).

    Raises
    ------
    InputError
        If problems of several kinds are searched, or nothing can be switched off.
    UnknownNameError
        If there is no such portfolio or ladder.

    Examples
    --------
    >>> from mohsearch.study import load_study
    >>> steps = ablation_study(load_study("smoke"), ladder="ablation").spec.portfolios
    >>> [step.title for step in steps][:2]
    ['paper', 'paper-without-scheduling-crossover']
    """
    spec = study.spec
    changes: dict[str, object] = {"seeds": _seeds(spec, seeds)}
    if not is_ablation(spec) or portfolio is not None or ladder is not None:
        whole, steps = _steps(study, portfolio, ladder)
        changes |= {
            "name": f"{spec.name}-ablation",
            "title": f"{spec.title}: portfolio {whole.title}, each step switched off",
            "portfolios": (whole, *steps),
            "problems": tuple(p.model_copy(update={"portfolios": None}) for p in spec.problems),
            "engines": _varying(spec),
        }
    content = spec.model_copy(update=changes).model_dump()
    return replace(study, spec=StudySpec.model_validate(content))


def _seeds(spec: StudySpec, wanted: int | None) -> tuple[int, ...]:
    if wanted is not None:
        if wanted < CONTROL_SEEDS:
            raise InputError(
                f"an ablation needs {CONTROL_SEEDS} seeds at least: the second is the control"
            )
        return tuple(range(1, wanted + 1))
    seeds = spec.seed_list()
    return seeds if len(seeds) >= CONTROL_SEEDS else (*seeds, max(seeds) + 1)


def _steps(
    study: Study, portfolio: str | None, ladder: str | None
) -> tuple[PortfolioEntry, list[PortfolioEntry]]:
    spec, source = study.spec, str(study.source)
    problems = sorted({entry.name for entry in spec.problems})
    if len(problems) > 1:
        raise InputError(f"an ablation takes one problem, got {', '.join(problems)}", source=source)
    entry = _entry(spec, portfolio, source)
    if ladder is not None:
        rungs = load_ladder(problems[0], ladder, study.catalog)
        entry = PortfolioEntry(name=rungs[0].name, skip_inapplicable=entry.skip_inapplicable)
        whole = rungs[0]
        dropped = [tuple(n for n in whole.operators if n not in r.operators) for r in rungs[1:]]
    else:
        whole = load_portfolio(
            problems[0], entry.name, study.catalog, without=entry.without, only=entry.only
        )
        names = whole.names("crossover", "mutation", "immigrant")
        dropped = [(name,) for name in names if _possible(whole, name)]
    if not dropped:
        raise InputError(f"nothing can be switched off in portfolio {entry.title!r}", source=source)
    return entry, [_without(entry, names) for names in dropped]


def _entry(spec: StudySpec, label: str | None, source: str) -> PortfolioEntry:
    if label is None:
        return spec.portfolios[0]
    for entry in spec.portfolios:
        if entry.title == label:
            return entry
    known = [entry.title for entry in spec.portfolios]
    raise UnknownNameError("portfolio label", label, known, source=source)


def _possible(whole: Portfolio, name: str) -> bool:
    """Tell whether what is left without an operator could still vary a population."""
    try:
        whole.without(name)
    except InputError:
        return False
    return True


def _without(entry: PortfolioEntry, names: tuple[str, ...]) -> PortfolioEntry:
    changes: dict[str, object] = {"label": f"{entry.title}-without-{'+'.join(names)}"[:60]}
    if entry.only:
        changes["only"] = tuple(name for name in entry.only if name not in names)
    else:
        changes["without"] = (*entry.without, *names)
    return entry.model_copy(update=changes)


def _varying(spec: StudySpec) -> tuple[EngineEntry, ...]:
    """Return the engines that use what is ablated."""
    kept = []
    for entry in spec.engines:
        engine = ENGINES.load(entry.engine)
        can = engine.algorithms.get(entry.algorithm or engine.default_algorithm)
        if can is not None and {"crossover", "mutation"} & set(can.operators):
            kept.append(entry.model_copy(update={"portfolios": None}))
    if not kept:
        raise InputError("no engine of this study uses crossover or mutation")
    return tuple(kept)
