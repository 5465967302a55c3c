import pytest

from mohsearch.core.cards import validate
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.problems import PROBLEM_OPTIONS, PROBLEMS
from mohsearch.problems.moham import build, load_architectures, load_card
from mohsearch.problems.moham_options import MohamOptions


def test_every_option_is_described():
    assert PROBLEM_OPTIONS.load("moham") is MohamOptions
    assert PROBLEMS.names() == sorted(PROBLEMS.names())
    for name, field in MohamOptions.model_fields.items():
        assert field.description, name


def test_the_defaults_are_the_papers():
    network = MohamOptions().network()
    assert network.interface_bandwidth_bytes_per_s == 4e9
    assert network.link_bandwidth_bytes_per_s == network.system_bandwidth_bytes_per_s == 16e9
    assert network.hop_energy_pj_per_bit == 0.82
    assert network.sharing == "proportional"
    assert MohamOptions().slots == 16


def test_compat_follows_the_authors_program():
    network = MohamOptions(compat="moham").network()
    assert network.sharing == "two-pass"
    assert network.crowded_ties
    assert network.far_right


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"templates": []}, "templates"),
        ({"templates": ["simba", "simba"]}, "stands twice"),
        ({"max_instances": 0}, "max_instances"),
        ({"max_instances": "many"}, "max_instances"),
        ({"clock_ghz": -1}, "clock_ghz"),
        ({"fixed_hardware": {}}, "at least one"),
        ({"fixed_hardware": {"simba": 0}}, "fixed_hardware.simba"),
        ({"fixed_hardware": {"simba": 300}}, "more than 256"),
        ({"omit_levels": {"tpu": ["x"]}}, "none of the templates"),
        ({"compat": "moham", "sharing": "max-min"}, "two-pass"),
        ({"interface_bandwith_gb_per_s": 4}, "no such field"),
    ],
)
def test_wrong_options_are_refused_with_their_field(options, message):
    with pytest.raises(InputError, match=message):
        validate(MohamOptions, options)


def test_options_reach_the_templates():
    options = MohamOptions(
        templates=("shidiannao", "eyeriss"),
        omit_levels={"shidiannao": ("RegisterOut",)},
        register_file_area="accelergy",
        memory_words_per_cycle=4,
    )
    shidiannao, eyeriss = load_architectures(options)
    assert "RegisterOut" not in [level.name for level in shidiannao.levels]
    assert eyeriss.register_file_area == "accelergy"
    assert eyeriss.levels[0].read_words_per_cycle == 4


def test_unknown_names_are_refused_before_anything_is_searched():
    with pytest.raises(UnknownNameError, match="simba"):
        build({"templates": ["simbaa"]}, "tiny")
    with pytest.raises(InputError, match="tinny"):
        build({}, "tinny")
    with pytest.raises(UnknownNameError, match="latency_s"):
        load_card().metric("latency")
