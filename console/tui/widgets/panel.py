"""`Panel`: a heading with a rule above a widget.

── NODES ─────────────────────────────────── 4 ● ──
"""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from ...present.spans import Span
from .bar import Bar


class Panel(Vertical):
    """A titled part of a view; the title is highlighted while the part has the focus."""

    DEFAULT_CSS = "Panel { height: 1fr; width: 1fr; }"

    def __init__(self, title: str, body: Widget, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title = title
        self._left: tuple[Span, ...] = ()
        self._right: tuple[Span, ...] = ()
        self._bar = Bar(fill="─")
        self._body = body

    def compose(self) -> ComposeResult:
        yield self._bar
        yield self._body

    def on_mount(self) -> None:
        self._draw()

    def head(self, title: str, left: Sequence[Span] = (), right: Sequence[Span] = ()) -> None:
        """Set the title, the spans beside it and those at the far right."""
        self._title, self._left, self._right = title, tuple(left), tuple(right)
        self._draw()

    def _draw(self) -> None:
        style = "accent" if self._body.has_focus else "strong"
        right = (Span(" "), *self._right, Span(" "), Span("─", "rule")) if self._right else ()
        self._bar.show((Span("─ ", "rule"), Span(self._title, style), Span(" "), *self._left, Span(" ")), right)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._draw()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self._draw()
