"""Speed of loading applications, beside networkx on the same graphs."""

from __future__ import annotations

import time

import networkx as nx
import pytest

from mohsearch.workloads.graph import reduce_predecessors
from mohsearch.workloads.zoo import load_application, load_network

pytestmark = pytest.mark.benchmark


def cpu_seconds(function, repeats):
    """Return the least CPU time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def test_loading_an_application(benchmark):
    app = benchmark(load_application, "mobile")
    assert app.n_layers == 544


def test_transitive_reduction_beside_networkx(benchmark):
    net = load_network("mobilebert")
    names = {op.name: i for i, op in enumerate(net.mapped_ops)}
    rows = [[names[p] for p in row] for row in net.mapped_predecessors().values()]
    graph = nx.DiGraph([(p, v) for v, row in enumerate(rows) for p in row])
    ours = benchmark(reduce_predecessors, rows)
    oracle = nx.transitive_reduction(graph)
    assert ours == [sorted(oracle.predecessors(v)) for v in range(len(rows))]
    peer = cpu_seconds(lambda: nx.transitive_reduction(graph), 3)
    own = cpu_seconds(lambda: reduce_predecessors(rows), 10)
    print(f"\nreduction of {len(rows)} layers: {peer / own:.0f} times as fast as networkx")
