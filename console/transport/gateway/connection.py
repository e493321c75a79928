"""One connection to a gateway, and the channels of the nodes behind it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from .. import errors
from ..liveness import LivenessMonitor
from ..transport import Channel, Receiver, Unacked
from . import frames
from .frames import FrameDecoder, GatewayFrame, Kind, MalformedGatewayFrame

#: Seconds from the start of the gateway's program to its hello.
HELLO_S = 20.0
#: Seconds for the gateway to end its commands: longer than it waits for them.
STOP_S = 3.0
#: Seconds between two pings, and of silence after which nodes are shown as lost anyway.
PING_S, SHOWN_S = 1.0, 2.2
#: Seconds of silence until a gateway is given up, unless its connection is found dead earlier.
DEAD_S = 10.0
#: Seconds between two checks of the silence; one that is later than `LATE_S` judges nothing: answers may wait unread.
_CHECK_S, _LATE_S = 0.25, 1.0
#: Bytes before the hello: output of login scripts.
_MAX_GREETING = 1 << 20
#: Bytes from which a write is sent as a blob: most are the same for all nodes.
_MIN_BLOB = 4 << 10


class Launch(Protocol):
    """Start of the gateway's program on its host: what is sent, and how its first lines are read."""

    command: str
    first: bytes  # sent at once

    def reply(self, line: bytes) -> bytes | None:
        """What to send after a line; None if it was the hello. Raises FleetError."""

    def add_error(self, data: bytes) -> None:
        """Keep standard error for the failure."""

    def failure(self, exit_status: int | None, error: Exception | None) -> errors.FleetError:
        """Why the program ended before its hello."""


class GatewayQuota(Protocol):
    """A token bucket of event-loop seconds."""

    def spend(self, amount: float) -> float:
        """Take `amount` even into debt; the seconds until the debt is repaid."""


class GatewayConnection:
    """A `Receiver` of a gateway's output. `on_end` is called once, when an established connection has ended."""

    def __init__(
        self, name: str, launch: Launch, share: GatewayQuota, on_end: Callable[[errors.FleetError], None]
    ) -> None:
        self.name = name
        self.bytes_sent = 0  # to the gateway, frames included
        self._launch, self._share, self._on_end = launch, share, on_end
        self._channel: Channel | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._is_greeted = self._is_closed = False
        self._greeting = b""
        self._decoder = FrameDecoder()
        self._timer: asyncio.Handle | None = None  # decoding goes on
        self._is_pausing = False  # reading is paused
        self._streams: dict[int, NodeChannel] = {}
        self._highest = 0  # number of the last stream
        self._unsent: list[bytes] = []
        self._blobs: dict[bytes, int] = {}  # by digest, their numbers
        self._unconfirmed: dict[int, bytes] = {}  # blobs whose presence on the gateway is unknown
        self._blob_bytes = 0
        self._received_at = time.monotonic()
        self._liveness: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self, channel: Channel) -> None:
        """Wait until the gateway is ready. Raises FleetError."""
        self._channel = channel
        self._write(self._launch.first)
        try:
            async with asyncio.timeout(HELLO_S):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.close()
            raise errors.Timeout(
                f"logged in, but timeout: no hello from the gateway within {HELLO_S:g} s",
                f"try: ssh {self.name} python3 -V; a hung home directory or shell start-up file causes this",
            ) from None
        except BaseException:
            self.close()
            raise
        self._liveness = asyncio.create_task(self._watch(), name=f"gateway {self.name}")

    @property
    def is_open(self) -> bool:
        """Whether streams can be opened."""
        return self._is_greeted and not self._is_closed

    def close(self) -> None:
        """Close the connection; the gateway ends its commands."""
        self._is_closed = True
        if self._liveness is not None:
            self._liveness.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._decoder = FrameDecoder()

    async def stop(self) -> None:
        """Let the gateway end its commands and itself, then close the connection."""
        if self.is_open:
            self.send(Kind.END, 0)
            self._is_closed = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._ended.wait()
        self.close()

    def _fail(self, error: errors.FleetError) -> None:
        """End the connection and all streams."""
        if self._is_closed:
            return
        was_greeted = self._is_greeted
        self.close()
        if not was_greeted:
            if not self._ready.done():
                self._ready.set_exception(error)
            return
        streams, self._streams = list(self._streams.values()), {}
        self._on_end(error)
        for stream in streams:
            stream.on_connection_lost(error)

    async def _watch(self) -> None:
        """Ping, and give the connection up once it is dead."""
        monitor = LivenessMonitor(
            self.silent_s, lambda: self._channel.unacked(self.silent_s()) if self._channel else None, self._answers,
            lambda: self._fail(lost(self.name, "half-open connection")), shown_s=SHOWN_S, loses_records=False,
        )  # fmt: skip
        pinged_at = checked_at = time.monotonic()
        try:
            while not self._is_closed:
                await asyncio.sleep(_CHECK_S)
                now = time.monotonic()
                is_late, checked_at = now - checked_at > _LATE_S, now
                if now - pinged_at >= PING_S:
                    pinged_at = now
                    self._write(frames.encode_ping(now))
                if is_late:
                    continue
                monitor.watch()
                if self.silent_s() > DEAD_S and self._timer is None:
                    self._fail(lost(self.name, f"no data for {self.silent_s():.0f} s"))
        finally:
            await monitor.close()

    async def _answers(self) -> bool | None:
        return await self._channel.answers() if self._channel else None

    def silent_s(self) -> float:
        """Seconds since data was last received."""
        return time.monotonic() - self._received_at

    # -- sending -----------------------------------------------------------------------------------------------------

    def open_stream(self, argv: Sequence[str], receiver: Receiver) -> NodeChannel:
        """Start a command on the gateway's host."""
        self._highest += 1
        stream = self._streams[self._highest] = NodeChannel(self, self._highest, receiver)
        self.send(Kind.OPEN, self._highest, msgspec.json.encode({"argv": list(argv)}))
        return stream

    def send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Send one frame."""
        self._write(frames.encode(kind, number, payload))

    def send_number(self, kind: Kind, number: int, value: int) -> None:
        """Send a frame whose payload is a number."""
        self._write(frames.encode_number(kind, number, value))

    def blob_number(self, data: bytes) -> int | None:
        """The number of a blob with these bytes, which the gateway gets once; None where a blob saves nothing."""
        if len(data) < _MIN_BLOB:
            return None
        digest = hashlib.sha256(data).digest()
        number = self._blobs.get(digest)
        if number is None:
            if self._blob_bytes + len(data) > frames.MAX_BLOBS:
                return None
            number = self._blobs[digest] = len(self._blobs) + 1
            self._blob_bytes += len(data)
            self._unconfirmed[number] = data
            self.send(Kind.NAME, number, msgspec.json.encode({"digest": digest.hex(), "size": len(data)}))
        return number

    def drop(self, number: int) -> None:
        """Forget a stream that the console has ended; what is under way of it is ignored."""
        if self._streams.pop(number, None) is not None:
            self.send(Kind.END, number)

    def _write(self, data: bytes) -> None:
        """Send with all else of this turn of the event loop: a packet for the pings of many nodes, not one each."""
        if self._channel is not None:
            self.bytes_sent += len(data)
            if not self._unsent:
                asyncio.get_running_loop().call_soon(self._flush)
            self._unsent.append(data)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._channel is not None and unsent:
            self._channel.write(b"".join(unsent))

    # -- Receiver ----------------------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """Decode frames and pass them to the streams."""
        if self._is_closed:
            return
        self._received_at = time.monotonic()
        if not self._is_greeted:
            data = self._read_greeting(data)
            if not self._is_greeted or self._is_closed:
                return
        self._decoder.feed(data)
        if self._timer is None:
            self._decode()

    def on_error_bytes(self, data: bytes) -> None:
        """Keep standard error for the failure text."""
        self._launch.add_error(data)

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        """The gateway's program or the connection has ended."""
        self._ended.set()
        if not self._is_greeted:
            self._fail(self._launch.failure(exit_status, error))
        elif isinstance(error, errors.FleetError):
            self._fail(lost(self.name, error.text))
        else:
            why = f"its program ended with status {exit_status}" if exit_status else str(error or "connection closed")
            self._fail(lost(self.name, why))

    def _read_greeting(self, data: bytes) -> bytes:
        """Handle the lines up to the hello; the bytes behind it."""
        self._greeting += data
        while b"\n" in self._greeting:
            line, _, self._greeting = self._greeting.partition(b"\n")
            try:
                reply = self._launch.reply(line)
            except errors.FleetError as error:
                self._fail(error)
                return b""
            if reply is None:
                self._is_greeted = True
                self._ready.set_result(None)
                rest, self._greeting = self._greeting, b""
                return rest
            self._write(reply)
        if len(self._greeting) > _MAX_GREETING:
            self._fail(errors.AgentCrashed("protocol error: no hello", "check the output of login scripts"))
        return b""

    def _decode(self) -> None:
        """Decode a slice; the next one follows when the event loop and this gateway's share allow it."""
        self._timer = None
        started = time.monotonic()
        try:
            received = self._decoder.next_frames()
            pause_s = self._share.spend(time.monotonic() - started)
            for frame in received:
                self._handle(frame)
                if self._is_closed:
                    return
        except MalformedGatewayFrame as error:
            self._fail(lost(self.name, f"protocol error: {error}"))
            return
        is_pausing = not self._decoder.is_empty or pause_s > 0
        if is_pausing:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._decode)
        if self._channel is not None and is_pausing != self._is_pausing:
            self._is_pausing = is_pausing
            self._channel.pause() if is_pausing else self._channel.resume()

    def _handle(self, frame: GatewayFrame) -> None:
        if frame.kind is Kind.PING:
            return
        if frame.kind in (Kind.HAS, Kind.LACKS):
            self._confirm(frame)
            return
        stream = self._streams.get(frame.number)
        if stream is not None:
            stream.on_frame(frame)
            if frame.kind is Kind.END:
                self._streams.pop(frame.number, None)
        elif not 0 < frame.number <= self._highest:  # else it was ended while the frame was under way
            raise MalformedGatewayFrame(f"{frame.kind.name} of stream {frame.number}, which was not opened")

    def _confirm(self, frame: GatewayFrame) -> None:
        data = self._unconfirmed.pop(frame.number, None)
        if data is None:
            raise MalformedGatewayFrame(f"{frame.kind.name} of blob {frame.number}, which was not named")
        if frame.kind is Kind.LACKS:
            for start in range(0, len(data), frames.MAX_PAYLOAD):
                self.send(Kind.BLOB, frame.number, data[start : start + frames.MAX_PAYLOAD])


def lost(name: str, why: str) -> errors.GatewayLost:
    """The failure of all nodes of a gateway whose connection has ended."""
    return errors.GatewayLost(f"gateway {name}: {why}", f"check {name}; another gateway takes its nodes over, if any")


class NodeChannel:
    """Standard input of one node's command; its output is passed on as long as the window lasts."""

    def __init__(self, connection: GatewayConnection, number: int, receiver: Receiver) -> None:
        self._connection, self._number, self._receiver = connection, number, receiver
        self._credit = frames.WINDOW  # bytes that may be sent
        self._unsent: deque[bytes] = deque()
        self._due = frames.WINDOW  # bytes that the gateway may send
        self._withheld = 0  # bytes received while reading is paused
        self._is_paused = self._is_over = False

    def write(self, data: bytes) -> None:
        """Queue bytes; no effect once closed."""
        if self._is_over:
            return
        self._unsent.append(data)
        self._send_queued()

    def _send_queued(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            number = self._connection.blob_number(data)
            if number is not None:
                if self._credit < frames.WRITE_COST:
                    return
                self._credit -= frames.WRITE_COST
                self._connection.send_number(Kind.WRITE, self._number, number)
                self._unsent.popleft()
                continue
            piece = data[: min(self._credit, frames.MAX_PAYLOAD)]
            if not piece and data:
                return
            self._credit -= len(piece)
            self._connection.send(Kind.DATA, self._number, piece)
            if len(piece) == len(data):
                self._unsent.popleft()
            else:
                self._unsent[0] = data[len(piece) :]

    def pause(self) -> None:
        """Stop reading: the gateway gets no more credit."""
        self._is_paused = True

    def resume(self) -> None:
        """Resume reading."""
        self._is_paused = False
        self._grant()

    def _grant(self) -> None:
        if self._withheld and not self._is_paused and not self._is_over:
            self._due += self._withheld
            self._connection.send_number(Kind.CREDIT, self._number, self._withheld)
            self._withheld = 0

    def unacked(self, silent_s: float) -> Unacked | None:
        """Unknown: the connection to the node belongs to the gateway."""

    async def answers(self) -> bool | None:
        """Unknown: the connection to the node belongs to the gateway."""

    def close(self) -> None:
        """End the command."""
        if not self._is_over:
            self._is_over = True
            self._unsent.clear()
            self._connection.drop(self._number)
            asyncio.get_running_loop().call_soon(self._receiver.on_end, None, None)

    # -- from the gateway ----------------------------------------------------------------------------------------------

    def on_frame(self, frame: GatewayFrame) -> None:
        """Handle a frame of this stream. Raises MalformedGatewayFrame."""
        if frame.kind is Kind.CREDIT:
            self._credit += frames.read_number(frame)
            if self._credit > frames.WINDOW:
                raise MalformedGatewayFrame(f"credit of stream {self._number} exceeds its window")
            self._send_queued()
        elif frame.kind is Kind.END:
            end = frames.read_end(frame)
            self._is_over = True
            failure = errors.SiteCommand(end.error, "") if end.error else None
            self._receiver.on_end(end.status, failure)
        else:
            self._accept(frame)

    def _accept(self, frame: GatewayFrame) -> None:
        self._due -= len(frame.payload)
        if self._due < 0:
            raise MalformedGatewayFrame(f"stream {self._number} exceeds its window")
        self._withheld += len(frame.payload)
        receive = self._receiver.on_bytes if frame.kind is Kind.DATA else self._receiver.on_error_bytes
        receive(frame.payload)
        if self._withheld >= frames.WINDOW // 4:
            self._grant()

    def on_connection_lost(self, error: errors.FleetError) -> None:
        """The gateway is gone."""
        if not self._is_over:
            self._is_over = True
            self._receiver.on_end(None, error)
