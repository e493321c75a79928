"""Spans to strips: how every widget here puts text on the screen, with the theme's styles and the user's selection.

What a style name looks like is asked of the app, which has it from the style sheet once a theme. As component classes
of each widget, twenty names were matched against the whole sheet for every widget, at every start, resize and theme.

Rich styles are made once a theme and kept. The offsets by which Textual finds what the mouse selects are styles of
their own for each piece of a line; made for every paint, they took half of the time of a heat map of 4,096 cells. So a
strip carries them only when Textual asks for a line under the mouse, not when it paints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from ...present.spans import STYLES, Span

_PREFIX = "paint--"
#: What the app's style sheet says a look for; `themed.ThemedApp` has them as its component classes.
COMPONENT_STYLES: Final = frozenset(f"{_PREFIX}{name}" for name in (*STYLES, "cursor", "cursor-blurred"))


class Painting(Widget):
    """A widget that draws spans, in an app whose style sheet decides what their style names look like."""

    _pens: dict[tuple[str, str], Style] | None = None
    _is_painting = False

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines to be painted; for a line under the mouse Textual calls `render_line` itself."""
        self._is_painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._is_painting = False

    def located(self, strip: Strip, y: int) -> Strip:
        """What `render_line` returns for a strip of line `y`: the mouse finds its place in it."""
        return strip if self._is_painting else strip.apply_offsets(0, y)

    def pen(self, name: str, ground: str = "") -> Style:
        """The Rich style of that name on a ground: "" is the widget's own, or "cursor", "cursor-blurred"."""
        if self._pens is None:
            self._pens = {}
        found = self._pens.get((name, ground))
        if found is None:
            found = self._pens[name, ground] = self._mixed(name, ground)
        return found

    def _mixed(self, name: str, ground: str) -> Style:
        base = self.rich_style
        if ground:
            base += self._look(ground)
        return base if name == "text" else base + self._look(name)

    def _look(self, name: str) -> Style:
        return self.app.get_component_styles(_PREFIX + name).partial_rich_style

    def notify_style_update(self) -> None:
        """Repaint everything in the new theme."""
        self._pens = None
        super().notify_style_update()

    def strip(
        self, spans: Sequence[Span], width: int, ground: str = "", selection: Selection | None = None, y: int = 0
    ) -> Strip:
        """The spans as one strip of exactly `width` cells; `y` is the line they are, for selecting."""
        pen = self.pen
        segments = [Segment(span.text, pen(span.style, ground)) for span in spans]
        if selection is not None:
            segments = self._selected(segments, selection, y)
        return Strip(segments).adjust_cell_length(width, pen("text", ground))

    def _selected(self, segments: list[Segment], selection: Selection, y: int) -> list[Segment]:
        """The segments with the selected characters of line `y` in the screen's selection style."""
        span = selection.get_span(y)
        if span is None:
            return segments
        start, end = span
        style = self.screen.get_component_rich_style("screen--selection")
        painted: list[Segment] = []
        at = 0
        for text, own, _ in segments:
            first = min(max(start - at, 0), len(text))
            last = len(text) if end == -1 else min(max(end - at, first), len(text))
            marked = (own or Style.null()) + style
            parts = ((text[:first], own), (text[first:last], marked), (text[last:], own))
            painted += [Segment(part, look) for part, look in parts if part]
            at += len(text)
        return painted
