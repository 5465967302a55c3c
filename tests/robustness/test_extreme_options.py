"""Options at the edges of what is admitted: a finite answer or a refusal with a reason, in time."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.design_points import DesignPoints, evaluate_points
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems import PROBLEM_OPTIONS, PROBLEMS
from tests.contracts.conftest import SMALL_INSTANCES
from tests.robustness.extreme_options import Trier, edges, options_of

MOST_S = 30.0
"""Processor seconds that a problem with extreme options may take."""

OTHER_BASES = {
    "chiplet": [{"chips": 4, "genome": "keys"}, {"chips": 4, "genome": "segments"}],
    "deepflow": [{"devices": 8}, {"devices": 8, "compat": "deepflow"}],
    "moham": [{"compat": "moham"}],
    "parallelism": [{"degrees": "measured"}],
    "phaze": [{"compat": "paper", "microbatches": [4], "hbm_gib": [8, 32], "widths": [64]}],
}


@pytest.fixture(params=sorted(SMALL_INSTANCES))
def trier(request, tmp_path):
    """A process that tries options of one problem."""
    small = SMALL_INSTANCES[request.param]
    made = Trier(request.param, small["workload"], dict(small["options"]), tmp_path, MOST_S)
    yield made
    made.close()


def tries(trier, bases, count):
    """Try options around some bases; each is evaluated or refused with a reason."""
    seen = set()

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(bases).flatmap(lambda base: options_of(trier.task[0], base)))
    def each(options):
        state, text = trier.try_options(options)
        seen.add(state)
        assert state in {"evaluated", "refused"}, text
        assert state == "evaluated" or text

    each()
    assert "evaluated" in seen


@pytest.mark.parametrize("slug", ["chiplet", "deepflow", "measured", "parallelism"])
def test_a_problem_with_extreme_options_answers_or_is_refused(slug, tmp_path):
    small = SMALL_INSTANCES[slug]
    trier = Trier(slug, small["workload"], dict(small["options"]), tmp_path, MOST_S)
    try:
        tries(trier, [trier.base], 12)
    finally:
        trier.close()


@pytest.mark.slow
def test_every_problem_with_extreme_options_answers_or_is_refused(trier):
    tries(trier, [trier.base, *OTHER_BASES.get(trier.task[0], [])], 150)


@pytest.mark.parametrize(
    ("slug", "options", "reason"),
    [
        ("moham", {"memory_words_per_cycle": 1e-60}, r"more than 2\*\*62 cycles"),
        ("phaze", {"memory_gb_per_s": 1e-9}, "too large to be costed"),
        ("phaze", {"microbatches": [1, 2**20], "memory_gb_per_s": 0.5}, "too large to be costed"),
        ("deepflow", {"compat": "deepflow", "tile_candidates": 2**31}, "tile_candidates"),
        ("phaze", {"network_gb_per_s": 1e-60, "tensor_parallel": [1, 2]}, "network bandwidth"),
        ("deepflow", {"devices": 2**20}, "too many to find their best placements"),
        ("deepflow", {"nodes_per_package": 2**20}, "nodes_per_package"),
    ],
)
def test_options_beyond_what_can_be_counted_are_refused_when_the_problem_is_built(
    slug, options, reason, tmp_path
):
    with pytest.raises(InputError, match=reason):
        PROBLEMS.load(slug)(
            options, SMALL_INSTANCES[slug]["workload"], cache_dir=tmp_path, workers=1
        )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tdp_w": 1e60}, "registers"),
        ({"chip_area_mm2": 1e6, "node_area_mm2": 2e6, "tdp_w": 1e5}, "fits no wafer"),
    ],
)
def test_a_die_without_a_price_is_infeasible_with_a_reason(options, reason):
    problem = PROBLEMS.load("deepflow")({"devices": 8, **options}, "lm_tiny")
    sampling = load_portfolio("deepflow").applicable(problem).build(problem).sampling
    genomes = sampling._do(problem, 1, random_state=np.random.default_rng(1))
    metrics = problem.metrics(genomes)
    assert metrics["cost_usd"][0] == metrics["system_cost_usd"][0] == 1e12
    assert metrics["missing_parts"][0] == 1
    assert reason in problem.decode(genomes[0])["reason"]


def test_the_chain_of_a_schedule_whose_layers_are_lost_in_rounding_ends(tmp_path):
    options = {"interface_bandwidth_gb_per_s": 1e-60, "max_instances": 2}
    problem = PROBLEMS.load("moham")(options, "tiny", cache_dir=tmp_path, workers=1)
    sampling = load_portfolio("moham").applicable(problem).build(problem).sampling
    genomes = sampling._do(problem, 4, random_state=np.random.default_rng(1))
    for genome in genomes:
        chain = problem.decode(genome)["bottleneck"]["chain"]
        assert len(chain) == len(set(chain)) > 0


def test_fractions_that_are_all_given_are_drawn_as_given(tmp_path):
    options = {"fixed_fractions": {"area.core": 1.0}, "devices": 8}
    problem = PROBLEMS.load("deepflow")(options, "lm_tiny")
    sampling = load_portfolio("deepflow").applicable(problem).build(problem).sampling
    genomes = sampling._do(problem, 8, random_state=np.random.default_rng(1))
    assert np.isfinite(genomes).all()
    assert all(np.isfinite(column).all() for column in problem.metrics(genomes).values())


@pytest.mark.parametrize("options", [{}, {"nodes_per_package": 4, "inter_topology": "torus"}])
def test_the_memory_that_a_strategy_needs_does_not_depend_on_its_placement(options):
    problem = PROBLEMS.load("deepflow")({"devices": 16, **options}, "lm_tiny")
    points = DesignPoints(
        technology=problem.technologies[:1],
        allocation=np.tile(problem.setup.allocation, (len(problem.space.strategies), 1)),
        strategy=problem.space.codes,
    )
    placed = evaluate_points(points, problem.workload, problem.point_options)
    assert np.array_equal(problem.need_bytes, placed.memory_bytes)


def test_the_edges_of_every_problem_s_options_are_found():
    for slug in SMALL_INSTANCES:
        schema = PROBLEM_OPTIONS.load(slug).model_json_schema()
        numbers = [f for f in schema["properties"].values() if f.get("type") == "number"]
        for field in numbers:
            values = edges(field, {})
            assert len(values) > 2
            assert min(values) >= field.get("minimum", field.get("exclusiveMinimum"))
