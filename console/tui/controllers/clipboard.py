"""An app that things can be taken out of: text to the clipboard, the screen to a file. It tells what became of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...text import format
from ..clipboard import Plan, Where, plan, run_tool, told
from ..screenshot import save_svg
from .theming import ThemedApp


class TakingApp(ThemedApp, inherit_bindings=False):
    """`copy` tells what it did; Textual's own copying (Ctrl-C on a selection) goes the same ways, and tells only why
    it could not."""

    clipboard_where: Where = "osc52"
    picture_title = "gconsole"

    def copy(self, text: str, what: str) -> None:
        """Copy the text, and say so; or say why not. `what` names it for the person, e.g. "8 ranks"."""
        size = len(text.encode())
        ways = plan(self.clipboard_where, size)
        if ways.refused:
            self.notify(f"{what} not copied: {ways.refused}", severity="warning", markup=False)
            return
        self._put(text, ways)
        done = f"{what} copied, {format.size(size)}"
        if ways.tool is None:
            self.notify(f"{done} ({told(ways, size)})", timeout=3, markup=False)
        else:
            self.run_worker(self._give(ways, text, f"{done} ({told(ways, size)})", what), name="copy")

    def copy_to_clipboard(self, text: str) -> None:
        """What is selected with the mouse or in a line that is typed."""
        ways = plan(self.clipboard_where, len(text.encode()))
        if ways.refused:
            self.notify(f"not copied: {ways.refused}", severity="warning", markup=False)
            return
        self._put(text, ways)
        if ways.tool is not None:
            self.run_worker(self._give(ways, text, "", "the selection"), name="copy")

    def _put(self, text: str, ways: Plan) -> None:
        """Through the terminal where it may; in any case for Ctrl-V in a line of our own."""
        if ways.osc52:
            super().copy_to_clipboard(text)
        else:
            self._clipboard = text  # what Textual's own lines paste; only its OSC 52 sets it, too

    def action_save_svg(self) -> None:
        """Save what is on the screen, and say where."""
        try:
            path = save_svg(self.export_screenshot(title=self.picture_title))
        except OSError as error:
            self.notify(f"no screenshot: {error.strerror}: {Path.cwd()}", severity="error", markup=False)
            return
        self.notify(f"saved {path}", markup=False)

    async def _give(self, ways: Plan, text: str, done: str, what: str) -> None:
        assert ways.tool is not None
        trouble = await asyncio.to_thread(run_tool, ways.tool, text)
        if trouble:
            also = "it went through OSC 52 only" if ways.osc52 else "not copied"
            self.notify(f"{what}: {also}; {trouble}", severity="warning", markup=False)
        elif done:
            self.notify(done, timeout=3, markup=False)
