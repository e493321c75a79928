"""The console on a screen, as far as most tests want it before they begin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot
from waiting import settle

from gconsole.tui.app import ConsoleApp


@asynccontextmanager
async def running(
    app: ConsoleApp, *keys: str, size: tuple[int, int] = (80, 24), toasts: bool = False
) -> AsyncIterator[Pilot[None]]:
    """The app on a screen of that size, settled, and then these keys; `toasts`: they are shown."""
    async with app.run_test(size=size, notifications=toasts) as pilot:
        await settle(pilot)
        await pilot.press(*keys)
        yield pilot
