"""Every widget with sample rows: `python -m gconsole.tui.gallery`. `t` shows the next theme, `q` quits."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType

from ..present.spans import GLYPHS, Line, Span, TreeNode, glyph
from .base_app import BaseApp
from .keymap.actions import bindings, in_scope
from .models.filter_language import FilterField, Vocabulary
from .models.heat_map import LEVELS, HeatCell, HeatRow
from .models.plot import Lane, Plot
from .theme.catalog import ThemeCatalog
from .widgets.bars import Bar, Panel, Progress, hints
from .widgets.filter_bar import FilterBar
from .widgets.heat_map import HeatMap
from .widgets.line_view import LineReport
from .widgets.plots import HistoryPlot, Lanes, Sparkline
from .widgets.rank_tree import RankTree
from .widgets.record_grid import GridColumn, RecordGrid


def curve() -> Plot:
    """Five minutes of a GPU that works, stalls, and sends no data for a while."""
    t = np.arange(300)
    values = 88 + 8 * np.sin(t / 9)
    values[120:160] = 4 + 3 * np.cos(t[120:160])
    values[200:225] = np.nan
    return Plot("utilisation", "%", values, high=100)


def lanes() -> list[Lane]:
    """Five ranks: one is late, one within its error of on time, one unknown."""
    return [
        Lane(137, "137", "41.2 ±0.4 ms", 41.2, 0.4, "failed"),
        Lane(40, "40", "12.9 ±3.5 ms", 12.9, 3.5, "warning"),
        Lane(12, "12", "3.1 ±2.8 ms", 3.1, 2.8, "ok"),
        Lane(7, "7", "1.0 ms", 1.0, None, "ok"),
        Lane(99, "99", "–", None, None, "unknown"),
    ]


def stacks() -> TreeNode:
    """512 ranks, one of which reads a file."""

    def node(name: str, where: str, ranks: str, *children: TreeNode, note: str = "") -> TreeNode:
        return TreeNode((name, where), (Span(name), Span(f" {where}", "muted")), ranks, note, children)

    others = "0-136,138-511"
    reduce = node("all_reduce", "distributed_c10d.py:3252", others, note="collective")
    load = node("load_shard", "dataset.py:88", "137", note="file i/o")
    return node(
        "<module>", "train.py:212", "0-511",
        node("train_step", "train.py:150", others, reduce), node("next_batch", "loader.py:61", "137", load),
    )  # fmt: skip


def heat() -> list[HeatRow]:
    """Three nodes: one in every shade, one stale, one failed."""
    shades = tuple(HeatCell(str(level * 100 // (LEVELS - 1)), level) for level in range(0, LEVELS, 2))
    return [
        HeatRow("node001", "ok", shades), HeatRow("node002", "stale", shades),
        HeatRow("node003", "failed", note="auth"),
    ]  # fmt: skip


class Sample(msgspec.Struct, frozen=True):
    """A row of the grid."""

    key: int
    text: str
    figure: Span
    version: int = 0
    banner: tuple[Span, ...] | None = None
    note: Span | None = None


def samples() -> list[Sample]:
    """The lanes as rows of a grid."""
    return [Sample(row, lane.label, Span(lane.figure, lane.status)) for row, lane in enumerate(lanes())]


#: Filter fields of the lanes.
WORDS: Vocabulary[Lane] = Vocabulary(
    (FilterField("late", "number", lambda lane: lane.value, "how late, in ms"),), lambda lane: (lane.label,)
)


class Gallery(BaseApp, inherit_bindings=False):
    """All widgets on one screen, in the built-in and the user's themes."""

    CSS_PATH = "console.tcss"
    CSS = """
    Gallery #heat-panel { height: 4; } Gallery #history-panel { height: 10; } Gallery #tree-panel { height: 6; }
    Gallery #lanes-panel { height: 7; } Gallery #report-panel { height: 6; } Gallery #grid-panel { height: 1fr; }
    """
    TITLE = "gconsole gallery"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = bindings(in_scope("gallery"))

    def __init__(self, themes: ThemeCatalog | None = None) -> None:
        super().__init__(themes, remembers_theme=False)

    def compose(self) -> ComposeResult:
        self._head = Bar(id="header")
        yield self._head
        self._filter = FilterBar(WORDS, lambda field: (), id="gallery-filter")
        yield self._filter
        yield Panel("HeatMap", HeatMap(), id="heat-panel")
        yield Panel("History", HistoryPlot(), id="history-panel")
        yield Sparkline()
        yield Progress()
        yield Panel("RankTree", RankTree(), id="tree-panel")
        yield Panel("Lanes", Lanes("rank", "late", "ms"), id="lanes-panel")
        yield Panel("Report", LineReport(), id="report-panel")
        columns = [
            GridColumn[Sample]("rank", "rank", 6, lambda row: Span(row.text), leads=True),
            GridColumn[Sample]("late", "late", 14, lambda row: row.figure, align="right"),
        ]
        yield Panel("RecordGrid", RecordGrid(columns), id="grid-panel")
        self._foot = Bar(id="footer")
        yield self._foot

    def on_mount(self) -> None:
        self.query_one(HeatMap).show(heat(), "load")
        self.query_one(HistoryPlot).show(curve(), 1)
        self.query_one(Sparkline).show(curve(), 1)
        self.query_one(Progress).show("captured", 371, 512, "ranks", 1.8)
        self.query_one(RankTree).show([stacks()])
        self.query_one(Lanes).show(lanes())
        self.query_one(LineReport).show(
            [Line((glyph(status), Span(f" {status}", status)), status) for status in GLYPHS]
        )
        self.query_one(RecordGrid).show(samples())
        self.theme_changed_signal.subscribe(self, lambda _: self._draw_bars())
        self._draw_bars()
        self._filter.put("late:>10", ())
        self._filter.count(2, 5, "ranks")
        self.query_one(HeatMap).focus()
        self.themes.follow()

    def _draw_bars(self) -> None:
        theme = self.theme.removeprefix("gconsole-")
        self._head.show((Span(" gconsole gallery  ", "strong"), Span(theme, "accent")), (Span("Tab focus ", "muted"),))
        self._foot.show(hints(self.screen.active_bindings, in_scope("gallery"), self.size.width))


if __name__ == "__main__":
    Gallery(ThemeCatalog.of_this_user()).run()
