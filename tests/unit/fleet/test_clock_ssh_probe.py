"""Clock offset between two nodes from two SSH pings: bounds contain the true offset, whatever the path delays."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

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
        self.pings, self.pinged = 0, asyncio.Event()

    async def ping(self, deadline_s):
        self.pings += 1
        self.pinged.set()
        return Ping(1, 2, 1, 1)


async def test_without_edges_nothing_is_computed_and_a_new_edge_is_pinged_soon(monkeypatch):
    monkeypatch.setattr(ssh_probe, "IDLE_S", 0.05)
    rounds, nodes = [], {"a": _Node(), "b": _Node()}
    probe = SshProbe(Hub(), nodes, 100)
    ping_all = probe._ping_all
    monkeypatch.setattr(probe, "_ping_all", lambda names: rounds.append(names) or ping_all(names))
    task = asyncio.create_task(probe.run())
    await asyncio.sleep(0.2)
    assert not rounds
    probe.edges.add(("a", "b"))
    async with asyncio.timeout(30):
        await asyncio.gather(*(node.pinged.wait() for node in nodes.values()))
    assert rounds[0] == ["a", "b"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
