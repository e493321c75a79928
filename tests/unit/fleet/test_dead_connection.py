"""Dead connection detection on a direct TCP connection; unreachable, slow and stopped nodes keep theirs."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence

import pytest

from gconsole.transport import liveness
from gconsole.transport.liveness import LivenessMonitor, LivenessSample, is_dead
from gconsole.transport.transport import Unacked, unacked_on


def looks(*seen: tuple[bool, int]) -> Sequence[LivenessSample]:
    """Samples of (node answered, retransmits of the oldest unacknowledged data)."""
    return [LivenessSample(*one) for one in seen]


YES, NO = True, False


@pytest.mark.parametrize(("seen", "anew", "in_vain"), [
    pytest.param([], False, False, id="no samples"),
    pytest.param([(YES, 2)], False, False, id="single answer"),
    pytest.param([(YES, 2), (YES, 3)], True, False, id="retransmitted just now, ack may be in flight"),
    pytest.param([(YES, 2), (YES, 3), (YES, 3)], True, True, id="retransmits fail while the node answers"),
    pytest.param([(YES, 4), (YES, 4), (YES, 4)], True, False, id="no retransmit since the node answers"),
    pytest.param([(YES, 0), (YES, 0), (YES, 0)], False, False, id="acknowledged, program is stopped or slow"),
    pytest.param([(YES, 1), (YES, 1)], False, False, id="one retransmit, may be packet loss"),
    pytest.param([(NO, 2), (NO, 3), (NO, 3)], False, False, id="node unreachable"),
    pytest.param([(NO, 3), (YES, 3)], False, False, id="link just restored"),
    pytest.param([(NO, 3), (YES, 3), (YES, 3)], True, False, id="link restored, no retransmit yet"),
    pytest.param([(NO, 3), (NO, 3), (YES, 3), (YES, 3)], True, False, id="link restored for 0.5 s"),
    pytest.param([(NO, 3), (NO, 3), (YES, 0)], False, False, id="link restored, node data may be in flight"),
    pytest.param([(NO, 3), (NO, 3), (YES, 0), (YES, 0)], True, False, id="our data acknowledged, node data pending"),
    pytest.param([(NO, 3), (NO, 3), (YES, 0), (YES, 0), (YES, 0)], True, True, id="node data pending for long"),
    pytest.param([(NO, 3), (NO, 3), (YES, 0), (NO, 0), (YES, 0)], False, False, id="link lost again"),
    pytest.param([(NO, 3), (NO, 3), (YES, 3), (YES, 3), (YES, 3)], True, True, id="link restored, TCP back-off"),
    pytest.param([(YES, 3), (NO, 3), (YES, 3), (YES, 3), (YES, 3)], True, False, id="one missed answer"),
    pytest.param([(YES, 2), (YES, 3), (NO, 3)], False, False, id="link lost meanwhile"),
    pytest.param([(YES, 2), (YES, 3), (NO, 3), (YES, 4)], False, False, id="every other packet lost"),
    pytest.param([(YES, 4), (YES, 2)], False, False, id="acknowledged in between samples"),
])  # fmt: skip
def test_connection_is_dead_when_a_reachable_node_leaves_data_unacknowledged(
    seen: list[tuple[bool, int]], anew: bool, in_vain: bool
) -> None:
    assert is_dead(looks(*seen), loses_records=False) is anew
    assert is_dead(looks(*seen), loses_records=True) is in_vain


class SilentConnection:
    """A connection silent for an hour, with its unacknowledged data, and a count of probes of its node."""

    def __init__(self, owed: Unacked | None, answers: bool | None = True) -> None:
        self.unacked, self.answers, self.probes = owed, answers, 0
        self.silent_s = 3600.0
        self.given_up = asyncio.Event()

    async def probe(self) -> bool | None:
        self.probes += 1
        return self.answers

    def monitor(self) -> LivenessMonitor:
        return LivenessMonitor(lambda: self.silent_s, lambda: self.unacked, self.probe, self.given_up.set, shown_s=2.0,
                     loses_records=False)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "SAMPLE_INTERVAL_S", 0.01)


async def test_monitor_declares_a_half_open_connection_dead() -> None:
    link = SilentConnection(Unacked(3, 4))
    monitor = link.monitor()
    monitor.watch()
    async with asyncio.timeout(20):
        await link.given_up.wait()
    await monitor.close()


async def test_probe_latency_does_not_require_another_liveness_sample() -> None:
    link = SilentConnection(Unacked(3, 4))

    async def quick_probe() -> bool | None:
        await asyncio.sleep(0 if link.probes else 0.009)
        return await link.probe()

    monitor = LivenessMonitor(
        lambda: 3600.0, lambda: link.unacked, quick_probe, link.given_up.set, shown_s=2.0, loses_records=False
    )
    monitor.watch()
    async with asyncio.timeout(20):
        await link.given_up.wait()
    await monitor.close()
    assert link.probes == 2


@pytest.mark.parametrize("owed", [Unacked(0, 0), None], ids=["acknowledged", "unknown"])
async def test_node_is_not_probed_without_known_unacknowledged_data(owed: Unacked | None) -> None:
    link = SilentConnection(owed)
    monitor = link.monitor()
    for _ in range(5):
        monitor.watch()
        await asyncio.sleep(0.02)
    await monitor.close()
    assert (link.probes, link.given_up.is_set()) == (0, False)


async def test_monitoring_stops_when_the_connection_receives_data_again() -> None:
    link = SilentConnection(Unacked(3, 4), answers=False)
    monitor = link.monitor()
    monitor.watch()
    async with asyncio.timeout(20):
        while not link.probes:  # noqa: ASYNC110 - counted by a callback, no event
            await asyncio.sleep(0.01)
        link.silent_s = 0.0
        while not monitor._task.done():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
    monitor.watch()
    assert monitor._task is None, "it restarts with the next silence"
    await monitor.close()


async def test_error_in_the_probe_is_raised_by_the_next_watch_call() -> None:
    link = SilentConnection(Unacked(3, 4))

    async def broken() -> bool | None:
        raise ValueError("a fault of ours")

    monitor = LivenessMonitor(
        lambda: 3600.0, lambda: link.unacked, broken, link.given_up.set, shown_s=2.0, loses_records=False
    )
    monitor.watch()
    async with asyncio.timeout(20):
        while not monitor._task.done():  # noqa: ASYNC110 - end of a task that is not awaited here
            await asyncio.sleep(0.01)
    with pytest.raises(ValueError, match="a fault of ours"):
        monitor.watch()


def test_unacknowledged_data_is_reported_only_for_an_open_tcp_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        far, _ = server.accept()
        with far:
            one.sendall(b"a word")
            assert far.recv(16) == b"a word"
            deadline = time.monotonic() + 20
            while unacked_on(one) != Unacked(0, 0):  # the acknowledgement may be delayed
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert unacked_on(one) is None, "the socket is closed"
    near, far = socket.socketpair()
    with near, far:
        assert unacked_on(near) is None
