"""Reading ONNX files without their weights.

Shapes are all a hardware search needs, and the weights are nearly all of a file. The protobuf wire
format is walked in a memory map, and the data of tensors too large to describe a shape is dropped
before anything is parsed: memory depends on the graph, not on the weights.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require

KEEP_BYTES = 32 * 2**10
"""Tensors up to this encoded size keep their data: they may say how a tensor is reshaped."""

MAX_GRAPH_BYTES = 256 * 2**20
"""Largest graph, weights left out."""

MAX_NESTING = 32

# Messages on the way to a tensor, by field number (onnx.proto). TENSOR itself is the empty table.
_TENSOR: dict[int, Any] = {}
_SPARSE: dict[int, Any] = {1: _TENSOR, 2: _TENSOR}
_ATTRIBUTE: dict[int, Any] = {5: _TENSOR, 10: _TENSOR, 22: _SPARSE, 23: _SPARSE}
_NODE: dict[int, Any] = {5: _ATTRIBUTE}
_GRAPH: dict[int, Any] = {1: _NODE, 5: _TENSOR, 15: _SPARSE}
_ATTRIBUTE |= {6: _GRAPH, 11: _GRAPH}
_MODEL: dict[int, Any] = {7: _GRAPH, 25: {7: _NODE}}

_TENSOR_DATA = frozenset({4, 5, 6, 7, 9, 10, 11})
"""float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _BrokenError(Exception):
    """The bytes are no protobuf message."""


def read_model(path: Path) -> Any:
    """Return the ``onnx.ModelProto`` of a file, the data of large tensors dropped.

    External data files are never opened.

    Raises
    ------
    InputError
        If the file cannot be read, is truncated, or is no ONNX model.
    MissingExtraError
        If the package ``onnx`` is not installed.
    """
    onnx = require("onnx", "onnx")
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise InputError("the file is empty", source=path)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                slim = _slimmed(mapped)
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path) from error
    except _BrokenError as error:
        raise InputError(f"truncated, or not an ONNX model: {error}", source=path) from error
    try:
        model = onnx.ModelProto.FromString(slim)
    except Exception as error:  # the class depends on protobuf's implementation
        raise InputError(f"truncated, or not an ONNX model: {error}", source=path) from error
    if not model.graph.node:
        raise InputError("not an ONNX model: it holds no graph with nodes", source=path)
    return model


def _slimmed(mapped: mmap.mmap) -> bytes:
    """Return the message with large tensor data left out."""
    with memoryview(mapped) as view:
        return _slim(view, 0, len(view), _MODEL, 0)


def _slim(view: memoryview, start: int, stop: int, fields: Mapping[int, Any], depth: int) -> bytes:
    """Return the message in ``view[start:stop]`` with the data of large tensors left out."""
    if depth > MAX_NESTING:
        raise _BrokenError(f"nested deeper than {MAX_NESTING} levels")
    pieces = []
    size = 0
    for number, wire, begin, payload, end in _walk(view, start, stop):
        if fields is _TENSOR and number in _TENSOR_DATA:
            continue
        inner = fields.get(number)
        if inner is None or wire != _BYTES or end - payload <= KEEP_BYTES:
            piece = bytes(view[begin:end])
        else:
            body = _slim(view, payload, end, inner, depth + 1)
            piece = _varint(number << 3 | _BYTES) + _varint(len(body)) + body
        pieces.append(piece)
        size += len(piece)
        if size > MAX_GRAPH_BYTES:
            raise _BrokenError(f"the graph alone exceeds {MAX_GRAPH_BYTES // 2**20} MiB")
    return b"".join(pieces)


def _walk(view: memoryview, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, begin, begin of payload and end of each field."""
    position = start
    while position < stop:
        begin = position
        key, position = _read_varint(view, position, stop)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise _BrokenError(f"field number 0 at byte {begin}")
        if wire == _VARINT:
            payload = position
            _, position = _read_varint(view, position, stop)
        elif wire == _BYTES:
            length, payload = _read_varint(view, position, stop)
            position = payload + length
        elif wire in {_FIXED64, _FIXED32}:
            payload = position
            position += 8 if wire == _FIXED64 else 4
        else:
            raise _BrokenError(f"wire type {wire} at byte {begin}")
        if position > stop:
            raise _BrokenError(f"the field at byte {begin} ends {position - stop} bytes too late")
        yield number, wire, begin, payload, position


def _read_varint(view: memoryview, position: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= stop or shift > 63:
            raise _BrokenError(f"no number ends at byte {position}")
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
