"""The way to one node fails and comes back: with a linger nothing is lost and nothing doubled."""

from __future__ import annotations

import random
import time

import pytest

from .world import World

LOST = r"no word for|lost"


@pytest.mark.parametrize("cut_s", [1, 5])
def test_a_cut_link_that_comes_back_costs_no_record(world: World, cut_s: int) -> None:
    node = world.rig.nodes[0]
    with world.fault(f"link cut {cut_s} s", node, LOST if cut_s > 3 else "") as fault:
        fault.strike()
        node.down()
        try:
            time.sleep(cut_s)  # the fault itself
        finally:
            node.up()
        fault.mend()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cut_s", [30, 300])
def test_a_long_cut_costs_no_record(world: World, cut_s: int) -> None:
    node = random.Random(cut_s).choice(world.rig.nodes)
    with world.fault(f"link cut {cut_s} s", node, LOST) as fault:
        fault.strike()
        node.down()
        try:
            time.sleep(cut_s)
        finally:
            node.up()
        fault.mend()
