"""Manufacturing cost, against the figures of its source's formulas."""

import numpy as np
import pytest

from mohsearch.hardware.manufacturing import (
    die_yield,
    dies_per_wafer,
    good_die_usd,
    interposer_package_usd,
    load_manufacturing,
    organic_package_usd,
    wafer_of,
)

CARD = load_manufacturing()


@pytest.mark.parametrize(
    ("node", "expected"),
    [(14, (34.98, 24.23, 148.76, 180.59)), (7, (65.40, 50.44, 271.24, 425.36)),
     (5, (108.85, 90.76, 447.41, 885.99))],
)  # fmt: skip
def test_packages_on_an_organic_substrate_cost_what_the_source_says(node, expected):
    """36 dies of 6 mm2, one of 216 mm2, 36 of 25 mm2, one of 900 mm2 (Chiplet Actuary)."""
    area, dies = np.array([6.0, 216.0, 25.0, 900.0]), np.array([36.0, 1.0, 36.0, 1.0])
    cost = organic_package_usd(dies, area, good_die_usd(area, wafer_of(CARD, node), CARD), CARD)
    assert cost == pytest.approx(expected, abs=0.006)


def test_yield_and_dies_of_a_small_chip_equal_those_of_chiplet_actuary():
    area, wafer = np.array(6.0), wafer_of(CARD, 14)
    assert die_yield(area, wafer) == pytest.approx(0.9952, abs=5e-5)
    assert int(dies_per_wafer(area, CARD)) == 9166
    assert good_die_usd(area, wafer, CARD) == pytest.approx(0.437, abs=5e-4)


def test_yield_falls_and_cost_per_area_rises_with_area():
    area = np.linspace(10.0, 850.0, 50)
    for node in (28, 12, 7, 3, 1.4):
        wafer = wafer_of(CARD, node)
        assert np.all(np.diff(die_yield(area, wafer)) < 0)
        assert np.all(np.diff(good_die_usd(area, wafer, CARD) / area)[5:] > 0)
    assert dies_per_wafer(np.array(70000.0), CARD) == 0


def test_wafers_get_dearer_from_node_to_node():
    price = [wafer_of(CARD, nm).wafer_usd for nm in (28, 16, 12, 7, 5, 3, 2, 1.4, 1)]
    assert price == sorted(price)


def test_an_interposer_and_its_bonding_add_to_the_cost_of_the_dies():
    dies, stacks = 100.0, np.arange(0.0, 9.0)
    cost = interposer_package_usd(1 + stacks, 400 + 100 * stacks, np.full(9, dies), CARD)
    assert cost[0] > dies / 0.99 / 0.95
    assert np.all(np.diff(cost) > 0)
