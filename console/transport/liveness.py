"""What lies below one SSH connection, and what shows whether it still works: our own TCP, or a tunnel in another.

Of what another program makes (ProxyCommand) neither is known: such a connection has no way here.
"""

from __future__ import annotations

import math
import socket
import time
from typing import Protocol

import asyncssh

from .reachability import Address, Knock, answers
from .tcp_info import Unacked, unacked_on

#: Linux' least time until TCP sends again what is not acknowledged; each further time takes twice as long (RFC 6298).
RTO_S = 0.2


class ConnectionPath(Protocol):
    """Below one connection."""

    def unacked(self, silent_s: float) -> Unacked | None:
        """What the far side has not acknowledged, on a connection that has been silent so long; None: not known."""

    async def answers(self) -> bool | None:
        """Whether the far side takes another connection that goes the same way; None: not known."""


class DirectPath:
    """A TCP connection of this machine's: its kernel tells."""

    def __init__(self, connected: socket.socket, address: Address) -> None:
        self._socket, self._address = connected, address

    def unacked(self, silent_s: float) -> Unacked | None:
        return unacked_on(self._socket)

    async def answers(self) -> bool:
        return await answers(self._address)


class Keepalive:
    """The sshd at the far end of a connection, asked whether it hears: it answers whatever its commands do or do not.

    The question is OpenSSH's own keepalive; a server that does not know it has to refuse it, which is an answer as
    well (RFC 4254, section 4).
    """

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection
        self._asked: float | None = None  # since when an answer is waited for
        self.heard = time.monotonic()
        self.round_trip_s: float | None = None  # the shortest

    @property
    def waits(self) -> bool:
        """Whether an answer is missing."""
        return self._asked is not None

    def silent_s(self) -> float:
        """How long an answer has been missing; 0 also of a server that has never given one."""
        return 0.0 if self._asked is None or self.round_trip_s is None else time.monotonic() - self._asked

    def send(self) -> None:
        """Ask, unless an answer is still missing."""
        if self._asked is None:
            self._asked = time.monotonic()
            self._connection.create_task(self._ask(self._asked))  # whose failure would end the connection

    async def _ask(self, asked: float) -> None:
        # asyncssh sends the same by itself (set_keepalive), but tells nobody of the answer
        await self._connection._make_global_request(b"keepalive@openssh.com")
        self._asked, self.heard = None, time.monotonic()
        took_s = self.heard - asked
        self.round_trip_s = took_s if self.round_trip_s is None else min(self.round_trip_s, took_s)


class TunnelPath:
    """A connection through a jump host, whose TCP to the far side is out of sight.

    What is owed there is concluded from an `Keepalive` that stays out. A program that is stopped or slow owes nothing.
    """

    def __init__(self, keepalive: Keepalive, knock: Knock) -> None:
        """`knock` is the jump host's, at the far side."""
        self._keepalive, self._knock = keepalive, knock
        self._answers_since: float | None = None
        keepalive.send()  # so that its round trip is known before there is any monitor

    def unacked(self, silent_s: float) -> Unacked | None:
        """Nothing at first: then it is asked, and what is missing later is owed."""
        waits, now = self._keepalive.waits, time.monotonic()
        self._keepalive.send()
        if not waits:
            self._answers_since = None
            return Unacked(0, 0)
        if self._keepalive.round_trip_s is None:
            return None
        unheard_s = min(silent_s, now - self._keepalive.heard)
        answering_s = 0.0 if self._answers_since is None else now - self._answers_since
        return Unacked(1, least_tries(unheard_s, answering_s, self._keepalive.round_trip_s))

    async def answers(self) -> bool | None:
        began = time.monotonic()
        answered = await self._knock()
        if not answered:
            self._answers_since = None
        elif self._answers_since is None:
            self._answers_since = began
        return answered


def least_tries(unheard_s: float, answering_s: float, round_trip_s: float) -> int:
    """How often TCP has at the least sent again what was lost on a connection not heard of for `unheard_s`.

    Of that time the far side has been taking other connections for the last `answering_s`. Between two tries passes as
    much time as since the first sending, so that also of those `answering_s` it is known how many tries lie in them.
    A try of the last `round_trip_s` is not counted: its answer may be on its way.
    """
    answering_s = max(0.0, answering_s - round_trip_s)
    before_s = max(0.0, unheard_s - round_trip_s - answering_s)
    patience_s = RTO_S + round_trip_s
    return _doublings(before_s, patience_s) + _doublings(answering_s, before_s + patience_s)


def _doublings(within_s: float, first_s: float) -> int:
    """How many steps fit, of which the first takes that long, and each further one twice as long as the one before."""
    return int(math.log2(within_s / first_s + 1))
