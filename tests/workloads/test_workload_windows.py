"""Window arithmetic against brute-force counting."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mohsearch.workloads.layers import conv_op, transposed_conv_ops
from mohsearch.workloads.windows import (
    auto_pads,
    output_size,
    transposed_phases,
    transposed_size,
)

small = st.integers(1, 6)


def windows_by_enumeration(size, kernel, stride, dilation, pads):
    """Count window positions whose taps all lie in the padded axis."""
    last = size + pads[0] + pads[1] - 1
    count = 0
    start = 0
    while start + dilation * (kernel - 1) <= last:
        count += 1
        start += stride
    return count


@given(st.integers(1, 20), small, small, small, st.integers(-1, 5), st.integers(-1, 5))
def test_the_output_size_counts_the_windows_that_fit(size, kernel, stride, dilation, before, after):
    assume(size + before + after > 0)
    expected = windows_by_enumeration(size, kernel, stride, dilation, (before, after))
    if expected == 0:
        with pytest.raises(ValueError, match="does not fit"):
            output_size(size, kernel, stride, dilation, (before, after))
    else:
        assert output_size(size, kernel, stride, dilation, (before, after)) == expected


@given(st.integers(1, 30), small, small, st.integers(1, 3))
def test_same_padding_yields_one_output_per_stride(size, kernel, stride, dilation):
    upper = auto_pads("SAME_UPPER", size, kernel, stride, dilation)
    lower = auto_pads("SAME_LOWER", size, kernel, stride, dilation)
    assert upper == lower[::-1]
    assert 0 <= upper[1] - upper[0] <= 1
    assert output_size(size, kernel, stride, dilation, upper) == -(-size // stride)


def test_an_unknown_padding_mode_is_refused():
    with pytest.raises(ValueError, match="SAME_UPPER"):
        auto_pads("SAME", 5, 3)


def taps_by_scattering(size, kernel, stride, dilation, pads, output_padding):
    """Count, per output, the taps that any input (inside the image or not) sends there."""
    length = (size - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - sum(pads)
    reach = range(-kernel * dilation - stride, size + kernel * dilation + stride + 1)
    return [
        sum(i * stride + r * dilation == o + pads[0] for i in reach for r in range(kernel))
        for o in range(length)
    ]


@given(
    st.integers(1, 8), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 2), st.integers(0, 2), st.integers(0, 1),
)  # fmt: skip
def test_the_phases_of_a_transposed_convolution_account_for_every_output_and_tap(
    size, kernel, stride, dilation, before, after, extra
):
    pads = (before, after)
    assume((size - 1) * stride + dilation * (kernel - 1) + 1 + extra - sum(pads) > 0)
    length = transposed_size(size, kernel, stride, dilation, pads, extra)
    phases = transposed_phases(length, kernel, stride, dilation, before)
    counted = taps_by_scattering(size, kernel, stride, dilation, pads, extra)
    assert len(counted) == length
    assert sum(p.taps * p.outputs * p.phases for p in phases) == sum(counted)
    assert sum(p.outputs * p.phases for p in phases) == sum(t > 0 for t in counted)


def test_a_transposed_convolution_without_output_is_refused():
    with pytest.raises(ValueError, match="no output"):
        transposed_size(1, kernel=2, pads=(1, 1))


def test_a_kernel_the_stride_divides_is_one_convolution_with_more_filters():
    (op,) = transposed_conv_ops(
        "up", batch=1, filters=6, channels=4, image=(5, 7), kernel=(4, 2), stride=(2, 2)
    )
    assert op.shape.bounds() == (1, 1, 24, 4, 6, 7, 2, 1)
    assert op.pads == (1, 0, 1, 0)


def test_other_kernels_split_by_the_taps_that_reach_an_output():
    ops = transposed_conv_ops(
        "up", batch=2, filters=3, channels=5, image=(4, 4), kernel=(3, 3), stride=(2, 2),
        pads=(1, 1, 1, 1), output_padding=(1, 1),
    )  # fmt: skip
    assert [op.name for op in ops] == ["up.0", "up.1", "up.2", "up.3"]
    assert sum(op.macs for op in ops) == 2 * 3 * 5 * 9 * 4 * 4
    assert sum(op.output_elements for op in ops) == 2 * 3 * 8 * 8


def test_a_grouped_convolution_is_depthwise_when_each_channel_is_a_group():
    grouped = conv_op("g", batch=1, filters=8, channels=4, image=(5, 5), kernel=(3, 3), groups=2)
    depthwise = conv_op("d", batch=1, filters=8, channels=4, image=(5, 5), kernel=(3, 3), groups=4)
    assert (grouped.kind, grouped.shape.G, grouped.shape.K, grouped.shape.C) == ("conv", 2, 4, 2)
    assert (depthwise.kind, depthwise.shape.K, depthwise.shape.C) == ("dwconv", 2, 1)
    with pytest.raises(ValueError, match="do not divide"):
        conv_op("x", batch=1, filters=8, channels=4, image=(5, 5), kernel=(3, 3), groups=3)
