from itertools import permutations, product

import numpy as np
import pytest

from mohsearch.evaluators.package import PackageEvaluator, tabulate
from mohsearch.evaluators.package_bounds import (
    ideal_point,
    latency_bounds_s,
    least_area_mm2,
    least_duration_s,
)
from mohsearch.evaluators.package_network import PackageNetwork
from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.testing.moham import random_dependencies, random_table

MAXIMISED = {"throughput_per_s", "interface_utilisation"}


class Costs:
    """Energies and areas that rise with size."""

    mac_area_um2 = 50.0

    def __init__(self, levels, scale):
        self.levels = (None,) * (levels + 1)
        self.scale = scale

    def read_energy_pj(self, level, size):
        return self.scale * np.sqrt(np.asarray(size, dtype=float)) / level

    def write_energy_pj(self, level, size):
        return 1.3 * self.read_energy_pj(level, size)

    def area_um2(self, level, size):
        return self.scale * np.asarray(size, dtype=float)


def tiny(rng, *, layers=3, instances=2, fixed=None, sharing="proportional", **bandwidths):
    """A package small enough to try every genome."""
    table = random_table(rng, unique=layers, templates=2, most=2, unmappable=0.0 if fixed else 0.2)
    network = PackageNetwork(sharing=sharing, **bandwidths)
    tables = tabulate(table, [Costs(2, 1.0), Costs(1, 2.0)], network, clock_hz=1e6)
    space = MohamSpace.from_arrays(
        np.arange(layers),
        random_dependencies(rng, layers),
        tables.offsets,
        tables.features(network),
        templates=2,
        max_instances=instances,
        fixed_templates=fixed,
    )
    return space, tables, network


def all_genomes(space):
    n, m = space.n_layers, space.max_instances
    most = int(space.candidates.max())
    rows = [
        (*order, *mapping, *slot, *template, *tile)
        for order in permutations(range(n))
        for mapping in product(range(most), repeat=n)
        for slot in product(range(m), repeat=n)
        for template in product(range(-1, space.n_templates), repeat=m)
        for tile in permutations(range(m))
    ]
    X = np.array(rows)
    return X[space.is_valid(X)]


@pytest.mark.parametrize("sharing", ["proportional", "max-min", "two-pass"])
def test_no_genome_of_a_small_space_is_better_than_the_ideal_point(sharing):
    rng = np.random.default_rng(31)
    gaps = []
    for _ in range(5):
        space, tables, network = tiny(
            rng,
            sharing=sharing,
            interface_bandwidth_bytes_per_s=float(rng.uniform(1e5, 2e7)),
            system_bandwidth_bytes_per_s=float(rng.uniform(1e5, 2e7)),
        )
        values = PackageEvaluator(space, tables, network).evaluate(all_genomes(space))
        for name, best in ideal_point(space, tables, network).items():
            if name in MAXIMISED:
                assert values[name].max() <= best * (1 + 1e-9)
            else:
                assert values[name].min() >= best * (1 - 1e-9)
                if name in ("latency_s", "energy_j", "area_mm2"):
                    gaps.append(values[name].min() / best)
    assert np.median(gaps) < 1.5


def test_the_ideal_point_is_reached_where_one_layer_runs_alone():
    rng = np.random.default_rng(32)
    for _ in range(10):
        space, tables, network = tiny(rng, layers=1, instances=1)
        values = PackageEvaluator(space, tables, network).evaluate(all_genomes(space))
        ideal = ideal_point(space, tables, network)
        for name in ("latency_s", "energy_j", "area_mm2", "nop_energy_j"):
            assert values[name].min() == pytest.approx(ideal[name], rel=1e-9)


def test_a_chain_is_bounded_by_its_path_and_a_crowd_by_work_or_traffic():
    rng = np.random.default_rng(33)
    table = random_table(rng, unique=1, templates=1, most=4, unmappable=0.0)
    network = PackageNetwork()

    def bounds(predecessors, clock_hz):
        tables = tabulate(table, [Costs(2, 1.0)], network, clock_hz=clock_hz)
        n = len(predecessors)
        space = MohamSpace.from_arrays(
            [0] * n, predecessors, tables.offsets, tables.features(network),
            templates=1, max_instances=4,
        )  # fmt: skip
        return latency_bounds_s(space, tables, network), least_duration_s(tables, network)

    chain, least = bounds([[], [0], [1], [2], [3], [4], [5], [6]], 1e6)
    assert chain["critical_path"] == pytest.approx(8 * least.min())
    crowd, least = bounds([[]] * 8, 1e6)
    assert crowd["work"] == pytest.approx(2 * least.min())
    assert crowd["combined"] >= crowd["work"] * (1 - 1e-12)
    fast, _ = bounds([[]] * 8, 1e12)
    moved = (table.dram_read_bytes + table.dram_write_bytes).min()
    assert fast["traffic"] == pytest.approx(8 * moved / 8e9)
    for found in (chain, crowd, fast):
        assert found["combined"] >= max(found.values()) * (1 - 1e-12)


def test_the_area_bound_refuses_components_that_shrink_as_they_grow():
    class Shrinking(Costs):
        def area_um2(self, level, size):
            return 1e6 - np.asarray(size, dtype=float)

    rng = np.random.default_rng(34)
    table = random_table(rng, unique=2, templates=1, most=5, unmappable=0.0)
    network = PackageNetwork()
    tables = tabulate(table, [Shrinking(2, 1.0)], network)
    space = MohamSpace.from_arrays(
        [0, 1], [[], []], tables.offsets, tables.features(network), templates=1, max_instances=2
    )
    with pytest.raises(ValueError, match="falls with its size"):
        least_area_mm2(space, tables)
