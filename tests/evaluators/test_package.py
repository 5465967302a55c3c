from dataclasses import replace

import numpy as np
import pytest

from mohsearch.evaluators.package import (
    FixedInstance,
    PackageEvaluator,
    largest_instance,
    restrict,
    tabulate,
)
from mohsearch.evaluators.package_network import PackageNetwork
from mohsearch.hardware.templates import load_template
from mohsearch.problems.moham_options import MohamOptions
from mohsearch.testing.moham import random_genomes, random_table, synthetic_problem


def package_by_definition(problem, x):
    """Energy, area and hop energy of a genome from the mapping table alone, layer by layer."""
    table, space, network = problem.table, problem.space, problem.network
    blocks = space.view(x)
    rows = space.rows_of(x)
    present = [s for s in range(space.max_instances) if blocks.template[s] >= 0]
    present.sort(key=lambda s: blocks.tile[s])
    k = len(present)
    spots = network.interface_positions(k)
    energy = area = hops_pj = 0.0
    for tile, s in enumerate(present):
        architecture = problem.architectures[blocks.template[s]]
        mine = rows[blocks.slot == s]
        sizes = [
            max((table.size_words[r, j] for r in mine), default=0)
            for j in range(9)[: len(architecture.levels) - 1]
        ]
        ratios = [
            max((table.fanout[r, j] for r in mine), default=1) for j in range(table.fanout.shape[1])
        ]
        count = 1
        for j, size in enumerate(sizes):
            count *= ratios[j]
            area += count * float(architecture.area_um2(j + 1, size))
            for r in mine:
                energy += table.reads[r, j] * float(architecture.read_energy_pj(j + 1, size))
                energy += table.writes[r, j] * float(architecture.write_energy_pj(j + 1, size))
        area += np.prod(ratios) * architecture.mac_area_um2
        px, py = network.tile_position(k, tile)
        hops = min(abs(px - a) + abs(py - b) for a, b in spots)
        for r in mine:
            energy += table.fixed_energy_pj[r]
            moved = table.dram_read_bytes[r] + table.dram_write_bytes[r]
            hops_pj += moved * 8 * network.hop_energy_pj_per_bit * hops
    return energy, area, hops_pj


@pytest.mark.parametrize("seed", range(4))
def test_sizes_energy_and_area_equal_those_worked_out_layer_by_layer(seed):
    rng = np.random.default_rng(seed)
    problem = synthetic_problem(rng, options=MohamOptions(max_instances=int(rng.integers(1, 9))))
    X = random_genomes(problem.space, rng, 12)
    values = problem.metrics(X)
    for i, x in enumerate(X):
        energy, area, hops = package_by_definition(problem, x)
        assert values["energy_j"][i] == pytest.approx((energy + hops) * 1e-12, rel=1e-12)
        assert values["nop_energy_j"][i] == pytest.approx(hops * 1e-12, rel=1e-12)
        assert values["area_mm2"][i] == pytest.approx(area * 1e-6, rel=1e-12)
        assert values["edp_js"][i] == values["energy_j"][i] * values["latency_s"][i]
        assert values["instances"][i] == (problem.space.view(x).template >= 0).sum()


@pytest.mark.parametrize("sharing", ["proportional", "max-min", "two-pass"])
def test_a_population_is_scheduled_as_each_genome_alone(sharing):
    rng = np.random.default_rng(20)
    problem = synthetic_problem(
        rng, options=MohamOptions(max_instances=7, sharing=sharing, system_bandwidth_gb_per_s=10)
    )
    X = random_genomes(problem.space, rng, 40)
    values = problem.metrics(X)
    for i, x in enumerate(X):
        sized = problem.evaluator.realise(x)
        schedule = sized.schedule
        assert values["latency_s"][i] == schedule.latency_s
        assert values["stalled_s"][i] == pytest.approx(
            schedule.stalled_s.sum(), rel=1e-9, abs=1e-15
        )
        busiest = schedule.interface_bytes.max() / 4e9 / schedule.latency_s
        assert values["interface_utilisation"][i] == pytest.approx(busiest, rel=1e-9)
        total = (sized.energy_pj.sum() + sized.hop_energy_pj.sum()) * 1e-12
        assert values["energy_j"][i] == pytest.approx(total, rel=1e-12)
        assert values["area_mm2"][i] == pytest.approx(sized.area_um2.sum() * 1e-6, rel=1e-12)


def test_moving_layers_to_one_instance_never_makes_its_parts_smaller():
    rng = np.random.default_rng(21)
    problem = synthetic_problem(rng, options=MohamOptions(templates=("simba",), max_instances=2))
    for x in random_genomes(problem.space, rng, 30):
        if problem.metrics(x[None])["instances"][0] < 2:
            continue
        merged = x.copy()
        blocks = problem.space.view(merged)
        blocks.slot[:] = 0
        blocks.template[1] = -1
        apart, together = problem.evaluator.realise(x), problem.evaluator.realise(merged)
        assert (together.fanout[0] == apart.fanout.max(axis=0)).all()
        assert (together.rank[0] == apart.rank.max(axis=0)).all()


def test_the_features_of_a_mapping_are_those_of_a_package_with_it_alone():
    rng = np.random.default_rng(22)
    table = random_table(rng, unique=1, templates=1, most=5, levels=4)
    eyeriss = load_template("eyeriss")
    table = random_table(rng, unique=1, templates=1, most=5, levels=len(eyeriss.levels) - 1)
    network = PackageNetwork()
    tables = tabulate(table, [eyeriss], network)
    from mohsearch.evaluators.package_space import MohamSpace

    features = tables.features(network)
    space = MohamSpace.from_arrays(
        [0], [[]], tables.offsets, features, templates=1, max_instances=1
    )
    X = np.array([[0, r, 0, 0, 0] for r in range(len(features))])
    values = PackageEvaluator(space, tables, network).evaluate(X)
    assert values["latency_s"] == pytest.approx(features[:, 0], rel=1e-12)
    assert values["energy_j"] == pytest.approx(features[:, 1] * 1e-12, rel=1e-12)
    assert values["area_mm2"] == pytest.approx(features[:, 2] * 1e-6, rel=1e-12)


def test_a_space_and_tables_of_other_rows_are_refused():
    rng = np.random.default_rng(23)
    one, other = synthetic_problem(rng), synthetic_problem(rng)
    with pytest.raises(ValueError, match="different mapping rows"):
        PackageEvaluator(one.space, other.tables, one.network)


def test_restriction_keeps_exactly_the_mappings_that_fit():
    rng = np.random.default_rng(24)
    table = random_table(rng, unique=4, templates=2, most=8, levels=[2, 2])
    small = FixedInstance(0, (96, 112), (8, 4, 8))
    large = FixedInstance(0, (10**6, 10**6), (8, 8, 8))
    other = FixedInstance(1, (96, 96), (4, 8, 8))
    kept = restrict(table, [small, large, other], ["small", "large", "other"])
    assert kept.templates == ("small", "large", "other")
    for u in range(4):
        for t, kind in enumerate((small, large, other)):
            source = table.rows(u, kind.template)
            expected = [
                table.notation[r]
                for r in range(source.start, source.stop)
                if all(table.size_words[r] <= kind.size_words)
                and all(table.fanout[r] <= kind.fanout)
            ]
            assert list(kept.notation[kept.rows(u, t)]) == expected
            assert (kept.cycles[kept.rows(u, t)] > 0).all()
    assert 0 < len(kept.rows(0, 0).indices(10**6)) <= 3


def test_the_largest_instance_has_the_capacities_and_limits_of_its_template():
    eyeriss = load_template("eyeriss")
    levels = len(eyeriss.levels) - 1
    table = random_table(np.random.default_rng(0), unique=1, templates=1, levels=levels + 1)
    largest = largest_instance(eyeriss, 0, table)
    assert len(largest.size_words) == levels + 1
    assert largest.size_words[:levels] == tuple(v.capacity_words for v in eyeriss.levels[1:])
    assert largest.size_words[levels] == 0
    assert np.prod(largest.fanout) == eyeriss.max_macs


def test_fixed_hardware_costs_the_same_whatever_runs_on_it():
    rng = np.random.default_rng(25)
    options = MohamOptions(fixed_hardware={"simba": 2, "eyeriss": 1})
    problem = synthetic_problem(rng, options=options, fitting=True)
    X = random_genomes(problem.space, rng, 30)
    values = problem.metrics(X)
    assert np.ptp(values["area_mm2"]) == 0
    assert (values["instances"] == 3).all()
    assert problem.ideal_point()["area_mm2"] == pytest.approx(values["area_mm2"][0], rel=1e-12)
    expected = 0.0
    for architecture, count in zip(problem.architectures, (2, 1), strict=True):
        instance = largest_instance(architecture, 0, problem.table)
        number = np.cumprod(instance.fanout)
        for j, level in enumerate(architecture.levels[1:]):
            expected += (
                count * number[j] * float(architecture.area_um2(j + 1, level.capacity_words))
            )
        expected += count * number[-1] * architecture.mac_area_um2
    assert values["area_mm2"][0] == pytest.approx(expected * 1e-6, rel=1e-12)
    x = X[0]
    energy = 0.0
    for r, s in zip(problem.space.rows_of(x), problem.space.view(x).slot, strict=True):
        architecture = problem.architectures[problem.space.view(x).template[s]]
        energy += problem.table.fixed_energy_pj[r]
        for j, level in enumerate(architecture.levels[1:]):
            size = level.capacity_words
            energy += problem.table.reads[r, j] * float(architecture.read_energy_pj(j + 1, size))
            energy += problem.table.writes[r, j] * float(architecture.write_energy_pj(j + 1, size))
    own = values["energy_j"][0] - values["nop_energy_j"][0]
    assert own == pytest.approx(energy * 1e-12, rel=1e-12)


def test_the_link_of_a_chiplet_bounds_what_a_mapping_can_ask_for():
    rng = np.random.default_rng(26)
    table = random_table(rng, templates=1, levels=1)
    table = replace(table, cycles=np.ones_like(table.cycles))
    network = PackageNetwork(link_bandwidth_bytes_per_s=2e9)

    class Costs:
        levels = (None, None)
        mac_area_um2 = 1.0

        def area_um2(self, level, size):
            return np.asarray(size, dtype=float)

        read_energy_pj = write_energy_pj = area_um2

    tables = tabulate(table, [Costs()], network)
    assert tables.row_demand == pytest.approx(np.full(len(table.cycles), 2e9))
    assert tables.row_work_s == pytest.approx(tables.row_bytes / 2e9)
