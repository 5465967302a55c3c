"""Small instances of every problem, built once for all contract suites."""

import pytest

from mohsearch.problems import PROBLEMS

SMALL_INSTANCES = {
    "moham": {"workload": "tiny", "options": {}},
}
"""By problem: a workload and options that build and evaluate within seconds."""


@pytest.fixture(scope="session", params=PROBLEMS.names())
def problem(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Build one registered problem, small."""
    build = PROBLEMS.load(request.param)
    if request.param not in SMALL_INSTANCES:
        pytest.skip(f"plug-in problem {request.param}: its own tests run the contract")
    small = SMALL_INSTANCES[request.param]
    return build(
        small["options"],
        small["workload"],
        cache_dir=tmp_path_factory.mktemp("cache"),
        workers=1,
    )
