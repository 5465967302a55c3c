"""Cards whose every figure names its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import model_validator

from mohsearch.core.cards import Card


def figure_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted path of every number inside nested mappings and lists.

    Examples
    --------
    >>> list(figure_paths({"a": {"b": 1}, "c": "text"}))
    ['a.b']
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from figure_paths(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from figure_paths(item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


class SourcedCard(Card):
    """A card with ``sources``: field path (or a prefix of it) to where the figures come from.

    A number that no source covers is an error, so is a source that covers nothing.
    """

    sources: dict[str, str]

    @model_validator(mode="after")
    def _every_figure_has_a_source(self) -> SourcedCard:
        data = self.model_dump(exclude={"sources"}, exclude_none=True, exclude_unset=True)
        paths = set(figure_paths(data))
        used = set()
        for path in sorted(paths):
            parts = path.split(".")
            covering = [
                prefix
                for n in range(len(parts), 0, -1)
                if (prefix := ".".join(parts[:n])) in self.sources
            ]
            if not covering:
                raise ValueError(f"the figure {path} has no source")
            used.add(covering[0])
        idle = sorted(set(self.sources) - used)
        if idle:
            raise ValueError(f"sources name no figure of this card: {', '.join(idle)}")
        return self
