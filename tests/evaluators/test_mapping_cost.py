"""Energy, latency and area of a mapping."""

from dataclasses import replace

import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.mapper.cost import mapping_cost, minimal_sizes, multicast_hops
from mohsearch.evaluators.mapper.counts import CountRules, count_accesses, layer_tensors
from mohsearch.evaluators.mapper.notation import parse_mapping
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

REFERENCE = builtin_root() / "evaluators" / "reference" / "moham"
CONV1 = LayerShape(K=64, C=3, P=112, Q=112, R=7, S=7, stride_h=2, stride_w=2)
CONV3 = LayerShape(K=64, C=64, P=56, Q=56, R=3, S=3)
ON_EYERISS = parse_mapping(
    "DRAM[IOW] K4 Q8 C4 | shared_glb[IO] P56 // K2X Q7X C4Y S3Y |"
    " ifmap_spad[I] | weights_spad[W] R3 C4 | psum_spad[O] K8"
)


def test_resnet50_conv1_on_a_simba_like_machine_is_memory_bound():
    machine = load_template(str(REFERENCE / "simba_lemon.yaml"))
    mapping = parse_mapping(
        "DRAM[IOW] P4 Q4 | GlobalBuffer[IO] // K4 Q4 P4 | PEInputBuffer[I] // K16 |"
        " PEWeightBuffer[W] S7 R7 | PEAccuBuffer[O] // C3 | PEWeightRegs[W] P7 Q7"
    )
    counts = count_accesses(mapping, layer_tensors(CONV1))
    by_level = zip(mapping.levels, counts.accesses, strict=True)
    inputs = {level.name: accesses["I"] for level, accesses in by_level if "I" in accesses}
    assert inputs["GlobalBuffer"].tile == 61 * 61 * 3
    # After each of the four outer rows three steps of 56 columns: 61 x 56 x 3 new words.
    assert inputs["GlobalBuffer"].fills == 4 * (11163 + 3 * 61 * 56 * 3) == 167628
    assert inputs["DRAM"].reads == 167628
    # 16 of the 64 tiles of 19 x 19 x 3 differ (four output channels share one), 16 steps.
    assert inputs["GlobalBuffer"].reads == 19 * 19 * 3 * 16 * 16 == 277248
    sizes = [level.capacity_words or 0 for level in machine.levels]
    cost = mapping_cost(machine, mapping, CONV1, sizes_words=sizes)
    assert (cost.compute_cycles, cost.cycles) == (38416, 44851)
    assert cost.bottleneck == "DRAM write"
    assert cost.mac_instances == 3072


def test_energy_and_area_are_the_sums_of_their_parts():
    eyeriss = load_template("eyeriss")
    cost = mapping_cost(eyeriss, ON_EYERISS, CONV3)
    parts = sum(level.energy_pj for level in cost.levels)
    assert cost.energy_pj == pytest.approx(parts + cost.mac_energy_pj + cost.network_energy_pj)
    assert cost.mac_energy_pj == pytest.approx(CONV3.macs * eyeriss.mac_energy_pj)
    area = sum(level.area_um2 for level in cost.levels) + 168 * eyeriss.mac_area_um2
    assert cost.area_um2 == pytest.approx(area)
    for index, level in enumerate(cost.levels):
        expected = level.read_rows * eyeriss.read_energy_pj(index, level.size_words)
        expected += level.write_rows * eyeriss.write_energy_pj(index, level.size_words)
        assert level.energy_pj == pytest.approx(expected)
    assert cost.macs == CONV3.macs


def test_a_mapping_costs_more_on_a_bigger_instance():
    eyeriss = load_template("eyeriss")
    least = mapping_cost(eyeriss, ON_EYERISS, CONV3)
    full = [level.capacity_words or 0 for level in eyeriss.levels]
    most = mapping_cost(eyeriss, ON_EYERISS, CONV3, sizes_words=full)
    assert most.cycles == least.cycles
    assert most.energy_pj > least.energy_pj
    assert most.area_um2 > least.area_um2


def test_the_bottleneck_moves_with_the_memory_bandwidth():
    eyeriss = load_template("eyeriss")
    fast = mapping_cost(eyeriss, ON_EYERISS, CONV3)
    slow = mapping_cost(eyeriss.with_memory_bandwidth(0.5), ON_EYERISS, CONV3)
    assert fast.bottleneck == "compute"
    assert slow.bottleneck == "DRAM read"
    assert slow.cycles == slow.levels[0].read_cycles > fast.cycles


def test_double_buffering_needs_twice_the_room():
    eyeriss = load_template("eyeriss")
    counts = count_accesses(ON_EYERISS, layer_tensors(CONV3))
    with pytest.raises(InfeasibleError, match="ifmap_spad of 40 words cannot hold 48 words"):
        mapping_cost(
            eyeriss,
            parse_mapping(
                "DRAM[IOW] K2 Q8 C2 | shared_glb[IO] P56 // K2X Q7X C4Y S3Y | ifmap_spad[I] |"
                " weights_spad[W] R3 C8 | psum_spad[O] K16"
            ),
            CONV3,
            double_buffered=True,
        )
    single, double = (
        minimal_sizes(eyeriss, counts, double_buffered=doubled) for doubled in (False, True)
    )
    assert all(b >= a for a, b in zip(single, double, strict=True))
    assert double[1] >= 2 * counts.used_words(1)


def test_moham_grows_an_exactly_full_buffer_by_one_row():
    eyeriss = load_template("eyeriss", "artifact")
    mapping = parse_mapping(
        "DRAM[IOW] | shared_glb[IO] P128 | DummyBuffer[] | ifmap_spad[I] |"
        " weights_spad[W] | psum_spad[O] K32"
    )
    counts = count_accesses(mapping, layer_tensors(LayerShape()))
    assert counts.used_words(5) == 32
    assert minimal_sizes(eyeriss, counts)[5] == 32
    assert minimal_sizes(eyeriss, counts, granularity="moham")[5] == 64


def test_a_mapping_that_does_not_fit_is_refused():
    eyeriss = load_template("eyeriss")
    wide = parse_mapping(
        "DRAM[IOW] | shared_glb[IO] P56 // K16X Q14X | ifmap_spad[I] | weights_spad[W] |"
        " psum_spad[O]"
    )
    with pytest.raises(InfeasibleError, match="168 instances below it, the mapping uses 224"):
        mapping_cost(eyeriss, wide, LayerShape(K=16, P=56, Q=14))
    with pytest.raises(ValueError, match="levels are not those of simba"):
        mapping_cost(load_template("simba"), ON_EYERISS, CONV3)
    with pytest.raises(ValueError, match="3 sizes for 5 levels"):
        mapping_cost(eyeriss, ON_EYERISS, CONV3, sizes_words=[0, 1, 2])


def test_a_mapping_that_leaves_out_part_of_the_layer_is_refused():
    with pytest.raises(ValueError, match="loops over P reach 56 of 57"):
        mapping_cost(load_template("eyeriss"), ON_EYERISS, replace(CONV3, P=57))


def test_no_rule_of_rounding_makes_a_buffer_larger_than_the_template_allows():
    eyeriss = load_template("eyeriss")
    whole = parse_mapping(
        "DRAM[IOW] | shared_glb[IO] K64 C64 P56 Q56 | ifmap_spad[I] | weights_spad[W] R3 S3 |"
        " psum_spad[O]"
    )
    for granularity in ("rows", "moham"):
        with pytest.raises(InfeasibleError, match="shared_glb of 131072 words cannot hold"):
            mapping_cost(eyeriss, whole, CONV3, granularity=granularity)


def test_the_missing_output_register_makes_every_mac_update_the_neurons_buffer():
    layer = LayerShape(K=256, C=64, P=56, Q=56)
    loops = "MainMemory[IOW] Q14 K4 P4 | NeuronsBuffer[IO] K64 | SynapsesBuffer[W] C64 // P14X Q4Y"
    bare = load_template("shidiannao", omit=["RegisterOut"])
    flawed = mapping_cost(bare, parse_mapping(f"{loops} | RegisterIn[I]"), layer)
    sound = mapping_cost(
        load_template("shidiannao"),
        parse_mapping(f"{loops} | RegisterIn[I] | RegisterOut[O]"),
        layer,
    )
    neurons = 1
    assert flawed.levels[neurons].write_cycles * 16 > layer.macs
    assert flawed.bottleneck.startswith("NeuronsBuffer")
    assert flawed.cycles > 1.9 * sound.cycles
    assert flawed.levels[neurons].write_rows > 20 * sound.levels[neurons].write_rows


def test_grouped_layers_share_nothing_between_groups():
    depthwise = LayerShape(G=32, P=28, Q=28, R=3, S=3)
    mapping = parse_mapping(
        "DRAM[IOW] G4 Q4 | shared_glb[IO] G4 P28 // Q7X G2X S3Y | ifmap_spad[I] |"
        " weights_spad[W] R3 | psum_spad[O]"
    )
    cost = mapping_cost(load_template("eyeriss"), mapping, depthwise)
    assert cost.macs == depthwise.macs == 32 * 28 * 28 * 9
    counts = count_accesses(mapping, layer_tensors(depthwise))
    memory = counts.accesses[0]
    assert memory["O"].partition == depthwise.output_elements
    assert memory["W"].partition == depthwise.weight_elements == 32 * 9
    assert memory["I"].partition == depthwise.input_elements
    # every input row goes to the two groups' own elements: two distinct positions per column
    assert counts.transfers[1]["I"].multicast < 14 * 3 / 2


def test_skipping_the_zero_fill_saves_exactly_the_first_tiles():
    eyeriss = load_template("eyeriss")
    tensors = layer_tensors(CONV3)
    paid = count_accesses(ON_EYERISS, tensors)
    skipped = count_accesses(ON_EYERISS, tensors, CountRules(zero_fill=False))
    for level, (with_zero, without) in enumerate(zip(paid.accesses, skipped.accesses, strict=True)):
        if level and "O" in with_zero:
            saved = with_zero["O"].fills - without["O"].fills
            assert saved == min(with_zero["O"].partition, with_zero["O"].fills)
    cheap = mapping_cost(eyeriss, ON_EYERISS, CONV3, rules=CountRules(zero_fill=False))
    assert cheap.energy_pj < mapping_cost(eyeriss, ON_EYERISS, CONV3).energy_pj


def test_network_energy_grows_with_hops():
    simba = load_template("simba")
    mapping = parse_mapping(
        "DRAM[IOW] P8 Q56 | GlobalBuffer[IO] P7 // C16X K8X | PEInputBuffer[I] // K8Y |"
        " PEWeightBuffer[W] R3 S3 | PEAccuBuffer[O] // C4Y | PEWeightRegs[W]"
    )
    cost = mapping_cost(simba, mapping, CONV3)
    assert cost.network_energy_pj > 0
    levels = list(simba.levels)
    levels[1] = replace(levels[1], hop_energy_pj_per_word=2 * levels[1].hop_energy_pj_per_word)
    doubled = mapping_cost(replace(simba, levels=tuple(levels)), mapping, CONV3)
    assert doubled.network_energy_pj == pytest.approx(2 * cost.network_energy_pj)
    assert doubled.energy_pj - cost.energy_pj == pytest.approx(cost.network_energy_pj)


def test_hops_follow_the_published_examples():
    assert multicast_hops(1, 64) == pytest.approx(4.0)
    assert multicast_hops(16, 16) == pytest.approx(15.5)
    assert multicast_hops(1, 1) == pytest.approx(0.5)
