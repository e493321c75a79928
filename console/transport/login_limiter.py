"""How many logins may be under way at once: over all, and at each jump host; reconnects wait here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: sshd's MaxStartups begins to drop unauthenticated connections at ten; a jump host sees those of every target.
PER_BASTION = 8


class LoginSlot:
    """A place at the gate: one of each of these."""

    def __init__(self, *semaphores: asyncio.Semaphore) -> None:
        self._semaphores = semaphores
        self._held: list[asyncio.Semaphore] = []
        self._left = False

    async def acquire(self) -> None:
        """Wait until it is free; after `leave` nothing is kept."""
        try:
            for semaphore in self._semaphores:
                await semaphore.acquire()
                self._held.append(semaphore)
        except asyncio.CancelledError:
            self._give()
            raise
        if self._left:  # the handshake ended while somebody typed
            self._give()

    def leave(self) -> None:
        """The handshake is over."""
        self._left = True
        self._give()

    def _give(self) -> None:
        while self._held:
            self._held.pop().release()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Let others have it for a while: a person is typing. After a failure it is not taken again."""
        self._give()
        yield
        await self.acquire()


class LoginLimiter:
    """At most `limit` handshakes in flight, at most `PER_BASTION` behind one jump host."""

    def __init__(self, limit: int) -> None:
        self._all = asyncio.Semaphore(limit)
        self._jump_hosts: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def enter(self, jump_host: str | None = None) -> AsyncIterator[LoginSlot]:
        """Hold a place for the time of one handshake."""
        behind = [self._jump_hosts.setdefault(jump_host, asyncio.Semaphore(PER_BASTION))] if jump_host else []
        place = LoginSlot(*behind, self._all)
        try:
            await place.acquire()
            yield place
        finally:
            place.leave()
