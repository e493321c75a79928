"""The TCP path below one SSH connection: direct, or a tunnel through a jump host.

A ProxyCommand's connection cannot be inspected; it has no path here.
"""

from __future__ import annotations

import math
import socket
import time
from typing import Protocol

import asyncssh

from .reachability import Address, ReachabilityProbe, answers
from .tcp_info import Unacked, unacked_on

#: Seconds. Linux' minimum TCP retransmission timeout; it doubles each time (RFC 6298).
MIN_RTO_S = 0.2


class ConnectionPath(Protocol):
    """The TCP path below one SSH connection."""

    def unacked(self, silent_s: float) -> Unacked | None:
        """Unacknowledged data on a connection silent for `silent_s`; None if unknown."""

    async def answers(self) -> bool | None:
        """Whether the far side accepts another connection over the same path; None if unknown."""


class DirectPath:
    """A TCP connection of this machine, inspected through TCP_INFO."""

    def __init__(self, connected: socket.socket, address: Address) -> None:
        self._socket, self._address = connected, address

    def unacked(self, silent_s: float) -> Unacked | None:
        """Unacknowledged data, from TCP_INFO."""
        return unacked_on(self._socket)

    async def answers(self) -> bool:
        """Whether the address accepts a TCP connection."""
        return await answers(self._address)


class Keepalive:
    """SSH keepalives on a connection: sshd answers them whatever its commands do.

    Uses OpenSSH's keepalive request; servers that do not know it must still reply with a failure (RFC 4254, section 4).
    """

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection
        self._pending_since: float | None = None  # monotonic time of the outstanding request
        self.last_reply = time.monotonic()
        self.round_trip_s: float | None = None  # minimum

    @property
    def is_pending(self) -> bool:
        """Whether a reply is outstanding."""
        return self._pending_since is not None

    def silent_s(self) -> float:
        """Seconds a reply has been outstanding; 0 if the server has never replied."""
        return (
            0.0 if self._pending_since is None or self.round_trip_s is None else time.monotonic() - self._pending_since
        )

    def send(self) -> None:
        """Send a keepalive unless one is outstanding."""
        if self._pending_since is None:
            self._pending_since = time.monotonic()
            self._connection.create_task(self._request(self._pending_since))  # a failure ends the connection

    async def _request(self, sent: float) -> None:
        # asyncssh's own keepalives (set_keepalive) do not report the reply
        await self._connection._make_global_request(b"keepalive@openssh.com")
        self._pending_since, self.last_reply = None, time.monotonic()
        rtt_s = self.last_reply - sent
        self.round_trip_s = rtt_s if self.round_trip_s is None else min(self.round_trip_s, rtt_s)


class TunnelPath:
    """A connection through a jump host, whose TCP to the far side is not visible here.

    Unacknowledged data is inferred from an outstanding `Keepalive`; sshd replies even if the agent is stopped or slow.
    """

    def __init__(self, keepalive: Keepalive, probe: ReachabilityProbe) -> None:
        """`probe` tests the far side from the jump host."""
        self._keepalive, self._probe = keepalive, probe
        self._reachable_since: float | None = None
        keepalive.send()  # measure the round trip before monitoring starts

    def unacked(self, silent_s: float) -> Unacked | None:
        """Send a keepalive first; report unacknowledged data while its reply is outstanding."""
        is_pending, now = self._keepalive.is_pending, time.monotonic()
        self._keepalive.send()
        if not is_pending:
            self._reachable_since = None
            return Unacked(0, 0)
        if self._keepalive.round_trip_s is None:
            return None
        unanswered_s = min(silent_s, now - self._keepalive.last_reply)
        reachable_s = 0.0 if self._reachable_since is None else now - self._reachable_since
        return Unacked(1, min_retransmits(unanswered_s, reachable_s, self._keepalive.round_trip_s))

    async def answers(self) -> bool | None:
        """Whether the far side is reachable from the jump host."""
        started = time.monotonic()
        is_reachable = await self._probe()
        if not is_reachable:
            self._reachable_since = None
        elif self._reachable_since is None:
            self._reachable_since = started
        return is_reachable


def min_retransmits(unanswered_s: float, reachable_s: float, round_trip_s: float) -> int:
    """The minimum number of TCP retransmissions on a connection without replies for `unanswered_s`.

    The far side has been reachable for the last `reachable_s`. The interval doubles with each retransmission, so the
    number within `reachable_s` is known. The last `round_trip_s` does not count: a reply may be in flight.
    """
    reachable_s = max(0.0, reachable_s - round_trip_s)
    before_s = max(0.0, unanswered_s - round_trip_s - reachable_s)
    first_s = MIN_RTO_S + round_trip_s
    return _doublings(before_s, first_s) + _doublings(reachable_s, before_s + first_s)


def _doublings(total_s: float, first_s: float) -> int:
    """How many steps fit into `total_s` if the first takes `first_s` and each next one twice as long."""
    return int(math.log2(total_s / first_s + 1))
