"""YAML cards: safe reading, and validation whose errors carry the field path."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from mohsearch.core.errors import InputError

MAX_CARD_BYTES = 16 * 2**20
"""Larger YAML files are refused: a card is a declaration, not a data set."""

MAX_ALIASES = 1000
MAX_DEPTH = 64


class Card(BaseModel):
    """Base of all declarations: unknown keys are errors, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


ModelT = TypeVar("ModelT", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """Safe loader that refuses duplicate keys, alias bombs and very deep nesting."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._alias_count = 0
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self._alias_count += 1
            if self._alias_count > MAX_ALIASES:
                raise yaml.YAMLError(f"more than {MAX_ALIASES} aliases")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MAX_DEPTH} levels")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.YAMLError(f"line {key_node.start_mark.line + 1}: unhashable key")
            if key in seen:
                raise yaml.YAMLError(f"line {key_node.start_mark.line + 1}: duplicate key {key!r}")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _expanded_size(value: Any, budget: int = 10**6) -> None:
    """Raise if the value, aliases followed, holds more than ``budget`` nodes."""
    stack = [value]
    while stack:
        budget -= 1
        if budget < 0:
            raise yaml.YAMLError("expands to more than a million values (alias bomb?)")
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def read_text(path: Path) -> str:
    """Read a text file, turning every way it can fail into an :class:`InputError`."""
    try:
        if path.is_file() and path.stat().st_size > MAX_CARD_BYTES:
            raise InputError(f"larger than {MAX_CARD_BYTES // 2**20} MiB", source=path)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text (byte {error.start})", source=path) from error
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path) from error


def read_yaml(path: Path) -> Any:
    """Read one YAML document with the safe loader.

    Raises
    ------
    InputError
        If the file cannot be read or is not valid YAML.
    """
    text = read_text(path)
    try:
        value = yaml.load(text, Loader=_Loader)
        _expanded_size(value)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"not valid YAML: {where}{problem}", source=path) from error
    return value


def field_path(location: tuple[int | str, ...]) -> str:
    """Write a location tuple as a field path.

    Examples
    --------
    >>> field_path(("runs", 0, "budget"))
    'runs[0].budget'
    """
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def validate(model: type[ModelT], data: Any, *, source: str | Path | None = None) -> ModelT:
    """Validate ``data`` against a pydantic model.

    Raises
    ------
    InputError
        Naming the first wrong field, with the number of further ones.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        first = problems[0]
        message = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = ", ".join(sorted(_known_fields(model, first["loc"])))
            message = "no such field" + (f"; known fields: {known}" if known else "")
        elif first["type"] not in {"missing", "value_error"}:
            given = repr(first["input"])
            message += f" (got {given if len(given) <= 60 else given[:57] + '...'})"
        if len(problems) > 1:
            message += f" (and {len(problems) - 1} more)"
        raise InputError(message, source=source, field=field_path(first["loc"]) or None) from error


def _known_fields(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """Return the field names of the sub-model in which ``location``'s last part stands."""
    current: Any = model
    for part in location[:-1]:
        fields = getattr(current, "model_fields", None)
        if not isinstance(part, str) or fields is None or part not in fields:
            return set()
        current = fields[part].annotation
    fields = getattr(current, "model_fields", None)
    return set(fields) if fields else set()


def read_card(model: type[ModelT], path: Path) -> ModelT:
    """Read and validate one card."""
    return validate(model, read_yaml(path), source=path)
