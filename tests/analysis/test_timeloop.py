"""Exports for Timeloop, read again by other means."""

import math

import pytest
import yaml

from mohsearch.analysis.timeloop import timeloop_files
from mohsearch.core.errors import InputError
from mohsearch.evaluators.mapper.notation import parse_mapping
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.zoo import load_application

MAPPINGS = {
    "tiny_cnn/depthwise": (
        "DRAM[WIO] G8 Q2 | shared_glb[IO] P8 // Q4X S3Y G2Y | ifmap_spad[I] | "
        "weights_spad[W] R3 | psum_spad[O]"
    ),
    "tiny_cnn/classifier": (
        "DRAM[WIO] C2 K4 | shared_glb[IO] // K4X C4Y | ifmap_spad[I] | weights_spad[W] | "
        "psum_spad[O]"
    ),
}


@pytest.fixture(scope="module")
def files():
    levels = [
        {"name": name, "size_bytes": size, "instances": count}
        for name, size, count in (
            ("shared_glb", 512.0, 1),
            ("ifmap_spad", 32.0, 24),
            ("weights_spad", 32.0, 24),
            ("psum_spad", 32.0, 24),
        )
    ]
    instance = {"id": 0, "template": "eyeriss", "levels": levels, "macs": 24}
    layers = [{"name": n, "instance": 0, "mapping": m} for n, m in MAPPINGS.items()]
    design = {"instances": [instance], "layers": layers}
    return timeloop_files(design, load_application("tiny_cnn"), [load_template("eyeriss")])


def factors(entry):
    return {d: int(n) for d, n in (part.split("=") for part in entry["factors"].split())}


@pytest.mark.parametrize("layer", MAPPINGS)
def test_factors_multiply_to_the_bounds_and_cycles_of_the_mapping(files, layer):
    stem = layer.replace("/", ".")
    mapping = parse_mapping(MAPPINGS[layer])
    entries = yaml.safe_load(files[f"map/{stem}.yaml"])["mapping"]
    bounds = yaml.safe_load(files[f"prob/{stem}.yaml"])["problem"]["instance"]
    loops = [e for e in entries if e["type"] in {"temporal", "spatial"}]
    for name in ("N", "G", "M", "C", "P", "Q", "R", "S"):
        assert math.prod(factors(e)[name] for e in loops) == bounds[name]
    cycles = math.prod(n for e in loops if e["type"] == "temporal" for n in factors(e).values())
    assert cycles == mapping.compute_cycles
    space = math.prod(n for e in loops if e["type"] == "spatial" for n in factors(e).values())
    assert space == mapping.macs_used
    assert all(sorted(e["permutation"]) == sorted("NGMCPQRS") for e in loops)


def test_permutations_stand_innermost_first(files):
    entries = yaml.safe_load(files["map/tiny_cnn.depthwise.yaml"])["mapping"]
    memory = next(e for e in entries if e["target"] == "DRAM" and e["type"] == "temporal")
    assert memory["permutation"].endswith("QG"), "Q2 is inside G8"


def test_levels_keep_what_the_mapping_keeps(files):
    entries = yaml.safe_load(files["map/tiny_cnn.classifier.yaml"])["mapping"]
    bypass = {e["target"]: e for e in entries if e["type"] == "bypass"}
    assert bypass["DRAM"]["keep"] == ["Weights", "Inputs", "Outputs"]
    assert bypass["shared_glb"] == {
        "target": "shared_glb",
        "type": "bypass",
        "keep": ["Inputs", "Outputs"],
        "bypass": ["Weights"],
    }


def test_padded_bounds_are_named(files):
    assert "padded: K 12 -> 16" in files["prob/tiny_cnn.classifier.yaml"].splitlines()[0]
    assert "padded" not in files["prob/tiny_cnn.depthwise.yaml"].splitlines()[0]


def test_the_architecture_has_the_sizes_of_the_instance(files):
    system = yaml.safe_load(files["arch/instance_0.yaml"])["architecture"]["subtree"][0]
    assert system["local"][0]["name"] == "DRAM"
    (chip,) = system["subtree"]
    levels = {part["name"].split("[")[0]: part["attributes"] for part in chip["local"]}
    glb = levels["shared_glb"]
    assert glb["depth"] * glb["width"] / 8 == 512
    assert levels["weights_spad"]["meshX"] == 24
    assert levels["MAC"] == {"datawidth": 8, "meshX": 24}


def test_designs_that_are_no_packages_are_refused():
    with pytest.raises(InputError, match="only packages"):
        timeloop_files({"depth": 3}, load_application("tiny_cnn"), [])
