"""Who is compared with whom: few edges, many loops, nobody apart, nobody with more work than the others."""

from __future__ import annotations

import collections

import networkx
import pytest

from gconsole.fleet.clocks.probe_session import edges


def names(count: int) -> list[str]:
    return [f"node{number:03}" for number in range(count)]


@pytest.mark.parametrize("count", range(8))
def test_few_nodes_are_compared_each_with_each_from_one_end(count):
    found = edges(names(count), peers=6, seed=1)

    assert len({frozenset(edge) for edge in found}) == len(found) == count * (count - 1) // 2
    asked = collections.Counter(near for near, _ in found)
    assert not asked or max(asked.values()) <= count // 2


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 9, 33, 512])
@pytest.mark.parametrize("peers", [4, 6, 8])
def test_many_nodes_lie_on_rings_through_all_of_them(count, peers):
    found = edges(names(count), peers, seed=7)

    graph = networkx.Graph(found)
    assert graph.number_of_nodes() == count and networkx.is_connected(graph)
    assert not list(networkx.bridges(graph))  # every edge is in a loop: the others can contradict it
    assert max(dict(graph.degree).values()) <= peers
    assert len(found) >= 0.9 * count * peers / 2 or count < 10
    asked = collections.Counter(near for near, _ in found)
    assert max(asked.values()) == peers / 2  # each node probes half of its edges and answers the rest


def test_the_same_nodes_and_seed_give_the_same_edges_in_whatever_order_they_come():
    assert edges(names(40), 6, seed=3) == edges(names(40)[::-1], 6, seed=3)
    assert edges(names(40), 6, seed=3) != edges(names(40), 6, seed=4)
