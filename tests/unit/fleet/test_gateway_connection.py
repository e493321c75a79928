"""A gateway's connection: hello, windows, blobs, and gateways that violate the protocol."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gconsole.transport import errors
from gconsole.transport.gateway import connection, frames
from gconsole.transport.gateway.connection import GatewayConnection
from gconsole.transport.gateway.frames import Kind
from gconsole.transport.gateway.streams import NodeChannel
from gconsole.transport.transport import Unacked
from gconsole_remote.gateway import frames as remote_frames

BIG = 10_000


class PlainLaunch:
    command = "start"
    first = b"preamble\n"

    def __init__(self) -> None:
        self.errors = b""

    def reply(self, line: bytes) -> bytes | None:
        return None if line == b"hello" else b"archive" if line == b"lacks" else b""

    def add_error(self, data: bytes) -> None:
        self.errors += data

    def failure(self, exit_status: int | None, error: Exception | None) -> errors.FleetError:
        return errors.NoPython(f"status {exit_status} {self.errors!r}")


class NoLimit:
    def spend(self, amount: float) -> float:
        return 0.0


class WireChannel:
    """The channel to the gateway: keeps what the console writes."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.sent: Unacked | None = None  # and not acknowledged

    def write(self, data: bytes) -> None:
        self.written += data

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def unacked(self, silent_s: float) -> Unacked | None:
        return self.sent

    async def answers(self) -> None: ...
    def is_relay_late(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True


class NodeReceiver:
    def __init__(self) -> None:
        self.data, self.errors = b"", b""
        self.ends: list[tuple[int | None, Exception | None]] = []

    def on_bytes(self, data: bytes) -> None:
        self.data += data

    def on_error_bytes(self, data: bytes) -> None:
        self.errors += data

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        self.ends.append((exit_status, error))


class Gateway:
    """A connection that has said hello, with the far end in the hands of the test."""

    def __init__(self) -> None:
        self.lost: list[errors.FleetError] = []
        self.channel = WireChannel()
        self.connection = GatewayConnection("login1", PlainLaunch(), NoLimit(), self.lost.append)
        self._packer = zlib.compressobj()
        self._reader = remote_frames.FrameReader()

    async def greet(self) -> None:
        starting = asyncio.create_task(self.connection.start(self.channel))
        await asyncio.sleep(0)
        self.connection.on_bytes(b"motd\nlacks\nhel")
        self.connection.on_bytes(b"lo\n")
        await starting
        self.connection._streams.flush()
        assert bytes(self.channel.written) == b"preamble\narchive"
        self.channel.written.clear()

    def send(self, *sent: bytes) -> None:
        data = self._packer.compress(b"".join(sent)) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self.connection.on_bytes(data)

    def open(self) -> tuple[NodeChannel, NodeReceiver]:
        receiver = NodeReceiver()
        return self.connection.open_stream(["ssh", "node1"], receiver), receiver

    def received(self) -> list[tuple[Kind, int, bytes]]:
        self.connection._streams.flush()  # not at the end of this turn of the event loop
        data = bytes(self.channel.written)
        self.channel.written.clear()
        return [(Kind(kind), number, payload) for kind, number, payload in self._reader.feed(data)]


def with_gateway(act: Callable[[Gateway], None]) -> Gateway:
    async def run() -> Gateway:
        gateway = Gateway()
        await gateway.greet()
        act(gateway)
        for _ in range(50):  # turns of the event loop: it decodes in slices
            await asyncio.sleep(0)
        gateway.connection.close()
        return gateway

    return asyncio.run(run())


def test_output_errors_and_end_reach_the_stream_they_are_for() -> None:
    receivers: list[NodeReceiver] = []

    def act(gateway: Gateway) -> None:
        receivers.extend(gateway.open()[1] for _ in range(2))
        gateway.send(frames.encode(Kind.DATA, 2, b"two"), frames.encode(Kind.ERROR, 1, b"warning"))
        gateway.send(frames.encode(Kind.END, 1, b'{"status": 255, "error": ""}'))
        gateway.send(frames.encode(Kind.DATA, 1, b"late"))  # under way when it ended

    assert with_gateway(act).lost == []
    first, second = receivers
    assert (second.data, second.ends) == (b"two", [])
    assert (first.data, first.errors, first.ends) == (b"", b"warning", [(255, None)])


def test_bytes_that_are_equal_for_many_nodes_are_sent_once() -> None:
    def act(gateway: Gateway) -> None:
        channels = [gateway.open()[0] for _ in range(3)]
        for channel in channels:
            channel.write(b"x" * BIG)
        named = [payload for kind, _, payload in gateway.received() if kind is Kind.NAME]
        assert [json.loads(payload)["size"] for payload in named] == [BIG]
        gateway.send(frames.encode(Kind.LACKS, 1))
        blob = [(kind, number, payload) for kind, number, payload in gateway.received()]
        assert blob == [(Kind.BLOB, 1, b"x" * BIG)]
        gateway.open()[0].write(b"x" * BIG)
        assert [kind for kind, _, _ in gateway.received()] == [Kind.OPEN, Kind.WRITE]

    assert with_gateway(act).lost == []


def test_no_more_is_sent_to_a_node_than_it_takes() -> None:
    def act(gateway: Gateway) -> None:
        channel, _ = gateway.open()
        pieces = frames.WINDOW // 4000 + 10
        for _ in range(pieces):
            channel.write(b"y" * 4000)
        sent = sum(len(payload) for kind, _, payload in gateway.received() if kind is Kind.DATA)
        assert sent == frames.WINDOW
        gateway.send(frames.encode_number(Kind.CREDIT, 1, 100_000))
        more = sum(len(payload) for kind, _, payload in gateway.received() if kind is Kind.DATA)
        assert sent + more == pieces * 4000

    assert with_gateway(act).lost == []


def test_paused_node_gets_no_credit_until_it_is_resumed() -> None:
    def act(gateway: Gateway) -> None:
        channel, receiver = gateway.open()
        channel.pause()
        for _ in range(4):
            gateway.send(frames.encode(Kind.DATA, 1, bytes(frames.MAX_PAYLOAD)))
        assert len(receiver.data) == frames.WINDOW
        assert [kind for kind, _, _ in gateway.received()] == [Kind.OPEN]
        channel.resume()
        assert gateway.received() == [(Kind.CREDIT, 1, frames.WINDOW.to_bytes(4, "big"))]

    assert with_gateway(act).lost == []


HOSTILE = {
    "a stream that was not opened": frames.encode(Kind.DATA, 7, b"x"),
    "stream 0": frames.encode(Kind.DATA, 0, b"x"),
    "a huge length": remote_frames.HEADER.pack(Kind.DATA, 1, 0xFFFFFFFF),
    "an unknown kind": remote_frames.HEADER.pack(99, 1, 0),
    "a kind that only consoles send": frames.encode(Kind.OPEN, 1, b'{"argv": ["sh"]}'),
    "more than the window": frames.encode(Kind.DATA, 1, bytes(frames.MAX_PAYLOAD)) * 5,
    "credit beyond the window": frames.encode_number(Kind.CREDIT, 1, 1),
    "credit that is not a number": frames.encode(Kind.CREDIT, 1, b"12345"),
    "an end that is not JSON": frames.encode(Kind.END, 1, b"{"),
    "an end of another type": frames.encode(Kind.END, 1, b'{"status": "x"}'),
    "a blob that was not named": frames.encode(Kind.LACKS, 1),
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
def test_gateway_that_violates_the_protocol_is_dropped_with_all_its_streams(sent: bytes) -> None:
    receivers: list[NodeReceiver] = []

    def act(gateway: Gateway) -> None:
        channel, receiver = gateway.open()
        channel.pause()  # withholds credit
        receivers.append(receiver)
        gateway.send(sent)

    gateway = with_gateway(act)
    assert [type(error) for error in gateway.lost] == [errors.GatewayLost]
    assert "protocol error" in gateway.lost[0].text and "login1" in gateway.lost[0].text
    assert gateway.channel.is_closed
    assert [end for receiver in receivers for end in receiver.ends] == [(None, gateway.lost[0])]


@pytest.mark.parametrize("sent", [b"not zlib at all" * 3, zlib.compress(b"") + b"more"], ids=["garbage", "an end"])
def test_corrupt_stream_of_a_gateway_is_a_protocol_error(sent: bytes) -> None:
    gateway = with_gateway(lambda gateway: gateway.connection.on_bytes(sent))
    assert "protocol error" in gateway.lost[0].text


def test_inflated_bytes_are_bounded_per_turn_of_the_event_loop() -> None:
    decoder = frames.FrameDecoder()
    decoder.feed(zlib.compress(frames.encode(Kind.DATA, 1, bytes(1000)) * 2000, 9))
    taken = decoder.next_frames()
    assert sum(len(frame.payload) for frame in taken) <= frames.MAX_INFLATED
    assert not decoder.is_empty


def test_gateway_that_ends_before_its_hello_explains_why() -> None:
    async def run() -> None:
        gateway = Gateway()
        starting = asyncio.create_task(gateway.connection.start(gateway.channel))
        await asyncio.sleep(0)
        gateway.connection.on_error_bytes(b"python3: not found")
        gateway.connection.on_end(127, None)
        with pytest.raises(errors.NoPython, match="not found"):
            await starting
        assert gateway.lost == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sent", "is_late"), [(Unacked(0, 0), True), (Unacked(1, 0), False), (None, False)], ids=["late", "cut", "unknown"]
)
def test_gateway_is_late_only_while_its_host_acknowledges_and_for_a_moment_after(
    monkeypatch: pytest.MonkeyPatch, sent: Unacked | None, is_late: bool
) -> None:
    now = [time.monotonic()]
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time))

    def act(gateway: Gateway) -> None:
        node, _ = gateway.open()
        gateway.channel.sent = sent
        assert not node.is_relay_late()
        now[0] += 3.0
        assert node.is_relay_late() is is_late
        gateway.send()
        assert node.is_relay_late() is is_late
        now[0] += connection.SETTLE_S
        assert not node.is_relay_late()

    with_gateway(act)
