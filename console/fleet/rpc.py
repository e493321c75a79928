"""Requests to an agent and their responses, and the pings that measure round trip and clock offset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ..records import Failure
from ..transport import errors

Frame = dict[str, Any]
#: Maximum outstanding pings; beyond it all of them are dropped.
_MAX_PINGS = 16


class Ping(msgspec.Struct, frozen=True):
    """One ping: send and receive times on our clock, and the node's clocks in between; ns."""

    sent: int  # time.monotonic_ns(), as `back`
    back: int
    real: int  # CLOCK_REALTIME of the node
    mono: int  # its CLOCK_MONOTONIC_RAW


def failure_of(error: errors.FleetError) -> Failure:
    """The record of a connection error."""
    return Failure(error.name, error.text, error.try_)


class Rpc:
    """Numbers requests and matches responses. Numbers are not reused: late responses are ignored."""

    def __init__(self, send: Callable[[Frame], None]) -> None:
        self.rtt_ns: int | None = None  # shortest round trip of the last pings
        self.offset_ns: int | None = None  # node's CLOCK_REALTIME minus ours, from that ping; good to ± rtt/2
        self._send = send
        self._number = 0
        self._pings: dict[int, int] = {}  # when each was sent, ns
        self._ping_replies: dict[int, asyncio.Future[tuple[int, int, int]]] = {}
        self._replies: dict[int, asyncio.Future[Frame]] = {}

    def ping(self) -> None:
        """Send a ping without waiting for the pong."""
        self._number += 1
        if len(self._pings) > _MAX_PINGS:
            self._pings.clear()
        self._pings[self._number] = time.time_ns()
        self._send({"ping": self._number})

    async def ping_once(self, deadline_s: float) -> Ping:
        """Ping and wait for the pong. Raises FleetError on timeout or a lost connection."""
        self._number += 1
        number = self._number
        reply = self._ping_replies[number] = asyncio.get_running_loop().create_future()
        sent = time.monotonic_ns()
        self._send({"ping": number})
        try:
            async with asyncio.timeout(deadline_s):
                real, mono, back = await reply
        except TimeoutError:
            raise errors.Timeout(f"no response to a ping within {deadline_s:g} s") from None
        finally:
            self._ping_replies.pop(number, None)
        return Ping(sent, back, real, mono)

    def on_pong(self, number: int, t: int, mono: int) -> None:
        """Handle a pong with the node's clock readings."""
        ping_reply = self._ping_replies.pop(number, None)
        if ping_reply is not None and not ping_reply.done():
            ping_reply.set_result((t, mono, time.monotonic_ns()))
        sent = self._pings.pop(number, None)
        if sent is None:
            return
        now = time.time_ns()
        rtt = now - sent
        if self.rtt_ns is None or rtt <= self.rtt_ns * 1.5:
            self.rtt_ns = rtt
            self.offset_ns = t - (sent + now) // 2

    async def request(self, verb: str, args: Frame, deadline_s: float) -> Any:
        """Send a request; the response's `ok`. Raises FleetError: refused, timed out, or connection lost."""
        self._number += 1
        number = self._number
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "do": verb, "args": args})
        try:
            async with asyncio.timeout(deadline_s):
                response = await reply
        except TimeoutError:
            raise errors.Timeout(f"no response to {verb} within {deadline_s:g} s") from None
        finally:
            self._replies.pop(number, None)
        match response:
            case {"ok": value}:
                return value
            case {"error": {"name": str(name), "text": str(text), **rest}}:
                raise errors.AgentRefused(name, text, str(rest.get("try", "")))
            case _:
                raise errors.AgentRefused("no_answer", f"invalid response to {verb}")

    def on_response(self, number: int, frame: Frame) -> None:
        """Handle the response to a request."""
        reply = self._replies.pop(number, None)
        if reply and not reply.done():
            reply.set_result(frame)

    def abandon(self) -> None:
        """Fail all pending requests: the connection has ended."""
        self._pings.clear()
        waiting: list[asyncio.Future[Any]] = [*self._replies.values(), *self._ping_replies.values()]
        for reply in waiting:
            if not reply.done():
                reply.set_exception(errors.Lost("connection closed before the response arrived"))
