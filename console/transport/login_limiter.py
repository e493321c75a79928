"""Login concurrency limit, and the login timeout, which is paused while a prompt is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

#: sshd's MaxStartups drops unauthenticated connections from ten on; a jump host counts those of every target.
PER_JUMP_HOST = 8
#: Seconds between two looks at whether the console is still late.
LATE_PAUSE_S = 0.25


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
    """At most `limit` handshakes at once, at most `PER_JUMP_HOST` behind one jump host.

    While `is_late()`, the console does not keep up with the nodes that it has, and no handshake begins.
    """

    def __init__(self, limit: int, is_late: Callable[[], bool] = lambda: False) -> None:
        self._is_late = is_late
        self._all = asyncio.Semaphore(limit)
        self._jump_hosts: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def enter(self, jump_host: str | None = None) -> AsyncIterator[LoginSlot]:
        """Hold a slot for one handshake."""
        jump_slots = [self._jump_hosts.setdefault(jump_host, asyncio.Semaphore(PER_JUMP_HOST))] if jump_host else []
        slot = LoginSlot(*jump_slots, self._all)
        try:
            await slot.acquire()
            while self._is_late():  # noqa: ASYNC110 - a state of the event loop, no event
                await asyncio.sleep(LATE_PAUSE_S)
            yield slot
        finally:
            slot.leave()


class LoginTimeout:
    """Timeout and login slot of one handshake; `prompting` pauses the timeout and releases the slot."""

    def __init__(self, limit_s: float, slot: LoginSlot) -> None:
        self._limit_s = limit_s
        self._slot = slot
        self._timeout = asyncio.timeout(limit_s)
        self._is_running = False

    @asynccontextmanager
    async def handshake(self) -> AsyncIterator[None]:
        """Raise TimeoutError after `limit_s` seconds, not counting `prompting`."""
        async with self._timeout:
            self._is_running = True
            try:
                yield
            finally:
                self._is_running = False

    @asynccontextmanager
    async def prompting(self) -> AsyncIterator[None]:
        """Pause the timeout and release the slot while a prompt is open."""
        loop = asyncio.get_running_loop()
        deadline = self._timeout.when()
        remaining_s = self._limit_s if deadline is None else deadline - loop.time()
        self._reschedule(None)
        try:
            async with self._slot.paused():
                yield
        finally:
            self._reschedule(loop.time() + remaining_s)

    def _reschedule(self, deadline: float | None) -> None:
        if self._is_running and not self._timeout.expired():
            self._timeout.reschedule(deadline)
