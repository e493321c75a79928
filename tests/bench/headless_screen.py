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

#: The style sheet of the console; an app looks for its own beside the file of its class.
STYLES = Path(gconsole.tui.__file__).parent / "console.tcss"


class Painted:
    """Mix it in before an app; it is none itself, because Textual takes the styles of the first base only.

    `paints` counts what was drawn, `painted_at` is when the last of it was ready to be sent.
    """

    paints = 0
    painted_at = 0.0

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)  # type: ignore[misc]
        if isinstance(renderable, CompositorUpdate):
            # Textual leaves this out where nobody looks.
            renderable.render_segments(self.console)  # type: ignore[attr-defined]
            self.paints += 1
            self.painted_at = time.perf_counter()


async def frame(app: Any) -> None:
    """Let the app deal with what has changed, and paint it now instead of within a sixtieth of a second."""
    before, loop = app.paints, asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110 - there is no event for "nothing is ready"
        await asyncio.sleep(0)
    app.screen._on_timer_update()
    if app.paints == before:
        raise RuntimeError("the frame painted nothing, so its time says nothing")
