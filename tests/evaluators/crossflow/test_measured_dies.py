"""The generator's A100, beside the data sheet and the areas measured on the die."""

import numpy as np
import pytest

from mohsearch.evaluators.crossflow.age import generate
from mohsearch.evaluators.crossflow.config import allocation_row, technology_row
from mohsearch.evaluators.crossflow.layout import K_AREA_USED, K_POWER_USED, chip_record
from mohsearch.evaluators.crossflow.measured_points import load_points
from mohsearch.evaluators.crossflow.metrics import area_by_component_mm2
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.hardware.systems import load_system

CARD = load_system("A100")
CONFIG = config_from({"system": "A100"})
TECH, ALLOC = technology_row(CONFIG), allocation_row(CONFIG)
CHIPS = generate(TECH, ALLOC)
AREAS = {k: float(v[0]) for k, v in area_by_component_mm2(TECH[None], CHIPS).items()}


def test_the_allocation_builds_the_device_of_the_data_sheet():
    chip = chip_record(CHIPS[0])
    assert chip["num_bundle"] == CARD.multiprocessors
    assert chip["core_frequency_hz"] == pytest.approx(CARD.frequency_hz, rel=0.001)
    assert chip["peak_flop_per_s"] == pytest.approx(CARD.peak_flop_per_s["fp16_tensor"], rel=0.001)
    assert chip["L2_size_bytes"] == CARD.l2_bytes
    assert chip["L1_size_bytes"] == CARD.multiprocessors * CARD.l1_bytes_per_multiprocessor
    assert chip["L3_size_bytes"] == CARD.memory_bytes
    rates = (
        (chip["L3_bandwidth_bytes_per_s"], CARD.memory_bandwidth_bytes_per_s),
        (chip["inter_bandwidth_bytes_per_s"], CARD.link_bandwidth_bytes_per_s),
    )
    for ours, theirs in rates:
        assert ours == pytest.approx(theirs, rel=0.001)


def test_budgets_close():
    assert CHIPS[0, K_AREA_USED] <= CARD.die_area_mm2
    assert CHIPS[0, K_POWER_USED] <= CARD.power_w
    for low, high in ((3, 10), (10, 17), (17, 20)):
        assert ALLOC[low:high].sum() <= 1.0
    assert sum(AREAS.values()) == pytest.approx(CHIPS[0, K_AREA_USED], rel=1e-12)


def test_areas_of_random_chips_add_up():
    rng = np.random.default_rng(0)
    rows = np.tile(ALLOC, (50, 1))
    rows[:, 3:10] = rng.dirichlet(np.ones(7), 50)
    chips = generate(TECH, rows)
    parts = area_by_component_mm2(np.tile(TECH, (50, 1)), chips)
    assert sum(parts.values()) == pytest.approx(chips[:, K_AREA_USED], rel=1e-12)


def test_errors_against_the_measured_die_are_as_documented():
    """Signed errors of ``docs/crossflow.md``: good in sum, wrong in the parts."""
    measured = CARD.die_area_by_component_mm2
    pairs = {
        "cores": (AREAS["cores"] + AREAS["registers"] + AREAS["l1"], measured["cores"]),
        "cache": (
            AREAS["l2"] + AREAS["crossbar"],
            measured["global_buffer"] + measured["on_chip_interconnect"],
        ),
        "memory": (
            AREAS["memory_controllers"], measured["memory_phy"] + measured["memory_control"]
        ),
        "links": (AREAS["links"], measured["off_chip_phy"]),
        "all": (sum(AREAS.values()), sum(measured.values())),
    }  # fmt: skip
    errors = {name: ours / theirs - 1 for name, (ours, theirs) in pairs.items()}
    documented = {"cores": -0.039, "cache": 0.645, "memory": -0.722, "links": -0.485, "all": -0.009}
    assert errors == pytest.approx(documented, abs=0.002)


def test_the_allocation_of_the_mi210_builds_its_data_sheet():
    card, config = load_system("MI210"), config_from({"system": "MI210"})
    found = generate(technology_row(config), allocation_row(config))
    chip = chip_record(found[0])
    assert chip["num_bundle"] == card.multiprocessors
    assert chip["peak_flop_per_s"] == pytest.approx(card.peak_flop_per_s["fp16_tensor"], rel=0.001)
    assert chip["L2_size_bytes"] == card.l2_bytes
    assert chip["L1_size_bytes"] == card.multiprocessors * card.l1_bytes_per_multiprocessor
    assert chip["L3_size_bytes"] == card.memory_bytes
    assert chip["L3_bandwidth_bytes_per_s"] == pytest.approx(
        card.memory_bandwidth_bytes_per_s, rel=0.002
    )
    assert chip["inter_bandwidth_bytes_per_s"] == pytest.approx(
        card.link_bandwidth_bytes_per_s, rel=0.001
    )
    assert found[0, K_POWER_USED] <= card.power_w


def test_errors_against_the_measured_mi210_are_as_documented():
    points = load_points("die-MI210")
    errors = dict(zip(points.kind, points.predicted / points.measured - 1, strict=True))
    documented = {
        "cores, registers, L1": -0.472,
        "L2 and on-chip network": 0.069,
        "memory controllers and PHY": -0.839,
        "off-chip links": -0.936,
        "whole die": -0.551,
    }
    assert errors == pytest.approx(documented, abs=0.002)
