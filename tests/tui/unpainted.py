"""Screens that are painted when a test reads them and when an app ends, not at every change.

Without a terminal nobody reads what an app paints at every change, and that was a third of the time of these tests.
Layout, timers and the list of what is to be painted stay as they are. The last screen of each app is painted, so that
an error in painting fails the test that led there, even if it reads nothing.
"""

from __future__ import annotations

import textual.app
from pytest import MonkeyPatch
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.screen import Screen
from waiting import painted

_render = Compositor.render_update
_shutdown = App._shutdown


def _discard(
    compositor: Compositor,
    full: bool = False,
    screen_stack: list[Screen[object]] | None = None,
    simplify: bool = False,
) -> RenderableType | None:
    """Mark everything as painted; paint it only for a screenshot."""
    if full:
        return _render(compositor, full, screen_stack, simplify)
    visible_screen_stack.set(screen_stack or [])
    compositor._dirty_regions.clear()
    return None


async def _paint_and_shut_down(app: App[object]) -> None:
    """Paint the last screen, if the app did not end by itself."""
    try:
        if app.is_running and app.screen_stack and app.screen.size:
            painted(app)
    finally:
        await _shutdown(app)


def use(monkeypatch: MonkeyPatch) -> None:
    """Let apps paint like this."""
    monkeypatch.setattr(Compositor, "render_update", _discard)
    monkeypatch.setattr(textual.app.App, "_shutdown", _paint_and_shut_down)
