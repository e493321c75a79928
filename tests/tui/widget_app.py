"""One widget on a screen of its own, and what it draws."""

from __future__ import annotations

from rich.style import Style
from textual.app import ComposeResult
from textual.strip import Strip
from textual.widget import Widget

from gconsole.tui.base_app import BaseApp
from gconsole.tui.widgets.record_grid import RecordGrid


class WidgetApp(BaseApp):
    """One widget on a screen of its own, in our theme."""

    CSS_PATH = "../../console/tui/console.tcss"

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.clicked: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_record_grid_heading_clicked(self, event: RecordGrid.HeadingClicked) -> None:
        self.clicked.append(event.column)

    def on_line_view_opened(self) -> None:
        self.clicked.append("opened")

    def action_hit(self, name: str) -> None:
        self.clicked.append(name)


def lines_of(widget: Widget) -> list[str]:
    """The lines of a widget as text."""
    return ["".join(segment.text for segment in widget.render_line(y)).rstrip() for y in range(widget.size.height)]


def styles_of(strip: Strip) -> list[Style | None]:
    """The style of every cell."""
    return [segment.style for segment in strip for _ in range(segment.cell_length)]
