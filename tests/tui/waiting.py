"""Waiting for what the screen must show, with a deadline; and reading the screen as text."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual._context import visible_screen_stack
from textual.app import App
from textual.command import Command, CommandList, CommandPalette
from textual.pilot import Pilot
from textual.strip import Strip

from gconsole.tui.app import ConsoleApp

DEADLINE_S = 90.0
#: Seconds between two checks: each paints the screen, 10 ms of CPU time.
POLL_S = 0.02


async def until(pilot: Pilot[None], condition: Callable[[], object], description: str = "") -> None:
    """Let the app run until the condition holds; the test fails with the screen when it does not in time."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, (
            f"{description or 'the condition'} did not come about; the screen:\n{screen(pilot.app)}"
        )
        await pilot.pause(POLL_S)


async def accept(pilot: Pilot[None], shown: str) -> None:
    """Take what the palette offers first, once that shows this text; it searches in the background, and what it offered
    for half a word must not be taken for it."""
    end = time.monotonic() + DEADLINE_S
    while isinstance(palette := pilot.app.screen, CommandPalette):
        assert time.monotonic() < end, f"the palette does not offer {shown!r} first; the screen:\n{screen(pilot.app)}"
        offers = palette.query_one(CommandList)
        if offers.option_count and shown in _words(offers.get_option_at_index(0)) and not offers.highlighted:
            await pilot.press("enter")
        await pilot.pause(0.05)


def _words(offer: object) -> str:
    """The name and the explanation of one offer of the palette."""
    assert isinstance(offer, Command)
    return f"{offer.hit.text} {offer.hit.help}"


async def settle(pilot: Pilot[None]) -> None:
    """Everything the store knows is on the screen: jobs folded, all views there, painted."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    app.frames.draw()  # now, not when the frame clock says so
    await until(pilot, lambda: app.frames.is_current or app.frames.is_frozen, "a current picture")
    await app.workers.wait_for_complete()
    app.frames.draw()
    await pilot.pause()


async def frames(pilot: Pilot[None], count: int = 4) -> None:
    """Let so many frames go by, as many as half a second has."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    for _ in range(count):
        app.frames.draw()
        await pilot.pause()


def painted(app: App[object]) -> list[Strip]:
    """The screen as it is now, with what lies under a dialog."""
    visible_screen_stack.set(app._background_screens)
    return app.screen._compositor.render_strips()


def screen(app: object) -> str:
    """What stands on the screen, line by line."""
    assert isinstance(app, ConsoleApp)
    strips = painted(app)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def shows(pilot: Pilot[None], text: str) -> None:
    """Wait until that text stands on the screen."""
    await until(pilot, lambda: text in screen(pilot.app), f"{text!r}")
