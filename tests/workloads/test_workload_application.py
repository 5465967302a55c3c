"""Applications as arrays, held against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.workloads.application import Application, Tenant
from mohsearch.workloads.graph import Op, OpGraph
from mohsearch.workloads.layers import gemm_op
from mohsearch.workloads.transformer import TransformerCard, encoder_stack
from mohsearch.workloads.zoo import load_application, load_network


def full_graph(app, names):
    """Build the application's unreduced dependency graph from its networks."""
    graph = nx.DiGraph()
    for label, name in zip(app.networks, names, strict=True):
        for op, before in load_network(name).mapped_predecessors().items():
            graph.add_node(f"{label}/{op}")
            graph.add_edges_from((f"{label}/{b}", f"{label}/{op}") for b in before)
    return graph


@pytest.mark.parametrize(
    ("name", "networks"),
    [
        ("mobile", ["mobilenetv3_large", "deeplabv3_mobilenetv2", "mobilebert"]),
        ("arvr", ["resnet50", "ssd_mobilenetv1", "yolov3", "unet"]),
        ("datacenter", ["googlenet", "yolov3", "bert_large", "dlrm"]),
        ("tiny", ["tiny_cnn", "tiny_encoder"]),
    ],
)
def test_the_arrays_are_the_transitive_reduction_of_all_networks(name, networks):
    app = load_application(name)
    oracle = nx.transitive_reduction(full_graph(app, networks))
    names = [layer.name for layer in app.layers]
    edges = {(names[p], names[v]) for v in range(app.n_layers) for p in app.predecessors(v)}
    assert edges == set(oracle.edges)
    assert set(names) == set(oracle.nodes)
    backwards = {(names[v], names[s]) for v in range(app.n_layers) for s in app.successors(v)}
    assert backwards == edges
    assert app.longest_chain == nx.dag_longest_path_length(oracle) + 1
    assert nx.number_weakly_connected_components(oracle) == len(networks)


def test_layers_are_numbered_topologically_and_predecessors_ascend():
    app = load_application("mobile")
    for layer in range(app.n_layers):
        before = app.predecessors(layer)
        assert np.all(before < layer)
        assert np.all(np.diff(before) > 0)
        expected = app.depth[before].max() + 1 if len(before) else 0
        assert app.depth[layer] == expected


def test_unique_layers_are_the_shapes_of_the_layers():
    app = load_application("datacenter")
    for layer, unique in zip(app.layers, app.unique_index, strict=True):
        assert app.unique_layers[unique] == layer.shape
    assert len(set(app.unique_layers)) == app.n_unique


def test_arrays_cannot_be_changed_by_accident():
    app = load_application("tiny")
    with pytest.raises(ValueError, match="read-only"):
        app.unique_index[0] = 1


def test_the_digest_follows_the_content():
    card = TransformerCard(hidden=8, heads=2, layers=1, sequence=4)
    net = encoder_stack(card, "a")
    app = Application.merge("x", [Tenant(net)])
    assert app.digest() == Application.merge("y", [Tenant(encoder_stack(card, "b"))]).digest()
    assert app.digest() != Application.merge("x", [Tenant(net, batch=2)]).digest()
    assert app.digest() != Application.merge("x", [Tenant(net, replicas=2)]).digest()


def test_independent_copies_share_no_dependency():
    net = OpGraph("n", [gemm_op(n, rows=1, columns=2, inner=2) for n in "ab"], {"b": ["a"]})
    app = Application.merge("x", [Tenant(net, replicas=3)])
    assert app.predecessor_ids.tolist() == [0, 2, 4]
    assert app.network_index.tolist() == [0, 0, 1, 1, 2, 2]
    assert app.summary()["dependencies"] == 3


def test_an_application_without_layers_is_refused():
    with pytest.raises(InputError, match="no network with an op"):
        Application.merge("x", [Tenant(OpGraph("n", [Op("r", "vector", elements=1)], {}))])
    with pytest.raises(ValueError, match="must be positive"):
        Tenant(OpGraph("n", [Op("r", "vector", elements=1)], {}), batch=0)


def test_a_layer_too_large_to_count_is_refused_by_name():
    net = OpGraph("n", [gemm_op("big", rows=2**20, columns=2**20, inner=2**20)], {})
    with pytest.raises(InputError, match=r"x: n/big: 1\.15e\+18 multiply-accumulates"):
        Application.merge("x", [Tenant(net)])


def test_an_encoder_layer_waits_for_attention_before_its_feed_forward_part():
    card = TransformerCard(hidden=8, heads=2, layers=2, sequence=4, intermediate=12, batch=3)
    net = encoder_stack(card, "enc")
    before = net.mapped_predecessors(reduced=True)
    assert set(before["layer0.scores"]) == {"layer0.query", "layer0.key"}
    assert set(before["layer0.context"]) == {"layer0.scores", "layer0.value"}
    assert before["layer0.up"] == ("layer0.output",)
    assert before["layer1.query"] == ("layer0.down",)
    assert net["layer0.scores"].shape.bounds() == (4, 6, 4, 4, 1, 1, 1, 1)
    tokens = 3 * 4
    assert net.macs == 2 * (4 * tokens * 64 + 2 * tokens * 8 * 12 + 2 * 6 * 4 * 4 * 4)
    assert net["layer1.gelu"].elements == tokens * 12
