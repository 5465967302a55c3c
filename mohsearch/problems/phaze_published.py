"""What PHAZE publishes about each model, and options that refer to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InputError
from mohsearch.problems.phaze_options import Count, Counts, ExpertCard, Mode, PhazeOptions

Accelerator = tuple[Count, Count, Count, Count, Count]


class PublishedModel(Card):
    """One row of the paper's tables 2, 4 and 5.

    Attributes
    ----------
    widths
        Tensor-parallel widths that were tried.
    expert, placement
        The expert's plan, and the one found, {pipeline, data, tensor}.
    spotlight, found
        Accelerators that Spotlight and the paper's search found.
    mfu_percent
        TPUv4 with the expert's plan, TPUv4 with the paper's solver, common accelerator.
    """

    title: str
    widths: Counts
    expert: ExpertCard
    spotlight: Accelerator
    found: Accelerator
    placement: tuple[Count, Count, Count]
    microbatch: Count
    recompute: Mode
    hbm_gib: Count
    mfu_percent: tuple[float, float, float] | None


class PublishedResults(Card):
    """``evaluators/reference/phaze/published_models.yaml``."""

    source: str
    tpuv4: Accelerator
    common: Accelerator
    averages: dict[str, float]
    models: dict[str, PublishedModel] = Field(min_length=1)


@lru_cache(maxsize=1)
def published() -> PublishedResults:
    """Return what the paper publishes.

    Examples
    --------
    >>> published().models["gpt3-175b"].widths
    (4, 8)
    """
    path = builtin_root() / "evaluators" / "reference" / "phaze" / "published_models.yaml"
    return read_card(PublishedResults, path)


def with_published(options: PhazeOptions, models: Sequence[str]) -> PhazeOptions:
    """Return options in which references to the paper are replaced by what it says.

    Raises
    ------
    InputError
        If they refer to a model that the paper does not have, or to one model's figures where
        several are trained.
    """
    known = published()
    changes: dict[str, object] = {}
    if options.accelerator in {"tpuv4", "common"}:
        changes["fixed_architecture"] = getattr(known, options.accelerator)
    elif options.accelerator is not None:
        row = _row(models, "accelerator")
        found = row.found if options.accelerator == "published" else row.spotlight
        changes["fixed_architecture"] = found
    if options.published_widths:
        for name in models:
            _row([name], "published_widths")
    if options.placement == "expert" and options.expert is None:
        changes["expert"] = _row(models, "placement").expert
    if not changes:
        return options
    changes["accelerator"] = None
    given = {name: getattr(options, name) for name in options.model_fields_set}
    return PhazeOptions.model_validate({**given, **changes})


def _row(models: Sequence[str], field: str) -> PublishedModel:
    known = published().models
    if len(models) > 1:
        raise InputError(
            "refers to the paper's figures of one model; several are given", field=field
        )
    if models[0] not in known:
        raise InputError(
            f"the paper has no model {models[0]!r}; its models: {', '.join(known)}", field=field
        )
    return known[models[0]]
