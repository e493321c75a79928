"""`Progress`: a counter with a bar; Esc cancels.

captured 371/512 ranks  ████████████████▋       1.8 s   Esc cancels
"""

from __future__ import annotations

from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from ...present.spans import Span
from ...text import format
from ...text.cells import clean, fit, width_of
from ..keymap.actions import bindings, in_scope
from .painting import Painting

_EIGHTHS = " ▏▎▍▌▋▊▉"
_HINT = "Esc cancels"


class Progress(Painting, can_focus=True):
    """`show` sets the counts. With the focus, Esc posts `Cancelled` once; the receiver stops the work."""

    DEFAULT_CSS = "Progress { height: 1; width: 1fr; }"
    BINDINGS = bindings(in_scope("progress"))

    class Cancelled(Message):
        """The user pressed Esc."""

        def __init__(self, progress: Progress) -> None:
            super().__init__()
            self.progress = progress

        @property
        def control(self) -> Progress:
            return self.progress

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._shown: tuple[str, int, int | None, str, float | None] = ("", 0, None, "", None)
        self._is_cancelled = False

    def show(self, verb: str, done: int, total: int | None, what: str, elapsed_s: float | None = None) -> None:
        """Show `verb done/total what`; `total` may be unknown. A count of 0 resets the cancellation."""
        shown = (clean(verb), done, total, clean(what), elapsed_s)
        if done == 0:
            self._is_cancelled = False
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    @property
    def is_cancelled(self) -> bool:
        """Whether the user cancelled."""
        return self._is_cancelled

    def action_cancel(self) -> None:
        if not self._is_cancelled:
            self._is_cancelled = True
            self.refresh()
            self.post_message(self.Cancelled(self))

    def spans(self) -> list[Span]:
        """The count, then if they fit: bar, time, key hint."""
        verb, done, total, what, elapsed_s = self._shown
        width = self.size.width
        count = f"{verb} {format.seen(done, total)} {what}"
        time = "" if elapsed_s is None else f"  {format.age(int(elapsed_s * 1e9)):>6}"
        hint = "  cancelling …" if self._is_cancelled else f"  {_HINT}"
        room = width - width_of(count) - len(time) - len(hint) - 2
        bar = _bar(done, total, room) if room >= 4 else ""
        spans = [Span(fit(count, min(width, width_of(count))), "text")]
        if bar:
            spans += [Span("  "), Span(bar, "accent")]
        spans.append(Span(time, "muted"))
        if self._is_cancelled:
            spans.append(Span(hint, "warning"))
        else:
            spans += [Span("  "), Span("Esc", "key"), Span(" cancels", "muted")]
        return spans

    def render_line(self, y: int) -> Strip:
        if y:
            return Strip.blank(self.size.width, self.rich_style)
        return self.located(self.strip(self.spans(), self.size.width, selection=self.text_selection), y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text selected with the mouse."""
        return selection.extract("".join(span.text for span in self.spans())), "\n"


def _bar(done: int, total: int | None, width: int) -> str:
    """A bar of `width` cells in eighths of a cell; dots if the total is unknown."""
    if not total:
        return "·" * width
    eighths = min(8 * width, max(0, 8 * width * done // total))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
