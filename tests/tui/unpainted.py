"""Screens that are painted only when a test takes their picture: nobody reads what an app without a terminal paints."""

from __future__ import annotations

from pytest import MonkeyPatch
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.screen import Screen

_render = Compositor.render_update


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


def use(monkeypatch: MonkeyPatch) -> None:
    """For tests that take a picture after each step: whatever they reach is painted for that."""
    monkeypatch.setattr(Compositor, "render_update", _discard)
