"""A dialog that runs a task: its progress, a confirmation where the task needs one, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from textual.worker import Worker

from ..keymap.actions import bindings, in_scope
from .dialog import LinesDialog


class TaskDialog(LinesDialog, inherit_bindings=False):
    """Runs `work`, which shows its progress with `show_lines` and returns the lines of its result.

    Escape cancels the task; after its end, Escape closes the dialog.
    """

    BINDINGS = bindings(
        [*in_scope("task"), *(action for action in in_scope("dialog") if action.call in ("down", "up"))]
    )

    def __init__(
        self, title: str, lines: Sequence[str], work: Callable[[TaskDialog], Awaitable[Sequence[str]]]
    ) -> None:
        super().__init__(title, lines)
        self.if_cancelled = "cancelled"  # what is shown after Escape; the task changes it as it proceeds
        self._work = work
        self._worker: Worker[None] | None = None
        self._confirmed = asyncio.Event()
        self._awaits_confirmation = False

    def on_mount(self) -> None:
        # Of the app, not of this dialog: a cancelled task may have something to undo after the dialog was closed.
        self._worker = self.app.run_worker(self._run(), name=self._title_text)

    @property
    def _is_busy(self) -> bool:
        return self._worker is not None and not self._worker.is_finished

    async def confirm(self, verb: str) -> None:
        """Wait for the key `y`, which does what `verb` says; Escape cancels the task."""
        self._confirmed.clear()
        self._awaits_confirmation = True
        self.show_keys([("y", verb), ("Esc", "cancel")])
        await self._confirmed.wait()
        self._awaits_confirmation = False
        self.show_keys([("Esc", "cancel")])

    async def _run(self) -> None:
        app = self.app
        self.show_keys([("Esc", "cancel")])
        try:
            lines = list(await self._work(self))
        except asyncio.CancelledError:
            lines = [] if self._awaits_confirmation else [self.if_cancelled]
        if self.is_attached:
            self.show_lines(lines)
            self.show_keys([("Esc", "close")])
        elif app.is_running and lines:
            app.notify(lines[-1], title=self._title_text, timeout=8, markup=False)

    def action_yes(self) -> None:
        """Confirm what the task is about to do; does nothing before it asks."""
        if self._awaits_confirmation:
            self._confirmed.set()

    def action_close(self) -> None:
        """Cancel the task; close once it has ended or was cancelled, or at once if it awaits a confirmation."""
        worker = self._worker
        is_cancelled = worker is not None and worker.is_cancelled
        if worker is not None and self._is_busy and not is_cancelled:
            worker.cancel()
            if not self._awaits_confirmation:
                self.show_lines(["cancelling …"])
                return
        self.dismiss()
