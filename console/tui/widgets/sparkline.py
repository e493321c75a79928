"""`Sparkline`: the last minutes of one figure in a line, and its value now.

utilisation  ⠤⠤⠤⠒⠉⠉⠑⠒⠤⠤⢄  ⢀⡠⠤⠤⠒⠉⠉   97 %
"""

from __future__ import annotations

from textual.selection import Selection
from textual.strip import Strip

from ...present.spans import Span
from ...text.cells import fit
from ..models.plot import Plot, bars, short
from .painting import Painting

_TITLE, _VALUE = 14, 10


class Sparkline(Painting):
    """`show` gives it a plot, and a version that differs whenever the plot does."""

    DEFAULT_CSS = "Sparkline { height: 1; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._plot: Plot | None = None
        self._version: object = None

    def show(self, plot: Plot, version: object) -> None:
        """Draw this from now on; nothing is painted while the version is the same."""
        if self._plot is None or version != self._version:
            self._plot, self._version = plot, version
            self.refresh()

    def spans(self) -> list[Span]:
        """The line: the curve takes what the title and the value leave."""
        plot, width = self._plot, self.size.width
        if plot is None:
            return []
        title = min(_TITLE, width // 4)
        room = max(0, width - title - _VALUE - 2)
        value = f"{short(plot.now)} {plot.unit}"
        return [
            Span(fit(plot.title, title), "muted"), Span(" "),
            Span(bars(plot.values, room, plot.low, plot.top), "accent"), Span(" "),
            Span(fit(value, _VALUE, "right"), "text" if plot.now is not None else "unknown"),
        ]  # fmt: skip

    def render_line(self, y: int) -> Strip:
        if y:
            return Strip.blank(self.size.width, self.rich_style)
        return self.located(self.strip(self.spans(), self.size.width, selection=self.text_selection), y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text selected with the mouse."""
        return selection.extract("".join(span.text for span in self.spans())), "\n"
