"""Layer tables: reading, errors with file, line and column, round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mohsearch.core.errors import InputError
from mohsearch.workloads.graph import Op, OpGraph
from mohsearch.workloads.layers import bmm_op, conv_op, gemm_op
from mohsearch.workloads.table import parse_table, read_table, write_table
from mohsearch.workloads.zoo import load_network, save_network

HEADER = "name,type,N,K,C,Y,X,R,S,stride,pad,groups,predecessors\n"
GOOD = (
    HEADER
    + "stem,conv,1,8,3,16,16,3,3,2,1,1,\n"
    + "dw,dwconv,1,8,8,8,8,3,3,1,1,8,stem\n"
    + "fc,gemm,1,10,512,1,1,1,1,1,0,1,dw stem\n"
)


def parse(text):
    return parse_table(text, name="net", origin="net.csv")


def test_a_table_gives_loop_nests_per_group():
    net = parse(GOOD)
    assert net["stem"].shape.bounds() == (1, 1, 8, 3, 8, 8, 3, 3)
    assert net["dw"].shape.bounds() == (1, 8, 1, 1, 8, 8, 3, 3)
    assert net["fc"].shape.bounds() == (1, 1, 10, 512, 1, 1, 1, 1)
    assert net.mapped_predecessors()["fc"] == ("stem", "dw")
    assert net.mapped_predecessors(reduced=True)["fc"] == ("dw",)


def test_without_predecessors_each_row_follows_the_one_above():
    net = parse("name,type,N,K,C\na,gemm,2,3,4\nb,gemm,2,3,3\nc,gemm,2,1,3\n")
    assert net.mapped_predecessors() == {"a": (), "b": ("a",), "c": ("b",)}


def test_all_producers_are_preferred_over_reduced_ones():
    text = (
        "name,type,N,K,C,predecessors,predecessors_full\n"
        "a,gemm,2,3,4,,\nb,gemm,2,3,3,a,a\nc,gemm,2,1,3,b,a b\n"
    )
    assert parse(text).mapped_predecessors()["c"] == ("a", "b")


def test_a_transposed_convolution_counts_no_inserted_zero():
    row = "up,convt,1,512,1024,35,35,2,2,2,0,1,\n"
    net = parse(HEADER + row)
    assert net.macs == 512 * 1024 * 35 * 35 * 4
    assert net["up"].op_type == "ConvTranspose"


def test_readers_of_a_split_transposed_convolution_wait_for_all_parts():
    net = parse(HEADER + "up,convt,1,4,4,5,5,3,3,2,1,1,\nfc,gemm,1,2,4,1,1,1,1,1,0,1,up\n")
    assert net.predecessors("fc") == ("up.0", "up.1", "up.2", "up.3")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("stem,conv,1", "stem,conv,0", r"line 2, N: must be at least 1, got 0"),
        ("stem,conv,1", "stem,conv,x", r"line 2, N: must be an integer, got 'x'"),
        ("stem,conv,1", "stem,conv,", r"line 2, N: a value is needed"),
        ("stem,conv,1", "stem,conv,1.5", r"line 2, N: must be an integer"),
        ("stem,conv,1", "stem,conv,99999999999", r"line 2, N: must be below 2\^31"),
        ("stem,conv", "stem,pool", r"line 2, type: unknown type 'pool'; available: bmm, conv"),
        ("stem,conv", "my stem,conv", r"line 2, name: a name without blanks"),
        ("3,3,2,1,1,\n", "33,3,2,1,1,\n", r"line 2: a window of 33 does not fit"),
        ("1,1,8,stem", "1,1,4,stem", r"line 3, groups: a dwconv has groups = C = 8, got 4"),
        ("dw stem", "dw sten", r"line 4, predecessors: unknown op 'sten'; did you mean 'stem'"),
        ("fc,gemm,1,10,512,1", "fc,gemm,1,10,512,2", r"line 4, Y: a gemm has Y = 1"),
        ("0,1,dw", "0,2,dw", r"line 4, groups: a gemm has one group"),
        ("fc,gemm", "dw,gemm", r"line 4, name: a second op called 'dw'"),
        ("2,1,1,\n", "2,1,1,,\n", r"line 2: 14 cells where the header has 13"),
        ("name,type", "name,kind", r"line 1: no column 'type'"),
        ("stride,", "strides,", r"line 1: unknown column 'strides'; did you mean 'stride'"),
        ("stride,", "pad,", r"line 1: two columns are called 'pad'"),
        ("stem\n", "fc\n", r"the dependencies form a cycle"),
    ],
)  # fmt: skip
def test_every_mistake_is_said_with_its_line_and_column(old, new, problem):
    assert old in GOOD
    with pytest.raises(InputError, match=r"net\.csv: " + problem):
        parse(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("column", "value"),
    [("P", 9), ("macs", 1), ("in_elems", 5), ("out_elems", 5), ("weight_elems", 5)],
)
def test_a_derived_column_that_contradicts_the_others_is_refused(column, value):
    text = f"name,type,N,K,C,Y,X,R,S,{column}\na,conv,1,2,3,8,8,3,3,{value}\n"
    with pytest.raises(InputError, match=rf"line 2, {column}: is {value} but the other columns"):
        parse(text)


def test_derived_columns_that_agree_are_welcome():
    facts = "P,Q,macs,weight_elems,in_elems,out_elems\n"
    net = parse("name,type,N,K,C,Y,X,R,S," + facts + "a,conv,1,2,3,8,8,3,3,6,6,1944,54,192,72\n")
    assert net.macs == 1944


@pytest.mark.parametrize("text", ["", HEADER, "\n\n", 'name,type,N,K,C\n"a,gemm,1,1,1\n'])
def test_a_file_without_layers_is_refused(text):
    with pytest.raises(InputError, match=r"net\.csv: (no layers|not CSV)"):
        parse(text)


def test_a_byte_order_mark_and_blank_lines_do_no_harm():
    assert parse("\ufeff" + GOOD.replace("\n", "\r\n\r\n")).macs == parse(GOOD).macs


def test_a_missing_or_binary_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "bin.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_table(tmp_path / "bin.csv")


sizes = st.integers(1, 5)


@st.composite
def mapped_ops(draw, name):
    kind = draw(st.sampled_from(["conv", "gemm", "bmm"]))
    if kind == "gemm":
        return gemm_op(name, rows=draw(sizes), columns=draw(sizes), inner=draw(sizes))
    if kind == "bmm":
        return bmm_op(
            name, products=draw(st.integers(2, 5)), rows=draw(sizes), columns=draw(sizes),
            inner=draw(sizes),
        )  # fmt: skip
    groups = draw(sizes)
    return conv_op(
        name, batch=draw(sizes), filters=groups * draw(sizes), channels=groups * draw(sizes),
        image=(draw(st.integers(9, 12)), draw(st.integers(9, 12))),
        kernel=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        stride=(draw(sizes), draw(sizes)), dilation=(draw(sizes), draw(sizes)),
        pads=(draw(sizes), draw(sizes), draw(sizes), draw(sizes)), groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("suffix", [".csv", ".yaml"])
@given(data=st.data())
def test_a_network_survives_the_round_trip_through_a_file(suffix, data, tmp_path_factory):
    n = data.draw(st.integers(1, 6))
    ops = [data.draw(mapped_ops(f"n{i}")) for i in range(n)]
    before = {f"n{i}": [f"n{p}" for p in range(i) if data.draw(st.booleans())] for i in range(n)}
    net = OpGraph("net", ops, before)
    path = tmp_path_factory.mktemp("saved") / f"net{suffix}"
    save_network(net, path, title="A: title")
    again = load_network(path)
    assert again.digest() == net.digest()
    assert again.ops == net.ops


def test_a_network_is_written_as_a_table_or_a_card_only(tmp_path):
    net = OpGraph("net", [gemm_op("a", rows=1, columns=2, inner=3)], {})
    with pytest.raises(InputError, match=r"written as \.csv or \.yaml"):
        save_network(net, tmp_path / "net.txt")
    (tmp_path / "file").touch()
    for name in ("net.csv", "net.yaml"):
        with pytest.raises(InputError, match="file: "):
            save_network(net, tmp_path / "file" / name)


def test_vector_ops_are_contracted_on_the_way_out(tmp_path):
    ops = [
        gemm_op("a", rows=1, columns=2, inner=3),
        Op("relu", "vector", elements=2),
        gemm_op("b", rows=1, columns=2, inner=2),
    ]
    net = OpGraph("net", ops, {"relu": ["a"], "b": ["relu"]})
    write_table(net, tmp_path / "net.csv")
    assert read_table(tmp_path / "net.csv").predecessors("b") == ("a",)
