"""The streams of nodes over one channel: their windows, and blobs that are sent once for all nodes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from .. import errors
from ..transport import Channel, Receiver, Unacked
from . import frames
from .frames import GatewayFrame, Kind, MalformedGatewayFrame

#: Bytes from which a write is sent as a blob: most are the same for all nodes.
_MIN_BLOB = 4 << 10


class StreamMultiplexer:
    """The streams over one channel, which is `channel` while it is open; `bytes_sent`: frames included."""

    def __init__(self, *, confirms_blobs: bool = True, is_late: Callable[[], bool] = lambda: False) -> None:
        """`confirms_blobs`: the far side says for each blob whether it lacks it; else all are sent.

        `is_late`: whether the far side is late with what it passes on, but reachable.
        """
        self.channel: Channel | None = None
        self.is_late = is_late
        self.bytes_sent = 0
        self._confirms_blobs = confirms_blobs
        self._streams: dict[int, NodeChannel] = {}
        self._highest = 0  # number of the last stream
        self._unsent: list[bytes] = []
        self._blobs: dict[bytes, int] = {}  # by digest, their numbers
        self._unconfirmed: dict[int, bytes] = {}  # blobs whose presence on the far side is unknown
        self._blob_bytes = 0

    def open_stream(
        self, argv: Sequence[str], receiver: Receiver, task: int | None = None, *, keeps: str = ""
    ) -> NodeChannel:
        """Start a command on the far side; `task`: on which task of a step; `keeps`: the node that it keeps."""
        self._highest += 1
        stream = self._streams[self._highest] = NodeChannel(self, self._highest, receiver, task)
        order: dict[str, object] = {"argv": list(argv)}
        if task is not None:
            order["task"] = task
        if keeps:
            order["node"] = keeps
        self.send(Kind.OPEN, self._highest, msgspec.json.encode(order))
        return stream

    def send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Send one frame."""
        self.write(frames.encode(kind, number, payload))

    def send_number(self, kind: Kind, number: int, value: int) -> None:
        """Send a frame whose payload is a number."""
        self.write(frames.encode_number(kind, number, value))

    def blob_number(self, data: bytes) -> int | None:
        """The number of a blob with these bytes, which is sent once; None where a blob saves nothing."""
        if len(data) < _MIN_BLOB:
            return None
        digest = hashlib.sha256(data).digest()
        number = self._blobs.get(digest)
        if number is None:
            if self._blob_bytes + len(data) > frames.MAX_BLOBS:
                return None
            number = self._blobs[digest] = len(self._blobs) + 1
            self._blob_bytes += len(data)
            self.send(Kind.NAME, number, msgspec.json.encode({"digest": digest.hex(), "size": len(data)}))
            if self._confirms_blobs:
                self._unconfirmed[number] = data
            else:
                self._send_blob(number, data)
        return number

    def _send_blob(self, number: int, data: bytes) -> None:
        for start in range(0, len(data), frames.MAX_PAYLOAD):
            self.send(Kind.BLOB, number, data[start : start + frames.MAX_PAYLOAD])

    def drop(self, number: int) -> None:
        """Forget a stream that the console has ended; what is under way of it is ignored."""
        if self._streams.pop(number, None) is not None:
            self.send(Kind.END, number)

    def lose(self, error: errors.FleetError, task: int | None = None) -> None:
        """End all streams, or those of one task: the far side is gone."""
        lost = [number for number, stream in self._streams.items() if task is None or stream.task == task]
        for stream in [self._streams.pop(number) for number in lost]:
            stream.on_connection_lost(error)

    def write(self, data: bytes) -> None:
        """Send with all else of this turn of the event loop: a packet for the pings of many nodes, not one each."""
        if self.channel is not None:
            self.bytes_sent += len(data)
            if not self._unsent:
                asyncio.get_running_loop().call_soon(self.flush)
            self._unsent.append(data)

    def flush(self) -> None:
        """Send what is queued."""
        unsent, self._unsent = self._unsent, []
        if self.channel is not None and unsent:
            self.channel.write(b"".join(unsent))

    def handle(self, frame: GatewayFrame, task: int | None = None) -> None:
        """Pass a frame to its stream. Raises MalformedGatewayFrame, also if the stream is another task's."""
        if frame.kind is Kind.PING:
            return
        if frame.kind in (Kind.HAS, Kind.LACKS):
            self._confirm(frame)
            return
        stream = self._streams.get(frame.number)
        if stream is not None and stream.task == task:
            stream.on_frame(frame)
            if frame.kind is Kind.END:
                self._streams.pop(frame.number, None)
        elif stream is not None or not 0 < frame.number <= self._highest:  # else it was ended with the frame under way
            raise MalformedGatewayFrame(f"{frame.kind.name} of stream {frame.number}, which was not opened")

    def _confirm(self, frame: GatewayFrame) -> None:
        data = self._unconfirmed.pop(frame.number, None)
        if data is None:
            raise MalformedGatewayFrame(f"{frame.kind.name} of blob {frame.number}, which was not named")
        if frame.kind is Kind.LACKS:
            self._send_blob(frame.number, data)


class NodeChannel:
    """Standard input of one node's command; its output is passed on as long as the window lasts."""

    def __init__(self, streams: StreamMultiplexer, number: int, receiver: Receiver, task: int | None) -> None:
        self._streams, self._number, self._receiver = streams, number, receiver
        self.task = task  # of a step; None on a gateway
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
            number = self._streams.blob_number(data)
            if number is not None:
                if self._credit < frames.WRITE_COST:
                    return
                self._credit -= frames.WRITE_COST
                self._streams.send_number(Kind.WRITE, self._number, number)
                self._unsent.popleft()
                continue
            piece = data[: min(self._credit, frames.MAX_PAYLOAD)]
            if not piece and data:
                return
            self._credit -= len(piece)
            self._streams.send(Kind.DATA, self._number, piece)
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
            self._streams.send_number(Kind.CREDIT, self._number, self._withheld)
            self._withheld = 0

    def unacked(self, silent_s: float) -> Unacked | None:
        """Unknown: the connection to the node belongs to the gateway."""

    async def answers(self) -> bool | None:
        """Unknown: the connection to the node belongs to the gateway."""

    def is_relay_late(self) -> bool:
        """Whether the gateway is late with what it passes on, but reachable."""
        return self._streams.is_late()

    def close(self) -> None:
        """End the command."""
        if not self._is_over:
            self._is_over = True
            self._unsent.clear()
            self._streams.drop(self._number)
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
