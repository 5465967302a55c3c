"""Mapped ops from the dimensions people write down: the one place that builds loop nests."""

from __future__ import annotations

import math

from mohsearch.workloads.graph import Op
from mohsearch.workloads.layer import LayerShape
from mohsearch.workloads.windows import Phase, output_size, transposed_phases, transposed_size

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def conv_op(
    name: str,
    *,
    batch: int,
    filters: int,
    channels: int,
    image: Pair,
    kernel: Pair,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    groups: int = 1,
    op_type: str = "",
) -> Op:
    """Return a convolution; filters and channels are totals over the groups.

    Raises
    ------
    ValueError
        If the window does not fit the padded image, or the groups do not divide the channels.

    Examples
    --------
    >>> conv_op("c", batch=1, filters=8, channels=8, image=(6, 6), kernel=(3, 3), groups=8).kind
    'dwconv'
    """
    _check_groups(groups, filters, channels)
    top, left, bottom, right = pads
    shape = LayerShape(
        N=batch,
        G=groups,
        K=filters // groups,
        C=channels // groups,
        P=output_size(image[0], kernel[0], stride[0], dilation[0], (top, bottom)),
        Q=output_size(image[1], kernel[1], stride[1], dilation[1], (left, right)),
        R=kernel[0],
        S=kernel[1],
        stride_h=stride[0],
        stride_w=stride[1],
        dilation_h=dilation[0],
        dilation_w=dilation[1],
    )
    kind = "dwconv" if groups > 1 and groups == channels else "conv"
    return Op(name, kind, shape, image[0], image[1], pads, op_type)


def transposed_conv_ops(
    name: str,
    *,
    batch: int,
    filters: int,
    channels: int,
    image: Pair,
    kernel: Pair,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    output_padding: Pair = (0, 0),
    groups: int = 1,
) -> list[Op]:
    """Return the stride-1 convolutions that a transposed convolution consists of.

    Phases of the stride that see equally many taps and yield equally many outputs become one
    convolution with as many times the filters; so a kernel that the stride divides is one op, and
    no multiplication by an inserted zero is counted. Several ops are called ``name.0``,
    ``name.1``, ...

    Raises
    ------
    ValueError
        If there is no output, or the groups do not divide the channels.

    Examples
    --------
    >>> up = transposed_conv_ops("up", batch=1, filters=512, channels=1024, image=(35, 35),
    ...                          kernel=(2, 2), stride=(2, 2))
    >>> [op.macs for op in up]
    [2569011200]
    """
    _check_groups(groups, filters, channels)
    rows, columns = (
        _phases(
            image[axis], kernel[axis], stride[axis], dilation[axis],
            (pads[axis], pads[axis + 2]), output_padding[axis],
        )
        for axis in (0, 1)
    )  # fmt: skip
    shapes = [
        LayerShape(
            N=batch,
            G=groups,
            K=filters // groups * down.phases * across.phases,
            C=channels // groups,
            P=down.outputs,
            Q=across.outputs,
            R=down.taps,
            S=across.taps,
            dilation_h=_tap_step(stride[0], dilation[0]),
            dilation_w=_tap_step(stride[1], dilation[1]),
        )
        for down in rows
        for across in columns
    ]
    kind = "dwconv" if groups > 1 and groups == channels else "conv"
    names = [name] if len(shapes) == 1 else [f"{name}.{i}" for i in range(len(shapes))]
    return [
        Op(label, kind, shape, *image, _window_pads(image, shape), "ConvTranspose")
        for label, shape in zip(names, shapes, strict=True)
    ]


def gemm_op(name: str, *, rows: int, columns: int, inner: int, op_type: str = "") -> Op:
    """Return a product of a ``rows x inner`` matrix with ``inner x columns`` weights.

    Examples
    --------
    >>> gemm_op("fc", rows=2, columns=10, inner=100).macs
    2000
    """
    return Op(name, "gemm", LayerShape(N=rows, K=columns, C=inner), op_type=op_type)


def bmm_op(
    name: str, *, products: int, rows: int, columns: int, inner: int, op_type: str = ""
) -> Op:
    """Return ``products`` independent matrix products.

    Examples
    --------
    >>> bmm_op("qk", products=16, rows=384, columns=384, inner=64).weight_elements
    393216
    """
    shape = LayerShape(N=rows, G=products, K=columns, C=inner)
    return Op(name, "bmm", shape, op_type=op_type)


def _check_groups(groups: int, filters: int, channels: int) -> None:
    if groups < 1 or filters % groups or channels % groups:
        raise ValueError(f"{groups} groups do not divide {filters} filters and {channels} channels")


def _phases(
    size: int, kernel: int, stride: int, dilation: int, pads: Pair, output_padding: int
) -> tuple[Phase, ...]:
    """Return the phases of one axis of a transposed convolution."""
    length = transposed_size(size, kernel, stride, dilation, pads, output_padding)
    return transposed_phases(length, kernel, stride, dilation, pads[0])


def _tap_step(stride: int, dilation: int) -> int:
    """Return the input step between neighbouring taps of one phase."""
    return dilation // math.gcd(stride, dilation)


def _window_pads(image: Pair, shape: LayerShape) -> Pads:
    """Return padding that makes a stride-1 window of ``shape`` yield its outputs, split evenly."""
    total_h = shape.P + shape.dilation_h * (shape.R - 1) - image[0]
    total_w = shape.Q + shape.dilation_w * (shape.S - 1) - image[1]
    top, left = total_h // 2, total_w // 2
    return (top, left, total_h - top, total_w - left)
