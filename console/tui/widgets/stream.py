"""`Stream`: a `RecordGrid` that grows at its end, and stays there until somebody looks back.

    time      age      node     what
    14:02:10  14 s   ● node018  data come in
    14:02:21   3 s   ✖ node044  lost: the connection ended     ← follows

The cursor on the last row follows what is new. Moving or scrolling away holds the picture still, although rows go on
arriving and, at the other end, going; `G` follows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .record_grid import GridRow, RecordGrid

R = TypeVar("R", bound=GridRow)


class Stream(RecordGrid[R]):
    """`extend` gives it all rows, and the number of the first of them; numbers never come back."""

    following = True

    def extend(self, rows: Sequence[R], first: int, sorted_by: str = "") -> None:
        """Draw these rows from now on: the same as before without some of the oldest, and with some more."""
        gone = first - self._first
        at = int(self.scroll_y)
        self._first = first
        if gone > 0:
            self._cursor = max(0, self._cursor - gone)  # else the row it stands on would be looked for among thousands
        self.show(rows, sorted_by)
        if self.following:
            self._follow()
        elif gone > 0:  # what is looked at stays where it is on the screen
            self._scroll_quietly(max(0, at - gone))

    def begin(self) -> None:
        """The rows to come are others than those before: follow them from their end."""
        self._first, self.following = 0, True

    _first = 0
    _own = False  # whether it is us who scrolls

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
