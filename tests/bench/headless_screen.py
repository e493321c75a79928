"""Headless screens that render each paint to the bytes a terminal would receive."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.screen import Screen

import gconsole.tui

#: The style sheet of the console; an app searches for its own beside the file of its class.
STYLES = Path(gconsole.tui.__file__).parent / "console.tcss"


class PaintCounter:
    """Mixin in front of an app; not an app itself, because Textual uses the styles of the first base only.

    `paints` counts the paints, `painted_at` is the time at which the last one was ready to be sent.
    """

    paints = 0
    painted_at = 0.0

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)  # type: ignore[misc]
        if isinstance(renderable, CompositorUpdate):
            # Textual skips this when headless.
            renderable.render_segments(self.console)  # type: ignore[attr-defined]
            self.paints += 1
            self.painted_at = time.perf_counter()


async def frame(app: Any) -> None:
    """Let the app process all changes, and paint now instead of within 1/60 s."""
    before, loop = app.paints, asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110 - no event for an idle loop
        await asyncio.sleep(0)
    app.screen._on_timer_update()
    if app.paints == before:
        raise RuntimeError("the frame painted nothing, so its time is meaningless")
