"""Options of the problem measured, as a study file gives them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from mohsearch.core.cards import Card


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class MeasuredOptions(Card):
    """Which points of a set are taken.

    Examples
    --------
    >>> MeasuredOptions(devices="A100").devices
    ('A100',)
    """

    at_least: float = Field(
        default=0.0,
        ge=0,
        description=(
            "Leave out points whose measured figure is not above this, in the set's unit (ms of a "
            "kernel, mm2 of a die)."
        ),
    )
    devices: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(
        default=(), description="System cards whose points are taken; all where none is named."
    )
