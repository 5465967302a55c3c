"""Placements of strategies on links, compared with routes walked in plain Python."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow import placement
from mohsearch.evaluators.crossflow.dpe import logical_edges
from mohsearch.evaluators.crossflow.placement import ORDERS, TOPOLOGIES, candidates, placements

SIZES = [(4, 2, 2, 1), (3, 1, 5, 1), (2, 3, 1, 4), (1, 7, 3, 1), (1, 1, 12, 2)]


def seats(sizes, nodes, order):
    """Shard to (package, station) with the innermost dimension fastest, no windings."""
    table = {}
    for i, digits in enumerate(itertools.product(*(range(sizes[d]) for d in reversed(order)))):
        shard = dict(zip(reversed(order), digits, strict=True))
        table[tuple(shard[d] for d in range(4))] = divmod(i, nodes)
    return table


def steps(a, b, size, wraps):
    """Links i (joining i and i + 1) of the shorter way round."""
    ahead, back = (b - a) % size, (a - b) % size
    if not wraps or size <= 2:
        return list(range(min(a, b), max(a, b)))
    if ahead < back or (ahead == back and b > a):
        return [(a + i) % size for i in range(ahead)]
    return [(a - 1 - i) % size for i in range(back)]


def level(topology, count, a, b):
    if topology in ("ring", "chain"):
        return [("line", i) for i in steps(a, b, count, topology == "ring")]
    side = math.ceil(math.sqrt(count))
    (x, y), (u, v) = divmod(a, side), divmod(b, side)
    wraps = topology == "torus"
    along = [("x", i, y) for i in steps(x, u, math.ceil(count / side), wraps)]
    return along + [("y", u, j) for j in steps(y, v, side, wraps)]


def busiest(sizes, nodes, topology, table):
    """Most messages on one link inside a package, for strategies that stay in one."""
    load = Counter()
    for _, a, b in logical_edges(sizes):
        load.update(level(topology, nodes, table[a][1], table[b][1]))
    return max(load.values(), default=0)


@pytest.mark.parametrize("topology", ["mesh", "torus", "ring", "chain"])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_busiest_link_is_the_one_that_routes_in_plain_python_load_most(sizes, topology):
    nodes = math.prod(sizes)
    found = placements(sizes, nodes, "switch", topology)
    ports = 2.0 if topology in ("ring", "chain") else 1.0
    for i, order in enumerate(ORDERS):
        assert (
            found[4 * i].intra_derate
            == busiest(sizes, nodes, topology, seats(sizes, nodes, order)) / ports
        )
        assert found[4 * i].crosses == (False,) * 4


@pytest.mark.parametrize("inter", TOPOLOGIES)
@pytest.mark.parametrize("intra", TOPOLOGIES)
def test_every_topology_and_size_has_24_orders_and_one_device_per_shard(inter, intra):
    for sizes in SIZES:
        found = placements(sizes, 4, inter, intra)
        assert {s.order for s in found} == set(range(24))
        for s in found:
            assert all((h > 0) == out for h, out in zip(s.hops_inter, s.crosses, strict=True))
            assert any(s.crosses) == (s.inter_derate > 0)
    for order in ORDERS:
        for winding, snake in itertools.product((False, True), repeat=2):
            device = np.empty(24, dtype=np.int64)
            placement._fill(np.array([2, 3, 4, 1]), np.array(order), winding, snake, 5, device)
            assert sorted(device) == list(range(24))


def test_a_switch_shares_no_link_but_a_devices_own():
    # A device of a 4 x 4 grid of shards sends to one neighbour per dimension.
    for s in placements((4, 4, 1, 1), 1, "switch", "mesh"):
        assert s.inter_derate == 2
        assert s.hops_inter[:2] == (1, 1)
    assert min(s.intra_derate for s in placements((4, 4, 1, 1), 16, "switch", "switch")) == 0.5


def test_more_wires_never_share_more():
    for sizes in SIZES:
        nodes = math.prod(sizes)
        for rich, poor in (("torus", "mesh"), ("ring", "chain")):
            pair = [
                min(s.intra_derate for s in placements(sizes, nodes, "switch", name))
                for name in (rich, poor)
            ]
            assert pair[0] <= pair[1]


def test_candidates_keep_an_order_that_is_at_least_as_good_as_any_that_was_dropped():
    for sizes, inter in itertools.product(SIZES, ("chain", "torus", "switch")):
        kept = candidates(sizes, 4, inter, "mesh")
        for s in placements(sizes, 4, inter, "mesh"):
            assert any(k.never_slower(s) for k in kept)
        for order in (0, 23):
            assert {k.order for k in candidates(sizes, 4, inter, "mesh", order)} == {order}


def test_an_unknown_topology_is_named():
    with pytest.raises(InputError, match="'cube' is no topology: one of mesh"):
        placements((2, 1, 1, 1), 1, "cube")
