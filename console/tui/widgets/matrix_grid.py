"""`MatrixGrid`: the matrix of `nvidia-smi topo -m`, a cell at a time under the cursor.

           GPU0   GPU1   GPU2   GPU3   NIC0 ›
    GPU0    X     NV18   NV18   NV18   PIX
    GPU1   NV18    X     NV18  ▲SYS    PIX

Head and labels stay in sight; columns that do not fit come into sight as the cursor moves there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import events

from ..keys import bindings, in_scope
from ..models.spans import Span
from ..models.topology import Cell, Grid
from ..status import GLYPHS
from ..text import fit, width_of
from .line_view import LineView

_GAP = 2


class MatrixGrid(LineView):
    """`show` gives it a grid; the cursor stays at its place."""

    BINDINGS = bindings(in_scope("lines"))
    fixed = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.grid = Grid()
        self._row, self._column, self._first = 0, 0, 0

    def show(self, grid: Grid) -> None:
        """Draw this one from now on; lines that look as before are not painted."""
        if grid.heads != self.grid.heads or grid.widths != self.grid.widths:
            self.grid = grid
            self.forget()
        self.grid = grid
        self._row = min(self._row, max(0, len(grid.rows) - 1))
        self._column = min(self._column, max(0, len(grid.heads) - 1))
        self._bring_into_sight()
        self.changed()

    @property
    def selected(self) -> tuple[int, int] | None:
        """Row and column under the cursor."""
        return (self._row, self._column) if self.grid.rows else None

    # -- what fits ---------------------------------------------------------------------------------------------------

    @property
    def _label(self) -> int:
        return max((width_of(label) for label in self.grid.labels), default=0)

    def _columns(self) -> range:
        """The columns on the screen, from the first one shown; one at least."""
        room = self.size.width - 2 - self._label  # without the scroll bar, and the mark that there is more
        last = self._first
        for width in self.grid.widths[self._first :]:
            room -= width + _GAP
            if room < 0 and last > self._first:
                break
            last += 1
        return range(self._first, last)

    def _bring_into_sight(self) -> None:
        before = self._first
        self._first = min(self._first, self._column)
        while self.grid.heads and self._column not in self._columns():
            self._first += 1
        if self._first != before:
            self.forget()

    def on_resize(self, event: events.Resize) -> None:
        self._first = 0
        self._bring_into_sight()
        self.forget()

    # -- painting ----------------------------------------------------------------------------------------------------

    def line_count(self) -> int:
        return len(self.grid.rows)

    def version(self, y: int) -> Hashable:
        here = self._column if y == self._row and self.has_focus else None
        return self.grid.rows[y], self._first, here

    def heading(self, y: int) -> Sequence[Span]:
        columns = self._columns()
        left = "‹" if self._first else " "
        spans = [Span(left + " " * (self._label - 1), "muted")]
        for at in columns:
            style = "strong" if self.has_focus and at == self._column else "muted"
            spans.append(Span(" " * _GAP + fit(self.grid.heads[at], self.grid.widths[at]), style))
        if columns.stop < len(self.grid.heads):
            spans.append(Span("›", "muted"))
        return spans

    def line(self, y: int) -> Sequence[Span]:
        chosen_row = self.has_focus and y == self._row
        spans = [Span(fit(self.grid.labels[y], self._label), "strong" if chosen_row else "muted")]
        for at in self._columns():
            spans += self._cell(self.grid.rows[y][at], self.grid.widths[at], chosen_row and at == self._column)
        return spans

    @staticmethod
    def _cell(cell: Cell, width: int, chosen: bool) -> list[Span]:
        mark = Span(" " + (GLYPHS["warning"] if cell.differs else " "), "warning")
        style = "badge" if chosen else "warning" if cell.differs else cell.style
        text = fit(cell.text.center(width) if cell.text == "X" else cell.text, width)
        return [mark, Span(text, style)]

    # -- moving ------------------------------------------------------------------------------------------------------

    def _stand(self, row: int, column: int) -> None:
        if not self.grid.rows:
            return
        self._row = min(max(row, 0), len(self.grid.rows) - 1)
        self._column = min(max(column, 0), len(self.grid.heads) - 1)
        self._bring_into_sight()
        self.show_line(self._row)
        self.refresh()  # the head says which column the cursor is in
        self.post_message(self.Moved(self))

    def action_down(self) -> None:
        self._stand(self._row + 1, self._column)

    def action_up(self) -> None:
        self._stand(self._row - 1, self._column)

    def action_left(self) -> None:
        self._stand(self._row, self._column - 1)

    def action_right(self) -> None:
        self._stand(self._row, self._column + 1)

    def action_page_down(self) -> None:
        self._stand(self._row + self.page, self._column)

    def action_page_up(self) -> None:
        self._stand(self._row - self.page, self._column)

    def action_top(self) -> None:
        self._stand(0, self._column)

    def action_bottom(self) -> None:
        self._stand(len(self.grid.rows) - 1, self._column)

    def action_open(self) -> None:
        if self.grid.rows:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        row = self.scroll_offset.y + event.y - self.fixed
        x = self._label
        for at in self._columns():
            x += _GAP + self.grid.widths[at]
            if event.x < x:
                break
        else:
            return
        if event.y >= self.fixed and row < len(self.grid.rows):
            again = (row, at) == self.selected and event.chain > 1
            self._stand(row, at)
            if again:
                self.action_open()
