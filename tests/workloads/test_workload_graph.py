"""Operator graphs: validation, contraction, reduction and round trips."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.workloads.graph import Op, OpGraph, reduce_predecessors
from mohsearch.workloads.layer import LayerShape
from mohsearch.workloads.layers import bmm_op, gemm_op

FC = LayerShape(N=2, K=3, C=5)


def linear(name):
    return gemm_op(name, rows=2, columns=3, inner=5)


def relu(name):
    return Op(name, "vector", op_type="Relu", elements=6)


@st.composite
def dags(draw, most=12):
    """Return predecessor lists of a random topologically numbered graph."""
    n = draw(st.integers(1, most))
    return [
        draw(st.lists(st.integers(0, v - 1), unique=True, max_size=v)) if v else []
        for v in range(n)
    ]


@given(dags())
def test_reduction_equals_the_one_of_networkx(rows):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(rows)))
    graph.add_edges_from((p, v) for v, row in enumerate(rows) for p in row)
    expected = nx.transitive_reduction(graph)
    assert reduce_predecessors(rows) == [sorted(expected.predecessors(v)) for v in graph]


def test_reduction_refuses_what_is_not_topologically_numbered():
    with pytest.raises(ValueError, match="must be in"):
        reduce_predecessors([[], [1]])


@given(dags(), st.data())
def test_contraction_keeps_exactly_the_paths_through_vector_ops(rows, data):
    mapped = [data.draw(st.booleans()) for _ in rows]
    ops = [linear(f"n{v}") if m else relu(f"n{v}") for v, m in enumerate(mapped)]
    before = {f"n{v}": [f"n{p}" for p in row] for v, row in enumerate(rows)}
    net = OpGraph("random", ops, before)
    found = net.mapped_predecessors()
    for v, here in enumerate(mapped):
        if not here:
            assert f"n{v}" not in found
            continue
        inner = net.digraph.subgraph([f"n{u}" for u, m in enumerate(mapped) if not m or u == v])
        direct = {
            f"n{u}"
            for u, m in enumerate(mapped)
            if m and u != v
            and any(
                s == f"n{v}" or (s in inner and nx.has_path(inner, s, f"n{v}"))
                for s in net.digraph.successors(f"n{u}")
            )
        }  # fmt: skip
        assert set(found[f"n{v}"]) == direct


@given(dags())
def test_the_longest_chain_equals_the_one_of_networkx(rows):
    ops = [linear(f"n{v}") for v in range(len(rows))]
    net = OpGraph("r", ops, {f"n{v}": [f"n{p}" for p in row] for v, row in enumerate(rows)})
    assert net.longest_chain() == nx.dag_longest_path_length(net.digraph) + 1


@given(dags(), st.randoms(use_true_random=False))
def test_any_order_of_the_ops_becomes_a_topological_one(rows, random):
    ops = [linear(f"n{v}") for v in range(len(rows))]
    random.shuffle(ops)
    net = OpGraph("r", ops, {f"n{v}": [f"n{p}" for p in row] for v, row in enumerate(rows)})
    place = {op.name: i for i, op in enumerate(net.ops)}
    assert all(place[p] < place[v] for p, v in net.digraph.edges)


def test_an_order_that_is_topological_is_kept():
    net = OpGraph("n", [linear("b"), linear("a"), linear("c")], {"c": ["a"]})
    assert [op.name for op in net.ops] == ["b", "a", "c"]


def test_a_cycle_is_refused_and_shown():
    with pytest.raises(InputError, match=r"n\.csv: the dependencies form a cycle: .*->"):
        OpGraph("n", [linear("a"), linear("b")], {"a": ["b"], "b": ["a"]}, origin="n.csv")


def test_a_second_op_of_the_same_name_is_refused():
    with pytest.raises(InputError, match="two ops are called 'a'"):
        OpGraph("n", [linear("a"), relu("a")], {})


def test_an_unknown_predecessor_is_refused_with_what_exists():
    with pytest.raises(UnknownNameError, match=r"unknown predecessor 'aa'.*available: a, b"):
        OpGraph("n", [linear("a"), linear("b")], {"b": ["aa"]})


def test_a_network_without_ops_is_refused():
    with pytest.raises(InputError, match="no ops"):
        OpGraph("n", [], {})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "conv3d"}, "unknown kind"),
        ({"kind": "vector"}, "needs no shape"),
        ({"shape": None}, "needs a shape"),
        ({"name": "a b"}, "white space"),
        ({"elements": 3}, "vector ops only"),
        ({"input_h": 0}, "positive"),
    ],
)
def test_an_op_that_makes_no_sense_is_refused(change, problem):
    with pytest.raises(ValueError, match=problem):
        Op(**{"name": "a", "kind": "gemm", "shape": FC, **change})


def test_counts_are_those_of_the_ops():
    ops = [linear("a"), relu("r"), bmm_op("b", products=4, rows=2, columns=3, inner=5)]
    net = OpGraph("n", ops, {"r": ["a"], "b": ["r"]}, source="made up")
    assert net.macs == 30 + 120
    assert net.weight_elements == 15 + 60
    assert net["r"].output_elements == 6
    assert net["b"].input_elements == 40
    assert net.summary() == {
        "name": "n", "source": "made up", "ops": 3, "layers": 2, "unique_layers": 2,
        "longest_chain": 2, "macs": 150, "weight_elements": 75,
        "kinds": {"gemm": 1, "bmm": 1, "vector": 1},
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match="unknown op 'x'"):
        net["x"]


def test_a_batch_multiplies_rows_of_layers_and_products_of_batched_ones():
    ops = [linear("a"), relu("r"), bmm_op("b", products=4, rows=2, columns=3, inner=5)]
    net = OpGraph("n", ops, {"r": ["a"], "b": ["r"]}).batched(3)
    assert (net["a"].shape.N, net["r"].elements, net["b"].shape.G) == (6, 18, 12)
    assert net.predecessors("b") == ("r",)
    with pytest.raises(ValueError, match="batch must be positive"):
        net.batched(0)


@given(dags(), st.data())
def test_a_network_survives_the_round_trip_through_plain_data(rows, data):
    make = st.sampled_from([linear, relu])
    ops = [data.draw(make)(f"n{v}") for v in range(len(rows))]
    before = {f"n{v}": [f"n{p}" for p in row] for v, row in enumerate(rows)}
    net = OpGraph("r", ops, before, source="s")
    again = OpGraph.from_dict(net.to_dict())
    assert again == net
    assert again.digest() == net.digest()


def test_the_digest_sees_shapes_and_dependencies_but_not_the_title():
    one = OpGraph("n", [linear("a"), linear("b")], {"b": ["a"]})
    assert one.digest() == OpGraph("m", one.ops, {"b": ["a"]}, source="else").digest()
    assert one.digest() != OpGraph("n", one.ops, {}).digest()
    assert one.digest() != one.batched(2).digest()


def test_plain_data_that_is_no_network_is_refused():
    with pytest.raises(InputError, match=r"ops\[0\]: not a network"):
        OpGraph.from_dict({"name": "n", "ops": [{"name": "a"}]})
