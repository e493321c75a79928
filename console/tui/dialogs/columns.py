"""The dialog in which a person chooses the columns of a list; the list behind it follows at every key.

● rank
● state
○ thr             left out
● job             no room for it now
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any, Protocol

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ...present.spans import Span
from ..keymap.actions import bindings, in_scope, key_names
from ..widgets.cursor_view import CursorView
from ..widgets.record_grid import Column

#: Lines of the box that are not columns.
_AROUND = 7


class HasColumns(Protocol):
    """The list whose columns are chosen."""

    @property
    def all_columns(self) -> Sequence[Column[Any]]:
        """In the person's order, those that are hidden among them."""
        ...

    @property
    def hidden_columns(self) -> frozenset[str]: ...

    @property
    def columns_with_room(self) -> Sequence[str]:
        """Keys of those that are on the screen."""
        ...

    def choose_columns(self, columns: Sequence[str], hidden: Sequence[str]) -> None:
        """Show them in this order, without those that are hidden."""
        ...


class ColumnList(CursorView, inherit_bindings=False):
    """A line a column: whether it is shown, its name, and why it is not on the screen although it is."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call in ("up", "down", "top", "bottom"))

    def __init__(self, owner: HasColumns) -> None:
        super().__init__(id="column-list")
        self._owner = owner

    @property
    def at(self) -> int:
        """The line that the cursor is on."""
        return self._cursor

    def line_count(self) -> int:
        return len(self._owner.all_columns)

    def version(self, y: int) -> Hashable:
        return tuple(self.line(y))

    def line(self, y: int) -> Sequence[Span]:
        column = self._owner.all_columns[y]
        title = f"{column.title or column.key:<16}"
        if column.key in self._owner.hidden_columns:
            return (Span(" ○ ", "muted"), Span(title, "muted"), Span("left out", "muted"))
        said = "" if column.key in self._owner.columns_with_room else "no room for it now"
        return (Span(" ● ", "ok"), Span(title), Span(said, "muted"))

    def clicked(self, y: int, event: events.Click) -> None:
        self.stand(y)


class ColumnsDialog(ModalScreen[None]):
    """Shows or hides a column, moves it, or brings back how they were at first."""

    BINDINGS = bindings(in_scope("columns"))

    def __init__(self, owner: HasColumns) -> None:
        super().__init__()
        self._owner = owner
        self._list = ColumnList(owner)

    def compose(self) -> ComposeResult:
        self._box = Vertical(Static(Content.styled("Columns", "bold"), classes="dialog-title"), self._list)
        self._box.add_class("dialog")
        yield self._box

    def on_mount(self) -> None:
        self._list.focus()
        self._fit()
        self._box.border_subtitle = self._hints()

    def _hints(self) -> Content:
        """The keys that work here, which may be the person's own."""
        bound = {item.binding.id: key_names(item.binding.key) for item in reversed(self.active_bindings.values())}
        parts: list[tuple[str, str]] = []
        for action in in_scope("columns"):
            parts += [(f" {bound.get(action.id, '')} ", "$accent"), (f"{action.label} ", "$muted")]
        return Content.assemble(*parts)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        self._list.styles.height = max(1, min(self._list.line_count(), self.app.size.height - _AROUND))
        self._list.stand(self._list.at)

    def action_show(self) -> None:
        """Show the column, or leave it out; the last one stays."""
        key, hidden = self._keys()[self._list.at], set(self._owner.hidden_columns)
        if key not in hidden and len(hidden) == self._list.line_count() - 1:
            self.notify("the last column stays", severity="warning", timeout=3)
            return
        self._choose(self._keys(), hidden ^ {key})

    def action_earlier(self) -> None:
        self._move(-1)

    def action_later(self) -> None:
        self._move(1)

    def _move(self, by: int) -> None:
        keys, at = self._keys(), self._list.at
        key = keys.pop(at)
        keys.insert(max(0, at + by), key)
        self._choose(keys, self._owner.hidden_columns)
        self._list.stand(self._keys().index(key))  # a column that leads stays among those

    def action_first(self) -> None:
        """All columns, in the order they had at first."""
        self._choose((), ())

    def action_close(self) -> None:
        self.dismiss()

    def _keys(self) -> list[str]:
        return [column.key for column in self._owner.all_columns]

    def _choose(self, columns: Sequence[str], hidden: Collection[str]) -> None:
        self._owner.choose_columns(columns, sorted(hidden))
        self._list.stand(self._list.at)
