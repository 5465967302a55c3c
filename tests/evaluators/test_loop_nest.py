"""The evaluator ``loop-nest``: its door, its errors, and the counter against walked loop nests."""

import copy
import json
from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InputError
from mohsearch.evaluators import EVALUATORS
from mohsearch.evaluators.loop_nest import evaluate
from mohsearch.evaluators.mapper.counts import CountRules, Tensor, count_accesses
from mohsearch.evaluators.mapper.notation import (
    Loop,
    Mapping,
    MappingLevel,
    format_mapping,
    parse_mapping,
)

CASES = builtin_root() / "evaluators" / "reference" / "moham" / "loop_nest_cases.json"
FIELDS = (
    "reads",
    "updates",
    "fills",
    "utilized_instances",
    "utilized_capacity",
    "partition_size",
)


@pytest.fixture(scope="module")
def reference():
    return json.loads(CASES.read_text())["cases"]


def test_the_door_is_open_by_name():
    assert EVALUATORS.load("loop-nest") is evaluate


def test_all_40_timeloop_cases_are_equal(reference):
    report = evaluate(CASES)
    equal = tried = 0
    for case in reference:
        ours, theirs = report.document[case["id"]], case["timeloop"]
        assert ours["cycles"] == theirs["cycles"]
        assert ours["energy_pJ"] == pytest.approx(theirs["energy_pJ"], rel=1e-9)
        for level, tensors in theirs["levels"].items():
            assert set(ours["levels"][level]) == set(tensors)
            for tensor, figures in tensors.items():
                for field in FIELDS:
                    tried += 1
                    equal += ours["levels"][level][tensor][field] == figures[field]
    print(f"\nloop-nest cases: {len(reference)}, figures equal {equal} of {tried}")
    assert equal == tried == 1890


def test_the_flat_rows_agree_with_the_document():
    report = evaluate(CASES)
    for row in report.rows:
        figures = report.document[row["case"]]["levels"][row["level"]][row["tensor"]]
        assert (row["reads"], row["fills"]) == (figures["reads"], figures["fills"])


@pytest.fixture
def write(tmp_path, reference):
    def change(edit):
        case = copy.deepcopy(reference[0])
        edit(case)
        path = tmp_path / "cases.json"
        path.write_text(json.dumps({"cases": [case]}))
        return path

    return change


def _assign(*keys_and_value):
    *keys, last, value = keys_and_value

    def edit(case):
        target = case
        for key in keys:
            target = target[key]
        target[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (_assign("dims", "K", 0), "cases[0].dims.K"),
        (_assign("dims", "K", 15), "cases[0].mapping"),
        (_assign("dataspaces", "Inputs", ["M", "K+"]), "cases[0].dataspaces.Inputs[1]"),
        (_assign("dataspaces", "Inputs", ["M", "Z"]), "cases[0].dataspaces.Inputs[1]"),
        (_assign("dataspaces", {"Weights": ["K"], "Inputs": ["M"]}), "cases[0].dataspaces"),
        (_assign("mapping", 0, "level", "L3(temporal)"), "cases[0].mapping[0].level"),
        (
            _assign("mapping", 0, "loops_outer_to_inner", [["Z", 3]]),
            "cases[0].mapping[0].loops_outer_to_inner[0]",
        ),
        (_assign("bypass", "RegisterFile", ["Bias"]), "cases[0].bypass.RegisterFile[0]"),
        (_assign("bypass", "MainMemory", ["Inputs"]), "cases[0].bypass.MainMemory"),
        (_assign("bypass", "L3", []), "cases[0].bypass.L3"),
        (_assign("dataspaces", "Outputs", ["M", "N+K"]), "cases[0].dataspaces.Outputs[1]"),
        (_assign("dataspaces", "Outputs", ["2*M", "N"]), "cases[0].dataspaces.Outputs[0]"),
        (_assign("dataspaces", "Outputs", ["M", "N", "M"]), "cases[0].dataspaces.Outputs[2]"),
        (_assign("arch", "levels", 3, "Adder"), "cases[0].arch.levels[3]"),
        (_assign("arch", "levels", 1, "?"), "cases[0].arch.levels[1]"),
        (
            _assign("arch", "levels", 1, "GlobalBuffer (1 instance, 2 words)"),
            "cases[0].arch.levels[1]",
        ),
        (_assign("arch", "energy_pJ", "RegisterFile", 3.0), "cases[0].arch.energy_pJ.RegisterFile"),
        (
            _assign("arch", "energy_pJ", "RegisterFile", {"read": 1}),
            "cases[0].arch.energy_pJ.RegisterFile.write",
        ),
        (_assign("arch", "levels", 1, "GlobalBuffer (1,024 words)"), "cases[0].arch.levels[1]"),
        (_assign("arch", "levels", 1, "GlobalBuffer (64 KiB)"), "cases[0].arch.levels[1]"),
        (_assign("arch", "levels", 1, "GlobalBuffer (1.2.3 words)"), "cases[0].arch.levels[1]"),
        (_assign("arch", "n_pe", 0), "cases[0].arch.n_pe"),
        (_assign("dims", "K", 10**400), "cases[0].dims.K"),
    ],
)
def test_a_malformed_case_is_refused_with_its_field(write, edit, field):
    path = write(edit)
    with pytest.raises(InputError) as caught:
        evaluate(path)
    assert caught.value.source == str(path)
    assert caught.value.field == field


def test_a_missing_bypass_is_not_taken_for_an_empty_one(write):
    with pytest.raises(InputError, match=r"cases\[0\]\.bypass: Field required"):
        evaluate(write(lambda case: case.pop("bypass")))


def test_more_instances_than_exist_are_refused(write):
    def edit(case):
        case["mapping"][2]["loops_outer_to_inner"] = [["M", 16]]
        case["dims"]["M"] *= 16

    with pytest.raises(InputError, match="16 instances in use, 8 exist"):
        evaluate(write(edit))


@pytest.mark.parametrize("text", ["{", "3", '{"cases": 3}', '[{"id": "a"}]', "[" * 100_000])
def test_a_file_that_holds_no_cases_is_refused(tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(InputError, match="cases"):
        evaluate(path)


@pytest.mark.parametrize("bound", [2**10, 2**30])
def test_a_fan_out_too_large_to_try_is_counted_or_refused_at_once(write, bound):
    def edit(case, rows="P+R"):
        case["dims"] = {"P": bound, "R": bound}
        case["dataspaces"] = {"Inputs": [rows], "Outputs": ["P"]}
        case["mapping"] = [
            {
                "level": "MainMemory->GlobalBuffer(spatial)",
                "loops_outer_to_inner": [["P", bound], ["R", bound]],
            }
        ]
        case["bypass"] = {}
        case["arch"]["levels"] = ["MainMemory", "GlobalBuffer", "RegisterFile", "MAC"]
        del case["arch"]["n_pe"]

    (figures,) = evaluate(write(edit)).document.values()
    assert figures["levels"]["MainMemory"]["Inputs"]["reads"] == 2 * bound - 1
    if bound > 2**10:
        with pytest.raises(InputError, match=r"cases\[0\]\.mapping: a fan-out .* too large"):
            evaluate(write(lambda case: edit(case, "2*P+3*R")))


@pytest.mark.parametrize(
    ("levels", "n_pe", "utilization"),
    [
        (["MainMemory", "GlobalBuffer", "RegisterFile", "MAC"], 4, 0.25),
        (["MainMemory", "GlobalBuffer", "RegisterFile", "MAC"], None, None),
        (["MainMemory", "2 x GlobalBuffer", "PE array 8 x RegisterFile", "MAC"], None, 0.125),
        (["MainMemory", "GlobalBuffer", "RegisterFile", "PE array 16 x MAC"], 16, 0.0625),
    ],
)
def test_utilization_needs_a_declared_number_of_macs(write, levels, n_pe, utilization):
    def edit(case):
        case["arch"]["levels"] = levels
        case["arch"]["n_pe"] = n_pe

    (figures,) = evaluate(write(edit)).document.values()
    assert figures["utilized_macs"] == 1
    assert figures["utilization"] == utilization


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(2, 4)), min_size=2, max_size=4),
)
@settings(deadline=None, max_examples=200)
def test_distinct_sums_are_those_of_enumeration(terms):
    dims = "PQRS"[: len(terms)]
    coordinate = tuple((dim, stride) for dim, (stride, _) in zip(dims, terms, strict=True))
    loops = tuple(Loop(dim, bound) for dim, (_, bound) in zip(dims, terms, strict=True))
    nest = Mapping((MappingLevel("Far", ("I",), spatial=loops),))
    counts = count_accesses(nest, (Tensor("I", (coordinate,)),))
    sums = {
        sum(stride * index for (stride, _), index in zip(terms, indices, strict=True))
        for indices in product(*(range(bound) for _, bound in terms))
    }
    assert counts.accesses[0]["I"].reads == len(sums)


def test_two_cases_with_one_id_are_refused(tmp_path, reference):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([reference[0], reference[0]]))
    with pytest.raises(InputError, match="a second case with id"):
        evaluate(path)


def test_strides_are_coefficients_of_a_projection(write):
    def edit(case):
        case["dataspaces"]["Inputs"] = ["2*M + K"]

    document = evaluate(write(edit)).document
    (figures,) = document.values()
    dims = {"M": 6, "K": 16}
    partition = figures["levels"]["MainMemory"]["Inputs"]["partition_size"]
    assert partition == 1 + 2 * (dims["M"] - 1) + dims["K"] - 1


# --- the counter against a walk through every iteration -------------------------------------

DIMS = ("N", "C", "P", "R")
TENSORS = (
    Tensor("W", ((("N", 1),), (("C", 1),), (("R", 1),))),
    Tensor("I", ((("C", 1),), (("P", 2), ("R", 1)))),
    Tensor("O", ((("N", 1),), (("P", 1),)), written=True),
)


@st.composite
def mappings(draw):
    levels = []
    for name in ("Far", "Mid", "Near"):
        temporal = draw(st.permutations(DIMS))[: draw(st.integers(0, 3))]
        spatial = draw(st.permutations(DIMS))[: draw(st.integers(0, 2))] if name == "Mid" else ()
        keeps = tuple(t.name for t in TENSORS if name == "Far" or draw(st.booleans()))
        levels.append(
            MappingLevel(
                name,
                keeps,
                tuple(Loop(dim, draw(st.integers(1, 3))) for dim in temporal),
                tuple(Loop(dim, draw(st.integers(1, 3)), "X") for dim in spatial),
            )
        )
    return Mapping(tuple(levels))


def _walk(mapping):
    """Yield, in order of time, the indices of every loop as (level, spatial, position) -> index."""
    keys = [(i, False, j) for i, lv in enumerate(mapping.levels) for j, _ in enumerate(lv.temporal)]
    bounds = [mapping.levels[i].temporal[j].bound for i, _, j in keys]
    for indices in product(*(range(bound) for bound in bounds)):
        yield dict(zip(keys, indices, strict=True))


def _elements(tensor, mapping, level, outer):
    """Return the set of elements of ``tensor`` that loops at or inside ``level`` touch."""
    loops = []
    for i, lv in enumerate(mapping.levels):
        loops += [(i, False, j, loop) for j, loop in enumerate(lv.temporal)]
        loops += [(i, True, j, loop) for j, loop in enumerate(lv.spatial)]
    free = [entry for entry in loops if entry[0] >= level]
    found = set()
    for inner in product(*(range(entry[3].bound) for entry in free)):
        choice = {**outer, **{e[:3]: x for e, x in zip(free, inner, strict=True)}}
        index = dict.fromkeys(DIMS, 0)
        for i, spatial, j, loop in loops:
            index[loop.dim] = index[loop.dim] * loop.bound + choice[i, spatial, j]
        found.add(
            tuple(sum(c * index[d] for d, c in coordinate) for coordinate in tensor.coordinates)
        )
    return found


def _walked_fills(tensor, mapping, level):
    """Return the words newly needed by instance 0 of a level over all time."""
    held, fills, seen = set(), 0, None
    spatial_outside = {
        (i, True, j): 0 for i in range(level) for j, _ in enumerate(mapping.levels[i].spatial)
    }
    for step in _walk(mapping):
        outer = {key: value for key, value in step.items() if key[0] < level}
        if outer == seen:
            continue
        seen = outer
        needed = _elements(tensor, mapping, level, {**outer, **spatial_outside})
        fills += len(needed - held)
        held = needed
    return fills


@settings(max_examples=60, deadline=None, derandomize=True)
@given(mappings())
def test_exact_halos_are_what_a_walk_through_the_nest_fetches(mapping):
    if prod(mapping.bounds().values()) > 3000:
        return
    counts = count_accesses(mapping, TENSORS, CountRules(halos="exact"))
    for level in (1, 2):
        for tensor in TENSORS:
            if tensor.name in mapping.levels[level].keeps:
                access = counts.accesses[level][tensor.name]
                extents = tensor.extents(_bounds_inside(mapping, level))
                dense = prod(extents) == len(_elements(tensor, mapping, level, _zero(mapping)))
                if dense:
                    assert access.tile == prod(extents)
                    assert access.fills == _walked_fills(tensor, mapping, level)


def _zero(mapping):
    return {
        (i, spatial, j): 0
        for i, level in enumerate(mapping.levels)
        for spatial, loops in ((False, level.temporal), (True, level.spatial))
        for j, _ in enumerate(loops)
    }


def _bounds_inside(mapping, level):
    return Mapping(mapping.levels[level:]).bounds()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(mappings())
def test_exact_halos_never_fetch_more_than_timeloop_credits(mapping):
    timeloop = count_accesses(mapping, TENSORS)
    exact = count_accesses(mapping, TENSORS, CountRules(halos="exact"))
    for ours, theirs in zip(exact.accesses, timeloop.accesses, strict=True):
        for name, access in ours.items():
            assert access.reads <= theirs[name].reads
            assert access.updates <= theirs[name].updates


@settings(max_examples=80, deadline=None, derandomize=True)
@given(mappings())
def test_words_are_conserved_between_levels(mapping):
    counts = count_accesses(mapping, TENSORS, CountRules(zero_fill=False))
    for tensor in TENSORS:
        keepers = [i for i, lv in enumerate(mapping.levels) if tensor.name in lv.keeps]
        outermost = counts.accesses[keepers[0]][tensor.name]
        assert outermost.fills == 0
        if tensor.written:
            assert outermost.updates >= tensor.footprint(mapping.bounds())
            assert outermost.reads == outermost.updates - outermost.partition
        for parent, child in pairwise(keepers):
            sent = counts.accesses[parent][tensor.name].reads * counts.instances[parent]
            got = counts.accesses[child][tensor.name].fills * counts.instances[child]
            if not tensor.written:
                assert sent <= got


@settings(max_examples=80, deadline=None, derandomize=True)
@given(mappings())
def test_notation_survives_a_round_trip(mapping):
    assert parse_mapping(format_mapping(mapping, unit_loops=True)) == mapping
    short = parse_mapping(format_mapping(mapping))
    assert count_accesses(short, TENSORS).accesses == count_accesses(mapping, TENSORS).accesses


@pytest.mark.parametrize(
    "text", ["DRAM", "DRAM[IOW] K", "DRAM[IOW] K0", "DRAM[IOW] K4X", "DRAM[IOW] // K4Z", ""]
)
def test_a_text_that_is_no_mapping_is_refused(text):
    with pytest.raises(InputError, match=r"a\.csv: rows\[0\]\.mapping: "):
        parse_mapping(text, source="a.csv", field="rows[0].mapping")


def test_newer_timeloop_skips_the_first_zero_tile():
    # Timeloop's ISPASS 2020 tutorial, 02-model-conv1d+oc-2level, both mappings.
    tensors = (
        Tensor("W", ((("K", 1),), (("R", 1),))),
        Tensor("I", ((("R", 1), ("P", 1)),)),
        Tensor("O", ((("K", 1),), (("P", 1),)), written=True),
    )
    for text in (
        "MainMemory[WIO] K32 P16 | Buffer[WIO] R3",
        "MainMemory[WIO] K16 P16 | Buffer[WIO] K2 R3",
    ):
        mapping = parse_mapping(text)
        skipping = count_accesses(mapping, tensors, CountRules(zero_fill=False))
        assert skipping.accesses[1]["O"].fills == 0
        assert count_accesses(mapping, tensors).accesses[1]["O"].fills == 512


def test_a_tensor_that_no_level_keeps_is_refused():
    with pytest.raises(ValueError, match="no level keeps W"):
        count_accesses(parse_mapping("Far[IO] P2"), TENSORS)
