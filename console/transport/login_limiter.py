"""How many logins may be under way at once: over all, and at each bastion; reconnects wait here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: sshd's MaxStartups begins to drop unauthenticated connections at ten; a bastion sees those of every target.
PER_BASTION = 8


class Place:
    """A place at the gate: one of each of these."""

    def __init__(self, *semaphores: asyncio.Semaphore) -> None:
        self._semaphores = semaphores
        self._held: list[asyncio.Semaphore] = []
        self._left = False

    async def take(self) -> None:
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
        await self.take()


class Gate:
    """At most `limit` handshakes in flight, at most `PER_BASTION` behind one bastion."""

    def __init__(self, limit: int) -> None:
        self._all = asyncio.Semaphore(limit)
        self._bastions: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def enter(self, bastion: str | None = None) -> AsyncIterator[Place]:
        """Hold a place for the time of one handshake."""
        behind = [self._bastions.setdefault(bastion, asyncio.Semaphore(PER_BASTION))] if bastion else []
        place = Place(*behind, self._all)
        try:
            await place.take()
            yield place
        finally:
            place.leave()
