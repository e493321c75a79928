"""A connection that many nodes share: opened on first use, opened again after a loss, which is reported once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from .. import errors

_log = logging.getLogger(__name__)

#: Seconds between two attempts to open a lost connection again; the time doubles up to the second.
FIRST_RETRY_S, MOST_RETRY_S = 2.0, 60.0

#: Called with the connection's name, and why it is lost; None: it is there again.
Report = Callable[[str, errors.FleetError | None], None]
#: Called once, when an established connection has ended.
OnEnd = Callable[[errors.FleetError], None]


class Shareable(Protocol):
    """What is shared."""

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""

    async def stop(self) -> None:
        """End it in order."""


C = TypeVar("C", bound=Shareable)


class SharedConnection(Generic[C]):
    """A connection, or the failure of the last attempt to open it."""

    def __init__(self, name: str, title: str, start: Callable[[OnEnd], Awaitable[C]], report: Report) -> None:
        """`name` for reports, `title` for failures; `start` opens the connection, and raises FleetError."""
        self.name = name
        self.failure: errors.FleetError | None = None  # until it is there again
        self._title, self._start, self._report = title, start, report
        self._opening: asyncio.Task[C] | None = None
        self._retrying: asyncio.Task[None] | None = None

    @property
    def current(self) -> C | None:
        """The connection if it is open."""
        task = self._opening
        if task is None or not task.done() or task.cancelled() or task.exception():
            return None
        return task.result() if task.result().is_open else None

    async def connection(self) -> C:
        """The open connection, opened on first use and shared. Raises FleetError."""
        task = self._opening
        if task is None or (task.done() and self.current is None):
            task = self._opening = asyncio.create_task(self._open(), name=self._title)
        return await asyncio.shield(task)

    async def _open(self) -> C:
        try:
            connection = await self._start(self._on_lost)
        except errors.FleetError as error:
            failure = type(error)(f"{self._title}: {error.text}", error.try_)
            self._on_lost(failure)
            raise failure from error
        if self.failure is not None:
            self.failure = None
            self._report(self.name, None)
        return connection

    def _on_lost(self, error: errors.FleetError) -> None:
        if self.failure is None or (self.failure.retry and not error.retry):
            self._report(self.name, error)
        self.failure = error
        error.was_away = True  # its nodes connect again as soon as it is there
        if error.retry and (self._retrying is None or self._retrying.done()):
            self._retrying = asyncio.create_task(self._retry(), name=f"{self._title} again")

    async def _retry(self) -> None:
        """Connect again until it works or a failure is final: its nodes may be on other gateways by then."""
        wait_s = FIRST_RETRY_S
        while self.failure is not None and self.failure.retry:
            await asyncio.sleep(random.uniform(wait_s / 2, wait_s))
            wait_s = min(2 * wait_s, MOST_RETRY_S)
            try:
                await self.connection()
            except errors.FleetError as error:
                _log.debug("%s: %s", self._title, error.text)

    def forget_final_failure(self) -> None:
        """Allow another attempt after a failure that is not retried by itself."""
        if self.failure is not None and not self.failure.retry:
            self.failure = None

    async def close(self) -> None:
        """Close the connection, also one that is being opened."""
        tasks = [task for task in (self._retrying, self._opening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opened = self._opening
        if opened is not None and not opened.cancelled() and opened.exception() is None:
            await opened.result().stop()
