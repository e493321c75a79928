"""Limits concurrent logins, overall and per jump host; reconnects queue here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: sshd's MaxStartups drops unauthenticated connections from ten on; a jump host counts those of every target.
PER_JUMP_HOST = 8


class LoginSlot:
    """One slot: a permit of each given semaphore."""

    def __init__(self, *semaphores: asyncio.Semaphore) -> None:
        self._semaphores = semaphores
        self._acquired: list[asyncio.Semaphore] = []
        self._is_done = False

    async def acquire(self) -> None:
        """Wait for all permits; after `leave` they are released at once."""
        try:
            for semaphore in self._semaphores:
                await semaphore.acquire()
                self._acquired.append(semaphore)
        except asyncio.CancelledError:
            self._release()
            raise
        if self._is_done:  # the handshake ended while a prompt was open
            self._release()

    def leave(self) -> None:
        """Release the slot: the handshake is over."""
        self._is_done = True
        self._release()

    def _release(self) -> None:
        while self._acquired:
            self._acquired.pop().release()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Release the slot while a prompt is open; after a failure it is not acquired again."""
        self._release()
        yield
        await self.acquire()


class LoginLimiter:
    """At most `limit` handshakes at once, at most `PER_JUMP_HOST` behind one jump host."""

    def __init__(self, limit: int) -> None:
        self._all = asyncio.Semaphore(limit)
        self._jump_hosts: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def enter(self, jump_host: str | None = None) -> AsyncIterator[LoginSlot]:
        """Hold a slot for one handshake."""
        jump_slots = [self._jump_hosts.setdefault(jump_host, asyncio.Semaphore(PER_JUMP_HOST))] if jump_host else []
        slot = LoginSlot(*jump_slots, self._all)
        try:
            await slot.acquire()
            yield slot
        finally:
            slot.leave()
