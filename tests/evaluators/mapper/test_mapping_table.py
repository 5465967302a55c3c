"""The mapping table: energies reproduced from counts, subsets, cache and processes."""

import json

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.mapper import cache as cache_module
from mohsearch.evaluators.mapper.cache import cached_front, front_key, stored_front
from mohsearch.evaluators.mapper.cost import mapping_cost
from mohsearch.evaluators.mapper.exact import search_layer
from mohsearch.evaluators.mapper.notation import parse_mapping
from mohsearch.evaluators.mapper.table import build_table, keep_rows
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

LAYERS = [
    LayerShape(K=24, C=16, P=12, Q=12, R=3, S=3),
    LayerShape(N=12, K=37, C=60),
    LayerShape(K=4, C=4, P=8, Q=8, R=3, S=13),
]
TEMPLATES = [load_template(name) for name in ("eyeriss", "simba", "shidiannao")]
DUMMY = load_template("eyeriss", "artifact")


@pytest.fixture(scope="module")
def table():
    return build_table(LAYERS, TEMPLATES, limit=None, cache=False, workers=1)


def test_energy_follows_from_the_rows_and_sizes_of_the_table(table):
    for u, layer in enumerate(LAYERS):
        for t, template in enumerate(TEMPLATES):
            rows = table.rows(u, t)
            if rows.start == rows.stop:
                continue
            energy = table.fixed_energy_pj[rows].copy()
            area = np.zeros(len(energy))
            instances = np.cumprod(table.fanout[rows], axis=1)
            for column in range(len(template.levels) - 1):
                size = table.size_words[rows, column]
                energy += table.reads[rows, column] * template.read_energy_pj(column + 1, size)
                energy += table.writes[rows, column] * template.write_energy_pj(column + 1, size)
                area += instances[:, column] * template.area_um2(column + 1, size)
            front = search_layer(layer, template)
            np.testing.assert_allclose(energy, front.energy_pj, rtol=1e-12)
            area += instances[:, -1] * template.mac_area_um2
            np.testing.assert_allclose(area, front.area_um2, rtol=1e-12)


def test_rows_match_the_counter(table):
    rows = table.rows(0, 1)
    simba, rules = TEMPLATES[1], MapperOptions().rules
    for row in range(rows.start, rows.stop, 7):
        cost = mapping_cost(simba, parse_mapping(table.notation[row]), LAYERS[0], rules=rules)
        assert cost.cycles == table.cycles[row]
        for column, level in enumerate(cost.levels[1:]):
            assert level.read_rows == table.reads[row, column]
            assert level.write_rows == table.writes[row, column]
            assert level.size_words == table.size_words[row, column]


def test_columns_that_a_template_lacks_are_neutral(table):
    eyeriss = table.rows(0, 0)
    assert table.reads.shape[1] == 5
    assert (table.reads[eyeriss, 4] == 0).all()
    assert (table.size_words[eyeriss, 4] == 0).all()
    assert (table.fanout[eyeriss, 5] == 1).all()


def test_a_layer_without_mapping_has_an_empty_cell_that_says_why(table):
    cell = table.rows(2, 0)
    assert cell.start == cell.stop
    assert "all of S" in table.certificates[2 * 3]["infeasible"]


def test_a_level_that_keeps_nothing_has_its_full_size():
    table = build_table([LAYERS[0]], [DUMMY], cache=False, workers=1)
    assert (table.size_words[:, 1] == 16).all()
    assert (table.reads[:, 1] == 0).all()


def test_subsets_hold_the_best_of_each_objective_and_spread():
    front = search_layer(LAYERS[0], TEMPLATES[0])
    kept = keep_rows(front, 8)
    assert len(kept) == 8
    best = front.objectives.argmin(axis=0)
    np.testing.assert_allclose(front.objectives[kept].min(axis=0), front.objectives.min(axis=0))
    assert best[0] in kept
    np.testing.assert_array_equal(kept, np.unique(kept))
    assert len(keep_rows(front, None)) == len(front)


def test_the_papers_subset_is_half_fastest_half_least_energy():
    front = search_layer(LAYERS[0], TEMPLATES[0])
    kept = keep_rows(front, 10, "paper")
    assert len(kept) == 10
    slowest_kept = np.sort(front.cycles)[4]
    assert (front.cycles[kept] <= slowest_kept).sum() >= 5
    assert set(np.argsort(front.energy_pj, kind="stable")[:5]) <= set(kept.tolist())


def test_limits_that_keep_nothing_are_refused():
    with pytest.raises(InputError, match="too small"):
        build_table([], TEMPLATES, limit=0)
    with pytest.raises(InputError, match="same name"):
        build_table([], [TEMPLATES[0], TEMPLATES[0]])


def test_results_come_back_from_the_cache_and_damage_is_repaired(tmp_path, monkeypatch):
    layer, simba, options = LAYERS[1], TEMPLATES[1], MapperOptions()
    first = cached_front(layer, simba, options, tmp_path)
    file = next(tmp_path.rglob("*.npz"))
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "search_layer", None)
        again = cached_front(layer, simba, options, tmp_path)
    np.testing.assert_array_equal(first.objectives, again.objectives)
    assert first.notation == again.notation
    assert first.certificate == again.certificate
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * 100, whole[:200] + b"\0" + whole[201:]):
        file.write_bytes(damaged)
        mended = cached_front(layer, simba, options, tmp_path)
        np.testing.assert_array_equal(first.objectives, mended.objectives)
        assert stored_front(layer, simba, options, tmp_path) is not None
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_infeasible_pair_is_cached_too(tmp_path, monkeypatch):
    first = cached_front(LAYERS[2], TEMPLATES[0], MapperOptions(), tmp_path)
    monkeypatch.setattr(cache_module, "search_layer", None)
    assert str(cached_front(LAYERS[2], TEMPLATES[0], MapperOptions(), tmp_path)) == str(first)


def test_the_key_depends_on_all_that_decides_the_front():
    layer, simba = LAYERS[0], TEMPLATES[1]
    keys = {
        front_key(layer, simba, MapperOptions()),
        front_key(LAYERS[1], simba, MapperOptions()),
        front_key(layer, TEMPLATES[0], MapperOptions()),
        front_key(layer, simba, MapperOptions(zero_fill=False)),
        front_key(layer, simba.with_memory_bandwidth(4.0), MapperOptions()),
        front_key(layer, load_template("simba", register_file_area="accelergy"), MapperOptions()),
    }
    assert len(keys) == 6


def test_the_user_cache_moves_with_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MOHSEARCH_CACHE", str(tmp_path / "here"))
    build_table([LAYERS[1]], [TEMPLATES[0]], workers=1)
    assert len(list((tmp_path / "here").rglob("*.npz"))) == 1


def test_processes_change_nothing_and_progress_is_told(tmp_path, table):
    told = []
    parallel = build_table(
        LAYERS,
        TEMPLATES,
        limit=None,
        cache=tmp_path,
        workers=2,
        progress=lambda *step: told.append(step),
    )
    np.testing.assert_array_equal(parallel.cycles, table.cycles)
    np.testing.assert_array_equal(parallel.reads, table.reads)
    assert parallel.notation == table.notation
    assert [step[0] for step in told] == list(range(1, 10))
    assert all(step[1] == 9 for step in told)
    json.dumps([dict(c) for c in parallel.certificates], allow_nan=False)


def test_a_cache_that_cannot_be_written_costs_no_result(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.warns(RuntimeWarning, match="mappings are not kept for later: .*MOHSEARCH_CACHE"):
        found = cached_front(LAYERS[2], TEMPLATES[0], MapperOptions(), blocked)
    wanted = cached_front(LAYERS[2], TEMPLATES[0], MapperOptions(), None)
    assert type(found) is type(wanted)
    assert str(found) == str(wanted)
