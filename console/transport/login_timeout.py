"""How long a login may take: until a deadline that stands still while a person types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .login_limiter import LoginSlot


class LoginTimeout:
    """The time of one handshake and its place at the gate; `typing` gives both back for as long as somebody types.

    So a person may take their time, and the logins of other nodes need not wait for them.
    """

    def __init__(self, limit_s: float, place: LoginSlot) -> None:
        self._limit_s = limit_s
        self._place = place
        self._timeout = asyncio.timeout(limit_s)
        self._under_way = False

    @asynccontextmanager
    async def handshake(self) -> AsyncIterator[None]:
        """Raises TimeoutError when it has taken `limit_s` seconds, those of `typing` not counted."""
        async with self._timeout:
            self._under_way = True
            try:
                yield
            finally:
                self._under_way = False

    @asynccontextmanager
    async def typing(self) -> AsyncIterator[None]:
        """The clock stands still, and somebody else may have the place."""
        loop = asyncio.get_running_loop()
        due = self._timeout.when()
        left_s = self._limit_s if due is None else due - loop.time()
        self._reschedule(None)
        try:
            async with self._place.lent():
                yield
        finally:
            self._reschedule(loop.time() + left_s)

    def _reschedule(self, due: float | None) -> None:
        if self._under_way and not self._timeout.expired():
            self._timeout.reschedule(due)
