"""Login timeout, paused while a prompt is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .login_limiter import LoginSlot


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
