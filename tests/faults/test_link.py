"""The way to one node fails and comes back: with a linger nothing is lost and nothing doubled."""

from __future__ import annotations

import random
import time

import pytest

from .wire import bad_wire
from .world import World

LOST = "no word for"


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


@pytest.mark.parametrize(("what", "loss", "delay_s"), [
    ("5 % of all packets lost", 0.05, 0.0), ("30 % of all packets lost", 0.3, 0.0), ("500 ms delay each way", 0.0, 0.5),
])  # fmt: skip
def test_a_bad_cable_costs_time_and_no_record(world: World, what: str, loss: float, delay_s: float) -> None:
    node = world.rig.nodes[1]
    with world.fault(what, node) as fault:
        fault.strike()
        with bad_wire(node, loss=loss, delay_s=delay_s, seed=7):
            time.sleep(5)
        fault.mend()


def test_a_connection_that_the_network_has_forgotten_is_made_anew(world: World) -> None:
    """Half-open: neither end is told that nothing passes any more, and a new connection would work."""
    node = world.rig.nodes[2]
    with world.fault("half-open TCP (no RST)", node, LOST) as fault, bad_wire(node, seed=3) as wire:
        world.recorder.wait_for_ticks([node.name])
        fault.strike()
        wire.forget_connections()
        fault.mend()
        fault.wait_until_lost()
        fault.wait_until_well()
