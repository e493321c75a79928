"""Detects half-open connections: the node is reachable but the established connection is dead.

A node reset or a firewall or NAT that lost its state sends no FIN or RST. A half-open connection differs from an
unreachable, slow or stopped node in that sent data stays unacknowledged while the node accepts new connections. A
connection cut with its link may also stay silent long after the link is back, until the TCP retransmission timers
expire."""

from __future__ import annotations

import asyncio
import itertools
import math
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from .tcp_connect import Address, ReachabilityProbe, answers
from .transport import Unacked, unacked_on

if TYPE_CHECKING:
    from .asyncssh_import import asyncssh  # lazy: 0.1 s of CPU, which no other transport needs

#: Seconds. Silence after which probing starts: an agent sends at least two records a second.
SUSPECT_AFTER_S = 1.2
#: Seconds between the starts of two probes. Probes are counted below, not timed, so that their latency does not matter.
SAMPLE_INTERVAL_S = 0.5
#: Linux retransmits 0.2, 0.6, 1.4 and 3.0 s after sending (RFC 6298, minimum RTO 200 ms): after the second
#: retransmission a single lost packet is excluded.
MIN_RETRANSMITS = 2
#: Failed probes in a row, 1 s each, after which a node counts as away. At 1/3 packet loss two in a row are rare (0.07).
AWAY_SAMPLES = 2
#: Successful probes in a row after which a node counts as back; one may be chance.
BACK_SAMPLES = 2
#: The same where closing loses records: waits 1 s longer for TCP's own retransmission; recovery must stay below 2 s.
LATE_SAMPLES = 3


class LivenessSample(msgspec.Struct, frozen=True):
    """One probe during a silence."""

    answered: bool  # the node accepted a new connection
    retransmits: int  # of the oldest unacknowledged segment; 0 if none


def is_dead(samples: Sequence[LivenessSample], *, loses_records: bool) -> bool:
    """Whether a connection is half-open, or late to recover after an outage, given the samples of one silence.

    `loses_records`: closing the connection ends the agent and loses its unsent records.
    """
    return _is_half_open(samples, loses_records) or _is_late_after_outage(
        samples, LATE_SAMPLES if loses_records else BACK_SAMPLES
    )


def _is_half_open(samples: Sequence[LivenessSample], loses_records: bool) -> bool:
    """Whether the node answered twice while sent data stayed unacknowledged.

    The same holds briefly after an outage, until the next TCP retransmission; reconnecting is faster then and costs
    nothing where the agent lingers. Where closing loses records, a retransmission must also have failed while the node
    answered.
    """
    run = _trailing_run(samples)
    if len(run) < BACK_SAMPLES:
        return False
    return not loses_records or run[-2].retransmits > run[0].retransmits


def _is_late_after_outage(samples: Sequence[LivenessSample], answers: int) -> bool:
    """Whether the node was away and has answered `answers` times since, while its connection stayed silent.

    Retransmission back-off grows during an outage: the node's side may wait as long again as the outage lasted.
    """
    answered = list(itertools.takewhile(lambda sample: sample.answered, reversed(samples)))
    away = samples[: len(samples) - len(answered)][-AWAY_SAMPLES:]
    was_away = len(away) == AWAY_SAMPLES and not any(sample.answered for sample in away)
    return was_away and len(answered) >= answers


def _trailing_run(samples: Sequence[LivenessSample]) -> Sequence[LivenessSample]:
    """The trailing samples in which the node answered and nothing was acknowledged."""
    for index in range(len(samples) - 1, -1, -1):
        sample = samples[index]
        is_better = (
            index + 1 < len(samples) and samples[index + 1].retransmits < sample.retransmits
        )  # acknowledged in between
        if not sample.answered or sample.retransmits < MIN_RETRANSMITS or is_better:
            return samples[index + 1 :]
    return samples


class LivenessMonitor:
    """Probes one connection while it is silent and calls `give_up` once it is dead.

    `silent_s` and `unacked` describe the connection; `probe` returns whether the node accepts another one.
    """

    def __init__(
        self, silent_s: Callable[[], float], unacked: Callable[[], Unacked | None], probe: ReachabilityProbe,
        give_up: Callable[[], None], *, shown_s: float, loses_records: bool,
    ) -> None:  # fmt: skip
        """`shown_s`: seconds of silence before the node is shown as lost; no connection is closed earlier."""
        self._silent_s, self._unacked, self._probe, self._give_up = silent_s, unacked, probe, give_up
        self._shown_s, self.loses_records = shown_s, loses_records
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Start probing if the connection is silent and no probe task runs; called periodically."""
        if self._task is not None and self._task.done():
            self._task.result()  # re-raise a failure of the probe task in the caller
            self._task = None
        if self._task is None and self._silent_s() > SUSPECT_AFTER_S:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Cancel the probe task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Probe until data arrives or the connection is given up."""
        samples: list[LivenessSample] = []
        while self._silent_s() > SUSPECT_AFTER_S:
            started = time.monotonic()
            unacked = self._unacked()
            if unacked is None:
                return
            if unacked.segments or samples:  # otherwise a probe decides nothing and only loads sshd
                answered = await self._probe()
                if answered is None:
                    return
                unacked = self._unacked()
                samples.append(LivenessSample(answered, unacked.retransmits if unacked and unacked.segments else 0))
            if self._silent_s() > self._shown_s and is_dead(samples, loses_records=self.loses_records):
                self._give_up()
                return
            await asyncio.sleep(max(0.0, started + SAMPLE_INTERVAL_S - time.monotonic()))


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
