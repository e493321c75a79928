"""`SqlEditor`: where a question is typed, with what may come next below it.

    SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY ra
      rank  range(

Enter asks, Tab completes (again: the next option), Ctrl-R brings earlier questions back, Escape leaves for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.document._document import Document
from textual.message import Message
from textual.widgets import TextArea

from ...present.spans import Span
from ...text.cells import clean
from ..keymap.actions import bindings, in_scope
from ..views.query.model import SqlCompletion, complete
from .bar import Bar

#: Earlier queries that Ctrl-R recalls.
REMEMBERED = 100
#: Lines. The editor grows to this height.
_MOST_LINES = 6


class SqlText(TextArea):
    """The text area; its own keys come first."""

    BINDINGS = bindings(in_scope("sql"))
    scope = "sql"

    def __init__(self, editor: SqlEditor) -> None:
        super().__init__(
            soft_wrap=True,
            compact=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="DESCRIBE lists what there is; SELECT * FROM ranks_now",
        )
        self._editor = editor

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":  # runs the query; ctrl+j inserts a line break
            event.prevent_default()

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


class SqlEditor(Vertical):
    """An editor for one query; `names` are the tables with their columns, for completion."""

    DEFAULT_CSS = """
    SqlEditor { height: auto; width: 1fr; padding: 0 1; }
    SqlEditor SqlText, SqlEditor SqlText:focus { height: auto; min-height: 1; max-height: 6; padding: 0; border: none;
        background: $background; background-tint: $background 0%; }
    """

    class Submitted(Message):
        """The query was submitted."""

        def __init__(self, sql: str) -> None:
            super().__init__()
            self.sql = sql

    class Left(Message):
        """The user left the editor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.names: Mapping[str, Sequence[str]] = {}
        self.history: list[str] = []  # queries that were run, the newest last
        self.line = SqlText(self)
        self._help = Bar()
        self._completion: SqlCompletion | None = None  # the matches Tab cycles through
        self._chosen = -1
        self._recalled = 0  # how many queries back
        self._put = ""  # the text as last set by the program

    def compose(self) -> ComposeResult:
        yield self.line
        yield self._help

    def open(self) -> None:
        """Give the editor the focus."""
        self.line.focus()
        self._show_matches()

    def put(self, text: str) -> None:
        """Replace the text."""
        self._put = text
        self.line.text = text
        self.line.move_cursor(self.line.document.end)
        self._show_matches()

    def set_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Set what completion offers."""
        self.names = names
        if self.line.text or self.line.has_focus:
            self._show_matches()

    def run(self) -> None:
        """Submit the query."""
        sql = self.line.text.strip()
        if sql:
            self.history = [*(old for old in self.history if old != sql), sql][-REMEMBERED:]
            self._recalled = 0
            self.post_message(self.Submitted(sql))

    def recall(self) -> None:
        """Recall the previous query."""
        for _ in self.history:
            self._recalled = self._recalled % len(self.history) + 1
            if self.history[-self._recalled] != self.line.text.strip():
                break
        if self.history:
            self.put(self.history[-self._recalled])

    def complete(self) -> None:
        """Complete; again: the next match."""
        text, cursor = self.line.text, self._cursor
        if self._completion is None:
            matches = complete(text, cursor, self.names)
            if not matches.options:
                return
            self._completion, self._chosen = matches, -1
        matches = self._completion
        typed = matches.end if self._chosen < 0 else matches.start + len(matches.options[self._chosen])
        self._chosen = (self._chosen + 1) % len(matches.options)
        option = matches.options[self._chosen]
        document = self._document
        start, end = document.get_location_from_index(matches.start), document.get_location_from_index(typed)
        self._put = text[: matches.start] + option + text[typed:]
        self.line.replace(option, start, end)
        self.line.move_cursor(document.get_location_from_index(matches.start + len(option)))
        if len(matches.options) == 1:
            self._completion = None
        self._show_matches()

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
            self._completion, self._chosen, self._recalled = None, -1, 0
        self._show_matches()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()

    def _show_matches(self) -> None:
        """Show the matches in the line below."""
        if not self.is_mounted:
            return
        matches = self._completion or complete(self.line.text, self._cursor, self.names)
        spans = [Span(" ")]
        first = max(0, self._chosen - 3) if self._completion else 0
        for index, option in enumerate(matches.options[first : first + 30], first):
            spans += [
                Span(clean(option), "accent" if self._completion and index == self._chosen else "muted"),
                Span("  "),
            ]
        self._help.show(spans)
