import json
from itertools import pairwise

import numpy as np
import pytest
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.optimize import minimize

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.mapper.cost import mapping_cost
from mohsearch.evaluators.mapper.notation import parse_mapping
from mohsearch.evaluators.mapper.table import MappingTable
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.moham import MohamProblem, build
from mohsearch.problems.moham_options import MohamOptions
from mohsearch.testing.contracts import check_problem
from mohsearch.testing.moham import random_genomes, synthetic_problem

OPTIONS = {
    "free": MohamOptions(max_instances=5),
    "authors": MohamOptions(max_instances=5, compat="moham"),
    "fair": MohamOptions(max_instances=6, sharing="max-min", system_bandwidth_gb_per_s=6),
    "one template": MohamOptions(templates=("simba",), max_instances=3),
    "given": MohamOptions(fixed_hardware={"eyeriss": 2, "simba": 1, "shidiannao": 2}),
}


def problem_of(name, seed=1):
    options = OPTIONS[name]
    rng = np.random.default_rng(seed)
    return synthetic_problem(rng, options=options, fitting=options.fixed_hardware is not None)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_problem_keeps_the_promises_of_the_interface(name):
    problem = problem_of(name)
    check_problem(problem, random_genomes(problem.space, np.random.default_rng(2), 60))


def test_genomes_that_stand_for_no_package_are_refused():
    problem = problem_of("free")
    X = random_genomes(problem.space, np.random.default_rng(3), 4)
    problem.space.view(X).tile[2, 0] = problem.space.view(X).tile[2, 1]
    with pytest.raises(ValueError, match="1 of 4 genomes are not valid, the first is 2"):
        problem.metrics(X)


def test_small_integer_types_give_the_same_values():
    problem = problem_of("free")
    X = random_genomes(problem.space, np.random.default_rng(4), 10)
    wide, narrow = problem.metrics(X), problem.metrics(X.astype(np.int16))
    assert all((wide[name] == narrow[name]).all() for name in wide)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_parts_of_a_design_add_up_to_its_metrics(name):
    problem = problem_of(name)
    for x in random_genomes(problem.space, np.random.default_rng(5), 12):
        design = json.loads(json.dumps(problem.decode(x)))
        values = {key: float(column[0]) for key, column in problem.metrics(x[None]).items()}
        instances, layers = design["instances"], design["layers"]
        assert design["metrics"] == values
        assert max(v["end_s"] for v in layers) == pytest.approx(values["latency_s"], rel=1e-12)
        for parts in (instances, layers):
            total = sum(part["energy_j"] for part in parts)
            assert total == pytest.approx(values["energy_j"], rel=1e-9)
        assert sum(i["area_mm2"] for i in instances) == pytest.approx(values["area_mm2"], rel=1e-9)
        assert sum(v["stalled_s"] for v in layers) == pytest.approx(
            values["stalled_s"], rel=1e-9, abs=1e-15
        )
        for i in instances:
            inside = sum(level["area_mm2"] for level in i["levels"]) + i["mac_area_mm2"]
            assert inside == pytest.approx(i["area_mm2"], rel=1e-9)
            mine = [v for v in layers if v["instance"] == i["id"]]
            assert len(mine) == i["layers"]
            assert sum(v["end_s"] - v["start_s"] for v in mine) == pytest.approx(i["busy_s"])
        moved = sum(v["memory_bytes"] for v in layers)
        package = design["package"]
        assert sum(j["bytes"] for j in package["interfaces"]) == pytest.approx(moved, rel=1e-6)
        spots = [j["position"] for j in package["interfaces"]]
        entering = sum(link["bytes"] for link in package["links"] if link["from"] in spots)
        assert entering == pytest.approx(moved, rel=1e-12)


@pytest.mark.parametrize("name", ["free", "authors", "fair"])
def test_the_bottleneck_is_a_chain_without_gaps_from_the_start_to_the_end(name):
    problem = problem_of(name)
    for x in random_genomes(problem.space, np.random.default_rng(6), 20):
        design = problem.decode(x)
        layers = {v["name"]: v for v in design["layers"]}
        chain = [layers[v] for v in design["bottleneck"]["chain"]]
        assert chain[0]["start_s"] == 0
        assert chain[-1]["end_s"] == max(v["end_s"] for v in layers.values())
        assert all(a["end_s"] == b["start_s"] for a, b in pairwise(chain))
        held = design["bottleneck"]
        assert held["compute_s"] + held["stalled_s"] == pytest.approx(chain[-1]["end_s"])
        assert sum(held["waits_for"].values()) == len(chain) - 1


def test_layers_of_a_design_stand_in_the_order_in_which_instances_run_them():
    problem = problem_of("free")
    design = problem.decode(random_genomes(problem.space, np.random.default_rng(7), 1)[0])
    for i in design["instances"]:
        starts = [v["start_s"] for v in design["layers"] if v["instance"] == i["id"]]
        assert starts == sorted(starts)
    assert {v["network"] for v in design["layers"]} == set(problem.application.networks)


def test_the_digest_tells_problems_apart():
    digests = [problem_of(name).digest() for name in OPTIONS]
    digests += [problem_of("free", seed=9).digest()]
    assert len(set(digests)) == len(digests)
    assert problem_of("free").digest() == digests[0]


def test_a_layer_without_mapping_is_named_with_the_reasons():
    problem = problem_of("one template")
    table = problem.table
    offsets = table.offsets.copy()
    first = int(offsets[1])
    offsets[1:] -= first
    certificates = ({"complete": True, "infeasible": "K is no multiple of 4"},)
    rows = {
        name: getattr(table, name)[first:]
        for name in (
            "cycles", "dram_read_bytes", "dram_write_bytes", "fixed_energy_pj",
            "reads", "writes", "size_words", "fanout", "notation",
        )
    }  # fmt: skip
    empty = MappingTable(
        table.templates, table.layers, offsets, **rows,
        certificates=certificates + table.certificates[1:],
    )  # fmt: skip
    with pytest.raises(InfeasibleError, match=r"layer .* has no mapping \(simba: K is no multiple"):
        MohamProblem(problem.application, problem.architectures, empty, problem.options)


def test_plain_pymoo_minimises_it_with_our_operators():
    problem = problem_of("free")
    variation = load_portfolio("moham").build(problem)
    algorithm = NSGA2(
        pop_size=24,
        sampling=variation.sampling,
        crossover=variation.crossover,
        mutation=variation.mutation,
    )
    first = minimize(problem, algorithm, ("n_gen", 1), seed=1)
    last = minimize(problem, algorithm, ("n_gen", 25), seed=1)
    assert problem.space.is_valid(np.atleast_2d(last.X)).all()
    ideal = np.array([problem.ideal_point()[m.name] for m in problem.objective_cards])
    assert (last.F >= ideal * (1 - 1e-9)).all()
    assert (last.F.min(axis=0) <= first.F.min(axis=0)).all()
    assert (last.F.min(axis=0) < first.F.min(axis=0)).any()


def test_a_workload_by_name_becomes_a_problem(tmp_path):
    seen = []
    problem = build(
        {"templates": ["eyeriss", "simba"], "max_instances": 3, "mappings_per_layer": 6},
        "tiny",
        objectives=["latency_s", "throughput_per_s"],
        cache_dir=tmp_path,
        progress=lambda done, total, label: seen.append((done, total, label)),
        workers=1,
    )
    assert seen[-1][0] == seen[-1][1] == 2 * problem.application.n_unique
    assert [m.name for m in problem.objective_cards] == ["latency_s", "throughput_per_s"]
    X = random_genomes(problem.space, np.random.default_rng(8), 20)
    check_problem(problem, X)
    assert problem.certificate()["mapper"]["complete"] == len(problem.table.certificates)
    again = build(
        {"templates": ["eyeriss", "simba"], "max_instances": 3, "mappings_per_layer": 6},
        "tiny",
        cache_dir=tmp_path,
        workers=1,
    )
    assert again.digest() == problem.digest()


def test_each_layer_costs_what_the_loop_nest_counter_says_on_its_instance(tmp_path):
    problem = build(
        {"max_instances": 4, "mappings_per_layer": 8}, "tiny", cache_dir=tmp_path, workers=1
    )
    shapes = {layer.name: layer.shape for layer in problem.application.layers}
    templates = {a.name: a for a in problem.architectures}
    grown = 0
    for x in random_genomes(problem.space, np.random.default_rng(9), 10):
        design = problem.decode(x)
        own_area = dict.fromkeys(range(len(design["instances"])), 0.0)
        for layer in design["layers"]:
            instance = design["instances"][layer["instance"]]
            architecture = templates[instance["template"]]
            sizes = [0] + [
                round(level["size_bytes"] * 8 / part.word_bits)
                for level, part in zip(instance["levels"], architecture.levels[1:], strict=True)
            ]
            nest, shape = parse_mapping(layer["mapping"]), shapes[layer["name"]]
            cost = mapping_cost(architecture, nest, shape, sizes_words=sizes)
            alone = mapping_cost(architecture, nest, shape)
            grown += cost.energy_pj > alone.energy_pj
            own_area[instance["id"]] = max(own_area[instance["id"]], alone.area_um2 * 1e-6)
            x0, y0 = problem.network.interface_positions(len(design["instances"]))[
                instance["interface"]
            ]
            hops = abs(instance["tile"][0] - x0) + abs(instance["tile"][1] - y0)
            links = layer["memory_bytes"] * 8 * 0.82e-12 * hops
            assert layer["energy_j"] == pytest.approx(cost.energy_pj * 1e-12 + links, rel=1e-9)
            took = layer["end_s"] - layer["start_s"] - layer["stalled_s"]
            assert took == pytest.approx(cost.cycles / 1e9, rel=1e-9)
            for level, counted in zip(instance["levels"], cost.levels[1:], strict=True):
                assert level["instances"] >= counted.instances
        for instance in design["instances"]:
            assert instance["area_mm2"] >= own_area[instance["id"]] * (1 - 1e-12)
    assert grown > 10
