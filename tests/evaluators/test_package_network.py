from itertools import pairwise

import networkx
import pytest

from mohsearch.evaluators.package_network import PackageNetwork

SIZES = [*range(1, 17), 23, 36]


@pytest.mark.parametrize("k", SIZES)
def test_the_mesh_is_the_smallest_near_square_that_holds_all_instances(k):
    columns, rows = PackageNetwork().mesh(k)
    assert columns * rows >= k > columns * (rows - 1)
    assert (columns - 1) ** 2 < k <= columns**2
    positions = {PackageNetwork().tile_position(k, tile) for tile in range(k)}
    assert len(positions) == k
    assert all(0 <= x < columns and 0 <= y < rows for x, y in positions)


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("placement", ["corners", "middle"])
def test_interfaces_stand_beside_edge_tiles_and_no_two_at_one_place(k, placement):
    network = PackageNetwork(placement=placement)
    columns, rows = network.mesh(k)
    spots = network.interface_positions(k)
    assert len(spots) == len(set(spots)) == min(2 if k <= 4 else 4, 2 * rows)
    assert all(x in (-1, columns) and 0 <= y < rows for x, y in spots)


@pytest.mark.parametrize("k", SIZES)
def test_hops_equal_shortest_paths_in_the_mesh_graph(k):
    network = PackageNetwork()
    columns, rows = network.mesh(k)
    graph = networkx.grid_2d_graph(columns, rows)
    spots = network.interface_positions(k)
    graph.add_edges_from((spot, (0 if spot[0] < 0 else columns - 1, spot[1])) for spot in spots)
    tables = network.tables(max(k, 1))
    for tile, chosen in enumerate(network.assignment(k)):
        place = network.tile_position(k, tile)
        reach = [networkx.shortest_path_length(graph, spot, place) for spot in spots]
        assert tables.hops_of_tile[k, tile] == reach[chosen] == min(reach)
        nodes = network.route(k, tile, chosen)
        assert nodes[0] == spots[chosen]
        assert nodes[-1] == place
        assert all(graph.has_edge(a, b) for a, b in pairwise(nodes))


def test_equally_near_interfaces_share_their_tiles_evenly():
    network = PackageNetwork()
    chosen = network.assignment(9)
    assert sorted(chosen.count(j) for j in range(4)) == [2, 2, 2, 3]
    crowded = PackageNetwork(crowded_ties=True).assignment(9)
    assert max(crowded.count(j) for j in range(4)) > 3


def test_places_group_tiles_by_interface():
    for network in (PackageNetwork(), PackageNetwork(interfaces=3, placement="middle")):
        tables = network.tables(16)
        for k in range(1, 17):
            chosen = network.assignment(k)
            places = tables.place_of_tile[k, :k]
            assert sorted(places) == list(range(k))
            for tile, j in enumerate(chosen):
                low, high = tables.interface_starts[k, j : j + 2]
                assert low <= places[tile] < high


def test_the_right_edge_of_the_authors_program_is_one_hop_further_out():
    near, far = PackageNetwork(), PackageNetwork(far_right=True, crowded_ties=True)
    assert near.interface_positions(2) == [(-1, 0), (2, 0)]
    assert far.interface_positions(2) == [(-1, 0), (3, 0)]
    assert far.tables(2).hops_of_tile[2].tolist() == [1, 2]
