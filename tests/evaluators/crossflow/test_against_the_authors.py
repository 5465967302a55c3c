"""Under ``compat: deepflow`` every figure of the authors' program comes out again."""

import json
import math

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.crossflow.age import generate
from mohsearch.evaluators.crossflow.config import allocation_row, merged, technology_row
from mohsearch.evaluators.crossflow.dpe import authors_layouts
from mohsearch.evaluators.crossflow.evaluate import (
    AUTHORS,
    Gemm,
    Lstm,
    Model,
    Strategy,
    evaluate,
    evaluate_config,
    place_row,
)
from mohsearch.evaluators.crossflow.layout import chip_record
from mohsearch.evaluators.crossflow.placement import ORDERS, best_placement, placements
from mohsearch.evaluators.crossflow.random_tiling import drawn_exponents
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.evaluators.crossflow.reasons import OK
from mohsearch.evaluators.crossflow.timeline import backward_graph, forward_graph, simulate

CASES = json.loads(
    (builtin_root() / "evaluators/reference/deepflow/program_cases.json").read_text()
)
RELATIVE = 1e-8
NAMES = {
    "core": {
        "num_mcu": "num_mcu", "num_bundle": "num_bundle", "operating_voltage": "core_voltage_v",
        "operating_freq": "core_frequency_hz", "operating_throughput": "peak_flop_per_s",
        "throughput": "flop_per_s",
    },
    "L3": {
        "num_stacks": "L3_banks", "num_links": "dram_links", "operating_freq": "dram_frequency_hz",
        "operating_voltage": "dram_voltage_v", "size_B": "L3_size_bytes",
        "size_per_bundle_B": "L3_size_per_sharer_bytes",
        "dynamic_throughput_Bps": "L3_peak_bandwidth_bytes_per_s",
        "throughput_Bps": "L3_bandwidth_bytes_per_s",
    },
}  # fmt: skip
for _level in ("L0", "L1", "L2"):
    NAMES[_level] = {
        "size_B": f"{_level}_size_bytes", "size_per_bundle_B": f"{_level}_size_per_sharer_bytes",
        "dynamic_throughput_Bps": f"{_level}_peak_bandwidth_bytes_per_s",
        "throughput_Bps": f"{_level}_bandwidth_bytes_per_s", "num_banks": f"{_level}_banks",
    }  # fmt: skip
for _net in ("intra", "inter"):
    NAMES[_net] = {
        "num_links": f"{_net}_links", "operating_freq": f"{_net}_frequency_hz",
        "throughput_Bps": f"{_net}_bandwidth_bytes_per_s", "latency_s": f"{_net}_latency_s",
    }  # fmt: skip


def configured(case, **more):
    data = {"system": case["system"], **more}
    for section in ("area", "power", "perimeter"):
        if case.get(section):
            data[f"{section}_breakdown"] = case[section]
    return config_from(data)


def rows(config):
    return technology_row(config), allocation_row(config)


def assert_chip(chip, expected):
    record = chip_record(chip)
    for path, value in expected.items():
        part, name = path.split(".")
        if name in NAMES[part]:
            assert record[NAMES[part][name]] == pytest.approx(value, rel=RELATIVE), path


@pytest.mark.parametrize("case", CASES["age"], ids=lambda c: c["id"])
def test_the_generator_gives_the_authors_chip_and_product_time(case):
    config = configured(case)
    if case["age"]:
        assert_chip(generate(*rows(config), compat=True)[0], case["age"])
    if "gemm_8192_s" not in case:
        return
    points = evaluate(*rows(config), Gemm(8192, 8192, 8192), model=AUTHORS)
    if case["crashes"]:
        assert points.reason[0] != OK
        assert points.time_s[0] == math.inf
    elif case["gemm_8192_s"] is not None:
        assert points.time_s[0] == pytest.approx(case["gemm_8192_s"], rel=RELATIVE)


@pytest.mark.parametrize("case", CASES["nodes"], ids=lambda c: str(c["node"]))
def test_scaled_nodes_give_the_authors_chip_and_time(case):
    tech = {"core": case["core"], "DRAM": case["DRAM"], **case["sram"]}
    config = config_from({"system": "V100", "tech_param": tech})
    assert_chip(generate(*rows(config), compat=True)[0], case["age"])
    points = evaluate(*rows(config), Gemm(16384, 16384, 16384), model=AUTHORS)
    assert points.time_s[0] == pytest.approx(case["gemm_16384_s"], rel=RELATIVE)


@pytest.mark.parametrize("node", [10, 7, 5, 3, 2, 1])
def test_the_cards_of_the_authors_nodes_hold_the_scaled_figures(node):
    case = next(c for c in CASES["nodes"] if c["node"] == node)
    config = config_from({"system": "V100", "technology": {"logic": f"authors{node}"}})
    core = config.tech_param.core
    assert core.nominal_power_per_mcu == pytest.approx(case["core"]["nominal_power_per_mcu"])
    assert core.nominal_voltage == pytest.approx(case["core"]["nominal_voltage"])
    assert config.tech_param.l2.area_per_bit == pytest.approx(
        case["sram"]["SRAM-L2"]["area_per_bit"]
    )


@pytest.mark.parametrize("case", CASES["gemm"], ids=lambda c: c["id"])
def test_split_products_take_the_authors_time(case):
    core = {"dataflow": case["dataflow"]} if case["dataflow"] else {}
    config = configured(case, tech_param={"core": core})
    place = place_row(
        case["devices"], crosses=(case["devices"] > 1,) * 4, scaled_links=case["devices"] > 1
    )
    points = evaluate(
        *rows(config), Gemm(case["m"], case["k"], case["n"]), Strategy.parse(case["strategy"]),
        place=place, model=AUTHORS,
    )  # fmt: skip
    assert points.time_s[0] == pytest.approx(case["time_s"], rel=RELATIVE)


def lstm_points(case, model):
    data = case["config"]
    config = config_from(merged({"system": "V100"}, data))
    given = case["arguments"]
    if given is None:
        return evaluate_config(config, model=model)
    workload = Lstm(
        given["batch_size"], given["vocab_size"], given["num_layer"], given["hidden_dim"],
        given["seq_len"],
    )  # fmt: skip
    kind = "none" if given["kp1"] * given["kp2"] == 1 else given["t"]
    strategy = Strategy(kind, given["kp1"], given["kp2"], given["dp"], given["lp"])
    return evaluate_config(config, workload, model=model, plan=strategy.row, scaled_links=True)


@pytest.mark.parametrize("case", CASES["lstm"], ids=lambda c: c["id"])
def test_training_steps_take_the_authors_time(case):
    points = lstm_points(case, AUTHORS)
    assert points.time_s[0] == pytest.approx(case["time_s"], rel=RELATIVE)
    assert points.forward_s[0] == pytest.approx(case["forward_s"], rel=RELATIVE)
    assert points.backward_s[0] == pytest.approx(case["backward_s"], rel=RELATIVE)
    assert points.memory_bytes[0] == pytest.approx(case["memory_bytes"], rel=RELATIVE)
    assert points.durations_s[0] == pytest.approx(case["durations_s"], rel=RELATIVE)


@pytest.mark.parametrize("case", CASES["lstm"], ids=lambda c: c["id"])
def test_each_defect_has_the_effect_that_was_measured(case):
    models = {
        "scalar_traffic_to_DRAM": Model(False, 3, False, False),
        "link_release_fixed": Model(False, 0, True, False),
        "both_fixed": Model(False, 3, True, False),
    }
    for name, model in models.items():
        expected = case["defects"][name]
        assert lstm_points(case, model).time_s[0] == pytest.approx(expected, rel=RELATIVE), name


@pytest.mark.parametrize("case", CASES["events"], ids=lambda c: str(c["shape"]))
def test_the_simulation_ends_when_the_authors_does(case):
    graphs = forward_graph(*case["shape"]), backward_graph(*case["shape"])
    durations = np.array(case["durations"], dtype=float)
    for kept, expected in ((False, case["shipped"]), (True, case["links_kept"])):
        ends = [simulate(graph, durations, links_kept=kept) for graph in graphs]
        assert ends == pytest.approx(expected, rel=RELATIVE)


@pytest.mark.parametrize("case", CASES["placements"], ids=lambda c: str(c["sizes"]))
def test_layouts_share_links_as_the_authors_do_and_the_best_is_never_worse(case):
    sizes, nodes = tuple(case["sizes"]), case["nodes_per_package"]
    found = {p.order: p for p in authors_layouts(sizes, nodes)}
    worst = []
    for order, inter, intra, crosses in case["layouts"]:
        placement = found[tuple(order)]
        assert (placement.inter_derate, placement.intra_derate) == (inter, intra)
        assert placement.crosses == tuple(crosses)
        worst.append(max(10.0 * inter, intra))

    def cost(sharing):
        return max(10.0 * sharing.inter_derate, sharing.intra_derate)

    assert min(map(cost, placements(sizes, nodes, through=False))) <= min(worst)
    theirs = placements(sizes, nodes)[4 * len(ORDERS) :]
    assert len(theirs) == len(case["layouts"])
    assert cost(best_placement(sizes, nodes)) <= min(map(cost, theirs))


def test_the_table_of_draws_is_what_the_legacy_generator_gives_pair_by_pair():
    for power in (1, 5, 13, 20):
        legacy = np.random.RandomState(1)
        pairs = [legacy.randint(0, power, 2) for _ in range(50)]
        assert np.array_equal(drawn_exponents()[power, :50], pairs)
