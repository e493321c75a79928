"""Clipboard and screenshot actions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from textual.app import App

from ...text import format
from ..clipboard import ClipboardTarget, CopyPlan, describe, plan, run_tool
from ..screenshot import save_svg
from .controller import Controller


class ClipboardController(Controller):
    """Copies through OSC 52, a clipboard tool or both, as `where` says. `picture_title` is the title of screenshots."""

    def __init__(self, app: App[Any], where: ClipboardTarget, picture_title: str) -> None:
        self._app, self._where, self.picture_title = app, where, picture_title

    def copy(self, text: str, what: str) -> None:
        """Copy `text` and report how, or why it was not copied; `what` names it, e.g. "8 ranks"."""
        size = len(text.encode())
        chosen = plan(self._where, size)
        if chosen.refused:
            self._warn(f"{what} not copied: {chosen.refused}")
            return
        self._put(text, chosen)
        done = f"{what} copied, {format.size(size)} ({describe(chosen, size)})"
        if chosen.tool is None:
            self._app.notify(done, timeout=3, markup=False)
        else:
            self._app.run_worker(self._run_tool(chosen, text, done, what), name="copy")

    def copy_selection(self, text: str) -> None:
        """Copy what is selected with the mouse or in an input line; only failures are reported."""
        chosen = plan(self._where, len(text.encode()))
        if chosen.refused:
            self._warn(f"not copied: {chosen.refused}")
            return
        self._put(text, chosen)
        if chosen.tool is not None:
            self._app.run_worker(self._run_tool(chosen, text, "", "selection"), name="copy")

    def _put(self, text: str, chosen: CopyPlan) -> None:
        """Send OSC 52 where planned; in any case set what Ctrl-V pastes into our own input lines."""
        if chosen.osc52:
            App.copy_to_clipboard(self._app, text)
        else:
            self._app._clipboard = text  # Textual has no setter without OSC 52

    async def _run_tool(self, chosen: CopyPlan, text: str, done: str, what: str) -> None:
        assert chosen.tool is not None
        problem = await asyncio.to_thread(run_tool, chosen.tool, text)
        if problem:
            outcome = "sent by OSC 52 only" if chosen.osc52 else "not copied"
            self._warn(f"{what}: {outcome}; {problem}")
        elif done:
            self._app.notify(done, timeout=3, markup=False)

    def _warn(self, text: str) -> None:
        self._app.notify(text, severity="warning", markup=False)

    def action_save_screenshot(self) -> None:
        """Save the screen as SVG in the current folder."""
        try:
            path = save_svg(self._app.export_screenshot(title=self.picture_title))
        except OSError as error:
            self._app.notify(f"screenshot failed: {error.strerror}: {Path.cwd()}", severity="error", markup=False)
            return
        self._app.notify(f"saved {path}", markup=False)
