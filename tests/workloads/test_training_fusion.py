"""Fusion keeps the work and the dependencies, and saves only traffic."""

import networkx as nx
import pytest

from mohsearch.workloads.hf_config import load_model
from mohsearch.workloads.training import build_training
from mohsearch.workloads.training_fusion import fuse
from mohsearch.workloads.training_ops import TrainingGraph

NAMES = ("gpt3-175b", "llama2-7b", "bert-large", "t5-base", "mixtral-8x7b")


def graphs(name: str) -> list[TrainingGraph]:
    workload = build_training(load_model(name), tensor_parallel=2)
    return [graph for layer in workload.layers for graph in layer.graphs.values()]


@pytest.mark.parametrize("name", NAMES)
def test_a_fused_graph_does_the_same_work_with_no_more_traffic(name: str) -> None:
    for graph in graphs(name):
        fused = fuse(graph)
        assert fused.tensor_flops == graph.tensor_flops
        assert fused.vector_flops == graph.vector_flops
        assert fused.collective_bytes == graph.collective_bytes
        for side in ("read_bytes", "write_bytes"):
            before = sum(getattr(op, side) for op in graph.ops)
            after = sum(getattr(op, side) for op in fused.ops)
            assert 0 <= after <= before
            if side == "read_bytes" and len(fused) < len(graph):
                assert after < before


@pytest.mark.parametrize("name", NAMES)
def test_fusion_keeps_every_order_between_ops_of_different_groups(name: str) -> None:
    for graph in graphs(name):
        fused = fuse(graph)
        place = {
            part: number for number, op in enumerate(fused.ops) for part in (op.parts or (op.name,))
        }
        assert sorted(place) == sorted(op.name for op in graph.ops)
        assert all(i < j for i, j in fused.edges)
        expected = set()
        for i, j in graph.edges:
            a, b = place[graph.ops[i].name], place[graph.ops[j].name]
            if a != b:
                expected.add((a, b))
        assert set(fused.edges) == expected
        assert nx.is_directed_acyclic_graph(nx.DiGraph(fused.edges))


def test_rows_are_never_fused_behind_a_product() -> None:
    for name in NAMES:
        for graph in graphs(name):
            for op in fuse(graph).ops:
                if op.engine == "fused":
                    followers = op.op_type.split("+")[1:]
                    assert not [x for x in followers if "softmax" in x or "norm" in x]


def test_what_the_backward_pass_reads_is_still_written() -> None:
    layer = build_training(load_model("gpt3-175b")).layers[1]
    fused = {op.name: op for op in fuse(layer.forward).ops}
    inner = 2 * 2048 * 4 * 12288
    assert fused["up+gelu"].write_bytes == 2 * inner  # the input of GELU, and its result
    again = build_training(load_model("gpt3-175b"), recompute="full").layers[1]
    fused = {op.name: op for op in fuse(again.forward).ops}
    assert fused["up+gelu"].write_bytes == inner  # made again later, so only the result


def test_an_intermediate_that_nobody_else_needs_stays_on_the_chip() -> None:
    layer = build_training(load_model("gpt3-175b")).layers[1]
    fused = {op.name: op for op in fuse(layer.forward).ops}
    plain = {op.name: op for op in layer.forward.ops}
    both, product, mask = fused["scores+mask"], plain["scores"], plain["mask"]
    assert both.read_bytes == product.read_bytes
    assert both.write_bytes == mask.write_bytes
