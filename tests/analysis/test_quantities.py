"""Numbers as people read them."""

import math

import pytest

from mohsearch.analysis.quantities import Scale, scale_for


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1.0, "1.000 B"),
        (1023.0, "1,023 B"),
        (1024.0, "1.000 KiB"),
        (3 * 2.0**20, "3.000 MiB"),
        (80 * 2.0**30, "80.00 GiB"),
        (2.0**40 - 2**20, "1,024 GiB"),
        (2.0**40, "1.000 TiB"),
        (2.0**62, "4,096 PiB"),
        (0.25, "0.2500 B"),
    ],
)
@pytest.mark.parametrize("unit", ["B", "bytes", "byte"])
def test_a_size_in_bytes_gets_the_largest_binary_prefix_below_it(size, text, unit):
    assert scale_for([size], unit).quantity(size) == text


def test_one_scale_serves_a_column_and_ignores_what_is_not_finite():
    scale = scale_for([math.nan, 2.0**21, -(2.0**31), math.inf, 0.0], "B")
    assert scale == Scale(2.0**-30, "GiB")
    assert [scale.text(x) for x in (2.0**21, -(2.0**31), 0.0, math.nan)] == [
        "0.001953",
        "-2.000",
        "0",
        "-",
    ]


@pytest.mark.parametrize("values", [[], [0.0], [math.nan], [math.inf]])
def test_a_column_without_a_size_is_in_bytes(values):
    assert scale_for(values, "bytes") == Scale(1.0, "B")


def test_rates_get_decimal_prefixes_and_areas_none():
    assert scale_for([1.6e12], "bytes/s") == Scale(1e-12, "TB/s")
    assert scale_for([2e5], "B/s") == Scale(1e-3, "kB/s")
    assert scale_for([1e9], "mm2") == Scale(1.0, "mm²")
