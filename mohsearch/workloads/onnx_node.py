"""One ONNX node as the rules that turn it into ops see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.workloads.graph import Op

Shape = tuple[int | str | None, ...]
"""A tensor's dimensions: sizes, names of symbolic ones, None where nothing is known."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One op that a node turns into.

    Attributes
    ----------
    op
        The op.
    reads
        What it reads: indices of the node's inputs, and names of other pieces.
    """

    op: Op
    reads: tuple[int | str, ...]


@dataclass(frozen=True)
class Node:
    """A node with its surroundings.

    Attributes
    ----------
    name
        Unique name for the op.
    op_type, domain
        Type as the file has it, default domain written as the empty string.
    inputs, outputs
        Tensor names; empty where an optional one is left out.
    attributes
        Plain Python values; tensors as arrays.
    shapes
        Known shapes of all tensors.
    constants
        Tensors that depend on no network input.
    origin
        File to name in errors.
    unbound
        Symbolic dimensions of the network's inputs without a size.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    constants: frozenset[str] | set[str]
    origin: str | Path
    unbound: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How errors call the node."""
        domain = f"{self.domain}." if self.domain else ""
        return f"node {self.name!r} ({domain}{self.op_type})"

    def fail(self, message: str) -> InputError:
        """Return an error that names this node."""
        return InputError(message, source=self.origin, field=self.label)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and bool(self.inputs[index])

    def constant(self, index: int) -> bool:
        """Whether an input depends on no network input."""
        return self.has(index) and self.inputs[index] in self.constants

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises
        ------
        InputError
            If it is not given, or not known to the last dimension.
        """
        if not self.has(index):
            raise self.fail(f"input {index} is missing")
        return self._known(self.inputs[index], f"input {index}")

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output; raises as :meth:`shape` does."""
        return self._known(self.outputs[index], f"output {index}")

    def known_output(self, index: int = 0) -> tuple[int, ...] | None:
        """Return the shape of an output, or None where it is not known."""
        if index >= len(self.outputs):
            return None
        return static(self.shapes.get(self.outputs[index]))

    def _known(self, tensor: str, what: str) -> tuple[int, ...]:
        shape = self.shapes.get(tensor)
        sizes = static(shape)
        if sizes is not None:
            return sizes
        if shape is None:
            problem = f"the shape of {what} ({tensor!r}) is unknown"
        else:
            written = ", ".join("?" if size is None else str(size) for size in shape)
            problem = f"{what} ({tensor!r}) has a dynamic shape ({written})"
        raise self.fail(f"{problem}; {self._remedy()}")

    def _remedy(self) -> str:
        if self.unbound:
            sizes = ", ".join(f"{name!r}: ..." for name in self.unbound)
            options = " ".join(f"--dim {name}=SIZE" for name in self.unbound)
            return f"give the symbolic dimensions a size: {options} (in Python dims={{{sizes}}})"
        return "export the model with static shapes, or simplify it so that shapes are constant"

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute, or its default where it is not set."""
        value = self.attributes.get(name)
        return default if value is None else value


def static(shape: Shape | None) -> tuple[int, ...] | None:
    """Return a shape whose dimensions are all known, else None."""
    if shape is None:
        return None
    sizes = tuple(size for size in shape if isinstance(size, int))
    return sizes if len(sizes) == len(shape) else None


def attribute_values(node: Any) -> dict[str, Any]:
    """Return the attributes of a ``NodeProto`` as plain values, tensors as arrays or None.

    A tensor without data (a dropped weight) is None; sub-graphs stay protobuf messages.
    """
    onnx = require("onnx", "onnx")
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = tensor_value(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        values[attribute.name] = value
    return values


def tensor_value(tensor: Any) -> Any:
    """Return the data of a ``TensorProto`` as an array, or None if it holds none."""
    onnx = require("onnx", "onnx")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception:  # dropped or malformed data: as if the file held none
        return None
