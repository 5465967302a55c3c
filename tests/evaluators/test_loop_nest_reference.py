"""The counter and cost model against complete Timeloop outputs."""

import csv
import gzip
from dataclasses import dataclass, replace
from math import ceil
from types import SimpleNamespace

import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.mapper.cost import (
    bandwidth_cycles,
    minimal_sizes,
    network_energy_pj,
    row_accesses,
)
from mohsearch.evaluators.mapper.counts import NestCounts, count_accesses, layer_tensors
from mohsearch.evaluators.mapper.notation import parse_mapping
from mohsearch.hardware.architecture import Architecture
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape

FOLDER = builtin_root() / "evaluators" / "reference" / "moham"
COUNT_FIELDS = ("instances", "tile_words", "partition_words", "reads", "fills", "updates")


@dataclass
class Case:
    row: dict[str, str]
    layer: LayerShape
    counts: NestCounts
    reference: list[dict[str, str]]

    @property
    def linked(self) -> bool:
        return self.row["linked"] == "1"


def _read(name):
    with gzip.open(FOLDER / name, "rt", newline="") as file:
        return list(csv.DictReader(file))


def _cases(kind):
    cases = {}
    for row in _read(f"{kind}_cases.csv.gz"):
        layer = LayerShape(
            **{dim: int(row[dim]) for dim in "NKCPQRS"},
            stride_h=int(row["stride_h"]),
            stride_w=int(row["stride_w"]),
            dilation_h=int(row["dilation"]),
            dilation_w=int(row["dilation"]),
        )
        counts = count_accesses(parse_mapping(row["mapping"]), layer_tensors(layer))
        cases[row["case"]] = Case(row, layer, counts, [])
    for row in _read(f"{kind}_counts.csv.gz"):
        cases[row["case"]].reference.append(row)
    return list(cases.values())


@pytest.fixture(scope="module")
def timeloop():
    return _cases("timeloop")


@pytest.fixture(scope="module")
def template():
    return _cases("template")


def _compare_counts(cases):
    """Return equal, tried, and the fields that differ in cases with link transfers."""
    equal = tried = 0
    linked = {}
    for case in cases:
        names = [level.name for level in case.counts.mapping.levels]
        for row in case.reference:
            index = names.index(row["level"])
            access = case.counts.accesses[index][row["tensor"]]
            ours = dict(
                zip(
                    COUNT_FIELDS,
                    (
                        case.counts.instances[index],
                        access.tile,
                        access.partition,
                        access.reads,
                        access.fills,
                        access.updates,
                    ),
                    strict=True,
                )
            )
            differing = [field for field in COUNT_FIELDS if ours[field] != int(row[field])]
            tried += len(COUNT_FIELDS)
            equal += len(COUNT_FIELDS) - len(differing)
            for field in differing:
                assert case.linked, (row, field, ours, case.row["mapping"])
                linked[field] = linked.get(field, 0) + 1
    return equal, tried, linked


def test_every_count_of_2256_timeloop_outputs_is_equal_but_for_link_transfers(timeloop):
    equal, tried, linked = _compare_counts(timeloop)
    print(f"\ntimeloop cases: {len(timeloop)}, counts equal {equal} of {tried}, linked {linked}")
    assert len(timeloop) == 2256
    assert tried == 117018
    assert set(linked) == {"reads", "updates"}
    assert tried - equal == sum(linked.values()) == 701


def test_every_count_of_270_template_outputs_is_equal_but_for_link_transfers(template):
    equal, tried, linked = _compare_counts(template)
    print(f"\ntemplate cases: {len(template)}, counts equal {equal} of {tried}, linked {linked}")
    assert len(template) == 270
    assert tried == 13260
    assert linked == {"reads": 6}


def test_macs_and_compute_cycles_are_those_of_timeloop(timeloop, template):
    for case in timeloop + template:
        assert case.counts.macs == int(case.row["macs"])
        assert case.counts.compute_cycles == int(case.row["compute_cycles"])


@pytest.fixture(scope="module")
def machines():
    """Access energies per row of the machines behind the Timeloop cases: (b, read, write)."""

    def of(architecture: Architecture):
        levels = {}
        for index, level in enumerate(architecture.levels):
            size = level.capacity_words or 1
            levels[level.name] = SimpleNamespace(
                level=level,
                read=float(architecture.read_energy_pj(index, size)),
                write=float(architecture.write_energy_pj(index, size)),
            )
        return SimpleNamespace(levels=levels, mac=architecture.mac_energy_pj)

    three = load_template(str(FOLDER / "three_level.yaml"))
    simba = load_template(str(FOLDER / "simba_lemon.yaml"))
    unlimited = replace(three.levels[0], read_words_per_cycle=None, write_words_per_cycle=None)

    def store(words_per_access, read, write):
        level = replace(unlimited, words_per_access=words_per_access)
        return SimpleNamespace(level=level, read=read, write=write)

    gamma = SimpleNamespace(
        levels={
            "MainMemory": store(4, 512.0, 512.0),
            "GlobalBuffer": store(4, 26.4929, 21.1336),
            "RegisterFile": store(1, 0.5755, 0.87235),
        },
        mac=three.technology.mac_energy_pj(16),
    )
    return {"three_level": of(three), "simba_pc_v3": of(simba), "gamma_3level": gamma}


def _row_energy(case, index, store):
    reads, writes = row_accesses(case.counts, index, store.level.words_per_access)
    instances = case.counts.instances[index]
    if store.level.name == "PEWeightRegs":
        # 64 registers are one row of the energy table, and all 64 elements are always charged.
        reads, writes = reads // instances * 64, writes // instances * 64
    return reads * store.read + writes * store.write


def test_energy_of_timeloop_outputs_is_within_a_tenth_of_a_percent(timeloop, machines):
    worst = 0.0
    equal = tried = 0
    for case in timeloop:
        if case.linked:
            continue
        machine = machines[case.row["architecture"]]
        energy = machine.mac * case.counts.macs
        for index, level in enumerate(case.counts.mapping.levels):
            energy += _row_energy(case, index, machine.levels[level.name])
        reference = float(case.row["energy_pj"])
        rounding = 0.005e6 / reference  # the totals are printed in uJ with two decimals
        tried += 1
        equal += abs(energy / reference - 1) <= 1e-3 + rounding
        worst = max(worst, abs(energy / reference - 1) - rounding)
    print(f"\nenergy within 0.1 %: {equal} of {tried}, worst {worst:.2e}")
    assert equal == tried


def test_latency_of_timeloop_outputs_is_within_two_cycles(timeloop, machines):
    differences = []
    for case in timeloop:
        stores = machines[case.row["architecture"]].levels
        times = [case.counts.compute_cycles]
        for index, level in enumerate(case.counts.mapping.levels):
            times += bandwidth_cycles(stores[level.name].level, case.counts, index)
        if not case.linked:
            differences.append(abs(max(times) - int(case.row["cycles"])))
    print(f"\ncycles exact: {differences.count(0)} of {len(differences)}, worst {max(differences)}")
    assert max(differences) <= 2


@pytest.fixture(scope="module")
def template_sram():
    with open(FOLDER / "template_sram.csv", newline="") as file:
        return {
            (row["template"], row["level"], int(row["size_words"])): (
                float(row["read_pj"]),
                float(row["write_pj"]),
            )
            for row in csv.DictReader(file)
        }


@pytest.fixture(scope="module")
def artifacts():
    names = ("eyeriss", "simba", "shidiannao")
    return {n: load_template(n, "artifact", register_file_area="accelergy") for n in names}


# Registers of these two levels are charged per cluster of 64 and by the estimator's own figure.
CLUSTERED = {"PEWeightRegs": (64, 0.48900755), "RegisterIn": (1, 0.48782977)}


def test_minimal_hardware_of_template_outputs_has_mohams_sizes(template, artifacts):
    for case in template:
        architecture = artifacts[case.row["template"]]
        sizes = minimal_sizes(architecture, case.counts, granularity="moham")
        expected = dict(part.split(":") for part in case.row["sizes_words"].split())
        for level, size in zip(architecture.levels[1:], sizes[1:], strict=True):
            assert size == int(expected[level.name]), (case.row, level.name)


def test_energy_and_latency_of_template_outputs(template, artifacts, template_sram):
    equal = tried = 0
    for case in template:
        if case.linked:
            continue
        architecture = artifacts[case.row["template"]]
        sizes = minimal_sizes(architecture, case.counts, granularity="moham")
        energy = architecture.mac_energy_pj * case.counts.macs
        energy += network_energy_pj(architecture, case.counts)
        times = [case.counts.compute_cycles]
        for index, level in enumerate(architecture.levels):
            reads, writes = row_accesses(case.counts, index, level.words_per_access)
            key = (architecture.name, level.name, sizes[index])
            if key in template_sram:
                read, write = template_sram[key]
                energy += reads * read + writes * write
            elif level.name in CLUSTERED:
                cluster, register = CLUSTERED[level.name]
                instances = case.counts.instances[index]
                energy += (reads + writes) // instances * (instances // cluster) * register
            else:
                energy += reads * float(architecture.read_energy_pj(index, sizes[index]))
                energy += writes * float(architecture.write_energy_pj(index, sizes[index]))
            times += bandwidth_cycles(level, case.counts, index)
        reference = float(case.row["energy_pj"])
        tried += 1
        equal += abs(energy - reference) <= 1e-3 * reference + 0.005e6
        assert abs(max(times) - int(case.row["cycles"])) <= 2
    print(f"\ntemplate energies within 0.1 %: {equal} of {tried}")
    assert equal == tried == 267


def test_component_energies_and_areas_are_accelergys(artifacts):
    with open(FOLDER / "template_components.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["component"] != "NoC"]
    assert len(rows) == 19
    for row in rows:
        architecture = artifacts[row["template"]]
        if row["component"] in {"mac", "LMAC", "MACC"}:
            found = (architecture.mac_energy_pj, None, architecture.mac_area_um2)
        else:
            index = architecture.level_index(row["component"])
            size = architecture.levels[index].capacity_words or 1
            assert architecture.levels[index].words_per_access == int(row["words_per_access"])
            found = (
                architecture.read_energy_pj(index, size),
                architecture.write_energy_pj(index, size),
                architecture.area_um2(index, size),
            )
        for value, column in zip(found, ("read_pj", "write_pj", "area_um2"), strict=True):
            if value is not None:
                assert float(value) == pytest.approx(float(row[column]), rel=2e-5), row


def test_bandwidth_rounds_up_to_whole_cycles():
    three = load_template(str(FOLDER / "three_level.yaml"))
    layer = LayerShape(K=64, C=3, P=112, Q=112, R=7, S=7, stride_h=2, stride_w=2)
    mapping = parse_mapping(
        "DRAM[IOW] P4 Q4 | GlobalBuffer[IOW] P28 Q28 // K64X | LocalBuffer[IOW] C3 R7 S7"
    )
    counts = count_accesses(mapping, layer_tensors(layer))
    assert counts.accesses[0]["O"].updates == 802816
    assert bandwidth_cycles(three.levels[0], counts, 0)[1] == ceil(802816 / 17.9) == 44851
