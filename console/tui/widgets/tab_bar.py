"""`TabBar`: the views with their keys, the current one underlined.

1 Overview  2 Ranks  3 Hang  4 Skew  5 Topology  6 GPUs  7 Clocks  8 Events  9 Query  0 Jobs  n Nodes
━━━━━━━━━━──────────────────────────────────────────────────────────────────────────────────────────
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.strip import Strip

from ...present.spans import Span
from ...text.cells import width_of
from .painting import Painting


@dataclass(frozen=True)
class Tab:
    """One tab; `short` is its title if space is scarce, `action` runs on a click."""

    name: str
    key: str
    title: str
    short: str
    action: str


class TabBar(Painting):
    """A line of tabs and, in a second line, a rule. `show` sets the name of the current view."""

    DEFAULT_CSS = "TabBar { height: 2; width: 1fr; }"

    def __init__(self, tabs: Sequence[Tab], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tabs = tuple(tabs)
        self._current = ""

    def show(self, current: str) -> None:
        """Mark the view of that name as current."""
        if current != self._current:
            self._current = current
            self.refresh()

    def laid_out(self) -> list[tuple[Tab, str]]:
        """Each tab with its text: full titles, else short ones, else only that of the current tab."""
        room = self.size.width - 1
        for gap, is_short in ((2, False), (2, True), (1, True)):
            texts = [f"{tab.key} {self._title_of(tab, is_short)}{' ' * gap}" for tab in self._tabs]
            if sum(map(width_of, texts)) - gap <= room:
                return list(zip(self._tabs, texts, strict=True))
        return [
            (tab, f"{tab.key} {tab.title}  " if tab.name == self._current else f"{tab.key}  ") for tab in self._tabs
        ]

    def _title_of(self, tab: Tab, is_short: bool) -> str:
        return tab.short if is_short and tab.name != self._current else tab.title

    def render_line(self, y: int) -> Strip:
        spans = [Span(" " if y == 0 else "─", "rule")]
        for tab, text in self.laid_out():
            here, label = tab.name == self._current, text.rstrip()
            if y == 0:
                key_style = "accent" if here else "key"
                spans += [Span(tab.key, key_style), Span(label[len(tab.key) :], "tab" if here else "muted")]
                spans.append(Span(" " * (len(text) - len(label))))
            else:
                spans.append(Span(("━" if here else "─") * width_of(label), "accent" if here else "rule"))
                spans.append(Span("─" * (len(text) - len(label)), "rule"))
        if y:
            spans.append(Span("─" * self.size.width, "rule"))
        return self.located(self.strip(spans, self.size.width, y=y), y)

    async def on_click(self, event: events.Click) -> None:
        end = 1
        for tab, text in self.laid_out():
            end += width_of(text)
            if event.x < end:
                await self.app.run_action(tab.action)
                return
