"""Waits for the content of the screen, with a deadline; and reads the screen as text."""

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
    """Let the app run until the condition holds; on a timeout the test fails and prints the screen."""
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
    """Name and help of one command of the palette."""
    assert isinstance(offer, Command)
    return f"{offer.hit.text} {offer.hit.help}"


async def settle(pilot: Pilot[None]) -> None:
    """Wait until the screen shows all records of the store: jobs folded, all views mounted and painted."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    app.frames.draw()  # now, not at the next tick of the frame clock
    await until(pilot, lambda: app.frames.is_current or app.frames.is_frozen, "a current picture")
    await app.workers.wait_for_complete()
    app.frames.draw()
    await pilot.pause()


async def frames(pilot: Pilot[None], count: int = 4) -> None:
    """Draw `count` frames; the default is that of half a second."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    for _ in range(count):
        app.frames.draw()
        await pilot.pause()


def painted(app: App[object]) -> list[Strip]:
    """The current screen, including the views under a dialog."""
    visible_screen_stack.set(app._background_screens)
    return app.screen._compositor.render_strips()


def screen(app: object) -> str:
    """Text of the screen, line by line."""
    assert isinstance(app, ConsoleApp)
    strips = painted(app)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def shows(pilot: Pilot[None], text: str) -> None:
    """Wait until the screen contains this text."""
    await until(pilot, lambda: text in screen(pilot.app), f"{text!r}")
