"""One connection to a gateway, and the channels of the nodes behind it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from .. import errors
from ..liveness import SUSPECT_AFTER_S, LivenessMonitor
from ..transport import Channel, Receiver
from . import frames
from .frames import FrameDecoder, Kind, MalformedGatewayFrame
from .streams import NodeChannel, StreamMultiplexer

#: Seconds from the start of the gateway's program to its hello.
HELLO_S = 20.0
#: Seconds for the gateway to end its commands: longer than it waits for them.
STOP_S = 3.0
#: Seconds between two pings, and of silence after which nodes are shown as lost anyway.
PING_S, SHOWN_S = 1.0, 2.2
#: Seconds of silence until a gateway is given up, unless its connection is found dead earlier.
DEAD_S = 10.0
#: Seconds after a silence until nodes are judged again: what the gateway held back comes node by node.
SETTLE_S = 1.0
#: Seconds between two checks of the silence; one that is later than `LATE_S` judges nothing: answers may wait unread.
_CHECK_S, _LATE_S = 0.25, 1.0
#: Bytes before the hello: output of login scripts.
_MAX_GREETING = 1 << 20


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
        self._launch, self._share, self._on_end = launch, share, on_end
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._is_greeted = self._is_closed = False
        self._greeting = b""
        self._decoder = FrameDecoder()
        self._timer: asyncio.Handle | None = None  # decoding goes on
        self._is_pausing = False  # reading is paused
        self._streams = StreamMultiplexer(is_late=self.is_late)
        self._late_at = -math.inf  # monotonic time at which it was late last
        self._received_at = time.monotonic()
        self._liveness: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self, channel: Channel) -> None:
        """Wait until the gateway is ready. Raises FleetError."""
        self._streams.channel = channel
        self._streams.write(self._launch.first)
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
        self._streams.flush()
        if self._channel is not None:
            self._channel.close()
            self._streams.channel = None
        self._decoder = FrameDecoder()

    async def stop(self) -> None:
        """Let the gateway end its commands and itself, then close the connection."""
        if self.is_open:
            self._streams.send(Kind.END, 0)
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
        self._on_end(error)
        self._streams.lose(error)

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
                    self._streams.write(frames.encode_ping(now))
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

    def is_late(self) -> bool:
        """Whether the gateway passes nothing on although its host acknowledges what is sent, or did so just now.

        A login node without a free processor is so while it opens connections to many nodes. Its nodes are not lost.
        """
        now = time.monotonic()
        if self.silent_s() > SUSPECT_AFTER_S and self._channel is not None:
            unacked = self._channel.unacked(self.silent_s())
            if unacked is not None and not unacked.segments:
                self._late_at = now
        return now < self._late_at + SETTLE_S

    @property
    def _channel(self) -> Channel | None:
        return self._streams.channel

    # -- streams -----------------------------------------------------------------------------------------------------

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to the gateway, frames included."""
        return self._streams.bytes_sent

    def open_stream(self, argv: Sequence[str], receiver: Receiver, *, keeps: str = "") -> NodeChannel:
        """Start a command on the gateway's host; `keeps`: the node whose records it keeps without a console."""
        return self._streams.open_stream(argv, receiver, keeps=keeps)

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
            self._streams.write(reply)
        if len(self._greeting) > _MAX_GREETING:
            self._fail(errors.AgentCrashed("protocol error: no hello", "check the output of login scripts"))
        return b""

    def _decode(self) -> None:
        """Decode a slice; the next one follows when the event loop and this gateway's share allow it."""
        self._timer = None
        began_s = time.thread_time()
        try:
            received = self._decoder.next_frames()
            pause_s = self._share.spend(time.thread_time() - began_s)
            for frame in received:
                self._streams.handle(frame)
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


def lost(name: str, why: str) -> errors.GatewayLost:
    """The failure of all nodes of a gateway whose connection has ended."""
    return errors.GatewayLost(f"gateway {name}: {why}", f"check {name}; another gateway takes its nodes over, if any")
