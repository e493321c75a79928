"""Placement of the demo job's ranks on nodes."""

from __future__ import annotations

from gconsole.demo.job import RankPlacement, places


def sizes(nodes: int, ranks: int) -> list[int]:
    placed = places(nodes, ranks)
    return [sum(place.node == node for place in placed) for node in range(nodes)]


def test_ranks_are_placed_on_nodes_in_contiguous_blocks() -> None:
    assert places(2, 4) == [
        RankPlacement(0, 0, 0, 2),
        RankPlacement(1, 0, 1, 2),
        RankPlacement(2, 1, 0, 2),
        RankPlacement(3, 1, 1, 2),
    ]


def test_remaining_ranks_are_placed_on_the_first_nodes() -> None:
    assert sizes(4, 10) == [3, 3, 2, 2]
    assert [place.rank for place in places(4, 10)] == list(range(10))


def test_a_node_may_be_without_ranks() -> None:
    assert sizes(4, 2) == [1, 1, 0, 0]
