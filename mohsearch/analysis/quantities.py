"""Numbers as people read them: one scale per column, prefixes, names without unit suffixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_PREFIXES = {-15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T"}
_PREFIXED = {
    "s": ("s", 0),
    "J": ("J", 0),
    "W": ("W", 0),
    "Hz": ("Hz", 0),
    "pJ": ("J", -12),
    "bytes/s": ("B/s", 0),
    "B/s": ("B/s", 0),
}
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_BYTES = frozenset({"B", "byte", "bytes"})
_SPELLED = {
    "1": "",
    "": "",
    "mm2": "mm²",
    "mm^2": "mm²",
    "um2": "µm²",
    "J*s": "J·s",
    "J s": "J·s",
    "byte": "B",
    "bytes": "B",
}
UNIT_OF_SUFFIX = {
    "_bytes_per_s": "bytes/s",
    "_per_s": "1/s",
    "_bytes": "bytes",
    "_mm2": "mm2",
    "_hz": "Hz",
    "_js": "J s",
    "_pj": "pJ",
    "_s": "s",
    "_j": "J",
    "_w": "W",
    "_usd": "USD",
}
"""Units by the suffix of a metric's name, longer suffixes first."""


_WHOLE_NAMES = frozenset({"hop_bytes"})
"""Metrics whose suffix is part of what they are called."""


@dataclass(frozen=True)
class Scale:
    """How to show the values of one metric: multiply by ``factor`` and write ``unit``."""

    factor: float
    unit: str

    def text(self, value: float, digits: int = 4) -> str:
        """Return the value as text, without its unit.

        Examples
        --------
        >>> Scale(1e3, "ms").text(0.0123456)
        '12.35'
        """
        scaled = value * self.factor
        if not math.isfinite(scaled):
            return "-" if math.isnan(scaled) else str(scaled)
        if not self.unit and scaled == int(scaled):
            return f"{int(scaled):,}"
        if scaled == 0 or 1e-3 <= abs(scaled) < 10 ** max(digits, 6):
            decimals = digits - 1 - (math.floor(math.log10(abs(scaled))) if scaled else 0)
            return f"{scaled:,.{max(decimals, 0)}f}" if scaled else "0"
        return f"{scaled:.{digits - 1}e}"

    def quantity(self, value: float, digits: int = 4) -> str:
        """Return the value with its unit.

        Examples
        --------
        >>> Scale(1.0, "mm²").quantity(12.0)
        '12.00 mm²'
        """
        return f"{self.text(value, digits)} {self.unit}".rstrip()


def scale_for(values: ArrayLike, unit: str) -> Scale:
    """Return the scale that makes the largest of ``values`` a number between 1 and 1000.

    Sizes in bytes get binary prefixes, rates decimal ones; units without prefixes (areas, counts)
    are left as they are.

    Examples
    --------
    >>> scale_for([0.0123, 0.002], "s")
    Scale(factor=1000.0, unit='ms')
    >>> scale_for([2**35], "bytes").quantity(2**35)
    '32.00 GiB'
    """
    finite = np.abs(np.asarray(values, dtype=float))
    finite = finite[np.isfinite(finite) & (finite > 0)]
    if unit in _BYTES and finite.size:
        power = min(max(math.frexp(finite.max())[1] - 1, 0) // 10, len(_BINARY_PREFIXES) - 1)
        return Scale(2.0 ** (-10 * power), _BINARY_PREFIXES[power] + "B")
    if unit not in _PREFIXED or not finite.size:
        return Scale(1.0, _SPELLED.get(unit, unit))
    base, exponent = _PREFIXED[unit]
    largest = math.log10(float(finite.max())) + exponent
    step = 3 * math.floor(largest / 3 + 1e-12)
    step = min(max(step, min(_PREFIXES)), max(_PREFIXES))
    return Scale(10.0 ** (exponent - step), _PREFIXES[step] + base)


def short_name(name: str) -> str:
    """Return a metric's name without its unit suffix, in words.

    Examples
    --------
    >>> short_name("peak_power_w")
    'peak power'
    """
    if name in _WHOLE_NAMES:
        return name.replace("_", " ")
    for suffix in UNIT_OF_SUFFIX:
        if name.endswith(suffix) and len(name) > len(suffix):
            name = name.removesuffix(suffix)
            break
    return name.replace("_", " ")


def size_text(size_bytes: float) -> str:
    """Return a memory size in binary units.

    Examples
    --------
    >>> size_text(131072)
    '128 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:.4g} {unit}"


def excess_text(share: float, decimals: int = 1) -> str:
    """Return how far a value lies above a bound: in percent, or as a multiple where that is long.

    Parameters
    ----------
    share
        Distance relative to the bound: 0.25 is a quarter above it.

    Examples
    --------
    >>> excess_text(0.0534), excess_text(69.04), excess_text(0.25, 0), excess_text(-2e-16)
    ('+5.3%', 'x70', '+25%', '+0.0%')
    """
    if math.isnan(share):
        return "-"
    return f"{share:+z.{decimals}%}" if abs(share) < 10 else f"x{1 + share:,.0f}"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> count_text(1, "run"), count_text(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], limit: int = 12) -> str:
    """Return names joined by commas, the rest counted.

    Examples
    --------
    >>> listed(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    if len(names) <= limit:
        return ", ".join(names)
    return ", ".join(names[:limit]) + f" and {len(names) - limit} more"
