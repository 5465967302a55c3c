"""The case study of the DeepFlow paper, rebuilt, comes out as the authors' program has it."""

import json

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.crossflow.design_space import G_LOGIC, G_MEMORY, G_NETWORK, G_STRATEGY
from mohsearch.problems.deepflow import build

REFERENCE = json.loads(
    (builtin_root() / "evaluators/reference/deepflow/case_study.json").read_text()
)
LOGIC = ["N12", "N7", "N5", "N3", "N2", "N1.4", "N1"]
MEMORY = ["HBM2", "HBM2e", "HBM3", "HBM4"]
NETWORK = ["NDR_x8", "XDR_x8", "GDR_x8"]
MENDED = {"link_release": "held", "element_wise_traffic": "main-memory"}


def problem(mended, **more):
    return build(
        {
            "devices": 512,
            "logic": LOGIC,
            "memory": MEMORY,
            "network": NETWORK,
            "quoted_bandwidths": True,
            "chip_area_mm2": 850,
            "fractions": "system",
            "memory_limit": "ignored",
            "compat": "deepflow",
            "inter_topology": "chain",
            **(MENDED if mended else {}),
            **more,
        },
        "lm_case_study",
        objectives=["time_s"],
    )


def times(made, node, memory, network):
    """Times of every strategy with one technology, shape (strategies,)."""
    X = np.tile(made.space.lower, (len(made.space.strategies), 1))
    X[:, G_LOGIC] = LOGIC.index(node)
    X[:, G_MEMORY] = MEMORY.index(memory)
    X[:, G_NETWORK] = NETWORK.index(network)
    X[:, G_STRATEGY] = np.arange(len(X))
    return made.metrics(X)["time_s"]


@pytest.mark.parametrize("mended", [0, 1])
def test_technology_scaling_of_figure_9_is_the_programs(mended):
    made = problem(mended, strategies="d512")
    for fixed, node, memory, network, expected in REFERENCE["fig9"]:
        if fixed == mended:
            assert times(made, node, memory, network)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mended", [0, 1])
def test_the_best_of_107_strategies_of_figure_10_is_the_programs(mended):
    made = problem(mended)
    assert len(made.space.strategies) == 107
    rows = [row for row in REFERENCE["fig10"] if row[0] == mended]
    for _, node, memory, network, strategy, expected in rows[::6]:
        found = times(made, node, memory, network)
        assert found.min() == pytest.approx(expected, rel=1e-9)
        assert str(made.space.strategies[int(found.argmin())]) == strategy


@pytest.mark.slow
@pytest.mark.parametrize("mended", [0, 1])
@pytest.mark.parametrize("nodes", [4, 16, 64])
def test_packages_of_several_accelerators_of_figure_11_are_the_programs(mended, nodes):
    made = problem(mended, nodes_per_package=nodes, intra_bandwidth_gb_per_s=2000)
    for fixed, node, memory, network, size, strategy, expected in REFERENCE["fig11"]:
        if (fixed, size) == (mended, nodes):
            found = times(made, node, memory, network)
            assert found.min() == pytest.approx(expected, rel=1e-9)
            assert str(made.space.strategies[int(found.argmin())]) == strategy


def test_faster_memory_moves_the_node_at_which_logic_stops_helping():
    made = problem(0, strategies="d512")
    stops = []
    for memory in MEMORY:
        line = [times(made, node, memory, "NDR_x8")[0] for node in LOGIC]
        stops.append(next(i for i in range(7) if line[i] < line[-1] * 1.005))
    assert stops == sorted(stops)
    assert [LOGIC[i] for i in stops] == ["N12", "N3", "N2", "N1.4"]
