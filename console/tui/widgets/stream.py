"""`Stream`: a `RecordGrid` that grows at its end and follows it until the user scrolls back.

    time      age      node     what
    14:02:10  14 s   ● node018  connected, receiving data
    14:02:21   3 s   ✖ node044  lost: the connection ended     ← follows

With the cursor on the last row the view follows new rows. Otherwise visible rows keep their place while rows are
appended and old ones removed; `G` follows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .record_grid import GridRow, RecordGrid

R = TypeVar("R", bound=GridRow)


class Stream(RecordGrid[R]):
    """`extend` sets all rows and the number of the first one; numbers are never reused."""

    following = True

    def extend(self, rows: Sequence[R], first: int, sorted_by: str = "") -> None:
        """Show these rows: those before without some of the oldest, plus new ones."""
        gone = first - self._first
        top = int(self.scroll_y)
        self._first = first
        if gone > 0:
            self._cursor = max(0, self._cursor - gone)  # avoids a search of the row among thousands
        self.show(rows, sorted_by)
        if self.following:
            self._follow()
        elif gone > 0:  # visible rows keep their place
            self._scroll_quietly(max(0, top - gone))

    def begin(self) -> None:
        """Reset before unrelated rows: follow their end."""
        self._first, self.following = 0, True

    _first = 0
    _own = False  # whether this widget is scrolling itself

    def _follow(self) -> None:
        if not self.rows:
            return
        self._cursor = len(self.rows) - 1
        self._scroll_quietly(self.line_count())
        self.changed()

    def _scroll_quietly(self, y: int) -> None:
        self._own = True
        self.scroll_to(y=y, animate=False, immediate=True, force=True)
        self._own = False

    @property
    def behind(self) -> int:
        """Rows below the screen."""
        return max(0, len(self.rows) - self._visible()[1])

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._own and new_value < old_value and self.behind:
            self.following = False

    def stand(self, y: int) -> None:
        """Move the cursor to line `y`, within the content."""
        super().stand(y)
        self.following = bool(self.rows) and self._cursor == len(self.rows) - 1
