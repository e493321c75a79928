"""`MatrixGrid`: a matrix as of `nvidia-smi topo -m`, with a cell cursor.

           GPU0   GPU1   GPU2   GPU3   NIC0 ›
    GPU0    X     NV18   NV18   NV18   PIX
    GPU1   NV18    X     NV18  ▲SYS    PIX

Headings and labels stay visible; columns that do not fit scroll with the cursor.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ...present.spans import GLYPHS, Span
from ...text.cells import fit, width_of
from ..keymap.actions import bindings, in_scope
from ..views.topology.model import CellGrid, MatrixCell
from .line_view import CursorView

_GAP = 2


class MatrixGrid(CursorView):
    """`show` sets the grid; the cursor keeps its position."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call in ("left", "right"))
    fixed = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.grid = CellGrid()
        self._column, self._first = 0, 0

    def show(self, grid: CellGrid) -> None:
        """Show this grid; unchanged lines are not repainted."""
        if grid.heads != self.grid.heads or grid.widths != self.grid.widths:
            self.grid = grid
            self.forget()
        self.grid = grid
        self._cursor = min(self._cursor, max(0, len(grid.rows) - 1))
        self._column = min(self._column, max(0, len(grid.heads) - 1))
        self._scroll_to_column()
        self.changed()

    @property
    def selected(self) -> tuple[int, int] | None:
        """Row and column under the cursor."""
        return (self._cursor, self._column) if self.grid.rows else None

    @property
    def _label(self) -> int:
        return max((width_of(label) for label in self.grid.labels), default=0)

    def _columns(self) -> range:
        """The columns on the screen, at least one."""
        room = self.size.width - 2 - self._label  # without scroll bar and "more" mark
        last = self._first
        for width in self.grid.widths[self._first :]:
            room -= width + _GAP
            if room < 0 and last > self._first:
                break
            last += 1
        return range(self._first, last)

    def _scroll_to_column(self) -> None:
        before = self._first
        self._first = min(self._first, self._column)
        while self.grid.heads and self._column not in self._columns():
            self._first += 1
        if self._first != before:
            self.forget()

    def on_resize(self, event: events.Resize) -> None:
        self._first = 0
        self._scroll_to_column()
        self.forget()

    def line_count(self) -> int:
        """Number of lines."""
        return len(self.grid.rows)

    def has_cursor(self, y: int) -> bool:
        """Whether line `y` has the cursor."""
        return False  # the cursor is a cell

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        here = self._column if y == self._cursor and self.has_focus else None
        return self.grid.rows[y], self._first, here

    def heading(self, y: int) -> Sequence[Span]:
        """Heading line `y`."""
        columns = self._columns()
        left = "‹" if self._first else " "
        spans = [Span(left + " " * (self._label - 1), "muted")]
        for column in columns:
            style = "strong" if self.has_focus and column == self._column else "muted"
            spans.append(Span(" " * _GAP + fit(self.grid.heads[column], self.grid.widths[column]), style))
        if columns.stop < len(self.grid.heads):
            spans.append(Span("›", "muted"))
        return spans

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        chosen_row = self.has_focus and y == self._cursor
        spans = [Span(fit(self.grid.labels[y], self._label), "strong" if chosen_row else "muted")]
        for column in self._columns():
            spans += self._cell(
                self.grid.rows[y][column], self.grid.widths[column], chosen_row and column == self._column
            )
        return spans

    @staticmethod
    def _cell(cell: MatrixCell, width: int, chosen: bool) -> list[Span]:
        mark = Span(" " + (GLYPHS["warning"] if cell.differs else " "), "warning")
        style = "badge" if chosen else "warning" if cell.differs else cell.style
        text = fit(cell.text.center(width) if cell.text == "X" else cell.text, width)
        return [mark, Span(text, style)]

    def place_cursor(self, y: int) -> None:
        """Move the cursor to line `y`, within the content."""
        self._stand(y, self._column)

    def _stand(self, row: int, column: int) -> None:
        self._column = min(max(column, 0), max(0, len(self.grid.heads) - 1))
        self._scroll_to_column()
        super().place_cursor(row)
        self.refresh()  # the heading marks the column

    def action_left(self) -> None:
        self._stand(self._cursor, self._column - 1)

    def action_right(self) -> None:
        self._stand(self._cursor, self._column + 1)

    def clicked(self, y: int, event: events.Click) -> None:
        """Move the cursor to what was clicked."""
        x = self._label
        for column in self._columns():
            x += _GAP + self.grid.widths[column]
            if event.x < x:
                break
        else:
            return
        again = (y, column) == self.selected and event.chain > 1
        self._stand(y, column)
        if again:
            self.action_open()
