"""Edges of the clock mesh: few edges, many cycles, connected, balanced over the nodes."""

from __future__ import annotations

import collections

import networkx
import pytest

from gconsole.fleet.clocks.probe_session import edges


def names(count: int) -> list[str]:
    return [f"node{number:03}" for number in range(count)]


@pytest.mark.parametrize("count", range(8))
def test_few_nodes_are_compared_pairwise_with_balanced_probing(count):
    found = edges(names(count), peers=6, seed=1)

    assert len({frozenset(edge) for edge in found}) == len(found) == count * (count - 1) // 2
    probes = collections.Counter(near for near, _ in found)
    assert not probes or max(probes.values()) <= count // 2


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 9, 33, 512])
@pytest.mark.parametrize("peers", [4, 6, 8])
def test_many_nodes_form_a_connected_graph_without_bridges_and_with_bounded_degree(count, peers):
    found = edges(names(count), peers, seed=7)

    graph = networkx.Graph(found)
    assert graph.number_of_nodes() == count and networkx.is_connected(graph)
    assert not list(networkx.bridges(graph))  # every edge is in a cycle, so that the others can contradict it
    assert max(dict(graph.degree).values()) <= peers
    assert len(found) >= 0.9 * count * peers / 2 or count < 10
    probes = collections.Counter(near for near, _ in found)
    assert max(probes.values()) == peers / 2  # each node probes half of its edges and answers on the rest


def test_edge_plan_depends_on_nodes_and_seed_but_not_on_node_order():
    assert edges(names(40), 6, seed=3) == edges(names(40)[::-1], 6, seed=3)
    assert edges(names(40), 6, seed=3) != edges(names(40), 6, seed=4)
