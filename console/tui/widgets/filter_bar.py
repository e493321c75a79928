"""`FilterBar`: the line in which a filter is typed, with completions or the error below it.

    / state:idle nod                                             1 of 512
      node:
    / state:idle foo:1                                           1 of 512
                  ╰ unknown field foo; did you mean job?

It parses at every key and posts `Changed` for each valid filter; an invalid text leaves the last one in effect. A last
word that may become the name of a field waits for a blank or Enter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from ...present.spans import Span
from ...text.cells import clean, width_of
from ..keymap.actions import bindings, in_scope
from ..models.filter_language import (
    Completion,
    Filter,
    FilterError,
    Vocabulary,
    complete,
    parse,
    settled,
    start_of_term,
)
from .bars import Bar

R = TypeVar("R")
_PROMPT = "/ "
#: Characters.
LONGEST = 500


class CompletingLine(Vertical):
    """An input with a help line below it: Tab cycles through completions, Ctrl-R through earlier texts.

    Derived classes read and write the input; at most `remembered` texts are kept, and `most_options` shown.
    """

    remembered: ClassVar[int]
    most_options: ClassVar[int]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.history: list[str] = []  # texts that were applied, the newest last
        self._help = Bar(classes="completions")
        self._completion: Completion | None = None  # what Tab cycles through
        self._chosen = -1
        self._recalled = 0  # how many texts back

    def _typed(self) -> str:
        raise NotImplementedError

    def _completions(self) -> Completion:
        """Completions at the cursor."""
        raise NotImplementedError

    def _write(self, text: str) -> None:
        raise NotImplementedError

    def _insert(self, option: str, start: int, end: int) -> None:
        """Replace the text from `start` to `end`, and put the cursor behind it."""
        raise NotImplementedError

    def _show_help(self) -> None:
        raise NotImplementedError

    def remember(self, text: str) -> None:
        """Add a text to the history."""
        self.history = [*(old for old in self.history if old != text), text][-self.remembered :]

    def recall(self) -> None:
        """Recall the previous text."""
        for _ in self.history:
            self._recalled = self._recalled % len(self.history) + 1
            if self.history[-self._recalled] != self._typed().strip():
                break
        if self.history:
            self._write(self.history[-self._recalled])

    def complete(self) -> None:
        """Complete; again: the next match."""
        if self._completion is None:
            matches = self._completions()
            if not matches.options:
                return
            self._completion, self._chosen = matches, -1
        matches = self._completion
        end = matches.end if self._chosen < 0 else matches.start + len(matches.options[self._chosen])
        self._chosen = (self._chosen + 1) % len(matches.options)
        self._insert(matches.options[self._chosen], matches.start, end)
        if len(matches.options) == 1:
            self._completion = None  # the next Tab completes what follows
        self._show_help()

    def _forget_steps(self) -> None:
        self._completion, self._chosen, self._recalled = None, -1, 0

    def _option_spans(self) -> list[Span]:
        matches = self._completion or self._completions()
        first = max(0, self._chosen - 3) if self._completion else 0
        spans: list[Span] = []
        for index, option in enumerate(matches.options[first : first + self.most_options], first):
            is_chosen = self._completion is not None and index == self._chosen
            spans += [Span(clean(option), "accent" if is_chosen else "muted"), Span("  ")]
        return spans


class FilterLine(Input):
    """The text itself; its own keys first, then those of the filter."""

    BINDINGS = bindings(in_scope("filter"))

    def __init__(self, bar: FilterBar[Any]) -> None:
        super().__init__(
            compact=True, select_on_focus=False, placeholder="state:idle node:node0[1-3]* util:<10 -word",
            max_length=LONGEST,
        )  # fmt: skip
        self._bar = bar

    def _on_paste(self, event: events.Paste) -> None:
        """Refuse what exceeds the longest filter, because every row is compared with every term.

        A part of it would be another filter than the one that was pasted.
        """
        line = next(iter(event.text.splitlines()), "")  # what Textual inserts
        length = len(self.value) - len(self.selected_text) + len(line)
        if length > LONGEST:
            self.app.notify(f"not pasted: {length:,} characters; a filter has at most {LONGEST}", severity="warning")
            event.text = ""

    def action_complete(self) -> None:
        self._bar.complete()

    def action_forward(self) -> None:
        """Move the cursor; at the end of the text, complete."""
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


class FilterBar(CompletingLine, Generic[R]):
    """`open` it; `values` returns the values of a field that occur now, for completion."""

    remembered, most_options = 50, 40
    DEFAULT_CSS = """
    FilterBar { height: auto; width: 1fr; display: none; }
    FilterBar.kept, FilterBar.open { display: block; }
    FilterBar Horizontal { height: 1; }
    FilterBar FilterLine { width: 1fr; }
    FilterBar FilterLine, FilterBar FilterLine:focus { background: $background; background-tint: $background 0%; }
    FilterBar FilterLine > .input--placeholder { color: $muted; }
    FilterBar .completions { display: none; }
    FilterBar.open .completions { display: block; }
    """

    class Changed(Message):
        """Another filter is in effect."""

    class Closed(Message):
        """The user finished typing; the receiver moves the focus."""

    def __init__(
        self, vocabulary: Vocabulary[R], values: Callable[[str], Sequence[str]], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self.vocabulary = vocabulary
        self.wanted: Filter[R] = Filter(vocabulary)
        self._values = values
        self._line = FilterLine(self)
        self._prompt, self._count = Bar(), Bar()
        self._taken = ""  # the text as last read
        self._error: FilterError | None = None
        self._refused = False  # Enter was pressed on an invalid filter

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self._prompt
            yield self._line
            yield self._count
        yield self._help

    def on_mount(self) -> None:
        self._prompt.styles.width = len(_PROMPT)
        self._prompt.show((Span(_PROMPT, "key"),))
        self._count.styles.width = 0  # until there is a count

    def put(self, text: str, earlier: Sequence[str]) -> None:
        """Set the filter and the earlier ones to recall; an invalid filter is dropped."""
        self.history = list(earlier)[-self.remembered :]
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
            self.remember(text)
        self._close()

    def _typed(self) -> str:
        return self._line.value

    def _completions(self) -> Completion:
        return complete(self._line.value, self._line.cursor_position, self.vocabulary, self._values)

    def _insert(self, option: str, start: int, end: int) -> None:
        text = self._line.value
        self._write(text[:start] + option + text[end:], start + len(option))

    def _write(self, text: str, cursor: int | None = None) -> None:
        self._line.value = text
        self._line.cursor_position = len(text) if cursor is None else cursor
        self._take_in(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self._taken:  # a text set by the program is not typed
            self._forget_steps()
            self._take_in(event.value)

    def _close(self) -> None:
        self.remove_class("open")
        self.post_message(self.Closed())

    def _take_in(self, text: str, *, whole: bool = False) -> None:
        self._taken, self._refused = text, False
        self._error = None
        try:
            wanted = parse(text if whole else settled(text, self.vocabulary), self.vocabulary)
        except FilterError as error:
            self._error = error
            wanted = self._finished_terms(text) if error.unfinished and not whole else self.wanted
        if wanted != self.wanted:
            self.wanted = wanted
            self.post_message(self.Changed())
        if not self.wanted:
            self._count.styles.width = 0  # the count of the filter before
        self.set_class(bool(self.wanted), "kept")
        self._show_help()

    def _finished_terms(self, text: str) -> Filter[R]:
        """The filter without its last term, which is being typed; the one in effect if that is invalid, too."""
        try:
            return parse(text[: start_of_term(text)], self.vocabulary)
        except FilterError:
            return self.wanted

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
        spans = self._option_spans()
        if not spans and error is not None:
            spans = [Span(f"{clean(error.text)}; {clean(error.try_)}", "muted")]
        self._help.show((Span("  "), *spans))
