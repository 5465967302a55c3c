"""Energies and areas at 45 nm."""

import itertools

import numpy as np
import pytest
import yaml

from mohsearch.core.cards import validate
from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.hardware.technology import TechnologyCard, load_technology, monotone_log_log


@pytest.fixture(scope="module")
def cmos45():
    return load_technology("cmos45")


def test_mac_energy_and_area_are_the_published_ones(cmos45):
    assert cmos45.mac_energy_pj(8) == pytest.approx(0.5608, abs=1e-4)
    assert cmos45.mac_area_um2(8) == pytest.approx(332.25)
    assert cmos45.mac_energy_pj(16) == pytest.approx(2.20035)
    assert cmos45.mac_area_um2(16) == pytest.approx(1239.5)


def test_sram_passes_through_every_tabulated_size(cmos45):
    for curve in cmos45.sram_curves:
        arguments = (curve.width_bits, curve.ports, curve.size_bytes)
        np.testing.assert_allclose(cmos45.sram_read_pj(*arguments), curve.read_pj, rtol=1e-12)
        np.testing.assert_allclose(cmos45.sram_write_pj(*arguments), curve.write_pj, rtol=1e-12)
        np.testing.assert_allclose(cmos45.sram_area_um2(*arguments), curve.area_um2, rtol=1e-12)


def test_no_sram_energy_or_area_falls_as_the_size_grows(cmos45):
    sizes = np.unique(np.geomspace(1, 8 * 2**20, 20_000).astype(int))
    for curve in cmos45.sram_curves:
        for of in (cmos45.sram_read_pj, cmos45.sram_write_pj, cmos45.sram_area_um2):
            values = of(curve.width_bits, curve.ports, sizes)
            assert np.all(np.diff(values) >= -1e-12 * values[:-1])
            assert values[-1] > values[0] > 0


def test_interpolation_lies_between_its_knots_and_repairs_a_falling_table():
    knots, values = (1, 10, 100, 1000), (1.0, 4.0, 2.0, 8.0)
    sizes = np.geomspace(1, 1000, 50)
    found = monotone_log_log(sizes, knots, values)
    assert np.all(np.diff(found) >= 0)
    assert monotone_log_log(100, knots, values) == pytest.approx(4.0)
    assert monotone_log_log(10**0.5, knots, values) == pytest.approx(2.0)
    assert monotone_log_log([0, 1], knots, values).tolist() == [1.0, 1.0]


def test_no_register_file_energy_or_area_falls_as_it_deepens(cmos45):
    depth = np.arange(1, 5000)
    for model in ("physical", "accelergy"):
        assert np.all(np.diff(cmos45.register_file_area_um2(16, depth, model)) >= 0)
    assert np.all(np.diff(cmos45.register_file_energy_pj(16, depth)) >= 0)


def test_a_register_file_physically_holds_all_its_bits(cmos45):
    flip_flops = cmos45.register_area_um2(1024 * 64)
    assert cmos45.register_file_area_um2(64, 1024) > flip_flops
    assert cmos45.register_file_area_um2(64, 1024, "accelergy") < flip_flops / 10


def test_sizes_may_have_any_shape(cmos45):
    sizes = np.array([[512, 1024, 2048], [4096, 8192, 16384]])
    found = cmos45.sram_read_pj(64, 2, sizes)
    assert found.shape == sizes.shape
    for index in itertools.product(range(2), range(3)):
        assert found[index] == cmos45.sram_read_pj(64, 2, sizes[index])


def test_an_unknown_technology_and_an_unknown_sram_say_what_exists(cmos45):
    with pytest.raises(UnknownNameError, match="did you mean 'cmos45'"):
        load_technology("cmos54")
    with pytest.raises(KeyError, match="64 bit with 1 port"):
        cmos45.sram(48, 2)


def test_a_falling_list_of_sizes_is_refused():
    path = builtin_root() / "evaluators" / "technology" / "cmos45.yaml"
    data = yaml.safe_load(path.read_text())
    data["sram"][1]["size_bytes"].reverse()
    with pytest.raises(InputError, match=r"sram\[1\]: the sizes of an SRAM curve must rise"):
        validate(TechnologyCard, data, source="x.yaml")
