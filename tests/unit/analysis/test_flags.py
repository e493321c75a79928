"""Flagged edges of the clock mesh over many windows; state of edges that are no longer probed is dropped."""

import gc
from collections import deque

import pytest

from gconsole.analysis.clock.node_bounds import Flags, Settled


def settled(*contradicted: tuple[str, str]) -> Settled:
    return Settled("node0", {}, {}, frozenset(), frozenset(contradicted), frozenset())


def test_edge_contradicted_in_two_probed_windows_is_flagged_despite_a_gap():
    flags, edge, other = Flags(), ("a", "b"), ("b", "c")
    assert flags.add(settled(edge), [edge, other]) == frozenset()
    assert flags.add(settled(), [other]) == frozenset()
    assert flags.add(settled(edge), [edge, other]) == {edge}


@pytest.mark.slow
def test_state_of_edges_no_longer_probed_is_freed():
    flags = Flags()

    def held_after(numbers: range) -> int:
        for number in numbers:
            flags.add(settled(), [("a", "b"), ("a", f"node{number}")])
        gc.collect()
        return sum(isinstance(get_object, deque) for get_object in gc.get_objects())

    held = held_after(range(50))
    assert held_after(range(50, 500)) == held
