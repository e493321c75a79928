"""What an agent is asked over one link: requests and their answers, and the pings that measure the way there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..transport import errors

Frame = dict[str, Any]
#: So many pings may be under way; where more have no answer, none of them is worth waiting for.
_PINGS = 16


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping: when it left and came back on our own clock, and what the node's read in between; ns."""

    sent: int  # time.monotonic_ns(), as `back`
    back: int
    real: int  # CLOCK_REALTIME of the node
    mono: int  # its CLOCK_MONOTONIC_RAW


class Rpc:
    """Numbers questions and finds their answers. A number is never used again: a late answer finds nobody."""

    def __init__(self, send: Callable[[Frame], None]) -> None:
        self.rtt_ns: int | None = None  # shortest round trip of the last pings
        self.offset_ns: int | None = None  # node's CLOCK_REALTIME minus ours, from that ping; good to ± rtt/2
        self._send = send
        self._number = 0
        self._pings: dict[int, int] = {}  # when each was sent, ns
        self._awaited: dict[int, asyncio.Future[tuple[int, int, int]]] = {}
        self._replies: dict[int, asyncio.Future[Frame]] = {}

    def ping(self) -> None:
        self._number += 1
        if len(self._pings) > _PINGS:
            self._pings.clear()
        self._pings[self._number] = time.time_ns()
        self._send({"ping": self._number})

    async def ping_once(self, deadline_s: float) -> Ping:
        """Ping and wait for the answer. Raises FleetError: no answer in time, a connection that ended."""
        self._number += 1
        number = self._number
        reply = self._awaited[number] = asyncio.get_running_loop().create_future()
        sent = time.monotonic_ns()
        self._send({"ping": number})
        try:
            async with asyncio.timeout(deadline_s):
                real, mono, back = await reply
        except TimeoutError:
            raise errors.Timeout(f"no answer to a ping within {deadline_s:g} s") from None
        finally:
            self._awaited.pop(number, None)
        return Ping(sent, back, real, mono)

    def take_pong(self, number: int, t: int, mono: int) -> None:
        """The answer to a ping, with the node's clocks as they were when it answered."""
        awaited = self._awaited.pop(number, None)
        if awaited is not None and not awaited.done():
            awaited.set_result((t, mono, time.monotonic_ns()))
        sent = self._pings.pop(number, None)
        if sent is None:
            return
        now = time.time_ns()
        rtt = now - sent
        if self.rtt_ns is None or rtt <= self.rtt_ns * 1.5:
            self.rtt_ns = rtt
            self.offset_ns = t - (sent + now) // 2

    async def request(self, verb: str, args: Frame, deadline_s: float) -> Any:
        """Ask; the answer's `ok`. Raises FleetError for a refusal, no answer in time, a connection that ended."""
        self._number += 1
        number = self._number
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "do": verb, "args": args})
        try:
            async with asyncio.timeout(deadline_s):
                answer = await reply
        except TimeoutError:
            raise errors.Timeout(f"no answer to {verb} within {deadline_s:g} s") from None
        finally:
            self._replies.pop(number, None)
        match answer:
            case {"ok": value}:
                return value
            case {"error": {"name": str(name), "text": str(text), **rest}}:
                raise errors.AgentRefused(name, text, str(rest.get("try", "")))
            case _:
                raise errors.AgentRefused("no_answer", f"what came back for {verb} is no answer")

    def take_answer(self, number: int, frame: Frame) -> None:
        reply = self._replies.pop(number, None)
        if reply and not reply.done():
            reply.set_result(frame)

    def abandon(self) -> None:
        """The connection has ended: nothing that is still open will be answered."""
        self._pings.clear()
        waiting: list[asyncio.Future[Any]] = [*self._replies.values(), *self._awaited.values()]
        for reply in waiting:
            if not reply.done():
                reply.set_exception(errors.Lost("the connection ended before the answer came"))
