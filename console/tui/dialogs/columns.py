"""The dialog that chooses and reorders the columns of a list; the list behind it follows at every key.

● rank
● state
○ thr             hidden
● job             does not fit
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from textual import events
from textual.widget import Widget

from ...present.spans import Span
from ..keymap.actions import bindings, in_scope, key_names
from ..widgets.line_view import CursorView
from .dialog import Dialog

if TYPE_CHECKING:
    from ..views.list_view import ListView

#: Lines of the box that are not columns.
_AROUND = 7


class ColumnList(CursorView, inherit_bindings=False):
    """One line per column: whether it is shown, its title, and whether it fits."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call in ("up", "down", "top", "bottom"))

    def __init__(self, owner: ListView[Any]) -> None:
        super().__init__(id="column-list")
        self._owner = owner

    @property
    def index(self) -> int:
        """The column under the cursor."""
        return self._cursor

    def line_count(self) -> int:
        """Number of columns."""
        return len(self._owner.all_columns)

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` does."""
        return tuple(self.line(y))

    def line(self, y: int) -> Sequence[Span]:
        """Column `y`."""
        column = self._owner.all_columns[y]
        title = f"{column.title or column.key:<16}"
        if column.key in self._owner.hidden_columns:
            return (Span(" ○ ", "muted"), Span(title, "muted"), Span("hidden", "muted"))
        note = "" if column.key in self._owner.columns_with_room else "does not fit"
        return (Span(" ● ", "ok"), Span(title), Span(note, "muted"))

    def clicked(self, y: int, event: events.Click) -> None:
        """Move the cursor to the clicked line."""
        self.place_cursor(y)


class ColumnsDialog(Dialog[None]):
    """Shows, hides, moves and resets columns."""

    BINDINGS = bindings(in_scope("columns"))

    def __init__(self, owner: ListView[Any]) -> None:
        super().__init__("Columns")
        self._owner = owner
        self._list = ColumnList(owner)

    def content(self) -> Iterable[Widget]:
        """The list of columns."""
        yield self._list

    def on_mount(self) -> None:
        self._list.focus()
        self._fit()
        bound = {item.binding.id: key_names(item.binding.key) for item in reversed(self.active_bindings.values())}
        self.show_keys([(bound.get(action.id, ""), action.label) for action in in_scope("columns")])

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        self._list.styles.height = max(1, min(self._list.line_count(), self.app.size.height - _AROUND))
        self._list.place_cursor(self._list.index)

    def action_show(self) -> None:
        """Show or hide the column; the last one cannot be hidden."""
        key, hidden = self._column_keys()[self._list.index], set(self._owner.hidden_columns)
        if key not in hidden and len(hidden) == self._list.line_count() - 1:
            self.notify("at least one column is shown", severity="warning", timeout=3)
            return
        self._choose(self._column_keys(), hidden ^ {key})

    def action_earlier(self) -> None:
        self._move(-1)

    def action_later(self) -> None:
        self._move(1)

    def _move(self, by: int) -> None:
        keys, index = self._column_keys(), self._list.index
        key = keys.pop(index)
        keys.insert(max(0, index + by), key)
        self._choose(keys, self._owner.hidden_columns)
        self._list.place_cursor(self._column_keys().index(key))  # leading columns stay in front

    def action_first(self) -> None:
        """Reset columns and their order."""
        self._choose((), ())

    def action_close(self) -> None:
        self.dismiss()

    def _column_keys(self) -> list[str]:
        return [column.key for column in self._owner.all_columns]

    def _choose(self, columns: Sequence[str], hidden: Collection[str]) -> None:
        self._owner.choose_columns(columns, sorted(hidden))
        self._list.place_cursor(self._list.index)
