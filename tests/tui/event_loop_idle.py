"""How the tests know that a key has been dealt with: when nothing is left to do, not when the processor rests.

Textual's pilot sleeps after every key in steps of 20 ms, twice, until the process has used less than 1 ms of processor
time in one of them. Most of the time of these tests was that sleep, and on a busy machine it ended too early or after a
whole second. Every message of an app is handled by a task of one event loop: when no task of it is ready to go on and
the screen is painted, the key has had all its effects but those that wait for a timer or a thread, for which a test
waits by name.
"""

from __future__ import annotations

import asyncio
import time

import textual.app
import textual.pilot
from pytest import MonkeyPatch
from textual._context import active_app

#: Seconds. An app that always has a task ready is given back to its test after this time.
LIMIT_S = 10.0


async def until_quiet(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Let the app go on until nothing is left for it to do now.

    The arguments are those of Textual's own wait. `max_sleep` is not used: on a busy machine one layout takes longer.
    """
    loop = asyncio.get_running_loop()
    end = time.monotonic() + LIMIT_S
    await asyncio.sleep(min_sleep)
    while time.monotonic() < end:
        while loop._ready and time.monotonic() < end:  # type: ignore[attr-defined]  # noqa: ASYNC110 - no event for that
            await asyncio.sleep(0)
        _paint()
        if not loop._ready:  # type: ignore[attr-defined]
            return


def _paint() -> None:
    """What timers of Textual do in the next sixtieth of a second: take in a new size, lay out, and paint."""
    app = active_app.get(None)
    if app is None or not app._screen_stack:
        return
    if app._resize_timer is not None:
        app._check_resize()
    for screen in (*app._background_screens, app.screen):  # what lies under a dialog is on a screen of its own
        if screen._update_timer._active.is_set():
            screen._on_timer_update()


def use(monkeypatch: MonkeyPatch) -> None:
    """Let pilots wait like this."""
    monkeypatch.setattr(textual.app, "wait_for_idle", until_quiet)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", until_quiet)
