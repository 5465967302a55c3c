"""Small instances of every problem, built once for all contract suites."""

import pytest

from mohsearch.problems import PROBLEMS
from mohsearch.problems.base import SearchProblem

SMALL_INSTANCES = {
    "chiplet": {"workload": "own_ae", "options": {"chips": 4, "genome": "labels"}},
    "deepflow": {
        "workload": "lm_tiny",
        "options": {
            "devices": 8,
            "nodes_per_package": 2,
            "logic": ["N12", "N7"],
            "memory": ["HBM2", "HBM2e"],
            "network": ["NDR_x8", "XDR_x8"],
            "tdp_w": [150, 400],
            "node_area_mm2": [800, 1400],
            "extra_stacks": [0, 2],
            "mapping": "searched",
        },
    },
    "measured": {"workload": "vidur-products", "options": {"at_least": 1.0}},
    "moham": {"workload": "tiny", "options": {}},
    "parallelism": {"workload": "korth_t5_3", "options": {}},
    "phaze": {
        "workload": "bert-base",
        "options": {
            "widths": [64, 128, 256],
            "depths": [64, 128],
            "global_buffers_mib": [8, 32],
            "microbatches": [4],
            "hbm_gib": [8, 32],
            "tensor_parallel": [1],
            "schedule_states": 32,
        },
    },
}
"""By problem: a workload and options that build and evaluate within seconds."""


@pytest.fixture(scope="session")
def built() -> dict[str, SearchProblem]:
    """Problems built so far, whatever the order in which tests ask for them."""
    return {}


@pytest.fixture(scope="session", params=PROBLEMS.names())
def problem(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    built: dict[str, SearchProblem],
) -> SearchProblem:
    """Build one registered problem, small."""
    name = request.param
    if name not in SMALL_INSTANCES:
        pytest.skip(f"plug-in problem {name}: its own tests run the contract")
    if name not in built:
        small = SMALL_INSTANCES[name]
        built[name] = PROBLEMS.load(name)(
            small["options"],
            small["workload"],
            cache_dir=tmp_path_factory.mktemp("cache"),
            workers=1,
        )
    return built[name]
