"""Probe requests are answered only for named peers with the edge's key; once, without amplification, rate-limited."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Iterator
from itertools import count

import msgspec
import pytest

from gconsole.analysis.clock.pair_bounds import edge_window
from gconsole.records import ClockBins
from gconsole_remote.clocks import packet
from gconsole_remote.clocks.commands import BadProbePlan
from gconsole_remote.clocks.packet import MAX_PER_S, ReplayWindow, TokenBucket

from .probe_agents import Agent, listen, peer, probe, probe_agents, wait_for

KEY = secrets.token_hex(16)
EDGE = 7


class ProbeClient:
    """A socket that probes a service; `answers` returns its replies."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.port = listen(agent)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.5)
        self.seal = packet.sealer(bytes.fromhex(KEY))
        self._last = 0
        self._before: dict[str, int] = {}

    def settle(self) -> None:
        """Wait until the thread has started its plan; requests before that are counted, and not part of a test."""
        self.replies()
        self.send(b"a fence: counts are said together, so those that hold it hold all that came before it")
        wait_for(lambda: self.agent.total("bad_tag"))
        self._before = {field: self.agent.total(field) for field in ("bad_tag", "unnamed", "replayed")}
        self._last = 1_000_000

    @property
    def peer_entry(self) -> dict[str, object]:
        address, port = self.socket.getsockname()
        return peer({"address": address, "port": port}, KEY, probes=False, edge=EDGE)

    def request(self, number: int, edge: int = EDGE, seal: object = None) -> bytes:
        return packet.pack(seal or self.seal, packet.REQUEST, edge, number, 0)

    def send(self, data: bytes, from_: socket.socket | None = None) -> None:
        (from_ or self.socket).sendto(data, (self.port["address"], self.port["port"]))

    def replies(self) -> list[bytes]:
        """Replies to all requests sent so far; a final genuine request marks the end."""
        replies: list[bytes] = []
        for _ in range(20):  # requests are not answered until the thread has started its plan
            self._last += 1
            self.send(self.request(self._last))
            with contextlib.suppress(TimeoutError):
                while True:
                    replies.append(self.socket.recv(4096))
                    if packet.head(replies[-1])[2] == self._last:
                        return replies[:-1]
        raise AssertionError("no genuine request was answered")

    def counter_reaches(self, field: str, count: int) -> bool:
        """Whether the counter reaches that value, once counters are reported."""
        count += self._before[field]
        return wait_for(lambda: self.agent.total(field) >= count) and self.agent.total(field) == count


@pytest.fixture
def client() -> Iterator[ProbeClient]:
    with probe_agents(1) as (agent,):
        client = ProbeClient(agent)
        probe(agent, [client.peer_entry])
        client.settle()
        yield client
        client.socket.close()


def test_authenticated_peer_gets_one_reply_of_the_request_size(client):
    client.send(client.request(105))

    (reply,) = client.replies()

    assert len(reply) == packet.SIZE == len(client.request(105))
    assert packet.head(reply)[:4] == (packet.REPLY, EDGE, 105, 0)
    assert packet.is_genuine(client.seal, reply)
    received, sent = packet.times(reply)
    assert 0 < received <= sent


def test_request_with_a_wrong_tag_is_dropped_and_counted(client):
    client.send(client.request(105, seal=packet.sealer(b"another key of 16")))
    forged = bytearray(client.request(106))
    forged[20] ^= 1
    client.send(bytes(forged))

    assert client.replies() == []
    assert client.counter_reaches("bad_tag", 2)


def test_malformed_packets_of_any_length_are_dropped_and_counted(client):
    for data in (b"", b"x", client.request(105)[:-1], client.request(105) + b"\0", b"GET / HTTP/1.1\r\n\r\n" * 80):
        client.send(data)

    assert client.replies() == []
    assert client.counter_reaches("bad_tag", 5)


def test_replayed_request_is_answered_once(client):
    for _ in range(5):
        client.send(client.request(105))

    assert len(client.replies()) == 1
    assert client.counter_reaches("replayed", 4)


def test_reordered_requests_are_all_answered(client):
    for number in (109, 105, 107, 106, 108):
        client.send(client.request(number))

    assert sorted(packet.head(reply)[2] for reply in client.replies()) == [105, 106, 107, 108, 109]


def test_unlisted_peer_gets_no_reply_even_with_the_key(client):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unlisted_socket:
        unlisted_socket.bind(("127.0.0.1", 0))
        client.send(client.request(105), unlisted_socket)
        client.send(client.request(106, edge=EDGE + 1))  # a known peer, on an edge that it does not belong to
        client.replies()
        unlisted_socket.setblocking(False)

        with pytest.raises(BlockingIOError):
            unlisted_socket.recv(4096)
    assert client.counter_reaches("unnamed", 2)


def test_unsolicited_reply_is_dropped_and_counted(client):
    client.send(packet.pack(client.seal, packet.REPLY, EDGE, 5, 0, packet.KERNEL, 1, 2))

    assert client.replies() == []
    assert client.counter_reaches("bad_tag", 1)


def test_packet_flood_is_read_and_answered_only_within_the_rate_limit(client):
    """One edge at 5 ms needs 600 packets/s; twice that, plus a burst of 0.1 s, is read, and no more."""
    flood = [client.request(number) for number in range(2000, 22_000)]
    began = time.monotonic()

    for data in flood:
        client.send(data)
    client.socket.settimeout(1.0)
    answers = 0
    try:
        while client.socket.recv(4096):
            answers += 1
    except TimeoutError:
        elapsed_s = time.monotonic() - began
    assert answers <= 120 + 1200 * elapsed_s
    read = sum(cost["rx_packets_s"] for cost in client.agent.posted("clock_cost"))
    assert read <= 120 + 1200 * (elapsed_s + 1)
    later = count(30_000)

    def counted() -> bool:
        client.send(client.request(next(later)))  # the kernel reports drops with the next packet that it delivers
        return client.agent.total("over_rate") > len(flood) / 2

    wait_for(counted)


@pytest.mark.parametrize("stamps", [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (0, 0)])
def test_peer_with_absurd_timestamps_gets_no_bound_for_its_edge(stamps):
    """It has the key, so its tags are valid. The agent's records are readable but give no line."""
    seal = packet.sealer(bytes.fromhex(KEY))
    with probe_agents(1) as (agent,), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer_socket:
        peer_socket.bind(("127.0.0.1", 0))
        peer_socket.settimeout(5.0)
        address, port = peer_socket.getsockname()
        listen(agent)
        probe(agent, [peer({"address": address, "port": port}, KEY, probes=True, edge=EDGE)], cadence_us=50_000)
        while sum(len(posted_bins["bins"]) for posted_bins in agent.posted("clock_bins")) < 12:
            data, sender = peer_socket.recvfrom(4096)
            _, edge, number, position, _ = packet.head(data)
            peer_socket.sendto(packet.pack(seal, packet.REPLY, edge, number, position, packet.KERNEL, *stamps), sender)
    records = [
        msgspec.convert(json.loads(json.dumps({"kind": "clock_bins", "node": "a", **fields})), ClockBins)
        for fields in agent.posted("clock_bins")
    ]

    window = edge_window(records)
    assert sum(row.got for record in records for row in record.bins) > 20
    assert window.status != "ok" and window.bound_ns is None


def test_token_bucket_grants_its_rate_capped_at_the_agent_limit():
    bucket = TokenBucket(1000, now=0.0)
    assert sum(bucket.acquire(0.0) for _ in range(5000)) == 100
    assert sum(bucket.acquire(1 + i / 10_000) for i in range(10_000)) == pytest.approx(1100, abs=2)
    assert TokenBucket(10**9, now=0.0).rate == MAX_PER_S


def test_replay_window_accepts_each_recent_number_once():
    window = ReplayWindow()
    assert [window.accept(number) for number in (0, 0, 3, 1, 1, 100, 36, 37, 37, 2**32 * 3, 100)] == [
        True, False, True, True, False, True, False, True, False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [
    {"cadence_us": 5}, {"cadence_us": "5000"}, {"spacing_us": 5000}, {"bin_ms": 0}, {"cpu_cap_pct": 0},
    {"for_s": 1e6}, {"for_s": -1}, {"for_s": None},
])  # fmt: skip
def test_agent_rejects_a_harmful_probe_plan(wrong):
    """A cadence in the wrong unit (5 µs instead of 5 ms) would saturate both ends."""
    with probe_agents(1) as (agent,):
        port = listen(agent)
        with pytest.raises(BadProbePlan):
            probe(agent, [peer(port, KEY, probes=True)], **wrong)
