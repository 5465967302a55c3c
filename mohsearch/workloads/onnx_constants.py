"""Folding of the small integer computations by which ONNX graphs describe shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ELEMENTS = 4096
"""Larger arrays describe no shape and are not folded."""

Value = NDArray[Any]
Attributes = Mapping[str, Any]


def fold(op_type: str, inputs: list[Value | None], attributes: Attributes) -> list[Value] | None:
    """Return the outputs of a shape computation whose inputs are known.

    Returns
    -------
    list of array or None
        None where the op type is not foldable or the result would be large.

    Raises
    ------
    ValueError, IndexError, TypeError
        If the inputs do not go together.

    Examples
    --------
    >>> fold("Concat", [np.array([1]), np.array([-1])], {"axis": 0})
    [array([ 1, -1])]
    """
    rule = _RULES.get(op_type)
    if rule is None:
        return None
    outputs = rule(inputs, attributes)
    if outputs is None:
        return None
    arrays = [np.asarray(output) for output in outputs]
    return arrays if all(a.size <= MAX_ELEMENTS for a in arrays) else None


def _given(inputs: list[Value | None], index: int) -> Value:
    value = inputs[index]
    if value is None:
        raise ValueError(f"input {index} is missing")
    return value


def _optional(inputs: list[Value | None], index: int) -> Value | None:
    return inputs[index] if index < len(inputs) else None


def _axes(inputs: list[Value | None], attributes: Attributes, index: int = 1) -> list[int] | None:
    """Return the axes an op names, by input (newer opsets) or attribute (older ones)."""
    value = _optional(inputs, index)
    if value is not None:
        return [int(v) for v in value.reshape(-1)]
    given = attributes.get("axes")
    return None if given is None else [int(v) for v in given]


def _squeeze(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
    axes = _axes(inputs, attributes)
    data = _given(inputs, 0)
    return [np.squeeze(data) if axes is None else np.squeeze(data, tuple(axes))]


def _unsqueeze(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
    axes = _axes(inputs, attributes)
    if axes is None:
        raise ValueError("no axes")
    return [np.expand_dims(_given(inputs, 0), tuple(axes))]


def _slice(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
    data = _given(inputs, 0)
    if len(inputs) > 1:
        starts, ends = _given(inputs, 1).tolist(), _given(inputs, 2).tolist()
        axes = _axes(inputs, {}, 3)
        steps_input = _optional(inputs, 4)
        steps = [1] * len(starts) if steps_input is None else steps_input.tolist()
    else:
        starts, ends = attributes["starts"], attributes["ends"]
        axes = _axes([], attributes)
        steps = [1] * len(starts)
    window = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        stop = None if step < 0 and end < -data.shape[axis] else end
        window[axis] = slice(start, stop, step)
    return [data[tuple(window)]]


def _reshape(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
    data, shape = _given(inputs, 0), _given(inputs, 1).tolist()
    if not attributes.get("allowzero", 0):
        shape = [data.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return [data.reshape(shape)]


def _expand(inputs: list[Value | None], _: Attributes) -> list[Value] | None:
    data, shape = _given(inputs, 0), [int(v) for v in _given(inputs, 1)]
    target = np.broadcast_shapes(data.shape, tuple(shape))
    return None if _large(target) else [np.broadcast_to(data, target).copy()]


def _filled(inputs: list[Value | None], attributes: Attributes) -> list[Value] | None:
    shape = [int(v) for v in _given(inputs, 0)]
    value = attributes.get("value", np.zeros(1, np.float32))
    return None if _large(shape) else [np.full(shape, value.reshape(-1)[0])]


def _range(inputs: list[Value | None], _: Attributes) -> list[Value] | None:
    start, limit, delta = (_given(inputs, i).item() for i in range(3))
    if delta == 0:
        raise ValueError("a range with step 0")
    count = max(int(np.ceil((limit - start) / delta)), 0)
    return None if _large([count]) else [start + delta * np.arange(count)]


def _large(shape: Any) -> bool:
    """Return whether an array of this shape is too large, without building it."""
    product = 1
    for size in shape:
        product *= int(size)
        if product > MAX_ELEMENTS:
            return True
    return False


def _divide(inputs: list[Value | None], _: Attributes) -> list[Value]:
    a, b = _given(inputs, 0), _given(inputs, 1)
    if np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer):
        if not np.all(b):
            raise ValueError("division by zero")
        return [(np.sign(a) * np.sign(b)) * (abs(a) // abs(b))]
    return [a / b]


def _cast(inputs: list[Value | None], attributes: Attributes) -> list[Value] | None:
    # TensorProto data types that shapes are computed in.
    types = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}
    target = types.get(attributes["to"])
    return None if target is None else [_given(inputs, 0).astype(target)]


def _split(inputs: list[Value | None], attributes: Attributes) -> list[Value] | None:
    sizes_input = _optional(inputs, 1)
    sizes = attributes.get("split") if sizes_input is None else sizes_input.tolist()
    if sizes is None:
        return None
    return list(np.split(_given(inputs, 0), np.cumsum(sizes)[:-1], attributes.get("axis", 0)))


def _constant(_: list[Value | None], attributes: Attributes) -> list[Value] | None:
    names = ("value", "value_int", "value_ints", "value_float", "value_floats")
    given = [attributes[n] for n in names if attributes.get(n) is not None]
    return [np.asarray(given[0])] if given else None


def _reduce(function: Callable[..., Any]) -> Callable[..., list[Value]]:
    def rule(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
        axes = _axes(inputs, attributes)
        keep = bool(attributes.get("keepdims", 1))
        axis = None if axes is None else tuple(axes)
        return [function(_given(inputs, 0), axis=axis, keepdims=keep)]

    return rule


def _elementwise(function: Callable[..., Any], count: int) -> Callable[..., list[Value] | None]:
    def rule(inputs: list[Value | None], _: Attributes) -> list[Value] | None:
        given = [_given(inputs, i) for i in range(count)]
        if _large(np.broadcast_shapes(*(a.shape for a in given))):
            return None
        return [function(*given)]

    return rule


def _gather(inputs: list[Value | None], attributes: Attributes) -> list[Value] | None:
    data, indices = _given(inputs, 0), _given(inputs, 1).astype(np.int64)
    return [np.take(data, indices, axis=attributes.get("axis", 0))]


def _concat(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
    parts = [_given(inputs, i) for i in range(len(inputs))]
    return [np.concatenate(parts, axis=attributes["axis"])]


def _transpose(inputs: list[Value | None], attributes: Attributes) -> list[Value]:
    return [np.transpose(_given(inputs, 0), attributes.get("perm"))]


_RULES: dict[str, Callable[[list[Value | None], Attributes], list[Value] | None]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Identity": _elementwise(lambda a: a, 1),
    "Cast": _cast,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Add": _elementwise(np.add, 2),
    "Sub": _elementwise(np.subtract, 2),
    "Mul": _elementwise(np.multiply, 2),
    "Div": _divide,
    "Mod": _elementwise(np.mod, 2),
    "Neg": _elementwise(np.negative, 1),
    "Abs": _elementwise(np.abs, 1),
    "Floor": _elementwise(np.floor, 1),
    "Ceil": _elementwise(np.ceil, 1),
    "Round": _elementwise(np.round, 1),
    "Sqrt": _elementwise(np.sqrt, 1),
    "Min": _elementwise(np.minimum, 2),
    "Max": _elementwise(np.maximum, 2),
    "Equal": _elementwise(np.equal, 2),
    "Less": _elementwise(np.less, 2),
    "LessOrEqual": _elementwise(np.less_equal, 2),
    "Greater": _elementwise(np.greater, 2),
    "GreaterOrEqual": _elementwise(np.greater_equal, 2),
    "Not": _elementwise(np.logical_not, 1),
    "And": _elementwise(np.logical_and, 2),
    "Or": _elementwise(np.logical_or, 2),
    "Where": _elementwise(np.where, 3),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMin": _reduce(np.min),
    "ReduceMax": _reduce(np.max),
}
