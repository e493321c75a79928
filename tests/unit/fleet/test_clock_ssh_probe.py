"""Clock offset between two nodes from two SSH pings: bounds contain the true offset, whatever the path delays."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gconsole.config.clock_presets import PINGS_PER_WINDOW
from gconsole.core.bus import Hub
from gconsole.fleet.clocks import ssh_probe
from gconsole.fleet.clocks.ssh_probe import SshProbe, combine
from gconsole.fleet.rpc import Ping

MS = 1_000_000
way = st.integers(0, 500 * MS)


@given(start=st.integers(0, 10**15), gap=st.integers(-300 * MS, 300 * MS), out=st.tuples(way, way),
       back=st.tuples(way, way), ahead=st.integers(-(10**15), 10**15))  # fmt: skip
def test_the_true_offset_lies_between_the_extremes(start, gap, out, back, ahead):
    """The near node's clock equals the console's; the far node's is `ahead` ns of it."""
    near = Ping(start, start + out[0] + back[0], 0, start + out[0])
    sent = start + gap
    far = Ping(sent, sent + out[1] + back[1], 0, sent + out[1] + ahead)

    exchange = combine(near, far)

    upper, lower = exchange.t2 - exchange.t1, exchange.t2 - exchange.t4
    assert lower <= ahead <= upper
    round_trips = sum(out) + sum(back)
    assert exchange.rtt == upper - lower
    assert round_trips <= exchange.rtt <= round_trips * 1.001 + 2


class _Node:
    """A link that answers each ping at once."""

    def __init__(self):
        self.now = 0

    async def ping(self, deadline_s):
        self.now += MS
        return Ping(self.now, self.now + 2, self.now, self.now + 1)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.005)


async def test_without_edges_no_node_is_pinged_and_what_was_measured_of_the_last_edge_is_published(monkeypatch):
    monkeypatch.setattr(ssh_probe, "IDLE_S", 0.01)
    monkeypatch.setattr(ssh_probe, "_PUBLISH_S", 0.0)
    hub, published, rounds = Hub(), [], []
    hub.subscribe(published.extend)
    probe = SshProbe(hub, {"a": _Node(), "b": _Node()}, 100)
    publish = probe._publish
    monkeypatch.setattr(probe, "_publish", lambda: rounds.append(1) or publish())
    task = asyncio.create_task(probe.run())
    await until(lambda: len(rounds) > 3)
    assert not any(node.now for node in probe._links.values())

    monkeypatch.setattr(ssh_probe, "_PUBLISH_S", 3600.0)
    probe.edges.add(("a", "b"))
    await until(lambda: probe._edge_bins)
    assert not published
    monkeypatch.setattr(ssh_probe, "_PUBLISH_S", 0.0)
    probe.edges.clear()
    await until(lambda: published)
    assert [(record.node, record.dst) for record in published] == [("a", "b")]
    assert not probe._edge_bins
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_was_measured_until_the_end_is_published(monkeypatch):
    monkeypatch.setattr(ssh_probe, "_PUBLISH_S", 3600.0)
    hub, published = Hub(), []
    hub.subscribe(published.extend)
    probe = SshProbe(hub, {"a": _Node(), "b": _Node()}, 100)
    probe.edges.add(("a", "b"))
    task = asyncio.create_task(probe.run())
    await until(lambda: probe._edge_bins)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [(record.node, record.dst) for record in published] == [("a", "b")]


def test_more_nodes_are_pinged_less_often_and_their_window_takes_longer():
    nodes = [f"n{number}" for number in range(1024)]
    probe = SshProbe(Hub(), dict.fromkeys(nodes, _Node()), 100)
    assert (probe.period_s, probe.left_of_window_s) == (0.025, 0.0)
    probe.edges.update(zip(nodes[::2], nodes[1::2], strict=True))
    assert probe.period_s == 1024 / ssh_probe.MAX_PER_S
    assert probe.left_of_window_s == PINGS_PER_WINDOW * probe.period_s
