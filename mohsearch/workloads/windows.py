"""Window arithmetic of convolutions and pooling: output sizes, padding, transposed convolution."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


def output_size(
    size: int, kernel: int, stride: int = 1, dilation: int = 1, pads: tuple[int, int] = (0, 0)
) -> int:
    """Return how many windows fit along one axis.

    Parameters
    ----------
    size
        Elements along the axis.
    kernel, stride, dilation
        Taps of the window, step between windows, step between taps.
    pads
        Padding before and after; negative values crop.

    Raises
    ------
    ValueError
        If not even one window fits.

    Examples
    --------
    >>> output_size(224, kernel=7, stride=2, pads=(3, 3))
    112
    """
    span = dilation * (kernel - 1) + 1
    room = size + pads[0] + pads[1] - span
    if room < 0:
        raise ValueError(
            f"a window of {span} does not fit {size} elements padded by {pads[0]} and {pads[1]}"
        )
    return room // stride + 1


def auto_pads(
    mode: str, size: int, kernel: int, stride: int = 1, dilation: int = 1
) -> tuple[int, int]:
    """Return the padding that an ONNX ``auto_pad`` mode stands for.

    Parameters
    ----------
    mode
        ``VALID``, ``SAME_UPPER`` or ``SAME_LOWER``.

    Raises
    ------
    ValueError
        If the mode is none of these.

    Examples
    --------
    >>> auto_pads("SAME_UPPER", 224, kernel=3, stride=2)
    (0, 1)
    """
    if mode == "VALID":
        return (0, 0)
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        raise ValueError(f"unknown auto_pad {mode!r}; modes: VALID, SAME_UPPER, SAME_LOWER")
    windows = -(-size // stride)
    total = max((windows - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    small = total // 2
    return (small, total - small) if mode == "SAME_UPPER" else (total - small, small)


def transposed_size(
    size: int,
    kernel: int,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, int] = (0, 0),
    output_padding: int = 0,
) -> int:
    """Return the length of a transposed convolution's output along one axis.

    Raises
    ------
    ValueError
        If it is not positive.

    Examples
    --------
    >>> transposed_size(35, kernel=2, stride=2)
    70
    """
    length = (size - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - sum(pads)
    if length < 1:
        raise ValueError(f"padding {pads} leaves no output")
    return length


@dataclass(frozen=True, slots=True)
class Phase:
    """Outputs of a transposed convolution along one axis that see the same number of taps.

    Attributes
    ----------
    taps
        Filter taps that reach each of these outputs.
    outputs
        Number of such outputs in one phase.
    phases
        How many phases of the stride look like this.
    """

    taps: int
    outputs: int
    phases: int


def transposed_phases(
    length: int, kernel: int, stride: int = 1, dilation: int = 1, pad: int = 0
) -> tuple[Phase, ...]:
    """Split one axis of a transposed convolution into ordinary stride-1 convolutions.

    Output ``o`` is reached by tap ``r`` when ``o + pad - r * dilation`` is a multiple of the
    stride; so outputs fall into ``stride`` phases, each an ordinary convolution with a part of
    the taps (sub-pixel convolution). Phases without taps do no work and are left out.

    Parameters
    ----------
    length
        Outputs along the axis.
    pad
        Padding before.

    Examples
    --------
    >>> transposed_phases(70, kernel=2, stride=2)
    (Phase(taps=1, outputs=35, phases=2),)
    >>> transposed_phases(7, kernel=3, stride=2, pad=1)
    (Phase(taps=1, outputs=4, phases=1), Phase(taps=2, outputs=3, phases=1))
    """
    taps = Counter(r * dilation % stride for r in range(kernel))
    found: Counter[tuple[int, int]] = Counter()
    for phase, count in taps.items():
        first = (phase - pad) % stride
        outputs = len(range(first, length, stride))
        if outputs:
            found[count, outputs] += 1
    return tuple(Phase(t, n, many) for (t, n), many in sorted(found.items()))
