"""Which edges of a mesh are flagged, over many windows: what was said of edges that are probed no more is forgotten."""

import gc
from collections import deque

import pytest

from gconsole.analysis.clock.node_bounds import Flags, Settled


def settled(*contradicted: tuple[str, str]) -> Settled:
    return Settled("node0", {}, {}, frozenset(), frozenset(contradicted), frozenset())


def test_an_edge_that_is_contradicted_in_two_of_three_windows_is_flagged_also_with_a_window_it_missed_between():
    flags, edge, other = Flags(), ("a", "b"), ("b", "c")
    assert flags.add(settled(edge), [edge, other]) == frozenset()
    assert flags.add(settled(), [other]) == frozenset()
    assert flags.add(settled(edge), [edge, other]) == {edge}


@pytest.mark.slow
def test_edges_of_nodes_that_come_and_go_do_not_pile_up():
    flags = Flags()

    def held_after(numbers: range) -> int:
        for number in numbers:
            flags.add(settled(), [("a", "b"), ("a", f"node{number}")])
        gc.collect()
        return sum(isinstance(get_object, deque) for get_object in gc.get_objects())

    held = held_after(range(50))
    assert held_after(range(50, 500)) == held
