"""The mapper's front against a plain walk of every factorisation in every loop order."""

from itertools import permutations, product
from math import prod

import numpy as np
import pytest

from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.mapper.cost import mapping_cost
from mohsearch.evaluators.mapper.counts import CountRules, count_accesses, layer_tensors
from mohsearch.evaluators.mapper.exact import search_layer
from mohsearch.evaluators.mapper.notation import Loop, Mapping, MappingLevel, parse_mapping
from mohsearch.evaluators.mapper.space import build_space, padded_layers
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import DIMS, LayerShape


def splits(bound, places):
    """All ordered ways to write ``bound`` as a product over the allowed places."""
    if not places:
        if bound == 1:
            yield {}
        return
    first, *others = places
    for factor in range(1, bound + 1):
        if bound % factor == 0:
            for rest in splits(bound // factor, others):
                yield {first: factor, **rest}


def places_of(arch, layer, dim):
    """Where a dimension may be looped over: ("t", level) or ("s", level, axis)."""
    gemm = layer.P == layer.Q == layer.R == layer.S == 1
    places = []
    for index, level in enumerate(arch.levels):
        if dim in level.temporal.dims:
            places.append(("t", index))
        for axis in level.axes(gemm=gemm):
            if dim in axis.dims:
                places.append(("s", index, axis.name))
    return places


def obeys_rules(arch, layer, chosen):
    gemm = layer.P == layer.Q == layer.R == layer.S == 1
    for index, level in enumerate(arch.levels):
        whole = set(level.temporal.whole)
        outside_temporal = range(index)
        for dim in whole:
            if any(chosen[dim].get(("t", y), 1) > 1 for y in outside_temporal):
                return False
        for axis in level.axes(gemm=gemm):
            factors = {d: chosen[d].get(("s", index, axis.name), 1) for d in axis.dims}
            if prod(factors.values()) > axis.limit:
                return False
            for dim, wired in axis.exact:
                if factors[dim] != min(wired, getattr(layer, dim)):
                    return False
            for dim in axis.whole:
                if any(chosen[dim].get(("t", y), 1) > 1 for y in range(index + 1)):
                    return False
            whole |= set(axis.whole)
        for dim in whole:
            for place, factor in chosen[dim].items():
                if place[0] == "s" and place[1] < index and factor > 1:
                    return False
    return True


def orders(level, factors):
    loops = [d for d in DIMS if factors.get(d, 1) > 1]
    if level.temporal.order is not None:
        yield tuple(d for d in level.temporal.order if d in loops)
    else:
        yield from permutations(loops)


def all_mappings(arch, layer):
    """Every admissible loop nest of the layer as it is (no padding)."""
    gemm = layer.P == layer.Q == layer.R == layer.S == 1
    choices = [list(splits(getattr(layer, d), places_of(arch, layer, d))) for d in DIMS]
    for combination in product(*choices):
        chosen = dict(zip(DIMS, combination, strict=True))
        if not obeys_rules(arch, layer, chosen):
            continue
        temporal = [{d: chosen[d].get(("t", i), 1) for d in DIMS} for i in range(len(arch.levels))]
        nests = [list(orders(level, t)) for level, t in zip(arch.levels, temporal, strict=True)]
        for picked in product(*nests):
            yield Mapping(
                tuple(
                    MappingLevel(
                        level.name,
                        level.keeps,
                        tuple(Loop(d, temporal[i][d]) for d in picked[i]),
                        tuple(
                            Loop(d, f, axis.name)
                            for axis in level.axes(gemm=gemm)
                            for d in axis.dims
                            if (f := chosen[d].get(("s", i, axis.name), 1)) > 1
                        ),
                    )
                    for i, level in enumerate(arch.levels)
                )
            )


def brute_force_front(arch, layer, rules):
    """Number of mappings walked and their non-dominated (cycles, energy, area), sorted."""
    count, points = 0, set()
    for mapping in all_mappings(arch, layer):
        count += 1
        try:
            cost = mapping_cost(arch, mapping, layer, rules=rules)
        except InfeasibleError:
            continue
        points.add((cost.cycles, float(f"{cost.energy_pj:.9e}"), float(f"{cost.area_um2:.9e}")))
    front = [
        p
        for p in points
        if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)
    ]
    return count, np.array(sorted(front))


SMALL = [
    ("eyeriss", LayerShape(K=2, C=2, P=2, Q=2, R=2, S=2), True),
    ("eyeriss", LayerShape(N=2, G=2, K=2, C=4), False),
    ("simba", LayerShape(K=16, C=8, P=2, Q=2, R=2), True),
    ("shidiannao", LayerShape(K=2, C=2, P=2, Q=2, R=2), True),
    ("shidiannao", LayerShape(N=4, K=2, C=4), False),
]


@pytest.mark.parametrize(("template", "layer", "zero_fill"), SMALL)
def test_the_front_is_that_of_every_mapping_in_every_order(template, layer, zero_fill):
    architecture = load_template(template)
    options = MapperOptions(padding=False, zero_fill=zero_fill)
    walked, expected = brute_force_front(architecture, layer, options.rules)
    found = search_layer(layer, architecture, options)
    points = np.array(sorted(map(tuple, found.objectives)))
    assert points.shape == expected.shape
    np.testing.assert_allclose(points, expected, rtol=1e-8)
    assert walked >= found.certificate["mappings"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "layer"),
    [
        ("eyeriss", LayerShape(K=4, C=4, P=4, Q=2, R=3, S=2)),
        ("simba", LayerShape(N=2, K=32, C=16, P=4, R=3)),
        ("shidiannao", LayerShape(G=2, P=4, Q=2, R=3, S=2)),
        ("shidiannao", LayerShape(K=2, C=4, P=4, Q=2, R=3, stride_h=2)),
    ],
)
def test_the_same_on_layers_with_more_mappings(template, layer):
    architecture = load_template(template)
    options = MapperOptions(padding=False)
    _, expected = brute_force_front(architecture, layer, options.rules)
    points = sorted(map(tuple, search_layer(layer, architecture, options).objectives))
    np.testing.assert_allclose(points, expected, rtol=1e-8)


@pytest.mark.parametrize("template", ["eyeriss", "simba", "shidiannao"])
def test_the_size_of_the_space_is_the_number_of_factorisations(template):
    architecture = load_template(template)
    layer = LayerShape(K=16, C=8, P=2, Q=3)

    def factors(loops):
        return tuple(prod(loop.bound for loop in loops if loop.dim == d) for d in DIMS)

    distinct = {
        tuple((factors(level.temporal), factors(level.spatial)) for level in mapping.levels)
        for mapping in all_mappings(architecture, layer)
    }
    assert build_space(layer, architecture).size == len(distinct)


@pytest.mark.parametrize("template", ["eyeriss", "simba", "shidiannao"])
@pytest.mark.parametrize(
    "layer",
    [
        LayerShape(K=24, C=16, P=12, Q=12, R=3, S=3),
        LayerShape(N=12, K=34, C=60),
        LayerShape(G=16, P=14, Q=14, R=3, S=3, stride_h=2, stride_w=2),
    ],
)
def test_the_certificate_accounts_for_every_mapping(template, layer):
    certificate = search_layer(layer, load_template(template)).certificate
    cut = sum(sum(certificate[k].values()) for k in certificate if k.startswith("pruned_by"))
    assert certificate["complete"]
    assert certificate["costed"] + cut == pytest.approx(certificate["mappings"], rel=1e-9)


@pytest.mark.parametrize("template", ["eyeriss", "simba", "shidiannao"])
def test_one_objective_finds_the_best_of_the_front(template):
    layer, architecture = LayerShape(K=32, C=16, P=14, Q=14, R=3, S=3), load_template(template)
    front = search_layer(layer, architecture)
    for objective, best in {
        "edp": (front.energy_pj * front.cycles).min(),
        "energy": front.energy_pj.min(),
        "cycles": front.cycles.min(),
    }.items():
        single = search_layer(layer, architecture, MapperOptions(objective=objective))
        value = {
            "edp": single.energy_pj * single.cycles,
            "energy": single.energy_pj,
            "cycles": single.cycles,
        }[objective][0]
        assert value == pytest.approx(best, rel=1e-9)


def test_double_buffering_costs_what_the_counter_says():
    layer, eyeriss = LayerShape(K=32, C=32, P=14, Q=14, R=3, S=3), load_template("eyeriss")
    options = MapperOptions(double_buffered=True, padding=False)
    double = search_layer(layer, eyeriss, options)
    for i in range(0, len(double), 9):
        mapping = parse_mapping(double.notation[i])
        cost = mapping_cost(eyeriss, mapping, layer, rules=options.rules, double_buffered=True)
        assert cost.cycles == double.cycles[i]
        assert cost.energy_pj == pytest.approx(double.energy_pj[i], rel=1e-9)
        assert cost.area_um2 == pytest.approx(double.area_um2[i], rel=1e-9)


def test_the_innermost_halo_is_never_less_than_the_exact_one():
    layer = LayerShape(K=2, P=4, Q=2, R=3, S=2)
    tensors, checked = layer_tensors(layer), 0
    for number, mapping in enumerate(all_mappings(load_template("shidiannao"), layer)):
        if number % 11:
            continue
        ours = count_accesses(mapping, tensors, CountRules(halos="innermost"))
        exact = count_accesses(mapping, tensors, CountRules(halos="exact"))
        for mine, true in zip(ours.accesses, exact.accesses, strict=True):
            assert all(mine[t].reads >= true[t].reads for t in mine)
        checked += 1
    assert checked > 100


def test_bounds_with_large_primes_are_tried_padded_too():
    eyeriss = load_template("eyeriss")
    layer = LayerShape(N=4, K=37, C=8)
    assert [v.K for v in padded_layers(layer, eyeriss)] == [37, 39]
    both = search_layer(layer, eyeriss)
    plain = search_layer(layer, eyeriss, MapperOptions(padding=False))
    assert len(both.certificate["executed_bounds"]) == 2
    assert len(plain.certificate["executed_bounds"]) == 1
    assert both.cycles.min() < plain.cycles.min()
    assert any("K37 padded to 39" in text for text in both.notation)


@pytest.mark.parametrize(
    ("template", "layer", "message"),
    [
        ("eyeriss", LayerShape(K=4, C=4, P=8, Q=8, R=3, S=13), "shared_glb.fanout Y: all of S"),
        ("eyeriss", LayerShape(K=4, C=4, P=4, Q=4, R=41, S=1), "ifmap_spad"),
    ],
)
def test_an_empty_space_names_what_empties_it(template, layer, message):
    with pytest.raises(InfeasibleError, match=message):
        search_layer(layer, load_template(template))
