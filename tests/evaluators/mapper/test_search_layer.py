"""The layer mapper against proven optima, the independent counter, and itself without pruning."""

import csv
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.mapper import walk as wk
from mohsearch.evaluators.mapper.cost import mapping_cost
from mohsearch.evaluators.mapper.exact import search_layer
from mohsearch.evaluators.mapper.notation import parse_mapping
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.hardware.architecture import Architecture
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

REFERENCE = builtin_root() / "evaluators" / "reference" / "moham"
TEMPLATES = ("eyeriss", "simba", "shidiannao")
LAYERS = {
    "3x3": LayerShape(K=64, C=64, P=14, Q=14, R=3, S=3),
    "strided": LayerShape(K=16, C=3, P=28, Q=28, R=7, S=7, stride_h=2, stride_w=2),
    "depthwise": LayerShape(G=32, P=28, Q=28, R=3, S=3),
    "linear": LayerShape(N=96, K=256, C=128),
    "batched": LayerShape(G=4, N=48, K=48, C=16),
    "prime": LayerShape(N=2, K=37, C=10),
}


def optima() -> list[dict[str, str]]:
    with (REFERENCE / "exact_optimum_3level.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))


def full_size_machine() -> Architecture:
    """Return the three-level machine with one multiplier a buffer, all buffers at full size."""
    machine = load_template(str(REFERENCE / "three_level.yaml"))
    memory, shared, local = machine.levels
    shared = replace(shared, granularity_rows=65536 // shared.words_per_access)
    local = replace(local, granularity_rows=8192 // local.words_per_access, fanout=())
    return replace(machine, levels=(memory, shared, local))


@pytest.mark.parametrize("row", optima(), ids=lambda row: row["layer"])
def test_the_proven_optimum_of_energy_times_cycles_is_found(row: dict[str, str]) -> None:
    stride = int(row["stride"])
    bounds = {d: int(row[d]) for d in "KCPQRS"}
    layer = LayerShape(**bounds, stride_h=stride, stride_w=stride)
    options = MapperOptions(objective="edp", padding=False)
    found = search_layer(layer, full_size_machine(), options)
    assert found.certificate["complete"]
    edp = found.energy_pj[0] * 1e-6 * found.cycles[0]
    published = float(row["energy_uJ"]) * int(row["cycles"])
    assert edp == pytest.approx(published, rel=2e-4)
    assert found.cycles[0] == int(row["cycles"])


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("name", LAYERS)
def test_every_mapping_of_a_front_costs_what_the_counter_says(name: str, template: str) -> None:
    layer, architecture = LAYERS[name], load_template(template)
    options = MapperOptions()
    front = search_layer(layer, architecture, options)
    assert front.certificate["complete"]
    picked = np.unique(np.linspace(0, len(front) - 1, 12).astype(int))
    executed = [LayerShape(*b) for b in front.certificate["executed_bounds"]]
    strides = {"stride_h": layer.stride_h, "stride_w": layer.stride_w}
    for i in picked:
        mapping = parse_mapping(front.notation[i].split("  #")[0].split(" (")[0])
        costs = []
        for shape in executed:
            with suppress(InputError, ValueError):  # a variant padded to other bounds
                layer_run = replace(shape, **strides)
                costs.append(mapping_cost(architecture, mapping, layer_run, rules=options.rules))
        assert any(
            c.cycles == front.cycles[i] and np.isclose(c.energy_pj, front.energy_pj[i], rtol=1e-9)
            for c in costs
        )


@pytest.mark.parametrize("template", TEMPLATES)
def test_pruning_changes_nothing_but_the_time(template: str) -> None:
    architecture = load_template(template)
    for layer in (LayerShape(K=8, C=8, P=4, Q=4, R=3, S=1), LayerShape(N=6, K=8, C=12)):
        with_bounds = search_layer(layer, architecture)
        without = search_layer(layer, architecture, MapperOptions(prune=False))
        np.testing.assert_allclose(with_bounds.objectives, without.objectives, rtol=1e-9)


def test_a_limited_search_states_a_tolerance_that_holds() -> None:
    layer, architecture = LAYERS["3x3"], load_template("shidiannao")
    complete = search_layer(layer, architecture)
    seen = set()
    for effort in (2_000, 50_000, 100_000, 200_000):
        limited = search_layer(layer, architecture, MapperOptions(effort=effort))
        tolerance = limited.certificate["tolerance"]
        assert limited.certificate["complete"] == (tolerance == 0.0)
        if tolerance is None:
            assert set(limited.certificate["gap"]) == {"cycles", "energy_pj", "area_um2"}
            continue
        seen.add(tolerance)
        factor = (1 + tolerance) * (1 + 1e-9)
        covers = limited.objectives[:, None, :] <= complete.objectives[None, :, :] * factor
        assert covers.all(axis=2).any(axis=0).all()
    assert seen


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "layer",
    [LayerShape(K=16, C=8, P=12, Q=4, R=3, S=3), LayerShape(K=24, C=12, P=6, Q=10, R=3, S=1)],
)
def test_whatever_the_effort_the_stated_tolerance_holds(layer: LayerShape, template: str) -> None:
    architecture = load_template(template)
    complete = search_layer(layer, architecture)
    bounds = complete.certificate["lower_bounds"]
    stated = []
    for share in (0.05, 0.15, 0.3, 0.45, 0.6, 0.8, 1.2, 1.6):
        effort = max(2, int(share * bounds))
        limited = search_layer(layer, architecture, MapperOptions(effort=effort))
        tolerance = limited.certificate["tolerance"]
        if tolerance is None:
            continue
        stated.append(tolerance)
        factor = (1 + tolerance) * (1 + 1e-9)
        covers = limited.objectives[:, None, :] <= complete.objectives[None, :, :] * factor
        assert covers.all(axis=2).any(axis=0).all()
    assert stated


def test_a_memory_that_runs_out_of_room_costs_nothing_but_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, architecture = LAYERS["depthwise"], load_template("shidiannao")
    expected = search_layer(layer, architecture)
    walk, calls = wk.walk, []

    def full_now_and_then(*arguments: Any) -> int:
        calls.append(arguments[-2]["level"])
        if len(calls) % 3 == 1 and calls[-1] >= 0:
            walk(*arguments)
            return int(wk.NO_ROOM)
        return int(walk(*arguments))

    monkeypatch.setattr(wk, "walk", full_now_and_then)
    found = search_layer(layer, architecture)
    assert -1 in calls
    assert max(calls) >= 0
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=1e-9)
    assert found.certificate["complete"]


def test_a_layer_that_fits_nowhere_names_the_level() -> None:
    architecture = load_template("eyeriss")
    with pytest.raises(InfeasibleError, match="eyeriss"):
        search_layer(LayerShape(K=4, C=4, P=4, Q=4, R=500, S=1), architecture)


def test_wired_lanes_idle_or_the_layer_is_padded() -> None:
    simba = load_template("simba")
    narrow = search_layer(LayerShape(K=3, C=3, P=4, Q=4), simba)
    assert narrow.certificate["executed_bounds"][0][2:4] == [3, 3]
    wide = search_layer(LayerShape(K=10, C=10, P=4, Q=4), simba)
    assert wide.certificate["executed_bounds"][0][2:4] == [16, 12]
