"""Template cards and the architectures they build."""

import numpy as np
import pytest
import yaml

from mohsearch.core.catalog import Catalog, builtin_root
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.hardware.templates import load_template, read_template, template_names

NAMES = ("eyeriss", "shidiannao", "simba")
CARDS = builtin_root() / "evaluators" / "templates"


def test_the_three_templates_are_on_the_shelf():
    assert set(NAMES) <= set(template_names())


@pytest.mark.parametrize(
    ("name", "level", "size_bytes"),
    [
        ("eyeriss", "shared_glb", 128 * 1024),
        ("simba", "GlobalBuffer", 64 * 1024),
        ("simba", "PEInputBuffer", 8 * 1024),
        ("simba", "PEWeightBuffer", 32 * 1024 // 8),
        ("simba", "PEAccuBuffer", 3 * 1024 // 8),
        ("shidiannao", "NeuronsBuffer", 128 * 1024),
        ("shidiannao", "SynapsesBuffer", 128 * 1024),
    ],
)
def test_the_paper_variants_have_the_maxima_of_table_4(name, level, size_bytes):
    architecture = load_template(name)
    found = architecture.levels[architecture.level_index(level)]
    assert found.capacity_words * found.word_bits == size_bytes * 8


def test_the_paper_variants_have_the_multipliers_of_table_4():
    assert [load_template(name).max_macs for name in NAMES] == [168, 256, 128 * 32]


def test_an_eyeriss_element_holds_half_a_kibibyte():
    spads = load_template("eyeriss").levels[2:]
    size = sum(level.capacity_words * level.word_bits for level in spads) / 8
    assert 0.4 * 1024 < size <= 0.5 * 1024


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", ["paper", "artifact"])
def test_every_tensor_has_a_home_and_every_loop_a_place(name, variant):
    architecture = load_template(name, variant)
    memory = architecture.levels[0]
    assert set(memory.keeps) == {"W", "I", "O"}
    assert set(memory.temporal.dims) == set("NGKCPQRS")
    on_chip = {tensor for level in architecture.levels[1:] for tensor in level.keeps}
    assert on_chip == {"W", "I", "O"}
    assert any("G" in level.temporal.dims for level in architecture.levels[1:])


@pytest.mark.parametrize("name", NAMES)
def test_energy_and_area_never_fall_as_a_level_grows(name):
    for model in ("physical", "accelergy"):
        architecture = load_template(name, register_file_area=model)
        for index, level in enumerate(architecture.levels[1:], start=1):
            sizes = np.arange(1, level.capacity_words + 1)
            for of in (
                architecture.read_energy_pj,
                architecture.write_energy_pj,
                architecture.area_um2,
            ):
                assert np.all(np.diff(of(index, sizes)) >= -1e-9)


def test_sizes_are_granular_and_within_capacity():
    simba = load_template("simba")
    level = simba.levels[simba.level_index("GlobalBuffer")]
    assert level.granular_words([0, 1, 512, 513, 65536]).tolist() == [0, 512, 512, 1024, 65536]
    eyeriss = load_template("eyeriss")
    spad = eyeriss.levels[eyeriss.level_index("ifmap_spad")]
    assert spad.granular_words([1, 32, 33, 40]).tolist() == [32, 32, 40, 40]


def test_nothing_used_costs_no_area_and_memory_none_at_all():
    eyeriss = load_template("eyeriss")
    assert eyeriss.area_um2(1, [0, 131072])[0] == 0
    assert eyeriss.area_um2(0, 10**9) == 0


def test_a_level_that_holds_nothing_still_costs_its_area():
    eyeriss = load_template("eyeriss", "artifact", register_file_area="accelergy")
    index = eyeriss.level_index("DummyBuffer")
    assert eyeriss.area_um2(index, [0, 0]).tolist() == pytest.approx([148.18, 148.18])


def test_the_output_register_may_be_left_out_and_no_other_level():
    names = [level.name for level in load_template("shidiannao").levels]
    without = [level.name for level in load_template("shidiannao", omit=["RegisterOut"]).levels]
    assert names == [*without, "RegisterOut"]
    with pytest.raises(UnknownNameError, match=r"optional level .* available: RegisterOut"):
        load_template("shidiannao", omit=["RegisterIn"])


def test_matrix_products_use_another_fan_out_where_the_card_says_so():
    shidiannao = load_template("shidiannao")
    level = shidiannao.levels[shidiannao.level_index("SynapsesBuffer")]
    assert [axis.dims for axis in level.axes()] == [("P",), ("Q",)]
    assert [axis.dims for axis in level.axes(gemm=True)] == [("K",), ("N",)]
    eyeriss = load_template("eyeriss").levels[1]
    assert eyeriss.axes(gemm=True) == eyeriss.axes()


def test_memory_bandwidth_can_be_replaced():
    simba = load_template("simba").with_memory_bandwidth(4.0)
    assert simba.levels[0].read_words_per_cycle == simba.levels[0].write_words_per_cycle == 4.0
    assert load_template("simba").levels[0].read_words_per_cycle == 16.0


def test_unknown_names_say_what_exists():
    with pytest.raises(UnknownNameError, match="did you mean 'simba'"):
        load_template("simbaa")
    with pytest.raises(UnknownNameError, match="artifact, paper"):
        load_template("simba", "papers")
    with pytest.raises(KeyError, match="GlobalBuffer"):
        load_template("simba").level_index("L2")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "evaluators" / "templates"
    folder.mkdir(parents=True)

    def add(name, edit):
        data = yaml.safe_load((CARDS / "simba.yaml").read_text())
        data["name"] = name
        edit(data)
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
        return Catalog([tmp_path])

    return add


def test_a_user_adds_a_template_by_a_card_alone(project):
    def smaller(data):
        data["variants"]["paper"]["levels"][1]["size_words"] = 1024

    catalog = project("mine", smaller)
    assert "mine" in template_names(catalog)
    mine = load_template("mine", catalog=catalog)
    assert mine.levels[1].capacity_words == 1024
    assert read_template("mine", catalog).title == "Simba-like"


def _set(index, key, value):
    def edit(data):
        data["variants"]["paper"]["levels"][index][key] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (_set(1, "size_word", 3), r"variants\.paper\.levels\[1\]\.size_word: no such field"),
        (_set(1, "keeps", ["X"]), r"variants\.paper\.levels\[1\]\.keeps\[0\]"),
        (_set(0, "size_words", 3), r"levels\[0\] is the memory"),
        (_set(2, "name", "GlobalBuffer"), "two levels have the same name"),
        (_set(1, "memory", {"kind": "sram", "width_bits": 48}), r"levels\[1\]\.memory: .* 48 bit"),
        (
            _set(0, "memory", {"kind": "dram", "width_bits": 64, "dram_type": "HBM9"}),
            r"levels\[0\]\.memory\.dram_type: unknown DRAM type of technology \w+ 'HBM9'",
        ),
        (_set(1, "fanout", [{"axis": "X"}]), r"fanout\[0\]: an axis has either a limit or exact"),
        (_set(1, "temporal", {"dims": ["K"], "order": ["C"]}), r"temporal: order: lacks \['K'\]"),
        (_set(1, "temporal", {"dims": ["K"], "whole": ["C"]}), r"temporal: whole: \['C'\]"),
        (_set(1, "keeps", ["I", "I"]), r"levels\[1\]: keeps names a tensor twice"),
        (
            _set(1, "fanout", [{"axis": "X", "limit": 2, "dims": ["K"]}] * 2),
            r"levels\[1\]: two axes of a fan-out have the same name",
        ),
        (lambda data: data.update(default="none"), "no variant 'none'"),
        (
            lambda data: data.update(technology="cmos46"),
            r"broken\.yaml: technology: unknown technology 'cmos46'",
        ),
    ],
)
def test_a_wrong_card_is_refused_with_the_field(project, edit, match):
    catalog = project("broken", edit)
    with pytest.raises(InputError, match=match):
        load_template("broken", catalog=catalog)


def test_names_of_the_working_directory_are_found_without_a_catalogue(project, monkeypatch):
    catalog = project("nearby", lambda data: data.update(title="Mine"))
    monkeypatch.chdir(catalog.roots[0])
    assert "nearby" in template_names()
    assert read_template("nearby").title == "Mine"
    assert load_template("nearby").levels
