"""`RecordGrid`: a table of any length; only the rows on the screen are turned into text.

     rank  state        node       gpu      pid  CPU %    RSS  wchan
    ▾ llama-70b   512/512   ● 511 running  ○ 1 waiting
      136  ● moving     node018      0    40212    101   3.1G
      137  ○ waiting    node018      1    40213    0.0   3.0G  nfs_wait_bit
      138  ◌ missing    node019 is lost: no data for 12 s

Columns have a width and a rank in which they are dropped; a row may be a banner (a group header) or have a note.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec
from textual import events
from textual.message import Message

from ...present.spans import Span, cut
from ...text.cells import fit
from ..models.rows import HasKey
from .line_view import CursorView


class GridRow(HasKey, Protocol):
    """What the grid draws of a row."""

    @property
    def version(self) -> Hashable:
        """Changes whenever the row looks different."""
        ...

    @property
    def banner(self) -> tuple[Span, ...] | None:
        """Text over the whole width, of a group header."""
        ...

    @property
    def note(self) -> Span | None:
        """Text in place of the values, right of the leading columns."""
        ...


R = TypeVar("R", bound=GridRow)
#: Seconds. How long a row that a link selects may take to arrive.
WAIT_S = 60.0


class GridColumn(msgspec.Struct, Generic[R], frozen=True):
    """One column. The highest `drop` goes first where there is no room, 0 never goes; `grow`: cells more, with room.

    `leads` columns are shown even where a row's note replaces the rest; they stand first.
    """

    key: str
    title: str
    width: int
    cell: Callable[[R], Span]
    drop: int = 0
    grow: int = 0
    align: Literal["left", "right"] = "left"
    leads: bool = False


class Placed(msgspec.Struct, Generic[R], frozen=True):
    """A column at its place."""

    column: GridColumn[R]
    x: int
    width: int


def as_arranged(
    columns: Sequence[GridColumn[R]], order: Sequence[str], hidden: Sequence[str]
) -> tuple[GridColumn[R], ...]:
    """The visible columns: those of `order` first, then the others; at least one.

    Leading columns stay in front, because a row's note covers all others.
    """
    place_of = {key: index for index, key in enumerate(order)}
    wanted = sorted(columns, key=lambda column: (not column.leads, place_of.get(column.key, len(order))))
    return tuple(column for column in wanted if column.key not in hidden) or tuple(wanted[:1])


def place(columns: Sequence[GridColumn[R]], width: int) -> list[Placed[R]]:
    """Position and width of the columns that fit: drop columns, then add gaps, then grow."""
    kept = list(columns)
    while len(kept) > 1 and _least(kept) > width:
        worst = max(kept, key=lambda column: column.drop)
        if worst.drop == 0:
            break
        kept.remove(worst)
    spare = width - _least(kept)
    air = 1 if spare >= len(kept) else 0
    spare -= len(kept) * air
    grown = _grown(kept, spare)
    placed, x = [], 0
    for column, width in zip(kept, grown, strict=True):
        x += _gap(column) + air
        placed.append(Placed(column, x, width))
        x += width
    return placed


def _grown(columns: Sequence[GridColumn[Any]], spare: int) -> list[int]:
    """Column widths after distributing the spare cells in turn to columns that can grow."""
    more = [0] * len(columns)
    while spare > 0:
        growing = [index for index, column in enumerate(columns) if more[index] < column.grow][:spare]
        if not growing:
            break
        for index in growing:
            more[index] += 1
        spare -= len(growing)
    return [column.width + extra for column, extra in zip(columns, more, strict=True)]


def _gap(column: GridColumn[Any]) -> int:
    """Blanks before a column: two before text, which may follow a number."""
    return 1 if column.align == "right" else 2


def _least(columns: Sequence[GridColumn[Any]]) -> int:
    return sum(column.width + _gap(column) for column in columns)


class RecordGrid(CursorView, Generic[R]):
    """`show` sets the rows. The cursor is a row and stays on its key when rows move."""

    fixed = 1

    @dataclass
    class HeadingClicked(Message):
        """The title of a column was clicked."""

        column: str

    def __init__(self, columns: Sequence[GridColumn[R]], *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.columns = tuple(columns)
        self.rows: Sequence[R] = ()
        self._placed: list[Placed[R]] = []
        self._placed_in = 0  # cells
        self._sorted: tuple[str, bool] = ("", False)
        self._wanted: Callable[[R], bool] | None = None  # picks the row that the cursor shall move to
        self._wanted_until = 0.0

    def select(self, is_wanted: Callable[[R], bool]) -> None:
        """Move the cursor to the first such row, also if it is shown within `WAIT_S`; any other move ends the wait."""
        self._wanted, self._wanted_until = is_wanted, time.monotonic() + WAIT_S
        self._select_wanted()

    def _select_wanted(self) -> None:
        if self._wanted is None:
            return
        index = next((y for y, row in enumerate(self.rows) if self._wanted(row)), None)
        if index is not None:
            self.place_cursor(index)
        elif time.monotonic() > self._wanted_until:
            self._wanted = None

    def place_cursor(self, y: int) -> None:
        """Move the cursor to line `y`, within the content."""
        self._wanted = None
        super().place_cursor(y)

    def show(self, rows: Sequence[R], sorted_by: str = "", reverse: bool = False) -> None:
        """Show these rows; `sorted_by` marks a column's title."""
        first = not self.rows
        key = None if first else self.rows[self._cursor].key
        watched = self._is_visible(self._cursor)
        self.rows = rows
        if self._sorted != (sorted_by, reverse):
            self._sorted = (sorted_by, reverse)
            self.refresh()
        if key is not None and not (self._cursor < len(rows) and rows[self._cursor].key == key):
            index = next((y for y, row in enumerate(rows) if row.key == key), self._cursor)
            self._cursor = max(0, min(index, len(rows) - 1))
        elif first:
            self._cursor = 1 if len(rows) > 1 and rows[0].banner is not None else 0
        self.changed()
        if watched:
            self.show_line(self._cursor)
        self._select_wanted()

    def set_columns(self, columns: Sequence[GridColumn[R]]) -> None:
        """Show these columns from now on."""
        if tuple(columns) != self.columns:
            self.columns, self._placed_in = tuple(columns), -1
            self.forget()

    @property
    def selected(self) -> R | None:
        """The row under the cursor."""
        return self.rows[self._cursor] if self._cursor < len(self.rows) else None

    @property
    def near(self) -> Sequence[R]:
        """The rows on the screen, and those of the page above and of the page below."""
        first, last = self._visible()
        page = last - first
        return self.rows[max(0, first - page) : last + page]

    @property
    def placed(self) -> list[Placed[R]]:
        """The columns that fit beside the scroll bar, whose appearance Textual does not report as a resize."""
        width = self.scrollable_content_region.width
        if self._placed_in != width:
            self._placed_in = width
            self._placed = place(self.columns, self._placed_in)
        return self._placed

    @property
    def shown_columns(self) -> list[str]:
        """Keys of the columns that have room."""
        return [placed.column.key for placed in self.placed]

    def line_count(self) -> int:
        """Number of lines."""
        return len(self.rows)

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        return self.rows[y].version

    def heading(self, y: int) -> Sequence[Span]:
        """Heading line `y`."""
        spans: list[Span] = []
        x = 0
        for placed in self.placed:
            chosen = placed.column.key == self._sorted[0]
            mark = ("▼" if self._sorted[1] else "▲") if chosen else ""
            title = placed.column.title[: placed.width - len(mark)].rstrip() + mark
            title = fit(title, placed.width, placed.column.align)
            spans += [Span(" " * (placed.x - x)), Span(title, "accent" if chosen else "muted")]
            x = placed.x + placed.width
        return spans

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        row = self.rows[y]
        if row.banner is not None:
            return cut(row.banner, self.scrollable_content_region.width - 1)
        note = row.note
        spans: list[Span] = []
        x = 0
        for placed in self.placed:
            if note is not None and not placed.column.leads:
                spans += [Span(" " * (placed.x - x)), Span(fit(note.text, self.size.width - placed.x - 1), note.style)]
                break
            cell = placed.column.cell(row)
            text = fit(cell.text, placed.width, placed.column.align)
            spans += [Span(" " * (placed.x - x)), Span(text, cell.style)]
            x = placed.x + placed.width
        return spans

    def on_click(self, event: events.Click) -> None:
        """A click on a title; Textual calls that of `CursorView` besides, which is for the lines."""
        for placed in self.placed if event.y < self.fixed else ():
            if placed.x <= event.x < placed.x + placed.width + 1:
                self.post_message(self.HeadingClicked(placed.column.key))


class Stream(RecordGrid[R]):
    """A grid that grows at its end and follows it while the cursor is on the last row; else visible rows stay in place.

    `extend` sets all rows and the number of the first one; numbers are never reused.
    """

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

    def place_cursor(self, y: int) -> None:
        """Move the cursor to line `y`, within the content."""
        super().place_cursor(y)
        self.following = bool(self.rows) and self._cursor == len(self.rows) - 1
