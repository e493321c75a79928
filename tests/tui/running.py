"""A running console, settled, as most tests need it."""

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
    """The app on a screen of this size, settled, after these keys; `toasts` enables toasts."""
    async with app.run_test(size=size, notifications=toasts) as pilot:
        await settle(pilot)
        await pilot.press(*keys)
        yield pilot
