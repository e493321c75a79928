"""How many logins may be under way at once: over all, and at each bastion; reconnects wait here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

#: sshd's MaxStartups begins to drop unauthenticated connections at ten; a bastion sees those of every target.
PER_BASTION = 8


class Gate:
    """At most `limit` handshakes in flight, at most `PER_BASTION` behind one bastion."""

    def __init__(self, limit: int) -> None:
        self._all = asyncio.Semaphore(limit)
        self._bastions: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def enter(self, bastion: str | None = None) -> AsyncIterator[None]:
        """Hold a place for the time of one handshake."""
        async with AsyncExitStack() as stack:
            if bastion:
                await stack.enter_async_context(self._bastions.setdefault(bastion, asyncio.Semaphore(PER_BASTION)))
            await stack.enter_async_context(self._all)
            yield
