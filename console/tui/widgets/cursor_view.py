"""`CursorView`: a `LineView` with a cursor on one of its lines, and the keys and clicks that move it.

The base of whatever is walked line by line. A subclass may say what else moving there means (`_stand`), and what a click
beside opening does (`clicked`).
"""

from __future__ import annotations

from textual import events

from ..keys import bindings, in_scope
from .line_view import LineView


class CursorView(LineView):
    """The cursor stands on line `_at`; without lines it stands nowhere, and no key does anything."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call not in ("left", "right"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._at = 0

    def has_cursor(self, y: int) -> bool:
        return y == self._at and y < self.line_count()

    def clicked(self, y: int, event: events.Click) -> bool:
        """What a click on line `y`, where the cursor now stands, does beside opening it; True if it did something."""
        return False

    def _stand(self, y: int) -> None:
        """Put the cursor there, or as near as there are lines."""
        if not self.line_count():
            return
        self._at = max(0, min(y, self.line_count() - 1))
        self.show_line(self._at)
        self.changed()
        self.post_message(self.Moved(self))

    def action_down(self) -> None:
        self._stand(self._at + 1)

    def action_up(self) -> None:
        self._stand(self._at - 1)

    def action_page_down(self) -> None:
        self._stand(self._at + self.page)

    def action_page_up(self) -> None:
        self._stand(self._at - self.page)

    def action_top(self) -> None:
        self._stand(0)

    def action_bottom(self) -> None:
        self._stand(self.line_count() - 1)

    def action_open(self) -> None:
        if self.line_count():
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y - self.fixed
        if event.y < self.fixed or y >= self.line_count():
            return
        again = y == self._at and event.chain > 1
        self._stand(y)
        if not self.clicked(y, event) and again:
            self.action_open()
