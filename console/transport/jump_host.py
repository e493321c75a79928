"""The connection to a jump host, which all nodes behind it share: it is given up as soon as it is known to be dead."""

from __future__ import annotations

import asyncio

import asyncssh

from .dead_connection import DOUBT_S, LivenessMonitor
from .liveness import ConnectionPath, Keepalive
from .reachability import PATIENCE_S
from .tcp_info import Unacked

#: Between two questions whether it still hears.
PULSE_S = 0.5
#: A server behind it that takes a connection has this long for its first word.
GREETING_S = 5.0
FORGOTTEN = "the jump host answers, but no more on the connection to it: something on the way has forgotten it"


class JumpHost:
    """One connection to a jump host; when it ends, so do those of the nodes behind it, which then make a new one.

    It is closed only while the jump host answers; while it is away, a waiting attempt is the first
    to get through.
    """

    def __init__(
        self, connection: asyncssh.SSHClientConnection, keepalive: Keepalive, way: ConnectionPath | None
    ) -> None:
        self.connection = connection
        self._keepalive, self._path = keepalive, way
        self._given_up = False
        self._visits: dict[tuple[str, int], tuple[_Visitor, asyncio.Task[bool | None]]] = {}
        self._monitor = LivenessMonitor(keepalive.silent_s, self._owed, self._answers, self._give_up,
                            shown_s=DOUBT_S, loses_records=False)  # fmt: skip
        self._watch = connection.create_task(self._keep_watch())  # a failure of it ends the connection

    @property
    def is_over(self) -> bool:
        return self._given_up or self.connection.is_closed()

    def carry(self, *, loses_records: bool) -> None:
        """A node's connection goes through it, whose agent may end with it (`loses_records`)."""
        self._monitor.loses_records |= loses_records

    async def probe(self, host: str, port: int) -> bool | None:
        """Whether a server there, as seen from the jump host, greets whoever connects; None where it lets them wait.

        One connection at a time and place: those to a node that is away stay with the jump host until its kernel's
        patience is over.
        """
        if self._keepalive.silent_s() > DOUBT_S:
            return False  # nothing passes at all
        where = host, port
        if where not in self._visits:
            visitor = _Visitor()
            visit = asyncio.create_task(self._visit(visitor, host, port))
            visit.add_done_callback(lambda _: self._visits.pop(where))  # what it found holds for now only
            self._visits[where] = visitor, visit
        visitor, visit = self._visits[where]
        await asyncio.wait({visit}, timeout=PATIENCE_S)
        if visit.done():
            return visit.result()
        return None if visitor.is_let_in else False

    async def close(self) -> None:
        tasks = {self._watch, *(visit for _, visit in self._visits.values())}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.connection.abort()

    async def _visit(self, visitor: _Visitor, host: str, port: int) -> bool | None:
        try:
            channel, _ = await self.connection.create_connection(lambda: visitor, host, port)
        except (asyncssh.Error, OSError):
            return False
        try:
            async with asyncio.timeout(GREETING_S):
                return await visitor.greeted
        except TimeoutError:
            return None
        finally:
            channel.abort()

    async def _keep_watch(self) -> None:
        try:
            while not self.is_over:
                self._keepalive.send()
                await asyncio.sleep(PULSE_S)
                self._monitor.rise()
        finally:
            await self._monitor.close()

    def _owed(self) -> Unacked | None:
        return self._path.unacked(self._keepalive.silent_s()) if self._path else None

    async def _answers(self) -> bool | None:
        return await self._path.answers() if self._path else None

    def _give_up(self) -> None:
        self._given_up = True
        self.connection.connection_lost(asyncssh.ConnectionLost(FORGOTTEN))  # as asyncssh does after its own keepalives


class _Visitor(asyncssh.SSHTCPSession[bytes]):  # type: ignore[misc]  # mypy is not shown asyncssh (see pyproject.toml)
    """A channel to a server, and whether anything is said on it: None where it ends without a word."""

    def __init__(self) -> None:
        self.is_let_in = False
        self.greeted: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

    def session_started(self) -> None:
        self.is_let_in = True

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._settle(True)

    def eof_received(self) -> bool:
        self._settle(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(None)

    def _settle(self, greeted: bool | None) -> None:
        if not self.greeted.done():
            self.greeted.set_result(greeted)
