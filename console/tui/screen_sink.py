"""The sink of the screen: whatever a widget draws reaches the terminal without characters that steer it.

Widgets clean text of nodes themselves, because they have to know its width; this is what remains if one does not.
"""

from __future__ import annotations

from rich.console import Console
from rich.segment import Segment
from textual.strip import Strip

from ..text.sanitize import printable_cells

_render = Strip.render


def install() -> None:
    """Clean every line that Textual draws, for its drivers of a terminal and of a browser."""
    Strip.render = _render_cleaned  # type: ignore[assignment, method-assign]


def _render_cleaned(strip: Strip, console: Console) -> str:
    if strip._render_cache is None and not all(segment.text.isprintable() for segment in strip._segments):
        cleaned = [Segment(printable_cells(text), style) for text, style, _ in strip._segments]
        strip._render_cache = _render(Strip(cleaned), console)
    return _render(strip, console)
