"""YAML cards: safe reading, and validation whose errors carry the field path."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from mohsearch.core.errors import InputError

MAX_CARD_BYTES = 16 * 2**20
"""Larger YAML files are refused: a card is a declaration, not a data set."""

SMALLEST_NUMBER, LARGEST_NUMBER = 1e-60, 1e60
"""Numbers beyond these, but 0, are refused: no quantity is of that size, and products of a few of
them would leave the range of a float."""

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


def _out_of_range(number: float) -> bool:
    size = abs(number)
    return LARGEST_NUMBER < size < float("inf") or 0 < size < SMALLEST_NUMBER


def _refuse_number_out_of_range(value: Any, source: Path) -> None:
    """Raise at the first number that no quantity can have, with its place."""
    stack: list[tuple[tuple[int | str, ...], Any]] = [((), value)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, dict):
            stack.extend(((*place, str(key)), inner) for key, inner in item.items())
        elif isinstance(item, list):
            stack.extend(((*place, index), inner) for index, inner in enumerate(item))
        elif isinstance(item, float | int) and _out_of_range(item):
            digits = len(str(abs(item))) if isinstance(item, int) else 0
            named = f"a number of {digits} digits" if digits else f"{item:g}"
            raise InputError(
                f"{named} is no quantity: numbers are 0, or from {SMALLEST_NUMBER:g} "
                f"to {LARGEST_NUMBER:g}",
                source=source,
                field=field_path(place),
            )


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
        If the file cannot be read, is not valid YAML or has a number that no quantity can have
        (:data:`LARGEST_NUMBER`).
    """
    text = read_text(path)
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
        _expanded_size(value)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"not valid YAML: {where}{problem}", source=path) from error
    _refuse_number_out_of_range(value, path)
    return value


def yaml_text(value: Any) -> str:
    """Return plain data (mappings, lists, text, numbers) as YAML, in the order given.

    Examples
    --------
    >>> print(yaml_text({"b": [1, 2], "a": {"x": 0.5}}), end="")
    b: [1, 2]
    a: {x: 0.5}
    """
    text = yaml.safe_dump(
        value, sort_keys=False, default_flow_style=None, allow_unicode=True, width=96
    )
    return str(text)


def read_json(path: Path) -> Any:
    """Read one JSON document.

    Raises
    ------
    InputError
        If the file cannot be read, is not valid JSON, gives a key twice, or holds text that is no
        Unicode, a number of thousands of digits or one that no quantity can have
        (:data:`LARGEST_NUMBER`).
    """
    text = read_text(path).removeprefix("\ufeff")
    numbers = _Numbers()
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_float=numbers.floating,
            parse_int=numbers.whole,
        )
        if "\\ud" in text.lower():
            json.dumps(
                value, ensure_ascii=False
            ).encode()  # half a surrogate pair cannot be printed
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except UnicodeEncodeError:
        problem = "it escapes a character that does not exist"
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as error:
        problem = str(error).partition(";")[0]
    else:
        if numbers.out_of_range:
            _refuse_number_out_of_range(value, path)
        return value
    raise InputError(f"not valid JSON: {problem}", source=path)


class _Numbers:
    """Reads numbers, and remembers whether one was out of range (its place is not known here)."""

    def __init__(self) -> None:
        self.out_of_range = False

    def floating(self, text: str) -> float:
        value = float(text)
        self.out_of_range |= _out_of_range(value)
        return value

    def whole(self, text: str) -> int:
        value = int(text)
        self.out_of_range |= len(text) > 60 and _out_of_range(value)
        return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {key!r}")
        result[key] = value
    return result


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
        problems = _causes(error.errors(include_url=False, include_context=False))
        first = problems[0]
        path = _location(data, first["loc"], missing=first["type"] == "missing")
        same = [  # what each alternative of the field has against the value
            problem
            for problem in problems
            if _location(data, problem["loc"], missing=problem["type"] == "missing") == path
        ]
        message = " or ".join(dict.fromkeys(_plain_message(model, dict(p)) for p in same))
        if first["type"] not in {"missing", "value_error", "extra_forbidden"}:
            given = repr(first["input"])
            message += f" (got {given if len(given) <= 60 else given[:57] + '...'})"
        if further := len(problems) - len(same):
            message += f" (and {further} more)"
        raise InputError(message, source=source, field=field_path(path) or None) from error


def _causes(problems: list[Any]) -> list[Any]:
    """Return the problems without those that only follow: a list is short as its item is wrong."""
    places = [problem["loc"] for problem in problems]
    return [
        problem
        for problem in problems
        if problem["type"] != "too_short"
        or not any(place[:-1] == problem["loc"] for place in places)
    ]


_COUNTED = re.compile(r"^(?:Tuple|List|Dictionary|Set|Frozenset) should")
_CONTAINERS = {
    "dict_type": "must be a mapping from names to values",
    "model_type": "must be a mapping from names to values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}


def _plain_message(model: type[BaseModel], problem: dict[str, Any]) -> str:
    """Return what is wrong in words that name no Python type."""
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = ", ".join(sorted(_known_fields(model, problem["loc"])))
        return "no such field" + (f"; known fields: {known}" if known else "")
    message = _CONTAINERS.get(kind) or str(problem["msg"]).removeprefix("Value error, ")
    return _COUNTED.sub("must", message).replace(" after validation", "")


def _location(
    data: Any, location: tuple[int | str, ...], *, missing: bool
) -> tuple[int | str, ...]:
    """Return the parts of a location that stand in ``data``, leaving out the names of types.

    pydantic adds the name of each alternative that it tried; a missing field is kept.
    """
    kept = []
    for index, part in enumerate(location):
        keys = {str(key): key for key in data} if isinstance(data, dict) else {}
        if str(part) in keys:
            data = data[keys[str(part)]]
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif not (missing and index == len(location) - 1):
            continue
        kept.append(part)
    return tuple(kept)


def _known_fields(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """Return the field names of the models in which ``location``'s last part may stand."""
    current: Any = model
    for part in location[:-1]:
        for candidate in _models(current):
            if field := _fields(candidate).get(str(part)):
                current = field.annotation
                break
    return {name for candidate in _models(current) for name in _fields(candidate)}


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the names under which they are written."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation names, inside lists, mappings and alternatives too."""
    if inner := get_args(annotation):
        return [found for part in inner for found in _models(part)]
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return [annotation] if is_model else []


def read_card(model: type[ModelT], path: Path) -> ModelT:
    """Read and validate one card."""
    return validate(model, read_yaml(path), source=path)
