"""Conversion of spans to strips with the theme's styles and the user's selection; the base of all widgets here.

Styles are component classes of the app, not of each widget: Textual would match them against the whole style sheet per
widget. Rich styles are cached per theme. Offsets for mouse selection are added only to lines under the mouse: added at
every paint, they took half of the time of a heat map of 4,096 cells.
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
#: Component classes of the app, defined in its style sheet.
COMPONENT_STYLES: Final = frozenset(f"{_PREFIX}{name}" for name in (*STYLES, "cursor", "cursor-blurred"))


class Painting(Widget):
    """A widget that draws spans in the styles of the app's style sheet."""

    _pens: dict[tuple[str, str], Style] | None = None
    _base: Style | None = None
    _is_painting = False

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint lines; for a line under the mouse Textual calls `render_line` directly."""
        self._is_painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._is_painting = False

    def located(self, strip: Strip, y: int) -> Strip:
        """The strip of line `y` as `render_line` returns it, with offsets for the mouse unless painting."""
        return strip if self._is_painting else strip.apply_offsets(0, y)

    def pen(self, name: str, ground: str = "") -> Style:
        """The Rich style of that name; `ground` is "" or "cursor" or "cursor-blurred"."""
        if self._pens is None:
            self._pens = {}
        style = self._pens.get((name, ground))
        if style is None:
            style = self._pens[name, ground] = self._mixed(name, ground)
        return style

    @property
    def base_style(self) -> Style:
        """`rich_style`, cached like the pens: Textual blends the colours of all ancestors each time."""
        if self._base is None:
            self._base = self.rich_style
        return self._base

    def _mixed(self, name: str, ground: str) -> Style:
        base = self.base_style
        if ground:
            base += self._component(ground)
        return base if name == "text" else base + self._component(name)

    def _component(self, name: str) -> Style:
        return self.app.get_component_styles(_PREFIX + name).partial_rich_style

    def notify_style_update(self) -> None:
        """Repaint everything in the new theme."""
        self._pens = self._base = None
        super().notify_style_update()

    def strip(
        self, spans: Sequence[Span], width: int, ground: str = "", selection: Selection | None = None, y: int = 0
    ) -> Strip:
        """The spans as one strip of exactly `width` cells; `y` is their line, for the selection."""
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
        offset = 0
        for text, own, _ in segments:
            first = min(max(start - offset, 0), len(text))
            last = len(text) if end == -1 else min(max(end - offset, first), len(text))
            marked = (own or Style.null()) + style
            parts = ((text[:first], own), (text[first:last], marked), (text[last:], own))
            painted += [Segment(part, paint) for part, paint in parts if part]
            offset += len(text)
        return painted
