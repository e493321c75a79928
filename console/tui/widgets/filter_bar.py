"""`FilterBar`: where a filter is typed, with what may come next below it, or what is wrong and where.

    / state:stuck nod                                            1 of 512
      node:
    / state:stuck foo:1                                          1 of 512
                  ╰ no field foo; did you mean job?

It parses at every key and says `Changed` when the text is a filter; while it is none, the last one goes on. A last
word that may yet become a field's name waits for a blank or Enter. A kept filter is one line without the second;
without a text there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from ...present.spans import Span
from ...text.cells import clean, width_of
from ..keymap.actions import bindings, in_scope
from ..models.filter_language import Filter, FilterCompletion, FilterError, Vocabulary, complete, parse, settled
from .bar import Bar

R = TypeVar("R")
#: Earlier filters that Ctrl-R brings back.
_REMEMBERED = 50
_PROMPT = "/ "


class FilterLine(Input):
    """The text itself; its own keys first, then those of the filter."""

    BINDINGS = bindings(in_scope("filter"))

    def __init__(self, bar: FilterBar[Any]) -> None:
        super().__init__(compact=True, select_on_focus=False, placeholder="state:stuck node:node0[1-3]* util:<10 -word")
        self._bar = bar

    def action_complete(self) -> None:
        self._bar.complete()

    def action_forward(self) -> None:
        """One character on; at the end of the text, what may follow."""
        if self.cursor_at_end:
            self._bar.complete()
        else:
            self.action_cursor_right()

    def action_clear(self) -> None:
        self._bar.clear()

    def action_keep(self) -> None:
        self._bar.apply()

    def action_recall(self) -> None:
        self._bar.recall()


class FilterBar(Vertical, Generic[R]):
    """`open` it; `values` gives the values of a field that occur now, for completion."""

    DEFAULT_CSS = """
    FilterBar { height: auto; width: 1fr; display: none; }
    FilterBar.kept, FilterBar.open { display: block; }
    FilterBar Horizontal { height: 1; }
    FilterBar FilterLine { width: 1fr; }
    FilterBar FilterLine, FilterBar FilterLine:focus { background: $background; background-tint: $background 0%; }
    FilterBar FilterLine > .input--placeholder { color: $muted; }
    FilterBar .filter-help { display: none; }
    FilterBar.open .filter-help { display: block; }
    """

    class Changed(Message):
        """Another filter holds from now on."""

        def __init__(self, bar: FilterBar[Any], wanted: Filter[Any]) -> None:
            super().__init__()
            self.bar = bar
            self.wanted = wanted

        @property
        def control(self) -> FilterBar[Any]:
            return self.bar

    class Closed(Message):
        """The person is done typing: whoever opened the bar takes the focus back."""

        def __init__(self, bar: FilterBar[Any]) -> None:
            super().__init__()
            self.bar = bar

        @property
        def control(self) -> FilterBar[Any]:
            return self.bar

    def __init__(
        self, vocabulary: Vocabulary[R], values: Callable[[str], Sequence[str]], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self.vocabulary = vocabulary
        self.wanted: Filter[R] = Filter(vocabulary)
        self.history: list[str] = []  # texts that were kept, the newest last
        self._values = values
        self._line = FilterLine(self)
        self._prompt, self._count, self._help = Bar(), Bar(), Bar(classes="filter-help")
        self._taken = ""  # the text as last read
        self._error: FilterError | None = None
        self._refused = False  # Enter was pressed on what is no filter
        self._completion: FilterCompletion | None = None  # what Tab goes through
        self._chosen = -1
        self._recalled = 0  # how many filters back

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self._prompt
            yield self._line
            yield self._count
        yield self._help

    def on_mount(self) -> None:
        self._prompt.styles.width = len(_PROMPT)
        self._prompt.show((Span(_PROMPT, "key"),))

    # -- content -------------------------------------------------------------------------------------

    def put(self, text: str, earlier: Sequence[str]) -> None:
        """Set the filter and the earlier ones to recall; an invalid filter is dropped."""
        self.history = list(earlier)[-_REMEMBERED:]
        try:
            parse(text, self.vocabulary)
        except FilterError:
            text = ""
        self._line.value = text
        self._take_in(text, whole=True)

    def open(self) -> None:
        """Open the line for typing."""
        self.add_class("open")
        self._forget_steps()
        self._line.focus()
        self._line.cursor_position = len(self._line.value)
        self._show_help()

    @property
    def is_open(self) -> bool:
        """Whether the line is open for typing."""
        return self.has_class("open")

    def count(self, passing: int, of: int, what: str) -> None:
        """Show how many rows match."""
        text = f" {passing} of {of} {what} "
        self._count.styles.width = width_of(text)
        self._count.show((Span(text, "muted" if passing else "warning"),))

    # -- keys --------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Clear the filter and close the line."""
        self._line.value = ""
        self._take_in("")
        self._close()

    def apply(self) -> None:
        """Apply the filter and close the line; an invalid one stays open with its error."""
        self._take_in(self._line.value, whole=True)
        if self._error is not None:
            self._refused = True
            self._show_help()
            return
        text = self.wanted.text
        if text:
            self.history = [*(old for old in self.history if old != text), text][-_REMEMBERED:]
        self._close()

    def recall(self) -> None:
        """Recall the previous filter."""
        if not self.history:
            return
        present = self._line.value.strip()
        for _ in self.history:
            self._recalled = self._recalled % len(self.history) + 1
            if self.history[-self._recalled] != present:
                break
        self._write(self.history[-self._recalled])

    def complete(self) -> None:
        """Complete; again: the next match."""
        line = self._line
        if self._completion is None:
            matches = complete(line.value, line.cursor_position, self.vocabulary, self._values)
            if not matches.options:
                return
            self._completion, self._chosen = matches, -1
        matches = self._completion
        typed = matches.end if self._chosen < 0 else matches.start + len(matches.options[self._chosen])
        self._chosen = (self._chosen + 1) % len(matches.options)
        option, rest = matches.options[self._chosen], line.value[typed:]
        self._write(line.value[: matches.start] + option + rest, matches.start + len(option))
        if len(matches.options) == 1:
            self._completion = None  # the next Tab completes what follows
        self._show_help()

    def _write(self, text: str, cursor: int | None = None) -> None:
        self._line.value = text
        self._line.cursor_position = len(text) if cursor is None else cursor
        self._take_in(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self._taken:  # a text set by the program is not typed
            self._forget_steps()
            self._take_in(event.value)

    def _forget_steps(self) -> None:
        self._completion, self._chosen, self._recalled = None, -1, 0

    def _close(self) -> None:
        self.remove_class("open")
        self.post_message(self.Closed(self))

    # -- parsing -----------------------------------------------------------------------------------------------

    def _take_in(self, text: str, *, whole: bool = False) -> None:
        self._taken, self._refused = text, False
        try:
            wanted = parse(text if whole else settled(text, self.vocabulary), self.vocabulary)
        except FilterError as error:
            self._error = error
        else:
            self._error = None
            if wanted != self.wanted:
                self.wanted = wanted
                self.post_message(self.Changed(self, wanted))
        self.set_class(bool(self.wanted), "kept")
        self._show_help()

    def _show_help(self) -> None:
        """Show the error below its position, or the matches."""
        if not self.is_mounted:
            return
        error = self._error
        if error is not None and (self._refused or not error.unfinished):
            before = clean(self._line.value[: error.start])
            column = len(_PROMPT) + width_of(before) - self._line.scroll_offset.x
            problem, try_ = Span(f"╰ {clean(error.text)}", "failed"), Span(f"; {clean(error.try_)}", "muted")
            most = self.size.width - width_of(problem.text) - width_of(try_.text) - 1
            self._help.show((Span(" " * max(0, min(column, most))), problem, try_))
            return
        matches = self._completion or complete(
            self._line.value, self._line.cursor_position, self.vocabulary, self._values
        )
        spans = [Span("  ")]
        first = max(0, self._chosen - 3) if self._completion else 0
        for index, option in enumerate(matches.options[first : first + 40], first):
            spans += [
                Span(clean(option), "accent" if self._completion and index == self._chosen else "muted"),
                Span("  "),
            ]
        if not matches.options and error is not None:
            spans.append(Span(f"{clean(error.text)}; {clean(error.try_)}", "muted"))
        self._help.show(spans)
