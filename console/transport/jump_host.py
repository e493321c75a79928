"""The connection to a jump host, shared by all nodes behind it and closed as soon as it is known to be dead."""

from __future__ import annotations

import asyncio

from .asyncssh_import import asyncssh
from .liveness import SUSPECT_AFTER_S, ConnectionPath, Keepalive, LivenessMonitor
from .tcp_connect import PROBE_TIMEOUT_S
from .transport import Unacked

#: Seconds between two keepalives.
KEEPALIVE_INTERVAL_S = 0.5
#: Seconds. Time limit for the server's banner once the TCP connection is accepted.
BANNER_TIMEOUT_S = 5.0
HALF_OPEN_TEXT = "half-open connection: the jump host is reachable, but the connection to it is dead"


class JumpHost:
    """One connection to a jump host; when it ends, so do those behind it, and the next connect opens a new one.

    It is closed only while the jump host answers: during an outage a pending TCP attempt is the first to recover.
    """

    def __init__(
        self, connection: asyncssh.SSHClientConnection, keepalive: Keepalive, path: ConnectionPath | None
    ) -> None:
        self.connection = connection
        self._keepalive, self._path = keepalive, path
        self._given_up = False
        self._banner_checks: dict[tuple[str, int], tuple[_BannerSession, asyncio.Task[bool | None]]] = {}
        self._monitor = LivenessMonitor(keepalive.silent_s, self._unacked, self._answers, self._give_up,
                            shown_s=SUSPECT_AFTER_S, loses_records=False)  # fmt: skip
        self._watch = connection.create_task(self._monitor_connection())  # a failure ends the connection

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed or given up."""
        return self._given_up or self.connection.is_closed()

    def carry(self, *, loses_records: bool) -> None:
        """Register a node behind the jump host; `loses_records`: its agent ends with its connection."""
        self._monitor.loses_records |= loses_records

    async def probe(self, host: str, port: int) -> bool | None:
        """Whether the server sends its banner, as seen from the jump host; None if it accepts but stays silent.

        One probe per target at a time: the jump host keeps attempts to an unreachable node open until its TCP timeout.
        """
        if self._keepalive.silent_s() > SUSPECT_AFTER_S:
            return False  # the jump host itself is silent
        target = host, port
        if target not in self._banner_checks:
            session = _BannerSession()
            check = asyncio.create_task(self._check_banner(session, host, port))
            check.add_done_callback(lambda _: self._banner_checks.pop(target))  # results are not cached
            self._banner_checks[target] = session, check
        session, check = self._banner_checks[target]
        await asyncio.wait({check}, timeout=PROBE_TIMEOUT_S)
        if check.done():
            return check.result()
        return None if session.is_open else False

    async def close(self) -> None:
        """Cancel all tasks and abort the connection."""
        tasks = {self._watch, *(check for _, check in self._banner_checks.values())}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.connection.abort()

    async def _check_banner(self, session: _BannerSession, host: str, port: int) -> bool | None:
        try:
            channel, _ = await self.connection.create_connection(lambda: session, host, port)
        except (asyncssh.Error, OSError):
            return False
        try:
            async with asyncio.timeout(BANNER_TIMEOUT_S):
                return await session.greeted
        except TimeoutError:
            return None
        finally:
            channel.abort()

    async def _monitor_connection(self) -> None:
        try:
            while not self.is_over:
                self._keepalive.send()
                await asyncio.sleep(KEEPALIVE_INTERVAL_S)
                self._monitor.watch()
        finally:
            await self._monitor.close()

    def _unacked(self) -> Unacked | None:
        return self._path.unacked(self._keepalive.silent_s()) if self._path else None

    async def _answers(self) -> bool | None:
        return await self._path.answers() if self._path else None

    def _give_up(self) -> None:
        self._given_up = True
        self.connection.connection_lost(
            asyncssh.ConnectionLost(HALF_OPEN_TEXT)
        )  # as asyncssh does after its own keepalives


class _BannerSession(asyncssh.SSHTCPSession[bytes]):  # type: ignore[misc]  # mypy is not shown asyncssh (see pyproject.toml)
    """A forwarded channel; `greeted` is True once data arrives, None if it ends without data."""

    def __init__(self) -> None:
        self.is_open = False
        self.greeted: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

    def session_started(self) -> None:
        self.is_open = True

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._set_result(True)

    def eof_received(self) -> bool:
        self._set_result(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_result(None)

    def _set_result(self, greeted: bool | None) -> None:
        if not self.greeted.done():
            self.greeted.set_result(greeted)
