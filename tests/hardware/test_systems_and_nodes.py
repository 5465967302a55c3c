"""Cards of systems, logic nodes, memories and networks."""

from itertools import pairwise

import pytest

from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.hardware.logic_nodes import load_logic_node, load_memory, load_network
from mohsearch.hardware.systems import find_system, load_system, system_names

NODES = ("N12", "N7", "N5", "N3", "N2", "N1.4", "N1")


@pytest.mark.parametrize("name", system_names())
def test_every_system_card_parses_and_its_figures_are_plausible(name):
    card = load_system(name)
    assert card.name == name
    assert 1e11 < card.memory_bandwidth_bytes_per_s < 1e13
    assert all(1e12 <= rate < 1e16 for rate in card.peak_flop_per_s.values())
    assert find_system(card.aliases[0]).name == name


def test_every_node_memory_and_network_card_parses():
    catalog = Catalog()
    for name in catalog.names("evaluators", "technology/logic"):
        assert load_logic_node(name).core is not None
    for name in catalog.names("evaluators", "technology/memory"):
        assert load_memory(name).link_frequency_hz > 1e8
    for name in catalog.names("evaluators", "networks"):
        assert load_network(name).energy_j_per_bit < 1e-10


def test_each_node_is_a_step_of_area_and_power():
    cards = [load_logic_node(name) for name in NODES]
    for old, new in pairwise(cards):
        assert old.core.area_mm2 / new.core.area_mm2 == pytest.approx(1.8)
        assert old.core.power_w / new.core.power_w == pytest.approx(1.3)
        assert old.l2.area_mm2_per_bit / new.l2.area_mm2_per_bit == pytest.approx(1.8)


def test_the_papers_bandwidths_rise_with_the_generation():
    memories = [
        load_memory(n).node_bandwidth_bytes_per_s for n in ("HBM2", "HBM2e", "HBM3", "HBM4")
    ]
    assert memories == [1.0e12, 2.0e12, 2.6e12, 3.3e12]
    networks = [load_network(n).node_bandwidth_bytes_per_s for n in ("NDR_x8", "XDR_x8", "GDR_x8")]
    assert networks == [1e11, 2e11, 4e11]


def test_measured_areas_add_up_to_the_die():
    for name in ("A100", "MI210"):
        card = load_system(name)
        assert sum(card.die_area_by_component_mm2.values()) == pytest.approx(
            card.die_area_mm2, rel=0.01
        )


def test_a_figure_without_a_source_is_refused(tmp_path):
    text = (Catalog().find("evaluators", "HBM2", folder="technology/memory")).read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("  latency_s: DeepFlow", "  latency: DeepFlow"))
    with pytest.raises(InputError, match="latency_s has no source"):
        load_memory(str(path))


def test_an_unknown_device_lists_what_exists():
    with pytest.raises(UnknownNameError, match="V100"):
        find_system("V1000")


def own_card(folder, name="V9", aliases="[mine]"):
    folder.mkdir(parents=True, exist_ok=True)
    text = Catalog().find("evaluators", "P4", folder="systems").read_text()
    text = text.replace("name: P4", f"name: {name}", 1)
    path = folder / "v9.yaml"
    lines = text.splitlines()
    path.write_text(
        "\n".join(f"aliases: {aliases}" if x.startswith("aliases") else x for x in lines)
    )
    return path


def test_a_card_of_ones_own_is_found_by_name_alias_and_file(tmp_path):
    path = own_card(tmp_path / "evaluators" / "systems")
    mine = Catalog([tmp_path])
    assert find_system("V9", mine).name == find_system("MINE", mine).name == "V9"
    assert find_system(str(path)).name == "V9"
    assert find_system("evaluators/systems/v9.yaml", base=tmp_path).name == "V9"
    with pytest.raises(UnknownNameError, match="V100"):
        find_system("V9")
    with pytest.raises(InputError, match="no such file"):
        find_system("v8.yaml", base=tmp_path)


def test_a_changed_card_is_read_again(tmp_path):
    own_card(tmp_path / "evaluators" / "systems")
    mine = Catalog([tmp_path])
    assert find_system("V9", mine).name == "V9"
    own_card(tmp_path / "evaluators" / "systems", aliases="[other name of it]")
    assert find_system("other name of it", mine).name == "V9"


def test_a_name_goes_before_an_alias(tmp_path):
    own_card(tmp_path / "evaluators" / "systems", aliases="[A100]")
    assert find_system("A100", Catalog([tmp_path])).name == "A100"
