"""`SqlEditor`: the text area in which a query is typed, with completions below it.

    SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY ra
      rank  range(

Enter runs the query, Tab completes (again: the next option), Ctrl-R recalls earlier queries, Escape leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.document._document import Document
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import TextArea

from ...present.spans import Span
from ..keymap.actions import bindings, in_scope
from ..models.filter_language import Completion
from ..views.query.model import complete
from .filter_bar import CompletingLine

#: Earlier queries that Ctrl-R recalls.
REMEMBERED = 100


class SqlText(TextArea):
    """The text area; its own keys come first."""

    BINDINGS = bindings(in_scope("sql"))
    scope = "sql"

    def __init__(self, editor: SqlEditor) -> None:
        super().__init__(
            soft_wrap=True, compact=True, show_line_numbers=False, tab_behavior="focus", highlight_cursor_line=False,
            placeholder="DESCRIBE lists all tables; SELECT * FROM ranks_now",
        )  # fmt: skip
        self._editor = editor

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":  # runs the query; ctrl+j inserts a line break
            event.prevent_default()

    def on_resize(self) -> None:
        """Repaint the new wrap, which Textual does only where the number of lines changes, and show the cursor."""
        self.refresh()
        self.call_after_refresh(self.scroll_cursor_visible)

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Scroll to the cursor, unless an edit that took its line away has yet to move it.

        Textual (8.2) adjusts the scrollbars in between, which scrolls to the cursor.
        """
        if self.cursor_location[0] >= self.document.line_count:
            return self.scroll_offset
        return super().scroll_cursor_visible(center, animate)

    def action_run(self) -> None:
        self._editor.run()

    def action_newline(self) -> None:
        self.insert("\n")

    def action_complete(self) -> None:
        self._editor.complete()

    def action_recall(self) -> None:
        self._editor.recall()

    def action_leave(self) -> None:
        self._editor.post_message(SqlEditor.Left())


class SqlEditor(CompletingLine):
    """An editor for one query; `names` are the tables with their columns, for completion."""

    remembered, most_options = REMEMBERED, 30

    DEFAULT_CSS = """
    SqlEditor { height: auto; width: 1fr; padding: 0 1; }
    SqlEditor SqlText, SqlEditor SqlText:focus { height: auto; min-height: 1; max-height: 6; padding: 0; border: none;
        background: $background; background-tint: $background 0%; }
    """

    @dataclass
    class Submitted(Message):
        """The query was submitted."""

        sql: str

    class Left(Message):
        """The user left the editor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.names: Mapping[str, Sequence[str]] = {}
        self.line = SqlText(self)
        self._put = ""  # the text as last set by the program

    def compose(self) -> ComposeResult:
        yield self.line
        yield self._help

    def open(self) -> None:
        """Give the editor the focus."""
        self.line.focus()
        self._show_help()

    def put(self, text: str) -> None:
        """Replace the text."""
        self._put = text
        self.line.text = text
        self.line.move_cursor(self.line.document.end)
        self._show_help()

    def set_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Set what completion offers."""
        self.names = names
        if self.line.text or self.line.has_focus:
            self._show_help()

    def run(self) -> None:
        """Submit the query."""
        sql = self.line.text.strip()
        if sql:
            self.remember(sql)
            self._recalled = 0
            self.post_message(self.Submitted(sql))

    def _typed(self) -> str:
        return self.line.text

    def _completions(self) -> Completion:
        return complete(self.line.text, self._cursor, self.names)

    def _write(self, text: str) -> None:
        self.put(text)

    def _insert(self, option: str, start: int, end: int) -> None:
        location, text = self._document.get_location_from_index, self.line.text
        self._put = text[:start] + option + text[end:]
        self.line.replace(option, location(start), location(end))
        self.line.move_cursor(location(start + len(option)))

    @property
    def _cursor(self) -> int:
        return self._document.get_index_from_location(self.line.cursor_location)

    @property
    def _document(self) -> Document:
        assert isinstance(self.line.document, Document)
        return self.line.document

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.line.text != self._put:  # a text set by the program is not typed
            self._put = self.line.text
            self._forget_steps()
        self._show_help()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()

    def _show_help(self) -> None:
        """Show the matches in the line below."""
        if self.is_mounted:
            self._help.show((Span(" "), *self._option_spans()))
