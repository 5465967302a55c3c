"""Content hashes: the same content has the same digest on every machine and run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np


def canonical(value: Any) -> Any:
    """Reduce ``value`` to plain JSON types in a canonical form.

    Accepts JSON types, NumPy scalars and arrays, dataclasses, mappings, sequences, sets and paths.

    Raises
    ------
    TypeError
        If the value holds anything else: a digest of an unknown object would not be stable.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, np.generic):
        return canonical(value.item())
    if isinstance(value, np.ndarray):
        data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": data}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **canonical(fields)}
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, (list, tuple)):
        return [canonical(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(v) for v in value), key=repr)
    if isinstance(value, PurePath):
        return value.as_posix()
    raise TypeError(f"no canonical form for {type(value).__qualname__}")


def content_digest(*values: Any) -> str:
    """Return the SHA-256 hex digest of ``values`` in canonical form.

    Examples
    --------
    >>> content_digest({"a": 1, "b": 2.5}) == content_digest({"b": 2.5, "a": 1})
    True
    >>> content_digest([1, 2]) == content_digest([2, 1])
    False
    """
    text = json.dumps(canonical(values), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
