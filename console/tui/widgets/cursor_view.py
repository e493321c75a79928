"""`CursorView`: a `LineView` with a cursor on one of its lines, and the keys and clicks that move it.

The base of whatever is walked line by line. A subclass says in `stand` what else moving there means, and in `clicked`
what a click on a line does beside that.
"""

from __future__ import annotations

from textual import events

from ..keymap.actions import bindings, in_scope
from .line_view import LineView


class CursorView(LineView):
    """The cursor stands on a line; where there is none it stands nowhere, and its keys do nothing."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call not in ("left", "right"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._cursor = 0

    def has_cursor(self, y: int) -> bool:
        """Whether line `y` has the cursor."""
        return y == self._cursor and y < self.line_count()

    def stand(self, y: int) -> None:
        """Put the cursor on that line, or on the first or last one where it is beyond."""
        if self.line_count():
            self._cursor = max(0, min(y, self.line_count() - 1))
            self.show_line(self._cursor)
            self.changed()
            self.post_message(self.Moved(self))

    def clicked(self, y: int, event: events.Click) -> None:
        """The cursor goes to a line that is clicked; a second click opens it."""
        again = y == self._cursor and event.chain > 1
        self.stand(y)
        if again:
            self.action_open()

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y - self.fixed
        if event.y >= self.fixed and y < self.line_count():
            self.clicked(y, event)

    def action_down(self) -> None:
        self.stand(self._cursor + 1)

    def action_up(self) -> None:
        self.stand(self._cursor - 1)

    def action_page_down(self) -> None:
        self.stand(self._cursor + self.page)

    def action_page_up(self) -> None:
        self.stand(self._cursor - self.page)

    def action_top(self) -> None:
        self.stand(0)

    def action_bottom(self) -> None:
        self.stand(self.line_count() - 1)

    def action_open(self) -> None:
        if self.line_count():
            self.post_message(self.Opened(self))
